// Text widths in the page's font, measured once each, on an OffscreenCanvas because a worker has no other.
import type { Measure } from "./sizes.ts";

/** Return the font of the graph in an element. */
export const fontOf = (host: HTMLElement): string => getComputedStyle(host).getPropertyValue("--font") || "sans-serif";

/** Return a function that measures text in a font. */
export function measurer(font: string): Measure {
  const ctx = new OffscreenCanvas(1, 1).getContext("2d")!;
  const widths = new Map<string, number>();
  return (text, size, bold) => {
    if (!text) return 0;
    const key = `${size}${bold}${text}`;
    let width = widths.get(key);
    if (width === undefined) {
      ctx.font = `${bold ? "600 " : ""}${size}px ${font}`;
      widths.set(key, (width = ctx.measureText(text).width));
    }
    return width;
  };
}
