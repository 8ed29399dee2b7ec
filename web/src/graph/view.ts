// The interactive graph: holds the state (what is open, where the camera is, what is selected and painted)
// and lets the parts around it show it.
import { readTheme, type Theme } from "./colour.ts";
import { el } from "./dom.ts";
import { drawPicture } from "./draw.ts";
import { errorNote, failedBox } from "./failure.ts";
import { figures, type Figures } from "./facts.ts";
import { depthName } from "./depths.ts";
import { boxAt, lineAt } from "./hit.ts";
import { listen, type Gestures } from "./input.ts";
import { legend } from "./legend.ts";
import { calm, ease, Lens, SLIDE } from "./lens.ts";
import { fromHash, openPlace, placeOf, toHash, type Place } from "./link.ts";
import { measurer } from "./measure.ts";
import { Minimap } from "./minimap.ts";
import { buildTree, type LevelEdge, type Tree } from "./model.ts";
import { Outline } from "./outline.ts";
import { builtInPaint, type BuiltIn, type Paint } from "./paint.ts";
import { panelFor } from "./panel.ts";
import { rectAt, type Camera, type Picture, type Rect } from "./picture.ts";
import { isRecurrent, roll } from "./roll.ts";
import { scaled } from "./scale.ts";
import type { Scene } from "./scene.ts";
import { SearchIndex, searchField } from "./search.ts";
import { HEADER, Stage, type Frame, type Measure } from "./stage.ts";
import { edgePanel } from "./tensors.ts";
import { toolbar, type Toolbar, type ToolbarActions } from "./toolbar.ts";
import { inSight, trail, trailOf } from "./trail.ts";
import { visibleBoxes, visibleRoutes, type VisibleBox, type VisibleRoute } from "./visible.ts";
import { neighbours, step, stream, type Stream } from "./walk.ts";

export type { Paint } from "./paint.ts";

export interface GraphOptions {
  onSelect?: (address: string | null) => void;
  /** Called with a hash that names what is seen, whenever that changes; `restore` takes it back. */
  onPlace?: (hash: string) => void;
  /** Called whenever the graph was drawn: for one that walks along (`sight`, `lookFrom`). */
  onLook?: () => void;
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
const ANIMATE_UP_TO = 4000; // boxes; more would not move smoothly
const HELP = "Graph. Arrows follow edges, Enter opens and closes, Escape goes up, 1 to 9 open so many levels, * all. The outline holds the same.";

declare global {
  interface HTMLElement {
    /** For tests and scripts: the graph an element holds. */
    intusView?: GraphView;
  }
}

/** The interactive graph of one model, filling `host`. */
export class GraphView {
  private tree!: Tree;
  private figures!: Figures;
  private stage!: Stage;
  private frame!: Frame;
  private readonly canvas = el("canvas", { class: "ig-canvas", tabindex: 0, role: "application", "aria-label": HELP });
  private readonly said = el("p", { class: "ig-said", "aria-live": "polite" });
  private readonly minimap = new Minimap((x, y) => this.lens.centre(x, y));
  private readonly outline: Outline;
  private readonly index = new SearchIndex();
  private readonly bar: Toolbar | null;
  private readonly area: HTMLElement;
  private readonly resize: ResizeObserver;
  private readonly schemes: (() => void)[] = [];
  private readonly root: HTMLElement;
  private readonly measure: Measure;
  private key: HTMLElement = el("div");
  private way: HTMLElement = el("nav");
  private wayTo = -1;
  private panel: HTMLElement | null = null;
  private theme: Theme;
  private readonly lens = new Lens(
    () => ({ width: this.area.clientWidth, height: this.area.clientHeight }),
    () => this.frame,
    () => this.redraw(),
  );
  private rolled = false;
  private shown: Paint | null = null;
  private builtIn: BuiltIn | "given" | "" = "";
  private given: Paint | null = null;
  private selected = -1;
  private edge: LevelEdge | null = null;
  private hovered = -1;
  private lit: Stream | null = null;
  private related = new Set<number>();
  private before = new Map<number, Rect>();
  private progress = 1;
  private pending = 0;
  private started = false;

  constructor(
    readonly host: HTMLElement,
    readonly scene: Scene,
    readonly options: GraphOptions = {},
  ) {
    this.measure = measurer(host);
    this.load(options.rolled ?? false);
    if (options.rolled == null && isRecurrent(scene) && this.frame.boxes.length > MANY) this.load(true);
    this.outline = new Outline(() => this.stage, { select: (id) => this.choose(id, true), toggle: (id) => this.toggle(id) });
    this.bar = options.toolbar === false ? null : this.makeToolbar();
    this.area = el("div", { class: "ig-area" }, this.canvas, this.way, this.key, this.minimap.element, this.said);
    if (this.tree.nodes.length === 1) this.area.append(el("p", { class: "ig-nothing" }, "No operation ran."));
    const failed = errorNote(this.tree, (id) => this.goTo(id));
    this.root = el("div", { class: "intus-graph" }, this.bar?.element, failed, el("div", { class: "ig-body" }, this.outline.element, this.area));
    if (options.toolbar === false || host.clientWidth < 1000) this.root.classList.add("ig-no-outline");
    host.replaceChildren(this.root);
    host.intusView = this;
    this.theme = readTheme(this.root);
    this.watchTheme();
    this.show(null, "");
    this.bar?.setDepth(this.stage.depth, this.stage.depths.steps);
    listen(this.canvas, this.gestures());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    for (const event of ["focus", "blur"]) this.canvas.addEventListener(event, () => this.redraw());
    this.resize = new ResizeObserver(() => this.onResize());
    this.resize.observe(this.area);
    this.outline.update(-1);
    this.onResize();
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
    this.given = paint;
    this.show(paint, paint ? "given" : "");
  }

  /** Colour by what the graph itself knows. */
  paintBuiltIn(which: BuiltIn): void {
    this.show(builtInPaint(which, this.tree, this.figures), which);
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
    this.said.textContent = `Open to depth ${depthName(depth)}: ${this.frame.boxes.length.toLocaleString("en")} boxes`;
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
    else this.lens.begin(this.frame.boxes[0]);
    if (this.builtIn && this.builtIn !== "given") this.paintBuiltIn(this.builtIn);
    else this.show(this.shown, this.builtIn);
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
  get sight(): { frame: Frame; tree: Tree; camera: Camera; selected: number; width: number; height: number } {
    const { frame, tree, selected, area, lens } = this;
    return { frame, tree, selected, camera: lens.camera, width: area.clientWidth, height: area.clientHeight };
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
    this.resize.disconnect();
    for (const stop of this.schemes) stop();
    cancelAnimationFrame(this.pending);
    delete this.host.intusView;
    this.root.remove();
  }

  /** The visible boxes, as they stand. */
  boxes(): VisibleBox[] {
    return visibleBoxes(this.picture());
  }

  /** The routes of the visible edges. */
  routes(): VisibleRoute[] {
    return visibleRoutes(this.picture());
  }

  /** Whether nothing is moving. */
  get still(): boolean {
    return this.progress >= 1 && !this.lens.moving;
  }

  // -- state --------------------------------------------------------------------------------------------

  private find(address: string): number {
    return this.tree.byAddress.get(address) ?? this.tree.byAddress.get(`${address}:1`) ?? -1;
  }

  private show(paint: Paint | null, which: BuiltIn | "given" | ""): void {
    const before = this.shown?.title === paint?.title ? this.shown : null; // new numbers of a thing keep its scale
    this.shown = paint && scaled({ ...paint, log: before ? before.log : paint.log });
    this.builtIn = which;
    this.bar?.setPaint(which, paint?.title ?? "");
    this.showKey();
    if (this.selected >= 0) this.showPanel();
    this.redraw();
  }

  private showKey(): void {
    const key = legend(this.shown, this.tree, (log) => {
      this.shown = { ...this.shown!, log };
      this.showKey();
      this.key.querySelector("button")?.focus();
      this.redraw();
    });
    this.key.replaceWith(key);
    this.key = key;
  }

  private choose(id: number, reach = false): void {
    const changed = id !== this.selected;
    this.selected = id;
    this.edge = null;
    this.light();
    const box = this.frame.byId.get(id);
    if (reach && box) this.lens.bringIntoView(box);
    this.showPanel();
    this.outline.update(id);
    const node = this.tree.nodes[id];
    this.said.textContent = node ? `${node.address || node.title}, ${node.subtitle || node.kind}` : "";
    if (changed) this.options.onSelect?.(node ? node.address || null : null);
    this.moved();
  }

  private chooseEdge(edge: LevelEdge): void {
    this.choose(-1);
    this.edge = edge;
    this.showPanel();
    this.redraw();
  }

  /** What the selected box's tensors come from and go to. */
  private light(): void {
    this.lit = null;
    this.related = new Set();
    if (this.selected <= 0 || !this.frame.byId.has(this.selected)) return;
    const [up, down] = [false, true].map((way) => stream(this.tree, this.frame, this.selected, way));
    this.lit = { boxes: new Set([...up.boxes, ...down.boxes]), lines: new Set([...up.lines, ...down.lines]) };
    const near = neighbours(this.tree, this.frame, this.selected);
    this.related = new Set([...near.before, ...near.after]);
  }

  private showPanel(): void {
    const actions = {
      goTo: (id: number) => this.goTo(id),
      close: () => this.choose(-1),
      pick: (id: number, which: number | "all") => this.change(() => this.stage.pick(id, which), id),
    };
    const { tree, stage, selected, edge } = this;
    const panel = edge ? edgePanel(tree, edge, actions) : selected < 0 ? null : panelFor(stage, selected, this.shown, actions);
    if (this.panel && panel) this.panel.replaceWith(panel);
    else if (panel) this.area.append(panel);
    else this.panel?.remove();
    this.panel = panel;
  }

  private goTo(id: number, reach = true): void {
    if (id === 0) return this.lens.begin(this.frame.boxes[0]), this.choose(-1);
    if (!this.stage.isVisible(id)) this.change(() => this.stage.reveal(id), id);
    this.choose(id, reach);
  }

  private toggle(id: number): void {
    this.change(() => this.stage.setOpen(id, !this.stage.open.has(id)), id);
    if (this.selected >= 0 && !this.stage.isVisible(this.selected)) this.choose(id);
  }

  /** Change what is open; the anchor's top left corner stays where it is on the screen, the rest moves. */
  private change(alter: () => void, anchor: number): void {
    const old = this.frame;
    const picture = this.picture();
    const rects = old.boxes.length <= ANIMATE_UP_TO ? new Map(old.boxes.map((box) => [box.node.id, { ...rectAt(picture, box) }])) : new Map<number, Rect>();
    const fixed = this.anchorOf(anchor, old);
    const held = old.byId.get(fixed);
    const was = held && { x: held.x, y: held.y }; // the next frame moves the boxes of this one
    alter();
    this.frame = this.stage.frame();
    const is = this.frame.byId.get(fixed);
    if (was && is) {
      const at = rects.get(fixed) ?? was;
      const [dx, dy] = [is.x - at.x, is.y - at.y];
      this.lens.shift(dx, dy);
      for (const rect of rects.values()) {
        rect.x += dx;
        rect.y += dy;
      }
    }
    if (is && !is.open) rects.delete(fixed);
    this.outline.update(this.selected);
    this.edge = null;
    this.light();
    if (this.panel) this.showPanel();
    this.slide(rects);
    this.moved();
  }

  private moved(): void {
    const { place } = this;
    this.bar?.setDepth(place.depth, this.stage.depths.steps);
    this.options.onPlace?.(toHash(place));
    this.redraw();
  }

  /** The box to hold still: the one acted on if it was visible, else the nearest one around it, else any in sight. */
  private anchorOf(id: number, frame: Frame): number {
    for (let n = id; n > 0; n = this.tree.nodes[n].parent) if (frame.byId.has(n)) return n;
    const top = frame.boxes.find((box) => box.y + HEADER > this.lens.camera.y);
    return top ? top.node.id : -1;
  }

  // -- size and movement -------------------------------------------------------------------------------------------

  private onResize(): void {
    const { width, height } = this.area.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    if (!this.started && width > 0 && height > 0) {
      this.started = true;
      this.lens.begin(this.frame.boxes.find((box) => box.node.kind === "input") ?? this.frame.boxes[0]);
      const failed = failedBox(this.tree);
      if (failed) this.goTo(failed.id);
    }
    this.paintNow();
  }

  private slide(before: Map<number, Rect>): void {
    this.before = before;
    if (calm() || before.size === 0) {
      this.progress = 1;
      return this.redraw();
    }
    const began = performance.now();
    this.progress = 0;
    const tick = (): void => {
      if (this.before !== before) return;
      this.progress = ease((performance.now() - began) / SLIDE);
      if (this.progress < 1) requestAnimationFrame(tick);
      this.paintNow();
    };
    tick();
  }

  // -- picture ------------------------------------------------------------------------------------------

  private picture(): Picture {
    const ratio = devicePixelRatio || 1;
    const { frame, tree, figures, theme, selected, edge, lit, hovered, related, progress, before } = this;
    return {
      ...{ frame, tree, figures, theme, selected, edge, lit, hovered, related, progress, before, ratio },
      camera: this.lens.camera,
      paint: this.shown,
      focused: document.activeElement === this.canvas,
      width: this.canvas.width / ratio,
      height: this.canvas.height / ratio,
    };
  }

  private redraw(): void {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => this.paintNow());
  }

  private paintNow(): void {
    cancelAnimationFrame(this.pending);
    this.pending = 0;
    const picture = this.picture();
    drawPicture(this.canvas.getContext("2d")!, picture);
    this.minimap.draw(this.frame, this.lens.camera, this.theme, this.shown, picture.width, picture.height);
    this.showTrail(picture);
    this.options.onLook?.();
  }

  private showTrail({ camera, width, height }: Picture): void {
    const to = this.selected > 0 ? this.selected : inSight(this.frame, camera, width, height);
    if (to === this.wayTo) return;
    this.wayTo = to;
    const way = trail(this.tree, trailOf(this.tree, to), (id) => this.goTo(id));
    this.way.replaceWith(way);
    this.way = way;
  }

  private watchTheme(): void {
    const refresh = (): void => {
      this.theme = readTheme(this.root);
      this.redraw();
    };
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", refresh);
    const toggled = new MutationObserver(refresh);
    toggled.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    this.schemes.push(() => scheme.removeEventListener("change", refresh), () => toggled.disconnect());
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
      paint: (which) => {
        if (which === "given") this.show(this.given, "given");
        else if (which) this.paintBuiltIn(which);
        else this.show(null, "");
      },
    };
    const search = searchField(this.index, (id) => this.goTo(id));
    return toolbar(this.scene, search, actions, this.options.themeButton === true, this.rolled);
  }

  // -- pointer and keys ---------------------------------------------------------------------------------

  private gestures(): Gestures {
    const at = (x: number, y: number): ReturnType<typeof boxAt> => boxAt(this.frame, this.lens.camera, this.area.clientWidth, x, y);
    return {
      pan: (dx, dy) => this.lens.pan(dx, dy),
      zoom: (factor, x, y) => this.lens.zoom(factor, { x, y }),
      press: (x, y) => {
        const hit = at(x, y);
        if (!hit) {
          const line = lineAt(this.frame, this.lens.camera, x, y);
          return line ? this.chooseEdge(line.edge) : this.choose(-1);
        }
        const { id } = hit.box.node;
        if (hit.part === "button") this.toggle(id);
        else if (hit.part === "body") this.choose(id);
        else this.pick(id, hit.part);
      },
      pressTwice: (x, y) => {
        const hit = at(x, y);
        if (hit?.part === "body" && hit.box.node.children.length) this.toggle(hit.box.node.id);
      },
      hover: (x, y) => {
        const hit = at(x, y);
        this.hover(hit?.box.node.id ?? -1, hit !== undefined || lineAt(this.frame, this.lens.camera, x, y) !== undefined);
      },
      leave: () => this.hover(-1, false),
    };
  }

  private pick(id: number, part: "all" | "next" | "previous"): void {
    const now = this.stage.pickOf(id);
    const one = now === "all" ? 0 : now;
    const which = part === "all" ? (now === "all" ? 0 : "all") : one + (part === "next" ? 1 : -1);
    this.change(() => this.stage.pick(id, which), id);
    if (this.selected >= 0 && !this.stage.isVisible(this.selected)) this.choose(id);
  }

  private hover(id: number, live: boolean): void {
    this.canvas.style.cursor = live ? "pointer" : "";
    if (id === this.hovered) return;
    this.hovered = id;
    const node = this.tree.nodes[id];
    this.canvas.title = node ? node.address || node.title : "";
    this.redraw();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
      this.root.querySelector<HTMLInputElement>(".ig-search input")?.focus();
      return event.preventDefault();
    }
    const inOutline = this.outline.element.contains(event.target as Node);
    if ((event.target !== this.canvas && !inOutline) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^[1-9*]$/.test(event.key)) {
      this.openToDepth(event.key === "*" ? Infinity : Number(event.key));
      return event.preventDefault();
    }
    if (inOutline) return;
    const { selected } = this;
    if (event.key.startsWith("Arrow")) {
      const next = selected < 0 ? (this.frame.boxes[0]?.node.id ?? -1) : step(this.tree, this.frame, selected, event.key);
      if (next >= 0) this.choose(next, true);
    } else if ((event.key === "Enter" || event.key === " ") && selected >= 0) this.toggle(selected);
    else if (event.key === "Escape") this.choose(selected > 0 && this.tree.nodes[selected].parent > 0 ? this.tree.nodes[selected].parent : -1, true);
    else if (event.key === "[" && selected >= 0) this.pick(selected, "previous");
    else if (event.key === "]" && selected >= 0) this.pick(selected, "next");
    else if (event.key === "+" || event.key === "=") this.lens.zoom(1.25);
    else if (event.key === "-") this.lens.zoom(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }
}
