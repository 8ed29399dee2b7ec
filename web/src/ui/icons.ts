// Icons: line drawings on a square of 20 by 20. A program contains only the icons it uses.
import { svg } from "./dom.ts";

export const OUTLINE = "M4 5h12M4 10h12M4 15h7";
export const EXPAND = "M5 8l5-5 5 5M5 12l5 5 5-5";
export const COLLAPSE = "M5 3l5 5 5-5M5 17l5-5 5 5";
export const PLUS = "M10 4v12M4 10h12";
export const MINUS = "M4 10h12";
export const FIT = "M3 7V3h4M13 3h4v4M17 13v4h-4M7 17H3v-4";
export const THEME = "M10 3a7 7 0 1 0 7 7 5.5 5.5 0 0 1-7-7z";
export const CLOSE = "M5 5l10 10M15 5L5 15";
export const SEARCH = "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM13 13l4 4";
export const PLAY = "M6 4v12l9.5-6z";
export const PAUSE = "M6.5 4v12M13.5 4v12";
export const DOWNLOAD = "M10 3v9.5M6 8.8l4 4 4-4M4 16.5h12";
export const COPY = "M7.5 7h8.5v10H7.5zM4 13V3h8.5";

/** Create an icon from its path. */
export function icon(path: string): SVGSVGElement {
  const pen = { fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round", "stroke-linejoin": "round" };
  return svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true", ...pen }, svg("path", { d: path }));
}
