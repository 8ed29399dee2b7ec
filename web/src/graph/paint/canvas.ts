// The picture on the screen, with its map and the trail above it: when it is drawn anew, and what moves in it.
import { el } from "../dom.ts";
import type { Rect } from "../layout/visibleLayout.ts";
import { inSight, trail, trailOf } from "../panel/trail.ts";
import { calm, CameraControl, ease, SLIDE } from "./camera.ts";
import { type CanvasTheme, readTheme } from "./colour.ts";
import { drawPicture } from "./draw.ts";
import { Minimap } from "./minimap.ts";
import type { Picture } from "./picture.ts";

/** What the picture shows, whatever it is looked at from. */
export type CanvasContent = Pick<Picture, "visible" | "tree" | "figures" | "paint" | "selected" | "edge" | "lit" | "hovered" | "related">;

const HELP = "Graph. Arrows follow edges, Enter opens and closes, Escape goes up, 1 to 9 open so many levels, * all. The outline holds the same.";

export class GraphCanvas {
  readonly canvas = el("canvas", { class: "ig-canvas", tabindex: 0, role: "application", "aria-label": HELP });
  private readonly minimap = new Minimap((x, y) => this.cameraControl.centre(x, y));
  private way: HTMLElement = el("nav");
  private wayTo = -1;
  /** Holds the picture, and what floats over it. */
  readonly area = el("div", { class: "ig-area" }, this.canvas, this.way, this.minimap.element);
  readonly cameraControl = new CameraControl(
    () => ({ width: this.area.clientWidth, height: this.area.clientHeight }),
    () => this.shown().visible,
    () => this.redraw(),
  );
  private theme: CanvasTheme | null = null;
  private before = new Map<number, Rect>();
  private progress = 1;
  private pending = 0;
  private started = false;
  private readonly stopped = new AbortController();

  constructor(
    private readonly shown: () => CanvasContent,
    private readonly acts: { goTo(id: number): void; onStart(): void; onDrawn(): void },
  ) {}

  /** Draw from now on, in the colours that hold where it stands. */
  start(): void {
    const refresh = (): void => {
      this.theme = readTheme(this.area);
      this.redraw();
    };
    refresh();
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", refresh, this.stopped);
    const toggled = new MutationObserver(refresh);
    const root = this.area.getRootNode(); // a widget's is not the page's (viewing/widget.py)
    for (const place of [document.documentElement, root instanceof ShadowRoot && root.host]) if (place) toggled.observe(place, { attributeFilter: ["data-theme"] });
    const resize = new ResizeObserver(() => this.onResize());
    resize.observe(this.area);
    const print = ({ type }: Event): void => {
      this.area.style.colorScheme = type === "beforeprint" ? "light" : ""; // paper is
      this.theme = readTheme(this.area);
      this.paintNow();
    };
    const { signal } = this.stopped;
    for (const event of ["beforeprint", "afterprint"]) addEventListener(event, print, { signal });
    signal.addEventListener("abort", () => (toggled.disconnect(), resize.disconnect()));
    this.onResize();
  }

  stop(): void {
    this.stopped.abort();
    cancelAnimationFrame(this.pending);
  }

  /** Whether it stands where it is to begin, and nothing is moving. */
  get still(): boolean {
    return this.started && this.progress >= 1 && !this.cameraControl.moving;
  }

  get picture(): Picture {
    const ratio = devicePixelRatio || 1;
    const { progress, before } = this;
    return {
      ...this.shown(),
      ...{ progress, before, ratio, camera: this.cameraControl.camera, theme: this.theme! },
      width: this.canvas.width / ratio,
      height: this.canvas.height / ratio,
    };
  }

  redraw(): void {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => this.paintNow());
  }

  paintNow(): void {
    cancelAnimationFrame(this.pending);
    this.pending = 0;
    const { picture } = this;
    drawPicture(this.canvas.getContext("2d")!, picture);
    this.minimap.draw(picture.visible, picture.camera, picture.theme, picture.paint, picture.width, picture.height);
    this.showTrail(picture);
    this.acts.onDrawn();
  }

  /** Let the boxes move from where they were to where they are. */
  slide(before: Map<number, Rect>): void {
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

  private onResize(): void {
    const { width, height } = this.area.getBoundingClientRect();
    const ratio = devicePixelRatio || 1;
    const [across, down] = [width, height].map((length) => Math.max(1, Math.round(length * ratio)));
    if (this.started && this.canvas.width === across && this.canvas.height === down) return;
    [this.canvas.width, this.canvas.height] = [across, down];
    if (!this.started && width > 0 && height > 0) {
      this.started = true;
      this.acts.onStart();
    }
    this.paintNow();
  }

  private showTrail({ camera, width, height, visible, tree, selected }: Picture): void {
    const to = selected > 0 ? selected : inSight(visible, camera, width, height);
    if (to === this.wayTo) return;
    this.wayTo = to;
    const way = trail(tree, trailOf(tree, to), (id) => this.acts.goTo(id));
    this.way.replaceWith(way);
    this.way = way;
  }
}
