// Draws boxes: frames and headers of open boxes, closed boxes with their text, and the style of each kind.
import { HEADER, headerSpan, PICKER } from "../layout/boxHeader.ts";
import { DETAIL, FONT_SHAPE } from "../layout/sizes.ts";
import type { PlacedBox, Rect } from "../layout/visibleLayout.ts";
import { accent, captions, isBoxed, isFold } from "../model/captions.ts";
import { details, headerText } from "../model/details.ts";
import type { TreeNode } from "../model/tree.ts";
import { type CanvasTheme, inkOn } from "./colour.ts";
import { colourOf, formatValue, isPaintable, valueOf } from "./paint.ts";
import type { Pen } from "./pen.ts";
import { isDimmed, isNew, type Picture, rectAt } from "./picture.ts";

const READABLE = 0.35; // the least scale at which text is drawn

/** Draw the frame of an open box. */
export function drawFrame(ctx: Pen, picture: Picture, box: PlacedBox): void {
  const { theme } = picture;
  const r = rectAt(picture, box);
  ctx.globalAlpha = isNew(picture, box) ? picture.progress : 1;
  ctx.fillStyle = box.node.depth % 2 ? theme["frame-a"] : theme["frame-b"];
  ctx.strokeStyle = accent(box.node) === "failed" ? theme.error : theme["frame-line"];
  ctx.lineWidth = 1;
  round(ctx, r, 12);
  ctx.fill();
  ctx.stroke();
  if (box.node.kind === "group") {
    ctx.setLineDash([5, 4]);
    ctx.strokeStyle = theme["module-line"];
    ctx.stroke();
    ctx.setLineDash([]);
  }
  outlineIfMarked(ctx, picture, box, r, 12);
  ctx.globalAlpha = 1;
}

/** Draw the header of an open box; that of a fold has controls to select the member shown. */
export function drawHeader(ctx: Pen, picture: Picture, box: PlacedBox, picker = drawPicker): void {
  const { theme, camera } = picture;
  const r = rectAt(picture, box);
  const fill = paintOf(picture, box.node);
  ctx.globalAlpha = isNew(picture, box) ? picture.progress : 1;
  ctx.beginPath();
  ctx.roundRect(r.x + 0.5, r.y + 0.5, r.width - 1, HEADER - 1, [11, 11, 0, 0]);
  ctx.fillStyle = fill?.colour ?? (box.node.depth % 2 ? theme["frame-b"] : theme["frame-a"]);
  ctx.fill();
  if (fill && (fill.hatched || !fill.colour)) hatch(ctx, theme, fill, r.x, r.y, r.width, HEADER);
  ctx.strokeStyle = theme["frame-line"];
  ctx.lineWidth = 1;
  line(ctx, r.x, r.y + HEADER, r.x + r.width, r.y + HEADER);
  if (camera.scale >= READABLE) {
    const ink = fill?.colour ? inkOn(fill.colour) : theme.text;
    const [title, subtitle] = captions(box.node, picture.figures);
    const [left] = headerSpan(r, camera, picture.width);
    button(ctx, left + 15, r.y + HEADER / 2, true, ink, theme);
    text(ctx, theme, title, left + 29, r.y + HEADER / 2, 13, ink, "left", true);
    const at = left + 29 + ctx.measureText(title).width + 8;
    text(ctx, theme, headerText(picture.tree, box.node, subtitle), at, r.y + HEADER / 2 + 0.5, 11, fill?.colour ? ink : theme["text-soft"], "left");
    if (isFold(box.node)) picker(ctx, picture, box, r);
  }
  ctx.globalAlpha = 1;
}

/** Draw the controls in the header of an open fold: all members, previous, next, and the number of the member shown. */
function drawPicker(ctx: Pen, picture: Picture, box: PlacedBox, r: Rect): void {
  const { theme } = picture;
  const middle = r.y + HEADER / 2;
  let [, x] = headerSpan(r, picture.camera, picture.width);
  const put = (width: number, label: string, ink: string, bold = false): void => {
    x -= width;
    text(ctx, theme, label, x + width / 2, middle, 11.5, ink, "center", bold);
  };
  put(PICKER.all, box.pick === "all" ? "one" : "all", theme.accent);
  if (box.pick === "all") return;
  put(PICKER.next, "›", theme.accent, true);
  put(PICKER.which, `${box.pick + 1} / ${box.node.children.length}`, theme["text-soft"]);
  put(PICKER.previous, "‹", theme.accent, true);
}

/** Draw a closed box. */
export function drawBox(ctx: Pen, picture: Picture, box: PlacedBox): void {
  const { theme, camera } = picture;
  const { node } = box;
  const r = rectAt(picture, box);
  const style = styleOf(theme, node);
  const fill = paintOf(picture, node);
  const radius = isBoxed(node) ? 9 : Math.min(r.height / 2, 14);
  ctx.globalAlpha = (isNew(picture, box) ? picture.progress : 1) * (isDimmed(picture, node.id) ? 0.4 : 1);
  if (node.kind === "group" && camera.scale > 0.25) drawStack(ctx, r, style);
  const tiny = camera.scale < READABLE;
  ctx.fillStyle = fill?.colour ?? (tiny ? style.line : style.fill); // a tiny box needs the contrast of its outline's color
  ctx.strokeStyle = fill?.colour ?? style.line;
  ctx.lineWidth = style.width;
  if (style.dashed) ctx.setLineDash([4, 3]);
  round(ctx, r, radius);
  ctx.fill();
  if (fill && (fill.hatched || !fill.colour)) {
    ctx.save();
    ctx.clip();
    hatch(ctx, theme, fill, r.x, r.y, r.width, r.height);
    ctx.restore();
    round(ctx, r, radius);
    ctx.strokeStyle = theme["line-strong"];
  }
  ctx.stroke();
  ctx.setLineDash([]);
  if (node.kind === "group" && picture.paint) drawStrip(ctx, picture, node, withoutDetails(r, details(picture.tree, node)));
  outlineIfMarked(ctx, picture, box, r, radius);
  if (picture.paint?.kinds && !node.children.length && valueOf(picture.paint, node) === picture.paint.kinds.length - 1) drawFlag(ctx, theme, r);
  if (!tiny) drawWords(ctx, picture, box, r, fill?.colour ? inkOn(fill.colour) : style.ink);
  ctx.globalAlpha = 1;
}

/** Draw a flag on a box of the most severe kind, which is visible at any scale. */
function drawFlag(ctx: Pen, theme: CanvasTheme, r: Rect): void {
  const x = r.x + 12;
  ctx.strokeStyle = ctx.fillStyle = theme["first-fill"];
  ctx.lineWidth = 2;
  line(ctx, x, r.y - 16, x, r.y);
  ctx.beginPath();
  ctx.moveTo(x, r.y - 16);
  ctx.lineTo(x + 13, r.y - 11);
  ctx.lineTo(x, r.y - 6);
  ctx.fill();
}

function drawWords(ctx: Pen, picture: Picture, box: PlacedBox, whole: Rect, ink: string): void {
  const { theme, paint, tree } = picture;
  const { node } = box;
  const [title, below] = wordsOn(picture, node);
  const lines = details(tree, node);
  const r = withoutDetails(whole, lines);
  const middle = r.x + r.width / 2;
  lines.forEach((line, i) => text(ctx, theme, line, middle, r.y + r.height + DETAIL * i + 1, FONT_SHAPE, ink === theme.text ? theme["text-soft"] : ink, "center"));
  if (!isBoxed(node)) {
    text(ctx, theme, title, middle, r.y + r.height / 2 + 0.5, 12, ink, "center", node.kind !== "op");
    return;
  }
  const container = node.children.length > 0;
  const centre = container ? middle + 9 : middle;
  if (container) button(ctx, r.x + 17, r.y + r.height / 2, false, ink, theme);
  const soft = ink === theme.text ? theme["text-soft"] : ink;
  const strip = node.kind === "group" && paint !== null;
  const two = below !== "" && !strip;
  const y = r.y + r.height / 2 - (two ? 7.5 : strip ? 7 : 0);
  const value = strip && isPaintable(node, paint) ? below : "";
  const at = value ? centre - 4 - value.length * 3 : centre; // room for about 6 pixels a letter
  text(ctx, theme, title, at, y, 13, ink, "center", true);
  if (value) text(ctx, theme, value, at + ctx.measureText(title).width / 2 + 8, y, 11, soft, "left");
  if (two) text(ctx, theme, below, centre, r.y + r.height / 2 + 9.5, 11, soft, "center");
}

/** Return the part of a closed box above its details. */
const withoutDetails = (r: Rect, lines: string[]): Rect => ({ ...r, height: r.height - DETAIL * lines.length });

/** Return the text on a closed box: its title and, below it, its value or type. */
export function wordsOn({ figures, paint }: Pick<Picture, "figures" | "paint">, node: TreeNode): [title: string, below: string] {
  const [title, subtitle] = captions(node, figures);
  const value = paint && isBoxed(node) && isPaintable(node, paint) ? valueOf(paint, node) : null;
  return [title, value !== null && paint ? formatValue(paint, value) : subtitle];
}

/** Draw a closed group as a stack of boxes. */
function drawStack(ctx: Pen, r: Rect, style: BoxStyle): void {
  ctx.strokeStyle = style.line;
  ctx.fillStyle = style.fill;
  ctx.lineWidth = 1;
  for (const [inset, drop] of [
    [10, 7],
    [5, 3.5],
  ]) {
    round(ctx, { x: r.x + inset, y: r.y + drop, width: r.width - 2 * inset, height: r.height }, 9);
    ctx.fill();
    ctx.stroke();
  }
}

/** Draw the values of a group's members side by side. */
function drawStrip(ctx: Pen, picture: Picture, node: TreeNode, r: Rect): void {
  const { paint, tree, theme } = picture;
  const left = r.x + 34;
  const width = (r.width - 46) / node.children.length;
  ctx.fillStyle = theme.surface;
  ctx.fillRect(left - 1, r.y + r.height - 18, r.width - 44, 11);
  node.children.forEach((id, i) => {
    const fill = paintOf(picture, tree.nodes[id]);
    const x = left + i * width;
    if (fill && !fill.colour && !paint?.kinds) {
      ctx.save();
      ctx.beginPath();
      ctx.rect(x, r.y + r.height - 17, width, 9);
      ctx.clip();
      hatch(ctx, theme, { colour: null }, x, r.y + r.height - 17, width, 9);
      ctx.restore();
      return;
    }
    ctx.fillStyle = fill?.colour ?? theme["param-fill"];
    ctx.fillRect(x, r.y + r.height - 17, width - (width > 6 ? 1 : 0), 9);
  });
}

export interface BoxStyle {
  fill: string;
  line: string;
  ink: string;
  width: number;
  dashed: boolean;
}

/** Return the style of a box in the visual code of the TorchLens paper (Taylor and Kriegeskorte 2023). */
export function styleOf(theme: CanvasTheme, node: TreeNode): BoxStyle {
  const { kind, subtitle, children, hasParams, decision } = node;
  const isEnd = subtitle === "input" || subtitle === "output"; // a group of inputs, or of outputs
  const role = kind === "group" && isEnd ? subtitle : kind;
  const family = decision ? "decision" : role === "input" || role === "output" ? role : role === "buffer" || role === "constant" ? "buffer" : children.length ? "module" : hasParams ? "param" : "op";
  const ink = family === "buffer" ? theme["text-soft"] : (theme[`${family}-text` as "input-text"] ?? theme.text);
  const style: BoxStyle = { fill: theme[`${family}-fill`], line: theme[`${family}-line`], ink, width: family === "module" ? 1.25 : 1, dashed: false };
  const mark = accent(node);
  if (mark === "created" || node.kind === "constant") style.dashed = true;
  if (mark === "failed") Object.assign(style, { fill: theme["error-fill"], line: theme.error, ink: theme.error, width: 2 });
  return style;
}

interface Fill {
  colour: string | null;
  hatched?: boolean;
}

/** Return the fill that a paint gives a box: without color if its value is missing, null if the box cannot be painted. */
export function paintOf({ paint, theme }: Pick<Picture, "paint" | "theme">, node: TreeNode): Fill | null {
  if (!paint || !(paint.kinds || isPaintable(node, paint))) return null;
  const value = valueOf(paint, node);
  if (paint.kinds) {
    const token = paint.kinds[value ?? 0][1];
    return token ? { colour: theme[token], hatched: paint.hatched?.[1](node) } : null;
  }
  if (paint.hot && value === 0) return null;
  return { colour: value === null ? null : colourOf(paint, paint.byBox?.shades[node.id] ?? paint.strength?.(value) ?? value) };
}

/** Outline a selected, hovered or related box. */
function outlineIfMarked(ctx: Pen, picture: Picture, box: PlacedBox, r: Rect, radius: number): void {
  const { theme, selected, hovered, related } = picture;
  const id = box.node.id;
  if (id !== selected && id !== hovered && !related.has(id)) return;
  const wide = id === selected ? 2.5 : 1.5;
  const away = id === selected ? 2.5 : 1;
  ctx.strokeStyle = theme.accent;
  ctx.lineWidth = wide / Math.min(1, picture.camera.scale);
  if (id !== selected && related.has(id)) ctx.setLineDash([3, 3]);
  round(ctx, { x: r.x - away, y: r.y - away, width: r.width + 2 * away, height: r.height + 2 * away }, radius + away);
  ctx.stroke();
  ctx.setLineDash([]);
}

function button(ctx: Pen, x: number, y: number, open: boolean, ink: string, theme: CanvasTheme): void {
  ctx.strokeStyle = ink === theme.text ? theme["text-soft"] : ink;
  ctx.lineWidth = 1.6;
  ctx.lineCap = ctx.lineJoin = "round";
  ctx.beginPath();
  if (open) {
    ctx.moveTo(x - 4, y - 2);
    ctx.lineTo(x, y + 2.5);
    ctx.lineTo(x + 4, y - 2);
  } else {
    ctx.moveTo(x - 2, y - 4);
    ctx.lineTo(x + 2.5, y);
    ctx.lineTo(x - 2, y + 4);
  }
  ctx.stroke();
  ctx.lineCap = "butt";
  ctx.lineJoin = "miter";
}

/** Draw stripes: strong ones on a box without a value, faint ones on a colored box. */
export function hatch(ctx: Pen, theme: CanvasTheme, { colour }: Fill, x: number, y: number, width: number, height: number): void {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, width, height);
  ctx.clip();
  ctx.fillStyle = colour ?? theme.surface;
  ctx.fillRect(x, y, width, height);
  ctx.strokeStyle = colour ? inkOn(colour) : theme.line;
  ctx.globalAlpha *= colour ? 0.16 : 1;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  for (let at = -height; at < width; at += 7) {
    ctx.moveTo(x + at, y + height);
    ctx.lineTo(x + at + height, y);
  }
  ctx.stroke();
  ctx.restore();
}

function round(ctx: Pen, r: Rect, radius: number): void {
  ctx.beginPath();
  ctx.roundRect(r.x, r.y, r.width, r.height, radius);
}

function line(ctx: Pen, x1: number, y1: number, x2: number, y2: number): void {
  ctx.beginPath();
  ctx.moveTo(x1, y1);
  ctx.lineTo(x2, y2);
  ctx.stroke();
}

function text(
  ctx: Pen,
  theme: CanvasTheme,
  content: string,
  x: number,
  y: number,
  size: number,
  ink: string,
  align: CanvasTextAlign,
  bold = false,
): void {
  ctx.font = `${bold ? "600 " : ""}${size}px ${theme.font}`;
  ctx.textAlign = align;
  ctx.textBaseline = "middle";
  ctx.fillStyle = ink;
  ctx.fillText(content, x, y);
}
