// Where the picture is looked at from: panning, zooming, gliding, and what to bring into sight.
import type { Rect } from "../layout/visibleLayout.ts";
import type { Camera } from "./picture.ts";

export interface Extent {
  width: number;
  height: number;
}

export const SLIDE = 220; // milliseconds a movement takes
const LEAST_START = 0.62; // no smaller at first, so that words can be read
const FARTHEST = 0.02;
const READABLE = 0.7;
const NARROW = 680; // below, the facts stand under the graph rather than beside it

export class CameraControl {
  camera: Camera = { x: 0, y: 0, scale: 1 };
  private run = 0;

  constructor(
    private readonly sight: () => Extent,
    private readonly whole: () => Extent,
    private readonly redraw: () => void,
  ) {}

  get moving(): boolean {
    return this.run !== 0;
  }

  /** Start readable and at the top: never fit a graph forty times taller than it is wide. */
  begin(entry: Rect | undefined): void {
    const { width } = this.sight();
    const graph = this.whole().width;
    const scale = Math.min(1, Math.max(LEAST_START, (width - 40) / graph));
    const [sight, edge] = [width / scale, 16 / scale];
    const fits = graph <= sight - edge || !entry;
    const x = fits ? (graph - sight) / 2 : Math.max(-edge, Math.min(graph + edge - sight, entry.x + (entry.width - sight) / 2));
    this.camera = { x, y: -(width < NARROW ? 42 : 14) / scale, scale }; // over a narrow picture stands the way to a box
  }

  /** Show the whole graph, above what is `covered` along the lower edge. */
  fit(covered: number): void {
    const { width, height } = this.sight();
    const graph = this.whole();
    const scale = Math.max(FARTHEST, Math.min((width - 32) / graph.width, (height - covered - 16) / graph.height, 1.25));
    // Of a graph that is too tall to be seen at once, its beginning.
    const y = graph.height * scale > height ? -16 / scale : graph.height / 2 - (height - covered) / 2 / scale;
    this.glide({ x: graph.width / 2 - width / 2 / scale, y, scale });
  }

  bringIntoView(box: Rect): void {
    const { width, height } = this.sight();
    const scale = Math.max(this.camera.scale, READABLE);
    const beside = width > NARROW; // the facts stand over the right side, or over the lower part
    const [w, h] = [(width - (beside ? 320 : 0)) / scale, (height * (beside ? 1 : 0.54)) / scale];
    const { x, y } = this.camera;
    const across = box.x > x + 8 && box.x + Math.min(box.width, w - 40) < x + w;
    const down = box.y > y + 8 && box.y + Math.min(box.height, h / 2) < y + h - 40;
    if (this.camera.scale === scale && across && down) return;
    const tall = Math.min(box.height, h * 0.7);
    this.glide({ scale, x: box.x + Math.min(box.width, w) / 2 - w / 2, y: box.y + tall / 2 - h * 0.45 });
  }

  centre(x: number, y: number): void {
    const { width, height } = this.sight();
    const { scale } = this.camera;
    this.move({ scale, x: x - width / 2 / scale, y: y - height / 2 / scale });
  }

  pan(dx: number, dy: number): void {
    const { x, y, scale } = this.camera;
    this.move({ scale, x: x - dx / scale, y: y - dy / scale });
  }

  /** Zoom about a place of the screen, or about its middle. */
  zoom(factor: number, at?: { x: number; y: number }): void {
    const { width, height } = this.sight();
    const { x, y } = at ?? { x: width / 2, y: height / 2 };
    const { camera } = this;
    const scale = Math.min(3, Math.max(FARTHEST, camera.scale * factor));
    this.move({ scale, x: camera.x + x / camera.scale - x / scale, y: camera.y + y / camera.scale - y / scale });
  }

  /** Follow a graph that moved under the camera. */
  shift(dx: number, dy: number): void {
    this.run = 0;
    this.camera = { ...this.camera, x: this.camera.x + dx, y: this.camera.y + dy };
  }

  /** Keep some of the graph in sight, wherever it is dragged. */
  move(camera: Camera): void {
    this.run = 0;
    const sight = this.sight();
    const graph = this.whole();
    const [w, h] = [sight.width / camera.scale, sight.height / camera.scale];
    const x = Math.min(graph.width - w * 0.15, Math.max(-w * 0.85, camera.x));
    const y = Math.min(graph.height - h * 0.15, Math.max(-h * 0.85, camera.y));
    this.camera = { scale: camera.scale, x, y };
    this.redraw();
  }

  private glide(to: Camera): void {
    const from = this.camera;
    const began = performance.now();
    const run = (this.run = began);
    if (calm()) {
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

export const ease = (t: number): number => 1 - (1 - Math.min(1, t)) ** 3;

/** Whether the reader asked for less motion. */
export const calm = (): boolean => matchMedia("(prefers-reduced-motion: reduce)").matches;
