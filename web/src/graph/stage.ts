// Which boxes stand open, and where everything visible is. Layouts are kept per container; opening or
// closing one lays out only that container and those around it.
import { Layouts } from "./alike.ts";
import { captions, isBoxed, isFold } from "./captions.ts";
import { Depths, isAll } from "./depths.ts";
import { dimensions, type Figures } from "./facts.ts";
import { type Layout } from "./layout.ts";
import { marksOf } from "./marks.ts";
import { preorder, type Level, type LevelEdge, type Tree, type TreeNode } from "./model.ts";
import { pickedLevel } from "./pick.ts";
import { linesOf, type Line } from "./strokes.ts";

export const HEADER = 30;
const PAD = 14;
const FONT_TITLE = 13;
const FONT_SMALL = 11;
const MOST_ENDS = 8; // arrows a box makes room for; more stand closer
export const FONT_MARK = 9.5;
const HEAD_ROOM = 420; // of a head that moves with the sight
/** The buttons in the head of an open fold, from its right end: all, next, which, previous. */
export const PICKER = { all: 34, next: 22, which: 52, previous: 22 };

export interface Box {
  node: TreeNode;
  x: number;
  y: number;
  width: number;
  height: number;
  open: boolean;
  /** Of an open fold: the place of the member it shows. */
  pick: number | "all";
}

/** The visible box of an id. An array: a map of a hundred thousand costs more than all the rest of a frame. */
class BoxesById {
  private readonly boxes: (Box | undefined)[];

  constructor(count: number) {
    this.boxes = new Array<Box | undefined>(count);
  }

  set(id: number, box: Box): void {
    this.boxes[id] = box;
  }

  get(id: number): Box | undefined {
    return id < 0 ? undefined : this.boxes[id];
  }

  has(id: number): boolean {
    return this.get(id) !== undefined;
  }
}

/** A box, and where it stands in its container. */
interface Placed {
  box: Box;
  dx: number;
  dy: number;
}

export interface Frame {
  boxes: Box[];
  byId: BoxesById;
  lines: Line[];
  width: number;
  height: number;
}

/** From where to where the head of an open box is drawn: its words stay in sight while the box is. */
export function headSpan(box: { x: number; width: number }, camera: { x: number; scale: number }, sight: number): [left: number, right: number] {
  const room = Math.min(HEAD_ROOM, box.width);
  const left = Math.min(Math.max(box.x, camera.x + 4 / camera.scale), box.x + box.width - room);
  const right = Math.max(Math.min(box.x + box.width, camera.x + (sight - 4) / camera.scale), left + room);
  return [left, right];
}

export type Measure = (text: string, size: number, bold: boolean) => number;

export class Stage {
  readonly open = new Set<number>([0]);
  readonly depths: Depths;
  private readonly layouts = new Map<number, Layout>();
  private readonly alike = new Layouts();
  private readonly lines = new WeakMap<Layout, Line[]>();
  private readonly placed = new WeakMap<Layout, Placed[]>();
  private readonly sizes = new Map<number, { width: number; height: number }>();
  /** Of a fold that stands open: the one member shown, by its place; "all" shows them all. */
  private readonly picks = new Map<number, number | "all">();

  constructor(
    readonly tree: Tree,
    readonly figures: Figures,
    private readonly measure: Measure,
  ) {
    this.depths = new Depths(tree);
  }

  isContainer(id: number): boolean {
    return this.tree.nodes[id].children.length > 0;
  }

  /** Which member an open fold shows, or "all"; a box that is no fold shows all it holds. */
  pickOf(id: number): number | "all" {
    return isFold(this.tree.nodes[id]) ? (this.picks.get(id) ?? 0) : "all";
  }

  pick(id: number, which: number | "all"): void {
    if (!isFold(this.tree.nodes[id])) return;
    const { children } = this.tree.nodes[id];
    const was = this.pickOf(id);
    this.picks.set(id, which === "all" ? which : (which + children.length) % children.length);
    // Whoever looks from one member to the next sees as much of it.
    if (which !== "all" && was !== "all" && this.open.has(children[was])) this.open.add(children[this.pickOf(id) as number]);
    this.forget(id);
  }

  /** What a box shows when it stands open. */
  shown(id: number): number[] {
    const { children } = this.tree.nodes[id];
    const pick = this.pickOf(id);
    return pick === "all" ? children : [children[pick]];
  }

  levelOf(id: number): Level {
    const level = this.tree.levels.get(id)!;
    const pick = this.pickOf(id);
    return pick === "all" ? level : pickedLevel(level, this.tree.nodes[id].children[pick], this.tree.firstPort);
  }

  /** Whether every container around it stands open and shows it. */
  isVisible(id: number): boolean {
    const { nodes } = this.tree;
    for (let n = id; n > 0; n = nodes[n].parent) {
      if (!this.open.has(nodes[n].parent) || !this.shown(nodes[n].parent).includes(n)) return false;
    }
    return true;
  }

  setOpen(id: number, open: boolean): void {
    if (!this.isContainer(id) || id === 0 || this.open.has(id) === open) return;
    if (open) this.open.add(id);
    else this.open.delete(id);
    const pick = this.pickOf(id);
    if (open && pick !== "all") this.open.add(this.tree.nodes[id].children[pick]);
    this.forget(id);
  }

  private forget(id: number): void {
    for (let n = id; n >= 0; n = this.tree.nodes[n].parent) this.layouts.delete(n);
  }

  /** Open the way to a box. */
  reveal(id: number): void {
    const { nodes } = this.tree;
    for (let n = id; n > 0; n = nodes[n].parent) {
      const { parent } = nodes[n];
      this.setOpen(parent, true);
      if (!this.shown(parent).includes(n)) this.pick(parent, nodes[parent].children.indexOf(n));
    }
  }

  /** Open every container down to a depth: 0 shows the model's own children alone, Infinity everything, the
   * members of folds too; down to other depths a fold shows one. A fold counts as no depth. */
  openToDepth(depth: number): void {
    this.open.clear();
    this.layouts.clear();
    this.picks.clear();
    this.open.add(0);
    for (const { id, kind } of this.depths.opened(depth)) {
      this.open.add(id);
      if (kind === "group" && isAll(depth)) this.picks.set(id, "all");
    }
  }

  /** The depth down to which it stands open, Infinity for everything; null where it is opened otherwise. */
  get depth(): number | null {
    return this.depths.of(this.open, this.picks);
  }

  /** Open the outer containers first, as long as few enough boxes are visible to be read. */
  openReadable(most: number): void {
    const { nodes } = this.tree;
    let visible = nodes[0].children.length;
    let ring = nodes[0].children;
    while (ring.length) {
      const next: number[] = [];
      for (const id of ring) {
        const inside = nodes[id].children.length;
        if (!inside || nodes[id].kind === "group" || visible + inside > most) continue;
        this.setOpen(id, true);
        visible += inside;
        next.push(...nodes[id].children);
      }
      ring = next;
    }
  }

  /** Everything visible, with its place. Boxes and lines of the frame before are moved where they still stand. */
  frame(): Frame {
    this.layOut();
    const root = this.layouts.get(0)!;
    const frame: Frame = { boxes: [], byId: new BoxesById(this.tree.nodes.length), lines: [], width: root.width, height: root.height };
    const stack: [id: number, x: number, y: number][] = [[0, 0, 0]];
    while (stack.length) {
      const [id, x, y] = stack.pop()!;
      const layout = this.layouts.get(id)!;
      for (const line of this.linesOf(id, layout)) {
        [line.x, line.y] = [x, y];
        frame.lines.push(line);
      }
      for (const { box, dx, dy } of this.boxesOf(id, layout)) {
        [box.x, box.y] = [x + dx, y + dy];
        frame.boxes.push(box);
        frame.byId.set(box.node.id, box);
        if (box.open) stack.push([box.node.id, box.x, box.y + HEADER]);
      }
    }
    return frame;
  }

  /** Boxes are kept with their container's layout, which any change of theirs makes anew. */
  private boxesOf(id: number, layout: Layout): Placed[] {
    let boxes = this.placed.get(layout);
    if (boxes) return boxes;
    boxes = this.shown(id).map((child) => {
      const box: Box = { node: this.tree.nodes[child], x: 0, y: 0, ...this.size(child), open: this.open.has(child), pick: this.pickOf(child) };
      return { box, dx: layout.x.get(child)!, dy: layout.y.get(child)! };
    });
    this.placed.set(layout, boxes);
    return boxes;
  }

  /** Lines are kept with their container's layout: opening another box only moves them. */
  private linesOf(id: number, layout: Layout): Line[] {
    let lines = this.lines.get(layout);
    if (!lines) this.lines.set(layout, (lines = linesOf(this.tree, this.levelOf(id), layout, id)));
    return lines;
  }

  /** Lay out every open, visible container that has no layout yet, the inner ones first. What is inside one that
   * has is laid out too: a change forgets all that is around it. */
  private layOut(): void {
    const waiting: TreeNode[] = [];
    preorder(this.tree.nodes, (node) => {
      if (!this.open.has(node.id) || this.layouts.has(node.id)) return false;
      waiting.push(node);
      return this.shown(node.id).length === node.children.length ? true : this.shown(node.id);
    });
    for (let i = waiting.length - 1; i >= 0; i--) {
      const node = waiting[i];
      this.layouts.set(node.id, this.layOutOne(node));
    }
  }

  private layOutOne(node: TreeNode): Layout {
    const { nodes } = this.tree;
    const level = this.levelOf(node.id);
    const dx = (end: number, port: number): number | null => {
      if (port < 0 || !this.open.has(end)) return null;
      const inner = this.layouts.get(end)!;
      return inner.portX.get(port)! - inner.width / 2;
    };
    return this.alike.of({
      nodes: this.shown(node.id).map((id) => ({
        id,
        ...this.size(id),
        tail: this.tail(nodes[id]),
        pinned: nodes[id].kind === "input" || nodes[id].subtitle === "input",
      })),
      ins: level.ins,
      outs: level.outs,
      edges: level.edges.map((edge) => ({
        from: edge.from,
        to: edge.to,
        fromDx: dx(edge.from, edge.outPort),
        toDx: dx(edge.to, edge.inPort),
        mark: this.measure(marksOf(this.tree, edge).into, FONT_MARK, false),
        outMark: this.measure(marksOf(this.tree, edge).out, FONT_MARK, false),
      })),
      minWidth: node.id === 0 ? 0 : this.headerWidth(node),
    });
  }

  private tail(node: TreeNode): number {
    const { scene } = this.tree;
    if (!node.rows.length) return 0;
    return 12 + this.measure(dimensions(scene.metas[scene.ops.meta[node.rows[0]]][0]), 10.5, false);
  }

  /** Width and height: of what is inside for an open container, of its words for anything else. */
  size(id: number): { width: number; height: number } {
    const layout = this.open.has(id) ? this.layouts.get(id) : undefined;
    if (layout) return { width: layout.width, height: layout.height + HEADER };
    let size = this.sizes.get(id);
    if (!size) this.sizes.set(id, (size = this.closedSize(this.tree.nodes[id])));
    return size;
  }

  private closedSize(node: TreeNode): { width: number; height: number } {
    const [title, subtitle] = captions(node, this.figures);
    const first = this.measure(title, FONT_TITLE, true);
    const second = subtitle ? this.measure(subtitle, FONT_SMALL, false) : 0;
    const button = node.children.length ? 22 : 0;
    const ends = this.endsWidth(node);
    if (!isBoxed(node)) return { width: Math.max(52, ends, Math.ceil(first) + 2 * PAD), height: 28 };
    return { width: Math.max(108, ends, Math.ceil(Math.max(first, second)) + 2 * PAD + button), height: 46 };
  }

  /** Room for the words beside the arrows of a box, where they bear any. */
  private endsWidth(node: TreeNode): number {
    const bare = !this.tree.several.has(node.id) && !this.tree.scene.edges.out;
    if (bare || node.children.length || node.parent < 0) return 0;
    const { into, out } = edgesAt(this.tree.levels.get(node.parent)!);
    const room = (words: string[]): number => {
      const widest = words.reduce((most, word) => Math.max(most, this.measure(word, FONT_MARK, false)), 0);
      return widest > 7 ? (Math.min(words.length, MOST_ENDS) - 1) * (widest + 9) + 30 : 0;
    };
    const arriving = into.get(node.id) ?? [];
    const leaving = out.get(node.id) ?? [];
    return Math.max(room(arriving.map((edge) => marksOf(this.tree, edge).into)), room(leaving.map((edge) => marksOf(this.tree, edge).out)));
  }

  private headerWidth(node: TreeNode): number {
    const [title, subtitle] = captions(node, this.figures);
    const picker = isFold(node) ? PICKER.all + PICKER.next + PICKER.which + PICKER.previous : 0;
    return this.measure(title, FONT_TITLE, true) + this.measure(subtitle, FONT_SMALL, false) + 22 + 3 * PAD + picker;
  }
}

const known = new WeakMap<Level, { into: Map<number, LevelEdge[]>; out: Map<number, LevelEdge[]> }>();

/** A level's edges by the box they lead to, and by the box they leave. */
function edgesAt(level: Level): { into: Map<number, LevelEdge[]>; out: Map<number, LevelEdge[]> } {
  let ends = known.get(level);
  if (ends) return ends;
  ends = { into: new Map(), out: new Map() };
  for (const edge of level.edges) {
    ends.into.get(edge.to)?.push(edge) ?? ends.into.set(edge.to, [edge]);
    ends.out.get(edge.from)?.push(edge) ?? ends.out.set(edge.from, [edge]);
  }
  known.set(level, ends);
  return ends;
}
