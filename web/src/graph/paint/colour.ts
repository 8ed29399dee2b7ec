// The colors of a theme for the canvas.
import { tokenColours } from "../../ui/theme.ts";

const TOKENS = [
  ...["bg", "surface", "line", "line-strong", "text", "text-soft", "accent", "error", "error-fill"],
  ...["input-fill", "input-line", "input-text", "output-fill", "output-line", "output-text", "param-fill", "param-line"],
  ...["buffer-fill", "buffer-line", "op-fill", "op-line", "module-fill", "module-line", "frame-line", "frame-a"],
  ...["frame-b", "edge", "edge-label", "decision-fill", "decision-line", "decision-text"],
  ...["close-fill", "only-fill", "differs-fill", "first-fill"],
] as const;

/** The colors of a theme by token, and its font. */
export type CanvasTheme = Record<(typeof TOKENS)[number] | "font", string>;

/** Read the tokens of theme.css as plain colors, for the color scheme at `host`. */
export const readTheme = (host: HTMLElement): CanvasTheme => ({ ...tokenColours(host, TOKENS), font: getComputedStyle(host).fontFamily });

/** Return black or white, whichever is more readable on a color (WCAG relative luminance). */
export function inkOn(colour: string): string {
  const [r, g, b] = colour.match(/\d+/g)!.map((part) => {
    const c = Number(part) / 255;
    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#10131a" : "#ffffff";
}
