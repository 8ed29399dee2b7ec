// Text widths in the page's font, each measured once. On a canvas off the screen, as a worker has one too.
import type { Measure } from "./sizes.ts";

export const fontOf = (host: HTMLElement): string => getComputedStyle(host).getPropertyValue("--font") || "sans-serif";

export function measurer(font: string): Measure {
  const ctx = new OffscreenCanvas(1, 1).getContext("2d")!;
  const known = new Map<string, number>();
  return (text, size, bold) => {
    if (!text) return 0;
    const key = `${size}${bold}${text}`;
    let width = known.get(key);
    if (width === undefined) {
      ctx.font = `${bold ? "600 " : ""}${size}px ${font}`;
      known.set(key, (width = ctx.measureText(text).width));
    }
    return width;
  };
}
