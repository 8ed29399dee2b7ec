// Which boxes stand open, and where everything visible is. Layouts are kept per container; opening or
// closing one lays out only that container and those around it.
import { isFold } from "../model/captions.ts";
import { Depths, isAll } from "../model/depths.ts";
import type { Figures } from "../model/facts.ts";
import { marksOf } from "../model/marks.ts";
import { pickedLevel } from "../model/pick.ts";
import { type Level, preorder, type Tree, type TreeNode } from "../model/tree.ts";
import { BELOW_HEAD, HEADER } from "./boxHeader.ts";
import { SPACE } from "./cells.ts";
import type { Layout, LayoutInput } from "./layers.ts";
import { LayoutCache } from "./layoutCache.ts";
import { FONT_MARK, type Measure, Sizes } from "./sizes.ts";
import { type LayoutSource, OpenContainer, type PlacedBox, VisibleLayout } from "./visibleLayout.ts";
import { lettering, type Lettering } from "./words.ts";

export class LayoutView {
  readonly open = new Set<number>([0]);
  readonly depths: Depths;
  readonly inset: LayoutSource["inset"] = BELOW_HEAD;
  private readonly alike = new LayoutCache();
  protected readonly layouts = new Map<number, Layout>();
  /** Layouts that came from elsewhere, for what is to be laid out next. */
  private ready: Map<number, Layout> | undefined;
  /** Kept with their layouts. */
  private readonly parts = new Map<number, OpenContainer>();
  private readonly inside: Int32Array; // boxes visible inside each that has a layout, at any depth
  /** Of a fold that stands open: the one member shown, by its place; "all" shows them all. */
  private readonly picks = new Map<number, number | "all">();

  constructor(
    readonly tree: Tree,
    readonly figures: Figures,
    measure: Measure,
    protected readonly sizes = new Sizes(tree, figures, measure),
    private readonly words: Lettering = lettering(measure),
  ) {
    this.depths = new Depths(tree);
    this.inside = new Int32Array(tree.nodes.length);
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
    const level = this.tree.levels.get(id);
    const pick = this.pickOf(id);
    return pick === "all" ? level : pickedLevel(level, this.tree.nodes[id].children[pick], this.tree.firstPort);
  }

  /** Whether every container around it stands open and shows it. */
  isVisible(id: number): boolean {
    const { nodes, placeOf } = this.tree;
    for (let n = id; n > 0; n = nodes[n].parent) {
      const pick = this.pickOf(nodes[n].parent);
      if (!this.open.has(nodes[n].parent) || (pick !== "all" && pick !== placeOf[n])) return false;
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
    for (let n = id; n >= 0; n = this.tree.nodes[n].parent) {
      this.layouts.delete(n);
      this.parts.delete(n);
    }
  }

  /** Open the way to a box. */
  reveal(id: number): void {
    const { nodes, placeOf } = this.tree;
    for (let n = id; n > 0; n = nodes[n].parent) {
      const { parent } = nodes[n];
      this.setOpen(parent, true);
      const pick = this.pickOf(parent);
      if (pick !== "all" && pick !== placeOf[n]) this.pick(parent, placeOf[n]);
    }
  }

  /** Open every container down to a depth: 0 shows the model's own children alone, Infinity everything, the
   * members of folds too; down to other depths a fold shows one. A fold counts as no depth. `layouts` are what
   * `layOut` gave elsewhere for the same. */
  openToDepth(depth: number, layouts?: Map<number, Layout>): void {
    this.ready = layouts;
    this.open.clear();
    this.layouts.clear();
    this.parts.clear();
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

  /** Everything visible, with its place. Of the one before only what has not changed stays true. */
  visible(): VisibleLayout {
    this.layOut();
    const { width, height } = this.layouts.get(0)!;
    return new VisibleLayout(this, width, height, this.inside[0]);
  }

  /** What an open container that is laid out holds. */
  partOf(id: number): OpenContainer | undefined {
    const known = this.parts.get(id);
    if (known) return this.open.has(id) ? known : undefined;
    const layout = this.open.has(id) ? this.layouts.get(id) : undefined;
    if (!layout) return undefined;
    const inside = (child: number): number => (this.open.has(child) ? this.inside[child] : 0);
    const part = new OpenContainer(this.tree, id, this.shown(id), () => this.levelOf(id), layout, this.boxOf, (child) => this.size(child)[1], inside, this.words);
    this.parts.set(id, part);
    return part;
  }

  private readonly boxOf = (id: number, place: number, { x, y }: Layout): PlacedBox => {
    const [width, height] = this.size(id);
    return { node: this.tree.nodes[id], x: 0, y: 0, dx: x[place], dy: y[place], width, height, open: this.open.has(id), pick: this.pickOf(id) };
  };

  /** Lay out every open, visible container that has no layout yet, the inner ones first. What is inside one that
   * has is laid out too: a change forgets all that is around it. */
  layOut(): Map<number, Layout> {
    const waiting: TreeNode[] = [];
    preorder(this.tree.nodes, (node) => {
      if (!this.open.has(node.id) || this.layouts.has(node.id)) return false;
      waiting.push(node);
      return this.pickOf(node.id) === "all" ? true : this.shown(node.id);
    });
    for (let i = waiting.length - 1; i >= 0; i--) {
      const node = waiting[i];
      this.layouts.set(node.id, this.ready?.get(node.id) ?? this.layOutOne(node));
      const shown = this.shown(node.id);
      this.inside[node.id] = shown.reduce((sum, id) => sum + 1 + (this.open.has(id) ? this.inside[id] : 0), 0);
    }
    this.ready = undefined;
    return this.layouts;
  }

  protected layOutOne(node: TreeNode): Layout {
    return this.alike.of(this.inputOf(node));
  }

  /** What a container's layout goes by. */
  protected inputOf(node: TreeNode): LayoutInput {
    const { tree, sizes } = this;
    const level = this.levelOf(node.id);
    const shown = this.shown(node.id);
    const dx = (end: number, port: number): number | null => {
      if (port < 0 || !this.open.has(end)) return null;
      const { portX, width } = this.layouts.get(end)!;
      return portX[tree.levels.placeOf(port)] - width / 2;
    };
    return {
      nodes: shown.map((id) => {
        const [width, height] = this.size(id);
        const { kind, subtitle } = tree.nodes[id];
        return { id, width, height, tail: sizes.tail(tree.nodes[id]), pinned: kind === "input" || subtitle === "input" };
      }),
      ins: level.ins,
      outs: level.outs,
      edges: level.edges.map((edge) => {
        const { into, out } = marksOf(tree, edge);
        return {
          from: edge.from,
          to: edge.to,
          fromDx: dx(edge.from, edge.outPort),
          toDx: dx(edge.to, edge.inPort),
          mark: sizes.measure(into, FONT_MARK, false),
          outMark: sizes.measure(out, FONT_MARK, false),
        };
      }),
      minWidth: node.id === 0 ? 0 : sizes.header(node),
      gap: SPACE.rank,
      corner: SPACE.corner,
    };
  }

  /** Width and height: of what is inside for an open container, of its words for anything else. */
  protected size(id: number): [width: number, height: number] {
    const layout = this.open.has(id) ? this.layouts.get(id) : undefined;
    return layout ? [layout.width, layout.height + HEADER] : [this.sizes.width(id), this.sizes.height(id)];
  }
}
