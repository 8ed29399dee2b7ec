// Which boxes stand open, and where everything visible is. Layouts are kept per container; opening or
// closing one lays out only that container and those around it.
import { count, dimensions, type Figures } from "./facts.ts";
import { layoutLevel, type Layout } from "./layout.ts";
import { tensorsOf } from "./levels.ts";
import { isCreated, isFailed, preorder, type LevelEdge, type Tree, type TreeNode } from "./model.ts";

export const HEADER = 30;
const PAD = 14;
const FONT_TITLE = 13;
const FONT_SMALL = 11;

export interface Box {
  node: TreeNode;
  x: number;
  y: number;
  width: number;
  height: number;
  open: boolean;
}

/** An edge as drawn: its route in its container's coordinates, and where those begin. */
export interface Line {
  edge: LevelEdge;
  container: number;
  route: Float64Array;
  x: number;
  y: number;
  /** The shape of the tensor, on one of the edges that bear it. */
  label: string;
  /** Beside the arrow rather than the start: where several different tensors leave one box. */
  labelAtEnd: boolean;
  arrow: boolean;
}

export interface Frame {
  boxes: Box[];
  byId: Map<number, Box>;
  lines: Line[];
  width: number;
  height: number;
}

export type Measure = (text: string, size: number, bold: boolean) => number;

export class Stage {
  readonly open = new Set<number>([0]);
  private readonly layouts = new Map<number, Layout>();
  private readonly sizes = new Map<number, { width: number; height: number }>();

  constructor(
    readonly tree: Tree,
    readonly figures: Figures,
    private readonly measure: Measure,
  ) {}

  isContainer(id: number): boolean {
    return this.tree.nodes[id].children.length > 0;
  }

  /** Whether every container around it stands open. */
  isVisible(id: number): boolean {
    for (let n = this.tree.nodes[id].parent; n >= 0; n = this.tree.nodes[n].parent) if (!this.open.has(n)) return false;
    return true;
  }

  setOpen(id: number, open: boolean): void {
    if (!this.isContainer(id) || id === 0 || this.open.has(id) === open) return;
    if (open) this.open.add(id);
    else this.open.delete(id);
    for (let n = id; n >= 0; n = this.tree.nodes[n].parent) this.layouts.delete(n);
  }

  reveal(id: number): void {
    for (let n = this.tree.nodes[id].parent; n > 0; n = this.tree.nodes[n].parent) this.setOpen(n, true);
  }

  /** Open every container down to a depth: 0 shows the model's own children alone. Folds count as no depth. */
  openToDepth(depth: number): void {
    this.open.clear();
    this.layouts.clear();
    this.open.add(0);
    const levels = new Int32Array(this.tree.nodes.length);
    preorder(this.tree.nodes, (node) => {
      if (node.parent < 0 || node.children.length === 0) return;
      const fold = node.kind === "group";
      levels[node.id] = levels[node.parent] + (fold ? 0 : 1);
      if (levels[node.id] <= depth && (!fold || depth === Infinity)) this.open.add(node.id);
    });
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

  /** Everything visible, with its place. */
  frame(): Frame {
    this.layOut();
    const { nodes } = this.tree;
    const root = this.layouts.get(0)!;
    const frame: Frame = { boxes: [], byId: new Map(), lines: [], width: root.width, height: root.height };
    const stack: [id: number, x: number, y: number][] = [[0, 0, 0]];
    while (stack.length) {
      const [id, x, y] = stack.pop()!;
      const layout = this.layouts.get(id)!;
      this.linesOf(id, layout, x, y, frame.lines);
      for (const child of nodes[id].children) {
        const { width, height } = this.size(child);
        const open = this.open.has(child);
        const box: Box = { node: nodes[child], x: x + layout.x.get(child)!, y: y + layout.y.get(child)!, width, height, open };
        frame.boxes.push(box);
        frame.byId.set(child, box);
        if (open) stack.push([child, box.x, box.y + HEADER]);
      }
    }
    return frame;
  }

  private linesOf(id: number, layout: Layout, x: number, y: number, out: Line[]): void {
    const { tree } = this;
    const labelled = new Map<string, number>(); // source and tensors -> line that bears the shape
    tree.levels.get(id)!.edges.forEach((edge, i) => {
      const route = layout.routes[i];
      const toPort = edge.to >= tree.firstPort;
      const line: Line = { edge, container: id, route, x, y, label: "", labelAtEnd: false, arrow: !toPort };
      out.push(line);
      if (toPort || edge.from >= tree.firstPort) return;
      const tensors = tensorsOf(tree.scene, edge);
      const key = `${edge.from}|${tensors.join()}`;
      const rival = labelled.get(key);
      if (rival !== undefined && bend(out[rival].route) <= bend(route)) return;
      if (rival !== undefined) out[rival].label = "";
      labelled.set(key, out.length - 1);
      const shape = dimensions(tree.scene.metas[tree.scene.ops.meta[tensors[0]]][0]);
      line.label = tensors.length > 1 ? `${tensors.length} tensors` : shape;
    });
    const leaving = new Map<number, number>();
    for (const at of labelled.values()) leaving.set(out[at].edge.from, (leaving.get(out[at].edge.from) ?? 0) + 1);
    for (const at of labelled.values()) out[at].labelAtEnd = leaving.get(out[at].edge.from)! > 1;
  }

  /** Lay out every open, visible container that has no layout yet, the inner ones first. */
  private layOut(): void {
    const waiting: TreeNode[] = [];
    preorder(this.tree.nodes, (node) => {
      if (!this.open.has(node.id)) return false;
      waiting.push(node);
      return true;
    });
    for (let i = waiting.length - 1; i >= 0; i--) {
      const node = waiting[i];
      if (!this.layouts.has(node.id)) this.layouts.set(node.id, this.layOutOne(node));
    }
  }

  private layOutOne(node: TreeNode): Layout {
    const { nodes, levels } = this.tree;
    const level = levels.get(node.id)!;
    const dx = (end: number, port: number): number | null => {
      if (port < 0 || !this.open.has(end)) return null;
      const inner = this.layouts.get(end)!;
      return inner.portX.get(port)! - inner.width / 2;
    };
    return layoutLevel({
      nodes: node.children.map((id) => ({
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
    if (!isBoxed(node)) return { width: Math.max(52, Math.ceil(first) + 2 * PAD), height: 28 };
    return { width: Math.max(108, Math.ceil(Math.max(first, second)) + 2 * PAD + button), height: 46 };
  }

  private headerWidth(node: TreeNode): number {
    const [title, subtitle] = captions(node, this.figures);
    return this.measure(title, FONT_TITLE, true) + this.measure(subtitle, FONT_SMALL, false) + 22 + 3 * PAD;
  }
}

const LONGEST_CAPTION = 36;

/** The words on a box: title and, below it, what it is. */
export function captions(node: TreeNode, figures: Figures): [title: string, subtitle: string] {
  if (!isBoxed(node)) return [short(node.title), ""];
  const parameters = figures.parameters[node.id];
  const subtitle = node.kind === "group" && node.address === "" ? groupCaption(node) : node.subtitle;
  return [short(node.title), short(subtitle) + (parameters ? ` · ${count(parameters)}` : "")];
}

function groupCaption(node: TreeNode): string {
  return node.subtitle === "input" || node.subtitle === "output" ? "" : `${node.children.length} × ${node.subtitle}`;
}

/** Keep both ends of a long name: the end tells most, the beginning says where. */
export function short(text: string): string {
  return text.length <= LONGEST_CAPTION ? text : `${text.slice(0, 14)}…${text.slice(-(LONGEST_CAPTION - 15))}`;
}

/** Modules and folds are boxes; what is no module is a pill. */
export const isBoxed = (node: TreeNode): boolean => node.kind === "module" || node.kind === "group";

export const accent = (node: TreeNode): "failed" | "created" | "" =>
  isFailed(node) ? "failed" : isCreated(node) ? "created" : "";

/** How far a route goes sideways. */
function bend(route: Float64Array): number {
  let sum = 0;
  for (let i = 2; i < route.length; i += 2) sum += Math.abs(route[i] - route[i - 2]);
  return sum;
}
