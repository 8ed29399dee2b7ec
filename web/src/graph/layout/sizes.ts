// The sizes of closed boxes and of the headers of open ones, which follow from their text.
import { captions, isBoxed, isFold } from "../model/captions.ts";
import { details, headerText } from "../model/details.ts";
import { dimensions, type Figures } from "../model/facts.ts";
import { plus } from "../model/lists.ts";
import { marksOf } from "../model/marks.ts";
import type { Level, LevelEdge, Tree, TreeNode } from "../model/tree.ts";
import { PICKER } from "./boxHeader.ts";
import { SPACE } from "./cells.ts";

/** Returns the width of text in pixels, for a font size in pixels. */
export type Measure = (text: string, size: number, bold: boolean) => number;

const PAD = 14;
const FONT_TITLE = 13;
const FONT_SMALL = 11;
const MOST_ENDS = 12; // a box widens for this many arrows; more are closer together
export const FONT_MARK = 9.5;
export const FONT_SHAPE = 10.5;
const MARK_ROW = 2; // with SPACE.aside a row of such text

/** The height of a line of details. */
export const DETAIL = 13;

/** Return the height of a closed box without details. */
export const plainHeight = (node: TreeNode): number => (isBoxed(node) ? 46 : 28);

export class Sizes {
  private readonly widths: Float64Array; // 0 until requested
  private readonly ends = new WeakMap<Level, EdgesByBox>();

  constructor(
    private readonly tree: Tree,
    private readonly figures: Figures,
    readonly measure: Measure,
    /** Whether data flows to the right, so that text at arrows runs along the edges. */
    private readonly turned = false,
  ) {
    this.widths = new Float64Array(tree.nodes.length);
  }

  width(id: number): number {
    return this.widths[id] || (this.widths[id] = this.closedWidth(this.tree.nodes[id]));
  }

  height(id: number): number {
    const node = this.tree.nodes[id];
    return Math.max(plainHeight(node) + DETAIL * details(this.tree, node).length, this.turned ? this.endsWidth(node) : 0);
  }

  /** Return the room that the text beside the end of an edge takes across the edge. */
  mark(text: string): number {
    return text && this.turned ? MARK_ROW : this.measure(text, FONT_MARK, false);
  }

  /** Return the width of the label of a box's output, beside the edge that leaves it. */
  tail({ rows }: TreeNode): number {
    const { scene } = this.tree;
    return rows.length ? 12 + this.measure(dimensions(scene.metas[scene.ops.meta[rows[0]]][0]), FONT_SHAPE, false) : 0;
  }

  /** Return the least width of a box's header. */
  header(node: TreeNode): number {
    const [title, subtitle] = captions(node, this.figures);
    const picker = isFold(node) ? PICKER.all + PICKER.next + PICKER.which + PICKER.previous : 0;
    return this.measure(title, FONT_TITLE, true) + this.measure(headerText(this.tree, node, subtitle), FONT_SMALL, false) + 22 + 3 * PAD + picker;
  }

  /** Return the room that it takes along the edge, where edges that are marked run straight. */
  markRun(text: string): number {
    return text ? (this.turned ? this.measure(text, FONT_MARK, false) : FONT_MARK) + SPACE.mark + 2 : 0;
  }

  private closedWidth(node: TreeNode): number {
    const [title, subtitle] = captions(node, this.figures);
    const first = this.measure(title, FONT_TITLE, true);
    const second = details(this.tree, node).reduce((most, line) => Math.max(most, this.measure(line, FONT_SHAPE, false)), subtitle ? this.measure(subtitle, FONT_SMALL, false) : 0);
    const button = node.children.length ? 22 : 0;
    const ends = this.turned ? 0 : this.endsWidth(node);
    if (!isBoxed(node)) return Math.max(52, ends, Math.ceil(Math.max(first, second)) + 2 * PAD);
    return Math.max(108, ends, Math.ceil(Math.max(first, second)) + 2 * PAD + button);
  }

  /** Return the length of a box's side on which the text beside its arrows has room; 0 without text. */
  private endsWidth(node: TreeNode): number {
    const unmarked = !this.tree.several.has(node.id) && !this.tree.scene.edges.out;
    if (unmarked || node.children.length || node.parent < 0) return 0;
    const { into, out } = this.endsOf(this.tree.levels.get(node.parent));
    const room = (edges: LevelEdge[] = [], at: "into" | "out"): number => {
      const marks = edges.map((edge) => this.mark(marksOf(this.tree, edge)[at])).filter(Boolean);
      const widest = marks.reduce((most, mark) => Math.max(most, mark), 0);
      const [marked, plain] = [marks.length, edges.length - marks.length].map((count) => Math.min(count, MOST_ENDS));
      return widest && (plain ? marked : marked - 1) * (widest + SPACE.aside) + Math.max(0, plain - 1) * SPACE.step + 2 * SPACE.corner;
    };
    return Math.max(room(into.get(node.id), "into"), room(out.get(node.id), "out"));
  }

  private endsOf(level: Level): EdgesByBox {
    let ends = this.ends.get(level);
    if (ends) return ends;
    ends = { into: new Map(), out: new Map() };
    for (const edge of level.edges) {
      ends.into.set(edge.to, plus(ends.into.get(edge.to), edge));
      ends.out.set(edge.from, plus(ends.out.get(edge.from), edge));
    }
    this.ends.set(level, ends);
    return ends;
  }
}

/** A level's edges by the box that they enter and by the box that they leave. */
interface EdgesByBox {
  into: Map<number, LevelEdge[]>;
  out: Map<number, LevelEdge[]>;
}
