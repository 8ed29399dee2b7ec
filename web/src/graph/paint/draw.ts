// Draws what is visible on a canvas: only what is on the screen, and only as much of it as can be seen.
import type { Rect } from "../layout/visibleLayout.ts";
import { drawBox, drawFrame, drawHeader } from "./boxes.ts";
import { drawLabels, drawLines } from "./lines.ts";
import { type Picture, rectAt } from "./picture.ts";

const LEAST = 4; // pixels of an open box's height that let see what is in it

export function drawPicture(ctx: CanvasRenderingContext2D, picture: Picture): void {
  const { camera, ratio, theme } = picture;
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.fillStyle = theme.bg;
  ctx.fillRect(0, 0, picture.width, picture.height);
  ctx.setTransform(ratio * camera.scale, 0, 0, ratio * camera.scale, -camera.x * camera.scale * ratio, -camera.y * camera.scale * ratio);
  const view = {
    x: camera.x,
    y: camera.y,
    width: picture.width / camera.scale,
    height: picture.height / camera.scale,
  };
  const moving = picture.progress < 1; // what is on its way into sight or out of it stands elsewhere in the end
  const least = LEAST / camera.scale;
  const boxes = moving ? picture.visible.boxes.filter((box) => meets(rectAt(picture, box), view)) : picture.visible.boxesIn(view, least);
  for (const box of boxes) if (box.open) drawFrame(ctx, picture, box);
  const lines = picture.visible.linesIn(view, least);
  drawLines(ctx, picture, lines);
  for (const box of boxes) if (!box.open) drawBox(ctx, picture, box);
  for (const box of boxes) if (box.open && box.height >= least) drawHeader(ctx, picture, box);
  drawLabels(ctx, picture, lines);
}

function meets(a: Rect, b: Rect): boolean {
  return a.x < b.x + b.width && a.x + a.width > b.x && a.y < b.y + b.height && a.y + a.height > b.y;
}
