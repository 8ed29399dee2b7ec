// Translates pointer, wheel and touch events on the canvas into gestures.
/** What the events on the canvas do. */
export interface Gestures {
  pan(dx: number, dy: number): void;
  zoom(factor: number, x: number, y: number): void;
  /** A press without a drag, at a point of the canvas in CSS pixels. */
  press(x: number, y: number): void;
  pressTwice(x: number, y: number): void;
  hover(x: number, y: number): void;
  leave(): void;
}

const DRAG_FROM = 4; // a press that moves fewer pixels is not a drag
const NOTCH = 35; // the largest wheel delta that zooms at once; pinch events have smaller ones

/** Listen for events on a canvas. As a guest of another page, such as a notebook, it leaves the wheel to that page until it is
 * clicked, except with Ctrl. */
export function listen(canvas: HTMLCanvasElement, gestures: Gestures, isGuest: boolean): void {
  const hasFocus = (): boolean => document.hasFocus() && (canvas.getRootNode() as Document | ShadowRoot).activeElement === canvas;
  const down = new Map<number, { x: number; y: number }>();
  let moved = 0;
  let spread = 0;
  const place = (event: MouseEvent): { x: number; y: number } => {
    const box = canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  const distance = (): number => {
    const [a, b] = [...down.values()];
    return Math.hypot(a.x - b.x, a.y - b.y);
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    down.set(event.pointerId, place(event));
    if (down.size === 1) moved = 0;
    if (down.size === 2) spread = distance();
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
      const now = distance();
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
      if (isGuest && !event.ctrlKey && !event.metaKey && !hasFocus()) return;
      event.preventDefault();
      const at = place(event);
      const { deltaX, deltaY } = event; // Firefox gives pixels, like other browsers, unless deltaMode is read
      // A pinch on a trackpad is a wheel event with Ctrl, whose delta is 100 times the change of scale.
      if (event.ctrlKey || event.metaKey) gestures.zoom(Math.exp(-Math.max(-NOTCH, Math.min(NOTCH, deltaY)) / 100), at.x, at.y);
      else if (event.shiftKey && !deltaX) gestures.pan(-deltaY, 0);
      else gestures.pan(-deltaX, -deltaY);
    },
    { passive: false },
  );
  // Safari has its own events for a pinch and zooms the page if they are not handled. On a touch screen they come in
  // addition to the pointer events, which zoom already.
  let lastScale = 1;
  const pinch = (event: Event): void => {
    event.preventDefault();
    const { scale } = event as MouseEvent & { scale: number };
    const at = place(event as MouseEvent);
    if (event.type === "gesturechange" && down.size === 0) gestures.zoom(scale / lastScale, at.x, at.y);
    lastScale = scale;
  };
  canvas.addEventListener("gesturestart", pinch);
  canvas.addEventListener("gesturechange", pinch);
}
