// What of a graph is open, chosen, lit and painted, and everything that changes it. The view around it (view.ts) shows it.
import { hold } from "./anchor.ts";
import { Colouring } from "./colouring.ts";
import { depthName, isAll } from "./depths.ts";
import { grouped, type Figures } from "./facts.ts";
import { failedBox } from "./failure.ts";
import { emptyFrame, type Frame } from "./frame.ts";
import type { Layout } from "./layout.ts";
import type { Lens } from "./lens.ts";
import { openPlace, placeOf, type Place } from "./link.ts";
import { load, type Loaded } from "./loaded.ts";
import { fontOf, measurer } from "./measure.ts";
import type { LevelEdge, Tree } from "./model.ts";
import { Opening } from "./opening.ts";
import type { GraphOptions } from "./options.ts";
import { isRecurrent } from "./roll.ts";
import type { Scene } from "./scene.ts";
import type { Measure } from "./sizes.ts";
import type { Stage } from "./stage.ts";
import { Surface } from "./surface.ts";
import { Stream } from "./stream.ts";
import { neighbours } from "./walk.ts";

export abstract class Session {
  protected loaded!: Loaded;
  frame!: Frame;
  selected = -1;
  protected edge: LevelEdge | null = null;
  protected hovered = -1;
  /** What the selected box's tensors come from and go to, and its neighbours in sight. */
  protected lit: Stream | null = null;
  private related = new Set<number>();
  readonly colours = new Colouring(() => this, () => this.onColours(), (row) => this.goTo(this.tree.boxOf[row]));
  protected readonly surface: Surface;
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
    this.surface = new Surface(
      () => ({ lit: this.frame.box(this.selected) ? this.lit : null, related: this.related, frame: this.frame, tree: this.tree, figures: this.figures, paint: this.colours.paint, selected: this.selected, edge: this.edge, hovered: this.hovered }),
      { goTo: (id) => this.goTo(id), onStart: () => this.begin(), onDrawn: () => options.onLook?.() },
    );
    this.opening = new Opening(options.program ?? {}, this.surface.area, (depth, layouts) => this.openNow(depth, layouts));
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
    this.surface.start();
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
    this.loaded = load(scene, rolled, options.depth, measure);
    this.loaded.begin(this.opening.isLarge(this.begins) ? null : options.depth);
    this.frame = this.isVast ? emptyFrame(this.tree) : this.stage.frame();
  }

  get tree(): Tree {
    return this.loaded.tree;
  }

  get figures(): Figures {
    return this.loaded.figures;
  }

  protected get stage(): Stage {
    return this.loaded.stage;
  }

  protected get rolled(): boolean {
    return this.loaded.rolled;
  }

  /** What is open, chosen and rolled. */
  get place(): Place {
    return placeOf(this.tree, this.stage, this.selected, this.rolled);
  }

  get lens(): Lens {
    return this.surface.lens;
  }

  get sight(): number {
    return this.surface.area.clientWidth;
  }

  /** Whether even the model's own children are so many that nothing can be shown at once. */
  private get isVast(): boolean {
    return this.opening.isLarge(this.tree.nodes[0].children.length);
  }

  /** How many boxes are to stand open at first. */
  protected get begins(): number {
    return this.loaded.count(this.options.depth);
  }

  open(address: string): void {
    const id = this.loaded.find(address);
    if (id < 0) return;
    this.opening.stop();
    this.change(() => {
      this.stage.reveal(id);
      this.stage.setOpen(id, true);
    }, id);
  }

  close(address: string): void {
    const id = this.loaded.find(address);
    if (id < 0) return;
    this.opening.stop();
    this.change(() => this.stage.setOpen(id, false), id);
  }

  /** Open modules down to a depth; 0 leaves the model's own children alone, Infinity opens all. */
  openToDepth(depth: number): void {
    const boxes = this.stage.depths.count(depth);
    if (this.opening.isLarge(boxes)) this.opening.start({ scene: this.tree.scene, depth, font: this.font }, boxes, this.frame.count > 0);
    else this.openNow(depth);
  }

  protected openNow(depth: number, layouts?: Map<number, Layout>): void {
    this.opening.stop();
    const first = this.frame.count === 0;
    this.change(() => this.stage.openToDepth(depth, layouts), this.selected);
    if (first) this.begin();
    this.say(`Open to depth ${depthName(depth)}: ${grouped(this.frame.count)} boxes`);
  }

  /** Show the passes of a layer as one box, or each for itself; what is open and selected stays so. */
  roll(rolled: boolean): void {
    if (rolled === this.rolled) return;
    const place = placeOf(this.tree, this.stage, this.selected, rolled);
    const names = this.selected > 0 ? this.tree.nodes[this.selected].names : [];
    this.opening.stop();
    this.load(rolled);
    this.onRolled();
    this.choose(-1);
    const bare = place.open.flatMap((name) => [name, name.replace(/:\d+$/, ""), `${name}:1`]);
    if (place.depth !== null) this.openToDepth(place.depth);
    else this.change(() => openPlace(this.tree, this.stage, { ...place, open: bare }), -1);
    const id = names.map((name) => this.loaded.find(name)).find((found) => found >= 0) ?? -1;
    if (id >= 0) this.goTo(id);
    else this.lens.begin(this.frame.box(this.loaded.entry));
    this.colours.put(this.colours.which);
  }

  /** Be as a place says; where it does not say what is open, that stays. The camera goes there if it is to `reach`. */
  follow(place: Partial<Place>, reach = false): void {
    if (place.rolled !== undefined && place.rolled !== this.rolled && isRecurrent(this.scene)) this.roll(place.rolled);
    if (place.depth != null) this.openToDepth(place.depth);
    else if (place.open) this.change(() => openPlace(this.tree, this.stage, place), -1);
    const id = this.idOf(place.at ?? "");
    if (id > 0) this.goTo(id, reach);
    else this.choose(-1);
  }

  /** The box that a name of a place means (see link.ts). */
  idOf(name: string): number {
    return this.loaded.idOf(name);
  }

  choose(id: number, reach = false): void {
    const changed = id !== this.selected;
    this.selected = id;
    this.edge = null;
    if (changed) this.lit = id > 0 ? Stream.of(this.tree, id) : null;
    this.relate();
    const box = this.frame.box(id);
    if (reach && box) this.lens.bringIntoView(box);
    this.onChosen();
    const node = this.tree.nodes[id];
    this.say(node ? `${node.address || node.title}, ${node.subtitle || node.kind}` : "");
    if (changed) this.options.onSelect?.(node ? node.address || null : null);
    this.moved();
  }

  private relate(): void {
    const { before, after } = neighbours(this.tree, this.frame, this.selected);
    this.related = new Set([...before, ...after]);
  }

  chooseEdge(edge: LevelEdge): void {
    this.choose(-1);
    this.edge = edge;
    this.onChosen();
    this.surface.redraw();
  }

  protected goTo(id: number, reach = true): void {
    if (id === 0) return this.lens.begin(this.frame.box(this.loaded.entry)), this.choose(-1);
    if (!this.stage.isVisible(id)) this.change(() => this.stage.reveal(id), id);
    this.choose(id, reach);
  }

  toggle(id: number): void {
    this.opening.stop();
    this.change(() => this.stage.setOpen(id, !this.stage.open.has(id)), id);
    if (this.selected >= 0 && !this.stage.isVisible(this.selected)) this.choose(id);
  }

  /** Change what is open; the anchor's top left corner stays where it is on the screen, the rest moves. */
  protected change(alter: () => void, anchor: number): void {
    const settle = hold(this.surface.picture, anchor);
    alter();
    this.frame = this.stage.frame();
    const { dx, dy, before } = settle(this.frame);
    if (dx || dy) this.lens.shift(dx, dy);
    this.edge = null;
    this.relate();
    this.onOpened();
    this.surface.slide(before);
    this.moved();
  }

  /** Look at where the model begins, or at what failed. */
  protected begin(): void {
    this.lens.begin(this.frame.box(this.loaded.entry));
    const failed = failedBox(this.tree);
    if (failed) this.goTo(failed.id);
  }

  pick(id: number, part: "all" | "next" | "previous"): void {
    this.opening.stop();
    const now = this.stage.pickOf(id);
    const one = now === "all" ? 0 : now;
    const which = part === "all" ? (now === "all" ? 0 : "all") : one + (part === "next" ? 1 : -1);
    this.change(() => this.stage.pick(id, which), id);
    if (this.selected >= 0 && !this.stage.isVisible(this.selected)) this.choose(id);
  }
}
