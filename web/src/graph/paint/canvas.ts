// The picture on the screen with minimap and trail: when it is redrawn, and its animations.
import { el } from "../../ui/dom.ts";
import { onThemeChange } from "../../ui/theme.ts";
import type { Rect } from "../layout/visibleLayout.ts";
import { containerInView, trail, trailOf } from "../panel/trail.ts";
import { CameraControl, ease, prefersLessMotion, SLIDE } from "./camera.ts";
import { type CanvasTheme, readTheme } from "./colour.ts";
import { drawPicture } from "./draw.ts";
import { Minimap } from "./minimap.ts";
import type { Picture } from "./picture.ts";

/** What the picture shows, independent of the camera. */
export type CanvasContent = Pick<Picture, "visible" | "tree" | "figures" | "paint" | "selected" | "edge" | "stream" | "hovered" | "related">;

const HELP = "Graph. Arrow keys follow edges, Enter opens or closes a module, Escape selects the module around it, 1 to 9 open that many levels, * opens all. The outline lists the same boxes.";

/** Draws the picture and reacts to resizing, themes and printing. */
export class GraphCanvas {
  readonly canvas = el("canvas", { class: "ig-canvas", tabindex: 0, role: "application", "aria-label": HELP });
  private readonly minimap = new Minimap((x, y) => this.cameraControl.centre(x, y));
  private trail: HTMLElement = el("nav");
  private trailTo = -1;
  /** Contains the picture and what floats over it. */
  readonly area = el("div", { class: "ig-area" }, this.canvas, this.trail, this.minimap.element);
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
    private readonly actions: { goTo(id: number): void; onStart(): void; onDrawn(): void },
  ) {}

  /** Begin to draw, in the theme of the surrounding page. */
  start(): void {
    const refresh = (): void => {
      this.theme = readTheme(this.area);
      this.redraw();
    };
    refresh();
    const { signal } = this.stopped;
    const root = this.area.getRootNode(); // a shadow root in a widget (viewing/widget.py)
    onThemeChange(refresh, signal, root instanceof ShadowRoot ? root.host : undefined);
    const resize = new ResizeObserver(() => this.onResize());
    resize.observe(this.area);
    const print = ({ type }: Event): void => {
      this.area.style.colorScheme = type === "beforeprint" ? "light" : ""; // as paper is
      this.theme = readTheme(this.area);
      this.paintNow();
    };
    for (const event of ["beforeprint", "afterprint"]) addEventListener(event, print, { signal });
    signal.addEventListener("abort", () => resize.disconnect());
    this.onResize();
  }

  /** Stop drawing and remove all listeners. */
  stop(): void {
    this.stopped.abort();
    cancelAnimationFrame(this.pending);
  }

  /** Whether the initial position is set and nothing is moving. */
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

  /** Draw in the next animation frame. */
  redraw(): void {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => this.paintNow());
  }

  /** Draw at once. */
  paintNow(): void {
    cancelAnimationFrame(this.pending);
    this.pending = 0;
    const { picture } = this;
    drawPicture(this.canvas.getContext("2d")!, picture);
    this.minimap.draw(picture.visible, picture.camera, picture.theme, picture.paint, picture.width, picture.height);
    this.showTrail(picture);
    this.actions.onDrawn();
  }

  /** Animate boxes from their previous positions to the current ones. */
  slide(before: Map<number, Rect>): void {
    this.before = before;
    if (prefersLessMotion() || before.size === 0) {
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
      this.actions.onStart();
    }
    this.paintNow();
  }

  private showTrail({ camera, width, height, visible, tree, selected }: Picture): void {
    const to = selected > 0 ? selected : containerInView(visible, camera, width, height);
    if (to === this.trailTo) return;
    this.trailTo = to;
    const next = trail(tree, trailOf(tree, to), (id) => this.actions.goTo(id));
    this.trail.replaceWith(next);
    this.trail = next;
  }
}
