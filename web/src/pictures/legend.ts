// The legend below a picture, with the text of the page's legend.
import type { PlacedBox } from "../graph/layout/visibleLayout.ts";
import { isBoxed, isFold, short } from "../graph/model/captions.ts";
import type { TreeNode } from "../graph/model/tree.ts";
import { hatch, paintOf, styleOf } from "../graph/paint/boxes.ts";
import type { Extent } from "../graph/paint/camera.ts";
import type { CanvasTheme } from "../graph/paint/colour.ts";
import { KEYS, scaleEnds } from "../graph/paint/legend.ts";
import { formatValue, type Paint } from "../graph/paint/paint.ts";
import type { Picture } from "../graph/paint/picture.ts";
import { shareOf, ticksOf } from "../graph/paint/scale.ts";
import { scaleColour } from "../ui/colour.ts";
import type { Recorder } from "./recorder.ts";

const [WIDE, TALL] = [17, 12]; // the size of a sample
const CELL = 6; // the width of a cell of a scale

/** Draw the scale of the paint or, without a paint, the visual code in rows of at most a width; return the size. */
export function drawLegend(pen: Recorder, picture: Picture, boxes: PlacedBox[], most: number): Extent {
  const closed = boxes.filter(({ open }) => !open).map(({ node }) => node);
  return picture.paint ? drawScale(pen, picture, picture.paint, closed) : drawKeys(pen, picture.theme, closed, most);
}

function drawKeys(pen: Recorder, theme: CanvasTheme, closed: TreeNode[], most: number): Extent {
  const samples = new Map<string, TreeNode>();
  for (const node of closed) {
    const key = keyOf(node);
    if (key && !samples.has(key)) samples.set(key, node);
  }
  let [x, y, width] = [0, 22, 0];
  for (const [key, word] of KEYS) {
    const node = samples.get(key);
    if (!node) continue;
    const needs = WIDE + 5 + write(pen, word, 0, y, null);
    if (x && x + needs > most) [x, y] = [0, y + 20];
    const style = styleOf(theme, node);
    [pen.fillStyle, pen.strokeStyle, pen.lineWidth] = [style.fill, style.line, style.width];
    pen.setLineDash(style.dashed ? [4, 3] : []);
    pen.beginPath();
    pen.roundRect(x, y - TALL / 2, WIDE, TALL, isBoxed(node) ? 3 : TALL / 2);
    pen.fill();
    pen.stroke();
    pen.setLineDash([]);
    write(pen, word, x + WIDE + 5, y, theme["text-soft"]);
    width = Math.max(width, x + needs);
    x += needs + 16;
  }
  return { width, height: samples.size ? y + 8 : 0 };
}

/** Return the key that explains the style of a box. */
function keyOf(node: TreeNode): string {
  if (node.kind === "group" && !isFold(node)) return node.subtitle; // a group of inputs or outputs
  const keys = KEYS.filter(([, , isThere]) => isThere(node)).map(([key]) => key);
  return keys.find((key) => key === "decision" || key === "created") ?? keys[0] ?? "";
}

function drawScale(pen: Recorder, picture: Picture, paint: Paint, closed: TreeNode[]): Extent {
  const { theme } = picture;
  const [low, high] = scaleEnds(paint);
  const ticks = ticksOf(paint);
  const cells = ticks.length ? 30 : 20;
  const y = 24;
  let x = write(pen, short(paint.title), 0, y, theme.text, "600 11px") + 12;
  x += write(pen, low, x, y, theme["text-soft"]) + 8;
  for (let i = 0; i < cells; i++) {
    pen.fillStyle = scaleColour(i / (cells - 1), paint.hot);
    pen.fillRect(x + CELL * i, y - 5, CELL + 0.5, 10);
  }
  for (const tick of ticks) {
    const at = x + CELL * cells * shareOf(paint, tick);
    [pen.strokeStyle, pen.lineWidth] = [theme["text-soft"], 1];
    pen.beginPath();
    pen.moveTo(at, y + 5);
    pen.lineTo(at, y + 9);
    pen.stroke();
    pen.textAlign = "center";
    write(pen, formatValue(paint, tick), at, y + 16, theme["text-soft"], "9.5px");
    pen.textAlign = "left";
  }
  x += CELL * cells + 8;
  x += write(pen, high, x, y, theme["text-soft"]);
  if (closed.some((node) => paintOf(picture, node)?.colour === null)) {
    x += 20;
    hatch(pen, theme, { colour: null }, x, y - TALL / 2, WIDE, TALL);
    [pen.strokeStyle, pen.lineWidth] = [theme["line-strong"], 1];
    pen.beginPath();
    pen.rect(x, y - TALL / 2, WIDE, TALL);
    pen.stroke();
    x += WIDE + 5;
    x += write(pen, "no value", x, y, theme["text-soft"]);
  }
  const below = y + (ticks.length ? 22 : 10);
  if (!paint.note) return { width: x, height: below };
  return { width: Math.max(x, write(pen, paint.note, 0, below + 10, theme["text-soft"])), height: below + 18 };
}

/** Draw text and return its width; with `ink` null only measure it. */
function write(pen: Recorder, text: string, x: number, y: number, ink: string | null, font = "11px"): number {
  pen.font = font;
  if (ink) {
    pen.fillStyle = ink;
    pen.fillText(text, x, y);
  }
  return pen.measureText(text).width;
}
