// How large closed boxes are, and the heads of open ones: room for their words.
import { captions, isBoxed, isFold } from "../model/captions.ts";
import { dimensions, type Figures } from "../model/facts.ts";
import { plus } from "../model/lists.ts";
import { marksOf } from "../model/marks.ts";
import type { Level, LevelEdge, Tree, TreeNode } from "../model/tree.ts";
import { PICKER } from "./boxHeader.ts";
import { SPACE } from "./cells.ts";

export type Measure = (text: string, size: number, bold: boolean) => number;

const PAD = 14;
const FONT_TITLE = 13;
const FONT_SMALL = 11;
const MOST_ENDS = 12; // arrows a box makes room for; more stand closer
export const FONT_MARK = 9.5;
export const FONT_SHAPE = 10.5;

export class Sizes {
  private readonly widths: Float64Array; // 0 until it is asked for
  private readonly ends = new WeakMap<Level, EdgesByBox>();

  constructor(
    private readonly tree: Tree,
    private readonly figures: Figures,
    readonly measure: Measure,
  ) {
    this.widths = new Float64Array(tree.nodes.length);
  }

  width(id: number): number {
    return this.widths[id] || (this.widths[id] = this.closedWidth(this.tree.nodes[id]));
  }

  height(id: number): number {
    return isBoxed(this.tree.nodes[id]) ? 46 : 28;
  }

  /** Room for the shape of what a box gives, beside the edge that leaves it. */
  tail({ rows }: TreeNode): number {
    const { scene } = this.tree;
    return rows.length ? 12 + this.measure(dimensions(scene.metas[scene.ops.meta[rows[0]]][0]), FONT_SHAPE, false) : 0;
  }

  header(node: TreeNode): number {
    const [title, subtitle] = captions(node, this.figures);
    const picker = isFold(node) ? PICKER.all + PICKER.next + PICKER.which + PICKER.previous : 0;
    return this.measure(title, FONT_TITLE, true) + this.measure(subtitle, FONT_SMALL, false) + 22 + 3 * PAD + picker;
  }

  private closedWidth(node: TreeNode): number {
    const [title, subtitle] = captions(node, this.figures);
    const first = this.measure(title, FONT_TITLE, true);
    const second = subtitle ? this.measure(subtitle, FONT_SMALL, false) : 0;
    const button = node.children.length ? 22 : 0;
    const ends = this.endsWidth(node);
    if (!isBoxed(node)) return Math.max(52, ends, Math.ceil(first) + 2 * PAD);
    return Math.max(108, ends, Math.ceil(Math.max(first, second)) + 2 * PAD + button);
  }

  /** Room for the words beside the arrows of a box, where they bear any. */
  protected endsWidth(node: TreeNode): number {
    const bare = !this.tree.several.has(node.id) && !this.tree.scene.edges.out;
    if (bare || node.children.length || node.parent < 0) return 0;
    const { into, out } = this.endsOf(this.tree.levels.get(node.parent));
    const room = (words: string[]): number => {
      const widest = words.reduce((most, word) => Math.max(most, this.measure(word, FONT_MARK, false)), 0);
      return widest > 7 ? (Math.min(words.length, MOST_ENDS) - 1) * (widest + SPACE.aside) + 30 : 0;
    };
    const arriving = into.get(node.id) ?? [];
    const leaving = out.get(node.id) ?? [];
    return Math.max(room(arriving.map((edge) => marksOf(this.tree, edge).into)), room(leaving.map((edge) => marksOf(this.tree, edge).out)));
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

/** A level's edges by the box they lead to, and by the box they leave. */
interface EdgesByBox {
  into: Map<number, LevelEdge[]>;
  out: Map<number, LevelEdge[]>;
}
