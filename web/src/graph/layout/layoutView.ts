// The open boxes and the layout of everything visible. Layouts are cached per container: opening or closing a box lays
// out only its container and the containers around that.
import { isFold } from "../model/captions.ts";
import { Depths, isAll } from "../model/depths.ts";
import type { Figures } from "../model/facts.ts";
import { marksOf } from "../model/marks.ts";
import { pickedLevel } from "../model/pick.ts";
import { type Level, preorder, type Tree, type TreeNode } from "../model/tree.ts";
import { BELOW_HEADER, HEADER } from "./boxHeader.ts";
import { SPACE } from "./cells.ts";
import type { Layout, LayoutInput } from "./layers.ts";
import { LayoutCache } from "./layoutCache.ts";
import { type Measure, Sizes } from "./sizes.ts";
import { type LayoutSource, OpenContainer, type PlacedBox, VisibleLayout } from "./visibleLayout.ts";
import { lettering, type Lettering } from "./words.ts";

export class LayoutView {
  readonly open = new Set<number>([0]);
  readonly depths: Depths;
  readonly inset: LayoutSource["inset"] = BELOW_HEADER;
  private readonly cache = new LayoutCache();
  protected readonly layouts = new Map<number, Layout>();
  /** Layouts that a worker computed, for the next call of `layOut`. */
  private ready: Map<number, Layout> | undefined;
  /** Open containers, cached with their layouts. */
  private readonly parts = new Map<number, OpenContainer>();
  private readonly inside: Int32Array; // for each box that has a layout, the number of boxes visible inside, at any depth
  /** For each open fold the position of the member that it shows, or "all". */
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

  /** Return the position of the member that an open fold shows, or "all"; other boxes show all children. */
  pickOf(id: number): number | "all" {
    return isFold(this.tree.nodes[id]) ? (this.picks.get(id) ?? 0) : "all";
  }

  /** Show one member of a fold, or all. */
  pick(id: number, which: number | "all"): void {
    if (!isFold(this.tree.nodes[id])) return;
    const { children } = this.tree.nodes[id];
    const before = this.pickOf(id);
    this.picks.set(id, which === "all" ? which : (which + children.length) % children.length);
    // The next member is open if the one shown before was.
    if (which !== "all" && before !== "all" && this.open.has(children[before])) this.open.add(children[this.pickOf(id) as number]);
    this.forget(id);
  }

  /** Return the boxes that a box shows when it is open. */
  shown(id: number): number[] {
    const { children } = this.tree.nodes[id];
    const pick = this.pickOf(id);
    return pick === "all" ? children : [children[pick]];
  }

  /** Return the edges and ports of what a box shows when it is open. */
  levelOf(id: number): Level {
    const level = this.tree.levels.get(id);
    const pick = this.pickOf(id);
    return pick === "all" ? level : pickedLevel(level, this.tree.nodes[id].children[pick], this.tree.firstPort);
  }

  /** Return whether every container around a box is open and shows it. */
  isVisible(id: number): boolean {
    const { nodes, placeOf } = this.tree;
    for (let n = id; n > 0; n = nodes[n].parent) {
      const pick = this.pickOf(nodes[n].parent);
      if (!this.open.has(nodes[n].parent) || (pick !== "all" && pick !== placeOf[n])) return false;
    }
    return true;
  }

  /** Open or close a container. */
  setOpen(id: number, open: boolean): void {
    if (!this.isContainer(id) || id === 0 || this.open.has(id) === open) return;
    if (open) this.open.add(id);
    else this.open.delete(id);
    const pick = this.pickOf(id);
    if (open && pick !== "all") this.open.add(this.tree.nodes[id].children[pick]);
    this.forget(id);
  }

  /** Drop the layouts of a container and of all around it. */
  private forget(id: number): void {
    for (let n = id; n >= 0; n = this.tree.nodes[n].parent) {
      this.layouts.delete(n);
      this.parts.delete(n);
    }
  }

  /** Open all containers around a box. */
  reveal(id: number): void {
    const { nodes, placeOf } = this.tree;
    for (let n = id; n > 0; n = nodes[n].parent) {
      const { parent } = nodes[n];
      this.setOpen(parent, true);
      const pick = this.pickOf(parent);
      if (pick !== "all" && pick !== placeOf[n]) this.pick(parent, placeOf[n]);
    }
  }

  /** Open every container down to a depth. 0 shows only the model's direct children; Infinity shows everything, with
   * all members of folds; otherwise a fold shows one member. Folds do not count as a level. `layouts` are the result of
   * `layOut` in a worker for the same depth. */
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

  /** The depth down to which everything is open, Infinity for all; null if the open boxes match no depth. */
  get depth(): number | null {
    return this.depths.of(this.open, this.picks);
  }

  /** Open outer containers before inner ones as long as at most `most` boxes are visible. */
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

  /** Return everything visible with its position. This invalidates changed parts of earlier results. */
  visible(): VisibleLayout {
    this.layOut();
    const { width, height } = this.layouts.get(0)!;
    return new VisibleLayout(this, width, height, this.inside[0]);
  }

  /** Return the contents of an open container that has a layout. */
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

  /** Lay out every open, visible container that has no layout yet, inner ones first. Everything inside a container with
   * a layout has one too, because a change drops the layouts of all containers around it. */
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
    return this.cache.of(this.inputOf(node));
  }

  /** Return the input of a container's layout. */
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
        return { id, width, height, tail: sizes.tail(tree.nodes[id]), pinned: kind === "input" || subtitle === "input", low: kind === "parameter" };
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
          mark: sizes.mark(into),
          outMark: sizes.mark(out),
          run: sizes.markRun(into),
          outRun: sizes.markRun(out),
        };
      }),
      minWidth: node.id === 0 ? 0 : sizes.header(node),
      gap: SPACE.rank,
      corner: SPACE.corner,
    };
  }

  /** Return the width and height of a box: of its contents if it is open, otherwise of its text. */
  protected size(id: number): [width: number, height: number] {
    const layout = this.open.has(id) ? this.layouts.get(id) : undefined;
    return layout ? [layout.width, layout.height + HEADER] : [this.sizes.width(id), this.sizes.height(id)];
  }
}
