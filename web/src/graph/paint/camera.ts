// The camera: panning, zooming, animated movements, and bringing a box into view.
import type { Rect } from "../layout/visibleLayout.ts";
import type { Camera } from "./picture.ts";

export interface Extent {
  width: number;
  height: number;
}

export const SLIDE = 220; // milliseconds a movement takes
const LEAST_START = 0.62; // the least initial scale, at which text is readable
const FARTHEST = 0.02;
const READABLE = 0.7;
const NARROW = 680; // below this width the panel covers the lower part of the graph rather than the right

/** Moves the camera. */
export class CameraControl {
  camera: Camera = { x: 0, y: 0, scale: 1 };
  private run = 0;

  constructor(
    private readonly view: () => Extent,
    private readonly graph: () => Extent,
    private readonly redraw: () => void,
  ) {}

  get moving(): boolean {
    return this.run !== 0;
  }

  /** Show the top of the graph at a readable scale, since fitting a very tall graph would make it unreadable. */
  begin(entry: Rect | undefined): void {
    const { width } = this.view();
    const graph = this.graph().width;
    const scale = Math.min(1, Math.max(LEAST_START, (width - 40) / graph));
    const [visible, margin] = [width / scale, 16 / scale];
    const fits = graph <= visible - margin || !entry;
    const x = fits ? (graph - visible) / 2 : Math.max(-margin, Math.min(graph + margin - visible, entry.x + (entry.width - visible) / 2));
    this.camera = { x, y: -(width < NARROW ? 42 : 14) / scale, scale }; // leaves room for the trail in a narrow view
  }

  /** Show the whole graph above the `covered` pixels at the lower edge. */
  fit(covered: number): void {
    const { width, height } = this.view();
    const graph = this.graph();
    const scale = Math.max(FARTHEST, Math.min((width - 32) / graph.width, (height - covered - 16) / graph.height, 1.25));
    // A graph too tall for that is shown from its top.
    const y = graph.height * scale > height ? -16 / scale : graph.height / 2 - (height - covered) / 2 / scale;
    this.glide({ x: graph.width / 2 - width / 2 / scale, y, scale });
  }

  /** Move so that a box is visible and readable, beside the panel. */
  bringIntoView(box: Rect): void {
    const { width, height } = this.view();
    const scale = Math.max(this.camera.scale, READABLE);
    const beside = width > NARROW; // the panel covers the right side, or the lower part
    const [w, h] = [(width - (beside ? 320 : 0)) / scale, (height * (beside ? 1 : 0.54)) / scale];
    const { x, y } = this.camera;
    const across = box.x > x + 8 && box.x + Math.min(box.width, w - 40) < x + w;
    const down = box.y > y + 8 && box.y + Math.min(box.height, h / 2) < y + h - 40;
    if (this.camera.scale === scale && across && down) return;
    const tall = Math.min(box.height, h * 0.7);
    this.glide({ scale, x: box.x + Math.min(box.width, w) / 2 - w / 2, y: box.y + tall / 2 - h * 0.45 });
  }

  /** Center a point of the graph. */
  centre(x: number, y: number): void {
    const { width, height } = this.view();
    const { scale } = this.camera;
    this.move({ scale, x: x - width / 2 / scale, y: y - height / 2 / scale });
  }

  pan(dx: number, dy: number): void {
    const { x, y, scale } = this.camera;
    this.move({ scale, x: x - dx / scale, y: y - dy / scale });
  }

  /** Zoom about a point of the screen, by default its middle. */
  zoom(factor: number, at?: { x: number; y: number }): void {
    const { width, height } = this.view();
    const { x, y } = at ?? { x: width / 2, y: height / 2 };
    const { camera } = this;
    const scale = Math.min(3, Math.max(FARTHEST, camera.scale * factor));
    this.move({ scale, x: camera.x + x / camera.scale - x / scale, y: camera.y + y / camera.scale - y / scale });
  }

  /** Move with a graph whose layout shifted. */
  shift(dx: number, dy: number): void {
    this.run = 0;
    this.camera = { ...this.camera, x: this.camera.x + dx, y: this.camera.y + dy };
  }

  /** Move to a position, limited so that part of the graph stays visible. */
  move(camera: Camera): void {
    this.run = 0;
    const view = this.view();
    const graph = this.graph();
    const [w, h] = [view.width / camera.scale, view.height / camera.scale];
    const x = Math.min(graph.width - w * 0.15, Math.max(-w * 0.85, camera.x));
    const y = Math.min(graph.height - h * 0.15, Math.max(-h * 0.85, camera.y));
    this.camera = { scale: camera.scale, x, y };
    this.redraw();
  }

  /** Move in an animation, or at once if the reader prefers less motion. */
  private glide(to: Camera): void {
    const from = this.camera;
    const began = performance.now();
    const run = (this.run = began);
    if (prefersLessMotion()) {
      this.camera = to;
      this.run = 0;
      return this.redraw();
    }
    const between = (a: number, b: number, t: number): number => a + (b - a) * t;
    const tick = (): void => {
      if (this.run !== run) return;
      const t = ease((performance.now() - began) / SLIDE);
      const scale = between(from.scale, to.scale, t);
      this.camera = { x: between(from.x, to.x, t), y: between(from.y, to.y, t), scale };
      if (t >= 1) this.run = 0;
      else requestAnimationFrame(tick);
      this.redraw();
    };
    requestAnimationFrame(tick);
  }
}

/** Ease out: map the fraction of time to the fraction of a movement. */
export const ease = (t: number): number => 1 - (1 - Math.min(1, t)) ** 3;

/** Return whether the reader prefers less motion. */
export const prefersLessMotion = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;
