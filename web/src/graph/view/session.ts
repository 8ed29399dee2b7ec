// What of a graph is open, chosen, lit and painted, and everything that changes it. The view around it (view.ts) shows it.
import type { Layout } from "../layout/layers.ts";
import type { LayoutView } from "../layout/layoutView.ts";
import { fontOf, measurer } from "../layout/measure.ts";
import type { Measure } from "../layout/sizes.ts";
import { emptyLayout, type VisibleLayout } from "../layout/visibleLayout.ts";
import { depthName, isAll } from "../model/depths.ts";
import { type Figures, grouped } from "../model/facts.ts";
import { isRecurrent } from "../model/roll.ts";
import type { Scene } from "../model/scene.ts";
import { Stream } from "../model/stream.ts";
import type { LevelEdge, Tree } from "../model/tree.ts";
import { hold } from "../paint/anchor.ts";
import type { CameraControl } from "../paint/camera.ts";
import { GraphCanvas } from "../paint/canvas.ts";
import { Colouring } from "../paint/colouring.ts";
import { failedBox } from "../panel/failure.ts";
import { type GraphModel, load } from "./graphModel.ts";
import { openPlace, type Place, placeOf } from "./link.ts";
import { Opening } from "./opening.ts";
import type { GraphOptions } from "./options.ts";
import { neighbours } from "./walk.ts";

export abstract class Session {
  protected graphModel!: GraphModel;
  visible!: VisibleLayout;
  selected = -1;
  protected edge: LevelEdge | null = null;
  protected hovered = -1;
  /** What the selected box's tensors come from and go to, and its neighbours in sight. */
  protected lit: Stream | null = null;
  private related = new Set<number>();
  readonly colours = new Colouring(() => this, () => this.onColours(), (row) => this.goTo(this.tree.boxOf[row]));
  protected readonly graphCanvas: GraphCanvas;
  protected readonly opening: Opening;
  private readonly font: string;
  private readonly measure: Measure;

  constructor(
    readonly host: HTMLElement,
    readonly scene: Scene,
    readonly options: GraphOptions,
  ) {
    this.font = fontOf(host);
    this.measure = measurer(this.font);
    this.graphCanvas = new GraphCanvas(
      () => ({ lit: this.visible.box(this.selected) ? this.lit : null, related: this.related, visible: this.visible, tree: this.tree, figures: this.figures, paint: this.colours.paint, selected: this.selected, edge: this.edge, hovered: this.hovered }),
      { goTo: (id) => this.goTo(id), onStart: () => this.begin(), onDrawn: () => options.onLook?.() },
    );
    this.opening = new Opening(options.program ?? {}, this.graphCanvas.area, (depth, layouts) => this.openNow(depth, layouts));
    this.hurry();
    this.load(options.rolled);
  }

  /** Show what another box or edge is chosen, other boxes are open, other colours are on, passes are rolled or not. */
  protected abstract onChosen(): void;
  protected abstract onOpened(): void;
  protected abstract onColours(): void;
  protected abstract onRolled(): void;
  /** Something of the place has changed, which a link tells. */
  protected abstract moved(): void;
  /** Tell who cannot see it. */
  protected abstract say(text: string): void;

  /** Begin to draw, as deep as was asked for. */
  protected start(): void {
    this.graphCanvas.start();
    if (this.opening.isLarge(this.begins)) this.openToDepth(this.options.depth ?? 0);
    else this.opening.stop();
  }

  /** Where all is to stand open and is much, let the worker begin while the page still makes its own tree. */
  private hurry(): void {
    const { scene, font } = this;
    const { depth, rolled } = this.options;
    const rows = scene.ops.kind.length;
    const flat = rolled === false || (rolled == null && !isRecurrent(scene));
    if (depth != null && isAll(depth) && flat && this.opening.isLarge(rows)) this.opening.start({ scene, depth, font }, rows, false);
  }

  /** Take the scene, rolled or not, and open it as it is to begin; what is large opens once it is laid out. */
  protected load(rolled: boolean | null | undefined): void {
    const { scene, options, measure } = this;
    this.graphModel = load(scene, rolled, options.depth, measure);
    this.graphModel.begin(this.opening.isLarge(this.begins) ? null : options.depth);
    this.visible = this.isVast ? emptyLayout(this.tree) : this.layoutView.visible();
  }

  get tree(): Tree {
    return this.graphModel.tree;
  }

  get figures(): Figures {
    return this.graphModel.figures;
  }

  protected get layoutView(): LayoutView {
    return this.graphModel.layoutView;
  }

  protected get rolled(): boolean {
    return this.graphModel.rolled;
  }

  /** What is open, chosen and rolled. */
  get place(): Place {
    return placeOf(this.tree, this.layoutView, this.selected, this.rolled);
  }

  get cameraControl(): CameraControl {
    return this.graphCanvas.cameraControl;
  }

  get sight(): number {
    return this.graphCanvas.area.clientWidth;
  }

  /** Whether even the model's own children are so many that nothing can be shown at once. */
  private get isVast(): boolean {
    return this.opening.isLarge(this.tree.nodes[0].children.length);
  }

  /** How many boxes are to stand open at first. */
  protected get begins(): number {
    return this.graphModel.count(this.options.depth);
  }

  open(address: string): void {
    const id = this.graphModel.find(address);
    if (id < 0) return;
    this.opening.stop();
    this.change(() => {
      this.layoutView.reveal(id);
      this.layoutView.setOpen(id, true);
    }, id);
  }

  close(address: string): void {
    const id = this.graphModel.find(address);
    if (id < 0) return;
    this.opening.stop();
    this.change(() => this.layoutView.setOpen(id, false), id);
  }

  /** Open modules down to a depth; 0 leaves the model's own children alone, Infinity opens all. */
  openToDepth(depth: number): void {
    const boxes = this.layoutView.depths.count(depth);
    if (this.opening.isLarge(boxes)) this.opening.start({ scene: this.tree.scene, depth, font: this.font }, boxes, this.visible.count > 0);
    else this.openNow(depth);
  }

  protected openNow(depth: number, layouts?: Map<number, Layout>): void {
    this.opening.stop();
    const first = this.visible.count === 0;
    this.change(() => this.layoutView.openToDepth(depth, layouts), this.selected);
    if (first) this.begin();
    this.say(`Open to depth ${depthName(depth)}: ${grouped(this.visible.count)} boxes`);
  }

  /** Show the passes of a layer as one box, or each for itself; what is open and selected stays so. */
  roll(rolled: boolean): void {
    if (rolled === this.rolled) return;
    const place = placeOf(this.tree, this.layoutView, this.selected, rolled);
    const names = this.selected > 0 ? this.tree.nodes[this.selected].names : [];
    this.opening.stop();
    this.load(rolled);
    this.onRolled();
    this.choose(-1);
    const bare = place.open.flatMap((name) => [name, name.replace(/:\d+$/, ""), `${name}:1`]);
    if (place.depth !== null) this.openToDepth(place.depth);
    else this.change(() => openPlace(this.tree, this.layoutView, { ...place, open: bare }), -1);
    const id = names.map((name) => this.graphModel.find(name)).find((found) => found >= 0) ?? -1;
    if (id >= 0) this.goTo(id);
    else this.cameraControl.begin(this.visible.box(this.graphModel.entry));
    this.colours.put(this.colours.which);
  }

  /** Be as a place says; where it does not say what is open, that stays. The camera goes there if it is to `reach`. */
  follow(place: Partial<Place>, reach = false): void {
    if (place.rolled !== undefined && place.rolled !== this.rolled && isRecurrent(this.scene)) this.roll(place.rolled);
    if (place.depth != null) this.openToDepth(place.depth);
    else if (place.open) this.change(() => openPlace(this.tree, this.layoutView, place), -1);
    const id = this.idOf(place.at ?? "");
    if (id > 0) this.goTo(id, reach);
    else this.choose(-1);
  }

  /** The box that a name of a place means (see link.ts). */
  idOf(name: string): number {
    return this.graphModel.idOf(name);
  }

  choose(id: number, reach = false): void {
    const changed = id !== this.selected;
    this.selected = id;
    this.edge = null;
    if (changed) this.lit = id > 0 ? Stream.of(this.tree, id) : null;
    this.relate();
    const box = this.visible.box(id);
    if (reach && box) this.cameraControl.bringIntoView(box);
    this.onChosen();
    const node = this.tree.nodes[id];
    this.say(node ? `${node.address || node.title}, ${node.subtitle || node.kind}` : "");
    if (changed) this.options.onSelect?.(node ? node.address || null : null);
    this.moved();
  }

  private relate(): void {
    const { before, after } = neighbours(this.tree, this.visible, this.selected);
    this.related = new Set([...before, ...after]);
  }

  chooseEdge(edge: LevelEdge): void {
    this.choose(-1);
    this.edge = edge;
    this.onChosen();
    this.graphCanvas.redraw();
  }

  protected goTo(id: number, reach = true): void {
    if (id === 0) return this.cameraControl.begin(this.visible.box(this.graphModel.entry)), this.choose(-1);
    if (!this.layoutView.isVisible(id)) this.change(() => this.layoutView.reveal(id), id);
    this.choose(id, reach);
  }

  toggle(id: number): void {
    this.opening.stop();
    this.change(() => this.layoutView.setOpen(id, !this.layoutView.open.has(id)), id);
    if (this.selected >= 0 && !this.layoutView.isVisible(this.selected)) this.choose(id);
  }

  /** Change what is open; the anchor's top left corner stays where it is on the screen, the rest moves. */
  protected change(alter: () => void, anchor: number): void {
    const settle = hold(this.graphCanvas.picture, anchor);
    alter();
    this.visible = this.layoutView.visible();
    const { dx, dy, before } = settle(this.visible);
    if (dx || dy) this.cameraControl.shift(dx, dy);
    this.edge = null;
    this.relate();
    this.onOpened();
    this.graphCanvas.slide(before);
    this.moved();
  }

  /** Look at where the model begins, or at what failed. */
  protected begin(): void {
    this.cameraControl.begin(this.visible.box(this.graphModel.entry));
    const failed = failedBox(this.tree);
    if (failed) this.goTo(failed.id);
  }

  pick(id: number, part: "all" | "next" | "previous"): void {
    this.opening.stop();
    const now = this.layoutView.pickOf(id);
    const one = now === "all" ? 0 : now;
    const which = part === "all" ? (now === "all" ? 0 : "all") : one + (part === "next" ? 1 : -1);
    this.change(() => this.layoutView.pick(id, which), id);
    if (this.selected >= 0 && !this.layoutView.isVisible(this.selected)) this.choose(id);
  }
}
