// Pointer, wheel and keys on the canvas, turned into what they mean.
export interface Gestures {
  pan(dx: number, dy: number): void;
  zoom(factor: number, x: number, y: number): void;
  /** A press without a drag, at a place of the canvas in CSS pixels. */
  press(x: number, y: number): void;
  pressTwice(x: number, y: number): void;
  hover(x: number, y: number): void;
  leave(): void;
}

const DRAG_FROM = 4; // pixels a press may wander and still be a press
const NOTCH = 35; // the most of a wheel's turn that zooms at once: a pinch's turns are less

export function listen(canvas: HTMLCanvasElement, gestures: Gestures): void {
  const down = new Map<number, { x: number; y: number }>();
  let moved = 0;
  let spread = 0;
  const place = (event: MouseEvent): { x: number; y: number } => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const apart = (): number => {
    const [a, b] = [...down.values()];
    return Math.hypot(a.x - b.x, a.y - b.y);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    if (down.size === 1) moved = 0;
    if (down.size === 2) spread = apart();
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = place(event);
    const from = down.get(event.pointerId);
    if (!from) return gestures.hover(at.x, at.y);
    moved += Math.hypot(at.x - from.x, at.y - from.y);
    down.set(event.pointerId, at);
    if (moved < DRAG_FROM) return;
    canvas.classList.add("ig-dragging");
    gestures.pan((at.x - from.x) / down.size, (at.y - from.y) / down.size);
    if (down.size === 2) {
      const now = apart();
      const [a, b] = [...down.values()];
      if (spread > 0) gestures.zoom(now / spread, (a.x + b.x) / 2, (a.y + b.y) / 2);
      spread = now;
    }
  });
  const lift = (event: PointerEvent): void => {
    if (!down.delete(event.pointerId)) return;
    canvas.classList.remove("ig-dragging");
    if (event.type === "pointerup" && down.size === 0 && moved < DRAG_FROM) gestures.press(place(event).x, place(event).y);
  };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("pointerleave", () => gestures.leave());
  canvas.addEventListener("dblclick", (event) => gestures.pressTwice(place(event).x, place(event).y));
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const at = place(event);
      const { deltaX, deltaY } = event; // Firefox gives pixels, like all others, to whom does not ask for the unit
      // A pinch on a trackpad arrives as a wheel with Ctrl held, a hundredth of its growth a pixel.
      if (event.ctrlKey || event.metaKey) gestures.zoom(Math.exp(-Math.max(-NOTCH, Math.min(NOTCH, deltaY)) / 100), at.x, at.y);
      else if (event.shiftKey && !deltaX) gestures.pan(-deltaY, 0);
      else gestures.pan(-deltaX, -deltaY);
    },
    { passive: false },
  );
  // Safari has events of its own for it, and zooms the page where nobody takes them. On a touch screen they come beside
  // the pointers, which zoom already.
  let grown = 1;
  const pinch = (event: Event): void => {
    event.preventDefault();
    const { scale } = event as MouseEvent & { scale: number };
    const at = place(event as MouseEvent);
    if (event.type === "gesturechange" && down.size === 0) gestures.zoom(scale / grown, at.x, at.y);
    grown = scale;
  };
  canvas.addEventListener("gesturestart", pinch);
  canvas.addEventListener("gesturechange", pinch);
}
