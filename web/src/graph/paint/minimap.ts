// The minimap: the whole graph in a corner, with the visible part marked; click or drag to move there.
import { el } from "../../ui/dom.ts";
import type { VisibleLayout } from "../layout/visibleLayout.ts";
import { paintOf } from "./boxes.ts";
import type { CanvasTheme } from "./colour.ts";
import type { Paint } from "./paint.ts";
import type { Camera } from "./picture.ts";

const WIDTH = 132;
const HEIGHT = 180;

/** Draws the minimap. */
export class Minimap {
  readonly element = el("canvas", { class: "ig-minimap", "aria-hidden": "true" });
  private readonly boxes = document.createElement("canvas");
  private drawn: { visible: VisibleLayout; theme: CanvasTheme; paint: Paint | null } | null = null;
  private scale = 1;

  constructor(moveTo: (x: number, y: number) => void) {
    const go = (event: PointerEvent): void => {
      const box = this.element.getBoundingClientRect();
      moveTo((event.clientX - box.left) / this.scale, (event.clientY - box.top) / this.scale);
      event.preventDefault();
    };
    this.element.addEventListener("pointerdown", (event) => {
      this.element.setPointerCapture(event.pointerId);
      go(event);
    });
    this.element.addEventListener("pointermove", (event) => event.buttons && go(event));
  }

  /** Draw the minimap, or hide it if the whole graph is visible anyway. */
  draw(visible: VisibleLayout, camera: Camera, theme: CanvasTheme, paint: Paint | null, width: number, height: number): void {
    const fits = visible.width * camera.scale <= width + 40 && visible.height * camera.scale <= height + 40;
    this.element.hidden = fits || width < 420;
    if (this.element.hidden) return;
    const { drawn } = this;
    if (drawn?.visible !== visible || drawn.theme !== theme || drawn.paint !== paint) {
      this.drawBoxes(visible, theme, paint);
      this.drawn = { visible, theme, paint };
    }
    const ctx = this.element.getContext("2d")!;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.element.width, this.element.height);
    ctx.drawImage(this.boxes, 0, 0);
    const ratio = devicePixelRatio || 1;
    ctx.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, 0, 0);
    ctx.strokeStyle = theme.accent;
    ctx.lineWidth = 1.5 / this.scale;
    const edge = 1 / this.scale; // the part in sight may be wider than the graph: keep its border on the map
    const left = Math.max(edge, camera.x);
    const top = Math.max(edge, camera.y);
    const right = Math.min(this.element.width / ratio / this.scale - edge, camera.x + width / camera.scale);
    const bottom = Math.min(this.element.height / ratio / this.scale - edge, camera.y + height / camera.scale);
    ctx.strokeRect(left, top, Math.max(0, right - left), Math.max(0, bottom - top));
  }

  /** Draw the boxes on a separate canvas, which is reused while the camera moves. */
  private drawBoxes(visible: VisibleLayout, theme: CanvasTheme, paint: Paint | null): void {
    const ratio = devicePixelRatio || 1;
    this.scale = Math.min(WIDTH / visible.width, HEIGHT / visible.height);
    // Keep a long thin graph wide enough to click.
    const [w, h] = [Math.max(36, Math.ceil(visible.width * this.scale)), Math.max(36, Math.ceil(visible.height * this.scale))];
    for (const canvas of [this.element, this.boxes]) Object.assign(canvas, { width: w * ratio, height: h * ratio });
    Object.assign(this.element.style, { width: `${w}px`, height: `${h}px` });
    const ctx = this.boxes.getContext("2d")!;
    ctx.setTransform(ratio * this.scale, 0, 0, ratio * this.scale, 0, 0);
    const least = 1.5 / this.scale;
    for (const box of visible.boxesIn(visible, 1 / this.scale)) {
      const open = box.open && box.height * this.scale >= 1;
      if (open && box.width * this.scale < 3) continue;
      const token = box.node.kind === "input" ? "input-line" : box.node.kind === "output" ? "output-line" : open ? "frame-line" : "op-line";
      ctx.fillStyle = (!open && paintOf({ paint, theme }, box.node)?.colour) || theme[token];
      ctx.globalAlpha = open ? 0.35 : 1;
      ctx.fillRect(box.x, box.y, Math.max(least, box.width), Math.max(least * 0.7, box.height));
    }
  }
}
