// The interactive graph: holds the state (what is open, where the camera is, what is selected and painted)
// and lets the parts around it show it.
import { readTheme, type Theme } from "./colour.ts";
import { el } from "./dom.ts";
import { drawPicture, paintOf, rectAt, type Camera, type Picture, type Rect } from "./draw.ts";
import { figures, type Figures } from "./facts.ts";
import { listen } from "./input.ts";
import { legend } from "./legend.ts";
import { Minimap } from "./minimap.ts";
import { buildTree, isFailed, type Tree } from "./model.ts";
import { Outline } from "./outline.ts";
import { builtInPaint, type BuiltIn, type Paint } from "./paint.ts";
import { panelFor } from "./panel.ts";
import type { Scene } from "./scene.ts";
import { searchField } from "./search.ts";
import { captions, HEADER, Stage, type Box, type Frame } from "./stage.ts";
import { toolbar, type Toolbar } from "./toolbar.ts";
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

/** A box as it stands on the screen, for tests: CSS pixels from the top left of the graph's canvas. */
export interface VisibleBox {
  address: string;
  label: string;
  kind: string;
  open: boolean;
  x: number;
  y: number;
  width: number;
  height: number;
  /** The colour it is painted with; null without paint, "missing" where the paint has no value. */
  colour: string | null;
}

const READABLE = 26; // boxes open at first
const ANIMATE_UP_TO = 4000; // boxes; more would not move smoothly
const SLIDE = 220; // milliseconds

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
  private readonly minimap = new Minimap((x, y) => this.centre(x, y));
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
  private camera: Camera = { x: 0, y: 0, scale: 1 };
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
    const { width, height } = this.area.getBoundingClientRect();
    const scale = Math.min((width - 48) / this.frame.width, (height - 48) / this.frame.height, 1.25);
    const x = this.frame.width / 2 - width / 2 / scale;
    this.glide({ x, y: this.frame.height / 2 - height / 2 / scale, scale });
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
    const picture = this.picture();
    return this.frame.boxes.map((box) => {
      const r = rectAt(picture, box);
      const fill = paintOf(picture, box.node);
      return {
        address: box.node.address,
        label: captions(box.node, this.figures)[0],
        kind: box.node.kind,
        open: box.open,
        x: (r.x - this.camera.x) * this.camera.scale,
        y: (r.y - this.camera.y) * this.camera.scale,
        width: r.width * this.camera.scale,
        height: r.height * this.camera.scale,
        colour: fill ? (fill.colour ?? "missing") : null,
      };
    });
  }

  /** The routes of the visible edges, for tests: screen points, and the address of either end ("" for a port). */
  routes(): { from: string; to: string; points: number[] }[] {
    const { x, y, scale } = this.camera;
    const name = (id: number): string => this.tree.nodes[id]?.address ?? "";
    return this.frame.lines.map((line) => ({
      from: name(line.edge.from),
      to: name(line.edge.to),
      points: Array.from(line.route, (at, i) => (i % 2 ? line.y + at - y : line.x + at - x) * scale),
    }));
  }

  /** Whether nothing is moving. */
  get still(): boolean {
    return this.progress >= 1 && !this.gliding;
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
    if (reach && id >= 0) this.bringIntoView(id);
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
      this.camera = { ...this.camera, x: this.camera.x + dx, y: this.camera.y + dy };
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
    const inSight = frame.boxes.find((box) => box.y + HEADER > this.camera.y);
    return inSight ? inSight.node.id : -1;
  }

  private depthNow(): number {
    let depth = 0;
    for (const id of this.stage.open) depth = Math.max(depth, this.tree.nodes[id].depth);
    return depth;
  }

  // -- camera -------------------------------------------------------------------------------------------

  private onResize(): void {
    const { width, height } = this.area.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    if (!this.started && width > 0 && height > 0) {
      this.started = true;
      this.begin(width);
    }
    this.paintNow();
  }

  /** Start readable and at the top: never fit a graph forty times taller than it is wide. */
  private begin(width: number): void {
    const scale = Math.min(1, Math.max(0.62, (width - 40) / this.frame.width));
    const first = this.frame.boxes.find((box) => box.node.kind === "input") ?? this.frame.boxes[0];
    const fits = this.frame.width * scale <= width - 16;
    const middle = fits || !first ? this.frame.width / 2 : first.x + first.width / 2;
    this.camera = { x: middle - width / 2 / scale, y: -14 / scale, scale };
    if (this.scene.error) {
      const failed = this.tree.nodes.find(isFailed);
      if (failed) this.goTo(failed.id);
    }
  }

  private bringIntoView(id: number): void {
    const box = this.frame.byId.get(id);
    if (!box) return;
    const { width, height } = this.area.getBoundingClientRect();
    const scale = Math.max(this.camera.scale, 0.7);
    const beside = width > 680; // the panel stands over the right side, or over the lower part
    const [w, h] = [(width - (beside ? 320 : 0)) / scale, (height * (beside ? 1 : 0.54)) / scale];
    const seen = this.camera;
    const inside = seen.scale === scale && box.x > seen.x + 8 && box.x + Math.min(box.width, w - 40) < seen.x + w && box.y > seen.y + 8 && box.y + Math.min(box.height, h / 2) < seen.y + h - 40;
    if (inside) return;
    const tall = Math.min(box.height, h * 0.7);
    this.glide({ scale, x: box.x + Math.min(box.width, w) / 2 - w / 2, y: box.y + tall / 2 - h * 0.45 });
  }

  private centre(x: number, y: number): void {
    const { width, height } = this.area.getBoundingClientRect();
    this.moveCamera({ ...this.camera, x: x - width / 2 / this.camera.scale, y: y - height / 2 / this.camera.scale });
  }

  private zoom(factor: number, x: number, y: number): void {
    const { camera } = this;
    const scale = Math.min(3, Math.max(0.02, camera.scale * factor));
    this.moveCamera({ scale, x: camera.x + x / camera.scale - x / scale, y: camera.y + y / camera.scale - y / scale });
  }

  /** Keep some of the graph in sight, wherever it is dragged. */
  private moveCamera(camera: Camera): void {
    this.gliding = 0;
    const { width, height } = this.area.getBoundingClientRect();
    const [w, h] = [width / camera.scale, height / camera.scale];
    const x = Math.min(this.frame.width - w * 0.15, Math.max(-w * 0.85, camera.x));
    const y = Math.min(this.frame.height - h * 0.15, Math.max(-h * 0.85, camera.y));
    this.camera = { scale: camera.scale, x, y };
    this.redraw();
  }

  private gliding = 0;

  private glide(to: Camera): void {
    const from = this.camera;
    const began = performance.now();
    const run = (this.gliding = began);
    if (calm()) {
      this.camera = to;
      this.gliding = 0;
      return this.redraw();
    }
    const tick = (): void => {
      if (this.gliding !== run) return;
      const t = ease(Math.min(1, (performance.now() - began) / SLIDE));
      this.camera = { x: from.x + (to.x - from.x) * t, y: from.y + (to.y - from.y) * t, scale: from.scale + (to.scale - from.scale) * t };
      if (t >= 1) this.gliding = 0;
      else requestAnimationFrame(tick);
      this.redraw();
    };
    requestAnimationFrame(tick);
  }

  private slide(before: Map<number, Rect>): void {
    this.before = before;
    this.gliding = 0;
    if (calm() || before.size === 0) {
      this.progress = 1;
      return this.redraw();
    }
    const began = performance.now();
    this.progress = 0;
    const tick = (): void => {
      if (this.before !== before) return;
      this.progress = ease(Math.min(1, (performance.now() - began) / SLIDE));
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
      camera: this.camera,
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
    this.minimap.draw(this.frame, this.camera, this.theme, this.shown, picture.width, picture.height);
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
      deeper: (by: number) => this.openToDepth(Math.min(this.depth + by, this.deepest())),
      zoom: (factor: number) => this.zoom(factor, this.area.clientWidth / 2, this.area.clientHeight / 2),
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
      camera: () => this.camera,
      pan: (dx, dy) => this.moveCamera({ ...this.camera, x: this.camera.x - dx / this.camera.scale, y: this.camera.y - dy / this.camera.scale }),
      zoom: (factor, x, y) => this.zoom(factor, x, y),
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
    const [wx, wy] = [this.camera.x + x / this.camera.scale, this.camera.y + y / this.camera.scale];
    let found: Box | undefined;
    for (const box of this.frame.boxes) {
      const height = box.open ? HEADER : box.height;
      const hit = wx >= box.x && wx <= box.x + box.width && wy >= box.y && wy <= box.y + height;
      if (hit && (!found || box.node.depth > found.node.depth)) found = box;
    }
    return found;
  }

  private onButton(box: Box, x: number): boolean {
    return box.node.children.length > 0 && this.camera.x + x / this.camera.scale <= box.x + 30;
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
    else if (event.key === "+" || event.key === "=") this.zoom(1.25, this.area.clientWidth / 2, this.area.clientHeight / 2);
    else if (event.key === "-") this.zoom(0.8, this.area.clientWidth / 2, this.area.clientHeight / 2);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }
}

const ease = (t: number): number => 1 - (1 - t) ** 3;

const calm = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;

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
