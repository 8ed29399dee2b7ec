// A small picture of a saved value: a heat map (negative blue, positive red) or an image.
import type { Colour } from "../../ui/colour.ts";
import { el } from "../../ui/dom.ts";
import { figure } from "./values.ts";

/** See tracing/results/value_summary.py: one character per pixel, three in an image. */
export interface Thumbnail {
  of: string;
  /** The first values of an integer vector, instead of a picture. */
  numbers?: string;
  columns: number;
  pixels: string;
  /** The absolute value at the ends of the color scale; null for an image. */
  most: number | null;
}

const [WHITE, RED, BLUE]: Colour[] = [[247, 247, 247], [178, 24, 43], [33, 102, 172]];
const LEVELS = 15;

/** Return the color of a character of a heat map; null for the gap between two channels. */
function colourAt(character: string): Colour | null {
  if (character === "-") return null;
  const tone = parseInt(character, 36) / LEVELS - 1;
  if (tone > 1) return [128, 128, 128]; // NaN or infinity
  const end = tone > 0 ? RED : BLUE;
  return WHITE.map((white, i) => white + Math.abs(tone) * (end[i] - white)) as Colour;
}

/** Return a thumbnail with its caption. */
export function thumbnailOf({ of, columns, pixels, most }: Thumbnail): HTMLElement {
  const width = most === null ? 3 : 1;
  const rows = pixels.length / columns / width;
  const canvas = el("canvas", { class: `ig-thumbnail${rows > 1 ? "" : " ig-strip"}`, role: "img", "aria-label": `${width > 1 ? "Image" : "Heat map"} of the value${of}` });
  [canvas.width, canvas.height] = [columns, rows];
  const ctx = canvas.getContext("2d")!;
  const image = ctx.createImageData(columns, rows);
  for (let i = 0; i < columns * rows; i++) {
    const colour = most === null ? [...pixels.slice(3 * i, 3 * i + 3)].map((c) => (parseInt(c, 36) / LEVELS / 2) * 255) : colourAt(pixels[i]);
    if (colour) image.data.set([...colour, 255], 4 * i);
  }
  ctx.putImageData(image, 0, 0);
  const below = /[0-9a-e]/.test(pixels) ? `blue −${figure(most)}, ` : "";
  const words = [of, most !== null && `${below}white 0, red ${figure(most)}`].filter(Boolean).join(" · ");
  return el("figure", {}, canvas, words && el("figcaption", { class: "ig-soft" }, words));
}
