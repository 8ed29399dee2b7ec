// The state of a graph: open boxes, selection, paint, and the methods that change them. The subclass in view.ts shows it.
import { grouped } from "../../ui/format.ts";
import type { Layout } from "../layout/layers.ts";
import type { LayoutView } from "../layout/layoutView.ts";
import { fontOf, measurer } from "../layout/measure.ts";
import type { Measure } from "../layout/sizes.ts";
import { emptyLayout, type VisibleLayout } from "../layout/visibleLayout.ts";
import { depthName, isAll } from "../model/depths.ts";
import type { Details } from "../model/details.ts";
import type { Figures } from "../model/facts.ts";
import { isRecurrent } from "../model/roll.ts";
import type { Scene } from "../model/scene.ts";
import { Stream } from "../model/stream.ts";
import type { LevelEdge, Tree } from "../model/tree.ts";
import { keepInPlace } from "../paint/anchor.ts";
import type { CameraControl } from "../paint/camera.ts";
import { GraphCanvas } from "../paint/canvas.ts";
import { Colouring } from "../paint/colouring.ts";
import { failedBox } from "../panel/failure.ts";
import { drawn, type GraphModel, load } from "./graphModel.ts";
import { openPlace, type Place, placeOf } from "./link.ts";
import { Opening } from "./opening.ts";
import type { GraphOptions } from "./options.ts";
import { neighbours } from "./walk.ts";

/** The state of a graph and the methods that change it. */
export abstract class Session {
  protected graphModel!: GraphModel;
  visible!: VisibleLayout;
  selected = -1;
  protected edge: LevelEdge | null = null;
  protected hovered = -1;
  /** The stream of the selected box, and its visible neighbors. */
  protected stream: Stream | null = null;
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
      () => ({ stream: this.visible.box(this.selected) ? this.stream : null, related: this.related, visible: this.visible, tree: this.tree, figures: this.figures, paint: this.colours.paint, selected: this.selected, edge: this.edge, hovered: this.hovered }),
      { goTo: (id) => this.goTo(id), onStart: () => this.begin(), onDrawn: () => options.onDraw?.() },
    );
    this.opening = new Opening(options.program ?? {}, this.graphCanvas.area, (depth, layouts) => this.openNow(depth, layouts));
    this.startWorkerEarly();
    this.load(options.rolled, options.details);
  }

  /** Called after the selection, the open boxes, the paint or rolling changed, to show it. */
  protected abstract onSelected(): void;
  protected abstract onOpened(): void;
  protected abstract onColours(): void;
  protected abstract onRolled(): void;
  /** Called after the place that a link describes changed. */
  protected abstract onPlaceChanged(): void;
  /** Announce a text to screen readers. */
  protected abstract announce(text: string): void;

  /** Begin to draw, open to the depth in the options. */
  protected start(): void {
    this.graphCanvas.start();
    if (this.opening.isLarge(this.initialCount)) this.openToDepth(this.options.depth ?? 0);
    else this.opening.stop();
  }

  /** If everything is to be open and it is large, start the worker before the page builds its own tree. */
  private startWorkerEarly(): void {
    const { scene, font } = this;
    const { depth, rolled, details = "names" } = this.options;
    const rows = scene.ops.kind.length;
    const unrolled = rolled === false || (rolled == null && !isRecurrent(scene));
    if (depth != null && isAll(depth) && unrolled && this.opening.isLarge(rows)) this.opening.start({ scene: drawn(scene, false, details), depth, details, font }, rows, false);
  }

  /** Build the model of the scene, rolled or not, and open it; a large one opens once it is laid out. */
  protected load(rolled: boolean | null | undefined, details?: Details): void {
    const { scene, options, measure } = this;
    this.graphModel = load(scene, rolled, options.depth, measure, details);
    this.graphModel.begin(this.opening.isLarge(this.initialCount) ? null : options.depth);
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

  /** The current place: open boxes, selection, and whether it is rolled. */
  get place(): Place {
    return placeOf(this.tree, this.layoutView, this.selected, this.rolled);
  }

  get cameraControl(): CameraControl {
    return this.graphCanvas.cameraControl;
  }

  get viewWidth(): number {
    return this.graphCanvas.area.clientWidth;
  }

  /** Whether even the model's direct children are too many to be laid out at once. */
  private get isVast(): boolean {
    return this.opening.isLarge(this.tree.nodes[0].children.length);
  }

  /** The number of boxes to show at first. */
  protected get initialCount(): number {
    return this.graphModel.count(this.options.depth);
  }

  /** Open a box and everything around it. */
  open(address: string): void {
    const id = this.graphModel.find(address);
    if (id < 0) return;
    this.opening.stop();
    this.change(() => {
      this.layoutView.reveal(id);
      this.layoutView.setOpen(id, true);
    }, id);
  }

  /** Close a box. */
  close(address: string): void {
    const id = this.graphModel.find(address);
    if (id < 0) return;
    this.opening.stop();
    this.change(() => this.layoutView.setOpen(id, false), id);
  }

  /** Open modules down to a depth: 0 shows only the model's direct children, Infinity opens everything. */
  openToDepth(depth: number): void {
    const boxes = this.layoutView.depths.count(depth);
    if (this.opening.isLarge(boxes)) this.opening.start({ scene: this.tree.scene, depth, details: this.tree.details, font: this.font }, boxes, this.visible.count > 0);
    else this.openNow(depth);
  }

  protected openNow(depth: number, layouts?: Map<number, Layout>): void {
    this.opening.stop();
    const first = this.visible.count === 0;
    this.change(() => this.layoutView.openToDepth(depth, layouts), this.selected);
    if (first) this.begin();
    this.announce(`Open to depth ${depthName(depth)}: ${grouped(this.visible.count)} boxes`);
  }

  /** Show the passes of a layer as one box or separately, and boxes with these details; open boxes and the selection are kept. */
  show(rolled: boolean, details: Details): void {
    if (rolled === this.rolled && details === this.tree.details) return;
    const place = placeOf(this.tree, this.layoutView, this.selected, rolled);
    const names = this.selected > 0 ? this.tree.nodes[this.selected].names : [];
    this.opening.stop();
    this.load(rolled, details);
    this.onRolled();
    this.selectBox(-1);
    const open = place.open.flatMap((name) => [name, name.replace(/:\d+$/, ""), `${name}:1`]);
    if (place.depth !== null) this.openToDepth(place.depth);
    else this.change(() => openPlace(this.tree, this.layoutView, { ...place, open }), -1);
    const id = names.map((name) => this.graphModel.find(name)).find((found) => found >= 0) ?? -1;
    if (id >= 0) this.goTo(id);
    else this.cameraControl.begin(this.visible.box(this.graphModel.entry));
    this.colours.put(this.colours.which);
  }

  /** Show a place; if it does not list open boxes, those stay. With `reveal` the camera moves to the selected box. */
  follow(place: Partial<Place>, reveal = false): void {
    const rolled = isRecurrent(this.scene) ? place.rolled : undefined;
    this.show(rolled ?? this.rolled, place.details ?? this.tree.details);
    if (place.depth != null) this.openToDepth(place.depth);
    else if (place.open) this.change(() => openPlace(this.tree, this.layoutView, place), -1);
    const id = this.idOf(place.at ?? "");
    if (id > 0) this.goTo(id, reveal);
    else this.selectBox(-1);
  }

  /** Return the box of a name in a link (see link.ts). */
  idOf(name: string): number {
    return this.graphModel.idOf(name);
  }

  /** Select a box, -1 for none; with `reveal` the camera moves to it. */
  selectBox(id: number, reveal = false): void {
    const changed = id !== this.selected;
    this.selected = id;
    this.edge = null;
    if (changed) this.stream = id > 0 ? Stream.of(this.tree, id) : null;
    this.updateRelated();
    const box = this.visible.box(id);
    if (reveal && box) this.cameraControl.bringIntoView(box);
    this.onSelected();
    const node = this.tree.nodes[id];
    this.announce(node ? `${node.address || node.title}, ${node.subtitle || node.kind}` : "");
    if (changed) this.options.onSelect?.(node ? node.address || null : null);
    this.onPlaceChanged();
  }

  private updateRelated(): void {
    const { before, after } = neighbours(this.tree, this.visible, this.selected);
    this.related = new Set([...before, ...after]);
  }

  /** Select an edge. */
  selectEdge(edge: LevelEdge): void {
    this.selectBox(-1);
    this.edge = edge;
    this.onSelected();
    this.graphCanvas.redraw();
  }

  /** Select a box and open everything around it; the root moves the camera to the start. */
  protected goTo(id: number, reveal = true): void {
    if (id === 0) return this.cameraControl.begin(this.visible.box(this.graphModel.entry)), this.selectBox(-1);
    if (!this.layoutView.isVisible(id)) this.change(() => this.layoutView.reveal(id), id);
    this.selectBox(id, reveal);
  }

  /** Open a closed box, close an open one. */
  toggle(id: number): void {
    this.opening.stop();
    this.change(() => this.layoutView.setOpen(id, !this.layoutView.open.has(id)), id);
    if (this.selected >= 0 && !this.layoutView.isVisible(this.selected)) this.selectBox(id);
  }

  /** Change which boxes are open; the anchor's top left corner stays in place on the screen, the rest moves. */
  protected change(alter: () => void, anchor: number): void {
    const settle = keepInPlace(this.graphCanvas.picture, anchor);
    alter();
    this.visible = this.layoutView.visible();
    const { dx, dy, before } = settle(this.visible);
    if (dx || dy) this.cameraControl.shift(dx, dy);
    this.edge = null;
    this.updateRelated();
    this.onOpened();
    this.graphCanvas.slide(before);
    this.onPlaceChanged();
  }

  /** Move the camera to the start of the model, or to the box that failed. */
  protected begin(): void {
    this.cameraControl.begin(this.visible.box(this.graphModel.entry));
    const failed = failedBox(this.tree);
    if (failed) this.goTo(failed.id);
  }

  /** Show another member of a fold, or all. */
  pick(id: number, part: "all" | "next" | "previous"): void {
    this.opening.stop();
    const now = this.layoutView.pickOf(id);
    const one = now === "all" ? 0 : now;
    const which = part === "all" ? (now === "all" ? 0 : "all") : one + (part === "next" ? 1 : -1);
    this.change(() => this.layoutView.pick(id, which), id);
    if (this.selected >= 0 && !this.layoutView.isVisible(this.selected)) this.selectBox(id);
  }
}
