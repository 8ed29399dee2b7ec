// The interactive graph: holds the state (what is open, where the camera is, what is selected and painted)
// and lets the parts around it show it.
import { readTheme, type Theme } from "./colour.ts";
import { el } from "./dom.ts";
import { drawPicture } from "./draw.ts";
import { figures, type Figures } from "./facts.ts";
import { listen } from "./input.ts";
import { legend } from "./legend.ts";
import { calm, ease, Lens, SLIDE } from "./lens.ts";
import { Minimap } from "./minimap.ts";
import { buildTree, isFailed, type Tree } from "./model.ts";
import { Outline } from "./outline.ts";
import { builtInPaint, type BuiltIn, type Paint } from "./paint.ts";
import { panelFor } from "./panel.ts";
import { rectAt, type Picture, type Rect } from "./picture.ts";
import type { Scene } from "./scene.ts";
import { searchField } from "./search.ts";
import { HEADER, Stage, type Box, type Frame } from "./stage.ts";
import { toolbar, type Toolbar } from "./toolbar.ts";
import { visibleBoxes, visibleRoutes, type VisibleBox, type VisibleRoute } from "./visible.ts";
import { neighbours, step } from "./walk.ts";

export type { Paint } from "./paint.ts";

export interface GraphOptions {
  onSelect?: (address: string | null) => void;
  toolbar?: boolean;
  /** Whether the toolbar switches between light and dark: for a graph that has the page to itself. */
  themeButton?: boolean;
  /** How many levels of modules to open at first; as many as stay readable when absent. */
  depth?: number | null;
}

const READABLE = 26; // boxes open at first
const ANIMATE_UP_TO = 4000; // boxes; more would not move smoothly

declare global {
  interface HTMLElement {
    /** For tests and scripts: the graph an element holds. */
    intusView?: GraphView;
  }
}

/** The interactive graph of one model, filling `host`. */
export class GraphView {
  readonly addresses: string[];
  private readonly tree: Tree;
  private readonly figures: Figures;
  private readonly stage: Stage;
  private readonly canvas = el("canvas", { class: "ig-canvas", tabindex: 0, role: "application", "aria-label": "Graph. Arrows follow edges, Enter opens and closes, Escape goes up. The outline holds the same." });
  private readonly said = el("p", { class: "ig-said", "aria-live": "polite" });
  private readonly minimap = new Minimap((x, y) => this.lens.centre(x, y));
  private readonly outline: Outline;
  private readonly bar: Toolbar | null;
  private readonly area: HTMLElement;
  private readonly resize: ResizeObserver;
  private readonly schemes: (() => void)[] = [];
  private readonly root: HTMLElement;
  private key = legend(null);
  private panel: HTMLElement | null = null;
  private frame: Frame;
  private theme: Theme;
  private readonly lens = new Lens(
    () => ({ width: this.area.clientWidth, height: this.area.clientHeight }),
    () => this.frame,
    () => this.redraw(),
  );
  private shown: Paint | null = null;
  private given: Paint | null = null;
  private selected = -1;
  private hovered = -1;
  private related = new Set<number>();
  private before = new Map<number, Rect>();
  private progress = 1;
  private depth = 0;
  private pending = 0;
  private started = false;

  constructor(
    readonly host: HTMLElement,
    readonly scene: Scene,
    readonly options: GraphOptions = {},
  ) {
    this.tree = buildTree(scene);
    this.figures = figures(this.tree);
    this.stage = new Stage(this.tree, this.figures, measurer(host));
    this.addresses = [...this.tree.byAddress.keys()];
    if (options.depth === undefined || options.depth === null) this.stage.openReadable(READABLE);
    else this.stage.openToDepth(options.depth);
    this.depth = options.depth ?? this.depthNow();
    this.frame = this.stage.frame();
    const actions = { select: (id: number) => this.choose(id, true), toggle: (id: number) => this.toggle(id) };
    this.outline = new Outline(this.stage, actions);
    this.bar = options.toolbar === false ? null : this.makeToolbar();
    this.area = el("div", { class: "ig-area" }, this.canvas, this.key, this.minimap.element, this.said);
    if (this.tree.nodes.length === 1) this.area.append(el("p", { class: "ig-nothing" }, "No operation ran."));
    this.root = el("div", { class: "intus-graph" }, this.bar?.element, this.errorNote(), el("div", { class: "ig-body" }, this.outline.element, this.area));
    if (options.toolbar === false || host.clientWidth < 1000) this.root.classList.add("ig-no-outline");
    host.replaceChildren(this.root);
    host.intusView = this;
    this.theme = readTheme(this.root);
    this.watchTheme();
    listen(this.canvas, this.gestures());
    this.root.addEventListener("keydown", (event) => this.onKey(event));
    this.canvas.addEventListener("focus", () => this.redraw());
    this.canvas.addEventListener("blur", () => this.redraw());
    this.resize = new ResizeObserver(() => this.onResize());
    this.resize.observe(this.area);
    this.outline.update(-1);
    this.onResize();
  }

  // -- what others call ---------------------------------------------------------------------------------

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
    this.depth = Math.max(0, depth);
    this.change(() => this.stage.openToDepth(this.depth), this.selected);
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
    this.shown = paint;
    this.bar?.setPaint(which, paint?.title ?? "");
    const key = legend(paint);
    this.key.replaceWith(key);
    this.key = key;
    if (this.selected >= 0) this.showPanel();
    this.redraw();
  }

  private choose(id: number, reach = false): void {
    const changed = id !== this.selected;
    this.selected = id;
    const near = id >= 0 ? neighbours(this.tree, this.frame, id) : { before: [], after: [] };
    this.related = new Set([...near.before, ...near.after]);
    const box = this.frame.byId.get(id);
    if (reach && box) this.lens.bringIntoView(box);
    this.showPanel();
    this.outline.update(id);
    const node = this.tree.nodes[id];
    this.said.textContent = node ? `${node.address || node.title}, ${node.subtitle || node.kind}` : "";
    if (changed) this.options.onSelect?.(node ? node.address || null : null);
    this.redraw();
  }

  private showPanel(): void {
    const panel = this.selected < 0 ? null : panelFor(this.tree, this.figures, this.selected, this.shown, { goTo: (id) => this.goTo(id), close: () => this.choose(-1) });
    if (this.panel && panel) this.panel.replaceWith(panel);
    else if (panel) this.area.append(panel);
    else this.panel?.remove();
    this.panel = panel;
  }

  private goTo(id: number): void {
    if (!this.stage.isVisible(id)) this.change(() => this.stage.reveal(id), id);
    this.choose(id, true);
  }

  private toggle(id: number): void {
    this.change(() => this.stage.setOpen(id, !this.stage.open.has(id)), id);
    if (this.selected >= 0 && !this.stage.isVisible(this.selected)) this.choose(id);
    else this.outline.update(this.selected);
  }

  /** Change what is open; the anchor's top left corner stays where it is on the screen, the rest moves. */
  private change(alter: () => void, anchor: number): void {
    const old = this.frame;
    const picture = this.picture();
    const rects = old.boxes.length <= ANIMATE_UP_TO ? new Map(old.boxes.map((box) => [box.node.id, { ...rectAt(picture, box) }])) : new Map<number, Rect>();
    const fixed = this.anchorOf(anchor, old);
    alter();
    this.frame = this.stage.frame();
    const was = old.byId.get(fixed);
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
    for (const box of this.frame.boxes) if (box.node.id === fixed && !box.open) rects.delete(fixed);
    this.outline.update(this.selected);
    if (this.selected >= 0) {
      const near = neighbours(this.tree, this.frame, this.selected);
      this.related = new Set([...near.before, ...near.after]);
    }
    this.slide(rects);
  }

  /** The box to hold still: the one acted on if it was visible, else the nearest one around it, else any in sight. */
  private anchorOf(id: number, frame: Frame): number {
    for (let n = id; n > 0; n = this.tree.nodes[n].parent) if (frame.byId.has(n)) return n;
    const inSight = frame.boxes.find((box) => box.y + HEADER > this.lens.camera.y);
    return inSight ? inSight.node.id : -1;
  }

  private depthNow(): number {
    let depth = 0;
    for (const id of this.stage.open) depth = Math.max(depth, this.tree.nodes[id].depth);
    return depth;
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
      const failed = this.scene.error ? this.tree.nodes.find(isFailed) : undefined;
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
    return {
      frame: this.frame,
      tree: this.tree,
      figures: this.figures,
      theme: this.theme,
      camera: this.lens.camera,
      paint: this.shown,
      selected: this.selected,
      hovered: this.hovered,
      focused: document.activeElement === this.canvas,
      related: this.related,
      width: this.canvas.width / ratio,
      height: this.canvas.height / ratio,
      ratio,
      progress: this.progress,
      before: this.before,
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
    const actions = {
      toggleOutline: () => {
        this.root.classList.toggle("ig-no-outline");
        this.outline.update(this.selected);
      },
      deeper: (by: number) => this.openToDepth(Math.abs(by) === Infinity ? by : Math.min(this.depth, this.deepest()) + by),
      zoom: (factor: number) => this.lens.zoom(factor),
      fit: () => this.fit(),
      paint: (which: BuiltIn | "given" | "") => {
        if (which === "given") this.show(this.given, "given");
        else if (which) this.paintBuiltIn(which);
        else this.show(null, "");
      },
    };
    return toolbar(this.scene, searchField(this.tree, (id) => this.goTo(id)), actions, this.options.themeButton === true);
  }

  private deepest(): number {
    return this.tree.nodes.reduce((most, node) => (node.children.length ? Math.max(most, node.depth) : most), 0);
  }

  private errorNote(): HTMLElement | null {
    if (!this.scene.error) return null;
    const failed = this.tree.nodes.find(isFailed);
    const go = failed && el("button", { type: "button", class: "ig-link", click: () => this.goTo(failed.id) }, `Show ${failed.address}`);
    return el("div", { class: "ig-error", role: "alert" }, el("strong", {}, "The model raised"), el("span", {}, this.scene.error), go);
  }

  // -- pointer and keys ---------------------------------------------------------------------------------

  private gestures(): Parameters<typeof listen>[1] {
    return {
      pan: (dx, dy) => this.lens.pan(dx, dy),
      zoom: (factor, x, y) => this.lens.zoom(factor, { x, y }),
      press: (x, y) => {
        const box = this.boxAt(x, y);
        if (box && this.onButton(box, x)) this.toggle(box.node.id);
        else this.choose(box ? box.node.id : -1);
      },
      pressTwice: (x, y) => {
        const box = this.boxAt(x, y);
        if (box && box.node.children.length && !this.onButton(box, x)) this.toggle(box.node.id);
      },
      hover: (x, y) => this.hover(this.boxAt(x, y)),
      leave: () => this.hover(undefined),
    };
  }

  private hover(box: Box | undefined): void {
    const id = box ? box.node.id : -1;
    if (id === this.hovered) return;
    this.hovered = id;
    this.canvas.style.cursor = box ? "pointer" : "";
    this.canvas.title = box ? box.node.address || box.node.title : "";
    this.redraw();
  }

  /** The innermost box at a place; of an open one, only its header. */
  private boxAt(x: number, y: number): Box | undefined {
    const { camera } = this.lens;
    const [wx, wy] = [camera.x + x / camera.scale, camera.y + y / camera.scale];
    let found: Box | undefined;
    for (const box of this.frame.boxes) {
      const height = box.open ? HEADER : box.height;
      const hit = wx >= box.x && wx <= box.x + box.width && wy >= box.y && wy <= box.y + height;
      if (hit && (!found || box.node.depth > found.node.depth)) found = box;
    }
    return found;
  }

  private onButton(box: Box, x: number): boolean {
    return box.node.children.length > 0 && this.lens.camera.x + x / this.lens.camera.scale <= box.x + 30;
  }

  private onKey(event: KeyboardEvent): void {
    if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
      this.root.querySelector<HTMLInputElement>(".ig-search input")?.focus();
      return event.preventDefault();
    }
    if (event.target !== this.canvas || event.ctrlKey || event.metaKey || event.altKey) return;
    const { selected } = this;
    if (event.key.startsWith("Arrow")) {
      const next = selected < 0 ? (this.frame.boxes[0]?.node.id ?? -1) : step(this.tree, this.frame, selected, event.key);
      if (next >= 0) this.choose(next, true);
    } else if ((event.key === "Enter" || event.key === " ") && selected >= 0) this.toggle(selected);
    else if (event.key === "Escape") this.choose(selected > 0 && this.tree.nodes[selected].parent > 0 ? this.tree.nodes[selected].parent : -1, true);
    else if (event.key === "+" || event.key === "=") this.lens.zoom(1.25);
    else if (event.key === "-") this.lens.zoom(0.8);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }
}

/** Text widths in the page's font, each measured once. */
function measurer(host: HTMLElement): (text: string, size: number, bold: boolean) => number {
  const ctx = document.createElement("canvas").getContext("2d")!;
  const font = getComputedStyle(host).getPropertyValue("--font") || "sans-serif";
  const known = new Map<string, number>();
  return (text, size, bold) => {
    const key = `${size}${bold}${text}`;
    let width = known.get(key);
    if (width === undefined) {
      ctx.font = `${bold ? "600 " : ""}${size}px ${font}`;
      known.set(key, (width = ctx.measureText(text).width));
    }
    return width;
  };
}
