// Elements that the parts of the page share.
import { el } from "../../ui/dom.ts";
import { shown } from "../../ui/format.ts";

/** Return a text in one line. Characters of it that cannot be shown, or change the direction of others, are replaced. */
export const line = (text: string): string => shown(text.replace(/[\t-\r]+/g, " "));

/** Set a text only if it differs, so that live regions announce it, and layout runs, only on a change. */
export function setText(element: Element, text: string): void {
  const words = line(text);
  if (element.textContent !== words) element.textContent = words;
}

/** Set the size of a canvas in CSS pixels, clear it, and return its context, scaled to the pixels of the screen. */
export function canvasContext(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d") as CanvasRenderingContext2D;
  context.scale(ratio, ratio);
  return context;
}

/** Return a bar that is filled to a share of its length. */
export function bar(filled: number, colour = ""): HTMLElement {
  const fill = el("span");
  fill.style.inlineSize = `${100 * filled}%`;
  fill.style.background = colour;
  return el("span", { class: "bar", "aria-hidden": "true" }, fill);
}

/** Tell assistive technology which option of a list is active, by its id. */
export function setActive(element: HTMLElement, id: string | undefined): void {
  if (id) element.setAttribute("aria-activedescendant", id);
  else element.removeAttribute("aria-activedescendant");
}

/** Return the part of a list that an event is of: parts have a `data-key`, which tells them apart. */
export const partOf = (event: Event): HTMLElement | null => (event.target as Element).closest<HTMLElement>("[data-key]");

/** Click a part that is made again while it is pressed, because scores came: the browser sends no click then. */
export function keepClicks(root: HTMLElement): void {
  let pressed: HTMLElement | null;
  root.addEventListener("pointerdown", (event) => (pressed = partOf(event)));
  root.addEventListener("pointerup", (event) => {
    const part = partOf(event);
    if (!pressed?.isConnected && part?.dataset.key === pressed?.dataset.key) part?.click();
  });
}
