// The interactive graph: holds the state (what is open, what is selected and painted) and lets the parts around it
// show it.
import { hold } from "./anchor.ts";
import { Colouring } from "./colouring.ts";
import { depthName } from "./depths.ts";
import { el } from "./dom.ts";
import { errorNote, failedBox } from "./failure.ts";
import { figures, type Figures } from "./facts.ts";
import type { Box, Frame } from "./frame.ts";
import { listen } from "./input.ts";
import { gestures, onLevelKey, onPictureKey, type Hands } from "./keys.ts";
import type { Lens } from "./lens.ts";
import { fromHash, hashOf, openPlace, placeOf, type Place } from "./link.ts";
import { measurer } from "./measure.ts";
import { buildTree, type LevelEdge, type Tree } from "./model.ts";
import { Outline } from "./outline.ts";
import type { BuiltIn, Paint } from "./paint.ts";
import { panelFor } from "./panel.ts";
import type { Camera } from "./picture.ts";
import { isRecurrent, roll } from "./roll.ts";
import type { Scene } from "./scene.ts";
import { SearchIndex, searchField } from "./search.ts";
import type { Measure } from "./sizes.ts";
import { Stage } from "./stage.ts";
import { Surface } from "./surface.ts";
import { edgePanel } from "./tensors.ts";
import { toolbar, type Toolbar, type ToolbarActions } from "./toolbar.ts";
import { visibleBoxes, visibleRoutes, type VisibleBox, type VisibleRoute } from "./visible.ts";
import { lightOf, type Light } from "./walk.ts";

export type { Paint } from "./paint.ts";

export interface GraphOptions {
  onSelect?: (address: string | null) => void;
  /** Called with a hash that names what is seen, whenever that changes; `restore` takes it back. */
  onPlace?: (hash: string) => void;
  /** Called whenever the graph was drawn: for one that walks along (`sight`, `lookFrom`). */
  onLook?: () => void;
  /** Called whenever other colours are on (`colours`). */
  onPaint?: () => void;
  toolbar?: boolean;
  /** Whether the toolbar switches between light and dark: for a graph that has the page to itself. */
  themeButton?: boolean;
  /** How many levels of modules to open at first; as many as stay readable when absent. */
  depth?: number | null;
  /** Whether passes of one layer are one box; when absent, where there are too many to read. */
  rolled?: boolean | null;
}

const READABLE = 26; // boxes open at first
const MANY = 40; // boxes that are too many at first, if rolling makes them fewer

declare global {
  interface HTMLElement {
    /** For tests and scripts: the graph an element holds. */
    intusView?: GraphView;
  }
}

/** The interactive graph of one model, filling `host`. */
export class GraphView implements Hands {
  tree!: Tree;
  frame!: Frame;
  figures!: Figures;
  private stage!: Stage;
  private readonly surface: Surface;
  private readonly said = el("p", { class: "ig-said", "aria-live": "polite" });
  private readonly outline: Outline;
  private readonly index = new SearchIndex();
  private readonly bar: Toolbar | null;
  private readonly root: HTMLElement;
  private readonly measure: Measure;
  private panel: HTMLElement | null = null;
  private rolled = false;
  readonly colours = new Colouring(() => this, () => this.onColours(), (row) => this.goTo(this.tree.boxOf[row]));
  selected = -1;
  private edge: LevelEdge | null = null;
  private hovered = -1;
  private light: Light = lightOf(null, null, -1);

  constructor(
    readonly host: HTMLElement,
    readonly scene: Scene,
    readonly options: GraphOptions = {},
  ) {
    this.measure = measurer(host);
    this.load(options.rolled ?? false);
    if (options.rolled == null && isRecurrent(scene) && this.frame.count > MANY) this.load(true);
    this.outline = new Outline(() => ({ stage: this.stage, frame: this.frame }), { select: (id) => this.choose(id, true), toggle: (id) => this.toggle(id) });
    this.bar = options.toolbar === false ? null : this.makeToolbar();
    this.surface = new Surface(
      () => ({ ...this.light, frame: this.frame, tree: this.tree, figures: this.figures, paint: this.colours.paint, selected: this.selected, edge: this.edge, hovered: this.hovered }),
      { goTo: (id) => this.goTo(id), onStart: () => this.begin(), onDrawn: () => options.onLook?.() },
    );
    const { area, canvas } = this.surface;
    area.append(this.colours.element, this.said);
    if (this.tree.nodes.length === 1) area.append(el("p", { class: "ig-nothing" }, "No operation ran."));
    const failed = errorNote(this.tree, (id) => this.goTo(id));
    this.root = el("div", { class: "intus-graph" }, this.bar?.element, failed, el("div", { class: "ig-body" }, this.outline.element, area));
    if (options.toolbar === false || host.clientWidth < 1000) this.root.classList.add("ig-no-outline");
    host.replaceChildren(this.root);
    host.intusView = this;
    this.colours.put("");
    this.bar?.setDepth(this.stage.depth, this.stage.depths.steps);
    listen(canvas, gestures(this));
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.outline.update(-1);
    this.surface.start();
  }

  /** Build everything that follows from the scene, rolled or not. */
  private load(rolled: boolean): void {
    this.rolled = rolled;
    this.tree = buildTree(rolled ? roll(this.scene) : this.scene);
    this.figures = figures(this.tree);
    this.index.of(this.tree);
    this.stage = new Stage(this.tree, this.figures, this.measure);
    const { depth } = this.options;
    if (depth == null) this.stage.openReadable(READABLE);
    else this.stage.openToDepth(depth);
    this.frame = this.stage.frame();
  }

  // -- what others call ---------------------------------------------------------------------------------

  /** Every address that `select` and `paint` know. */
  get addresses(): string[] {
    return [...this.tree.byAddress.keys()];
  }

  /** Colour the boxes by address, or take the colours off. */
  paint(paint: Paint | null): void {
    this.colours.give(paint);
  }

  /** Colour by what the graph itself knows. */
  paintBuiltIn(which: BuiltIn): void {
    this.colours.put(which);
  }

  /** Select what answers to an address, opening what is around it; unknown addresses select nothing. */
  select(address: string | null): void {
    const id = address === null ? -1 : this.find(address);
    if (id < 0) this.choose(-1);
    else this.goTo(id);
  }

  open(address: string): void {
    const id = this.find(address);
    if (id < 0) return;
    this.change(() => {
      this.stage.reveal(id);
      this.stage.setOpen(id, true);
    }, id);
  }

  close(address: string): void {
    const id = this.find(address);
    if (id >= 0) this.change(() => this.stage.setOpen(id, false), id);
  }

  /** Open modules down to a depth; 0 leaves the model's own children alone, Infinity opens all. */
  openToDepth(depth: number): void {
    this.change(() => this.stage.openToDepth(depth), this.selected);
    this.said.textContent = `Open to depth ${depthName(depth)}: ${this.frame.count.toLocaleString("en")} boxes`;
  }

  /** Show the passes of a layer as one box, or each for itself; what is open and selected stays so. */
  roll(rolled: boolean): void {
    if (rolled === this.rolled) return;
    const place = placeOf(this.tree, this.stage, this.selected, rolled);
    const names = this.selected > 0 ? this.tree.nodes[this.selected].names : [];
    this.load(rolled);
    this.bar?.setRolled(rolled);
    this.choose(-1);
    const bare = place.open.flatMap((name) => [name, name.replace(/:\d+$/, ""), `${name}:1`]);
    this.change(() => openPlace(this.tree, this.stage, { ...place, depth: null, open: bare }), -1);
    const id = names.map((name) => this.find(name)).find((found) => found >= 0) ?? -1;
    if (id >= 0) this.goTo(id);
    else this.lens.begin(this.entry);
    this.colours.put(this.colours.which);
  }

  /** Show the place that a hash names (see `onPlace`); anything it cannot read is left as it is. */
  restore(hash: string): void {
    const place = fromHash(hash);
    if (place) this.follow(place, true);
  }

  /** What is open, chosen and rolled. */
  get place(): Place {
    return placeOf(this.tree, this.stage, this.selected, this.rolled);
  }

  /** The boxes as they lie, and from where they are looked at. */
  get look(): { frame: Frame; tree: Tree; camera: Camera; selected: number; width: number; height: number } {
    const { frame, tree, selected, lens } = this;
    const { clientWidth: width, clientHeight: height } = this.surface.area;
    return { frame, tree, selected, camera: lens.camera, width, height };
  }

  get lens(): Lens {
    return this.surface.lens;
  }

  get sight(): number {
    return this.surface.area.clientWidth;
  }

  lookFrom(camera: Camera): void {
    this.lens.move(camera);
  }

  /** Be as a place says; where it does not say what is open, that stays. The camera goes there if it is to `reach`. */
  follow(place: Partial<Place>, reach = false): void {
    if (place.rolled !== undefined && place.rolled !== this.rolled && isRecurrent(this.scene)) this.roll(place.rolled);
    if (place.open || place.depth != null) this.change(() => openPlace(this.tree, this.stage, place), -1);
    const id = this.idOf(place.at ?? "");
    if (id > 0) this.goTo(id, reach);
    else this.choose(-1);
  }

  /** The box that a name of a place means (see link.ts): an address, or `~` and that of a fold's first member. */
  idOf(name: string): number {
    const id = name ? this.find(name.replace("~", "")) : -1;
    return name.startsWith("~") ? (this.tree.nodes[id]?.parent ?? -1) : id;
  }

  /** Show the whole graph. */
  fit(): void {
    this.lens.fit();
  }

  destroy(): void {
    this.surface.stop();
    delete this.host.intusView;
    this.root.remove();
  }

  /** The visible boxes, as they stand. */
  boxes(): VisibleBox[] {
    return visibleBoxes(this.surface.picture);
  }

  /** The routes of the visible edges. */
  routes(): VisibleRoute[] {
    return visibleRoutes(this.surface.picture);
  }

  /** Whether nothing is moving. */
  get still(): boolean {
    return this.surface.still;
  }

  // -- state --------------------------------------------------------------------------------------------

  private find(address: string): number {
    return this.tree.byAddress.get(address) ?? this.tree.byAddress.get(`${address}:1`) ?? -1;
  }

  private onColours(): void {
    const { which, offered } = this.colours;
    this.bar?.setPaint(which, offered);
    if (this.selected >= 0) this.showPanel();
    this.redraw();
    this.options.onPaint?.();
  }

  choose(id: number, reach = false): void {
    const changed = id !== this.selected;
    this.selected = id;
    this.edge = null;
    this.light = lightOf(this.tree, this.frame, id);
    const box = this.frame.box(id);
    if (reach && box) this.lens.bringIntoView(box);
    this.showPanel();
    this.outline.update(id);
    const node = this.tree.nodes[id];
    this.said.textContent = node ? `${node.address || node.title}, ${node.subtitle || node.kind}` : "";
    if (changed) this.options.onSelect?.(node ? node.address || null : null);
    this.moved();
  }

  chooseEdge(edge: LevelEdge): void {
    this.choose(-1);
    this.edge = edge;
    this.showPanel();
    this.redraw();
  }

  private showPanel(): void {
    const actions = {
      goTo: (id: number) => this.goTo(id),
      close: () => this.choose(-1),
      pick: (id: number, which: number | "all") => this.change(() => this.stage.pick(id, which), id),
    };
    const { tree, stage, selected, edge } = this;
    const panel = edge ? edgePanel(tree, edge, actions) : selected < 0 ? null : panelFor(stage, selected, this.colours.paint, actions);
    if (this.panel && panel) this.panel.replaceWith(panel);
    else if (panel) this.surface.area.append(panel);
    else this.panel?.remove();
    this.panel = panel;
  }

  private goTo(id: number, reach = true): void {
    if (id === 0) return this.lens.begin(this.entry), this.choose(-1);
    if (!this.stage.isVisible(id)) this.change(() => this.stage.reveal(id), id);
    this.choose(id, reach);
  }

  toggle(id: number): void {
    this.change(() => this.stage.setOpen(id, !this.stage.open.has(id)), id);
    if (this.selected >= 0 && !this.stage.isVisible(this.selected)) this.choose(id);
  }

  /** Change what is open; the anchor's top left corner stays where it is on the screen, the rest moves. */
  private change(alter: () => void, anchor: number): void {
    const settle = hold(this.surface.picture, anchor);
    alter();
    this.frame = this.stage.frame();
    const { dx, dy, before } = settle(this.frame);
    if (dx || dy) this.lens.shift(dx, dy);
    this.outline.update(this.selected);
    this.edge = null;
    this.light = lightOf(this.tree, this.frame, this.selected);
    if (this.panel) this.showPanel();
    this.surface.slide(before);
    this.moved();
  }

  private moved(): void {
    const { tree, stage, selected, rolled } = this;
    this.bar?.setDepth(stage.depth, stage.depths.steps);
    this.options.onPlace?.(hashOf(tree, stage, selected, rolled));
    this.redraw();
  }

  /** Look at where the model begins, or at what failed. */
  private begin(): void {
    this.lens.begin(this.entry);
    const failed = failedBox(this.tree);
    if (failed) this.goTo(failed.id);
  }

  /** Where to begin looking: the input. */
  private get entry(): Box | undefined {
    const { children } = this.tree.nodes[0];
    return this.frame.box(children.find((id) => this.tree.nodes[id].kind === "input") ?? children[0] ?? -1);
  }

  private redraw(): void {
    this.surface.redraw();
  }

  /** Draw at once, for who measures. */
  paintNow(): void {
    this.surface.paintNow();
  }

  private makeToolbar(): Toolbar {
    const actions: ToolbarActions = {
      toggleOutline: () => {
        this.root.classList.toggle("ig-no-outline");
        this.outline.update(this.selected);
      },
      openToDepth: (depth) => this.openToDepth(depth),
      deeper: (by) => this.openToDepth(this.stage.depths.next(this.stage.open, this.stage.depth, by)),
      zoom: (factor) => this.lens.zoom(factor),
      fit: () => this.fit(),
      roll: isRecurrent(this.scene) ? (rolled) => this.roll(rolled) : null,
      paint: (which) => this.colours.put(which),
    };
    const search = searchField(this.index, (id) => this.goTo(id));
    return toolbar(this.scene, search, actions, this.options.themeButton === true, this.rolled);
  }

  // -- hands --------------------------------------------------------------------------------------------

  pick(id: number, part: "all" | "next" | "previous"): void {
    const now = this.stage.pickOf(id);
    const one = now === "all" ? 0 : now;
    const which = part === "all" ? (now === "all" ? 0 : "all") : one + (part === "next" ? 1 : -1);
    this.change(() => this.stage.pick(id, which), id);
    if (this.selected >= 0 && !this.stage.isVisible(this.selected)) this.choose(id);
  }

  hover(id: number, live: boolean): void {
    const { canvas } = this.surface;
    canvas.style.cursor = live ? "pointer" : "";
    if (id === this.hovered) return;
    this.hovered = id;
    const node = this.tree.nodes[id];
    canvas.title = node ? node.address || node.title : "";
    this.redraw();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
      this.root.querySelector<HTMLInputElement>(".ig-search input")?.focus();
      return event.preventDefault();
    }
    const [inPicture, inOutline] = [this.surface.canvas, this.outline.element].map((element) => element.contains(event.target as Node));
    if ((!inPicture && !inOutline) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (onLevelKey(event.key, this) || (inPicture && onPictureKey(event.key, this))) event.preventDefault();
  }
}
