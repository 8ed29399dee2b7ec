// Drawing edges and the shapes beside them.
import { bends, numberOf } from "../layout/curve.ts";
import type { Line } from "../layout/visibleLines.ts";
import { IF } from "../model/marks.ts";
import type { Pen } from "./pen.ts";
import { isInside, type Picture } from "./picture.ts";

export function drawLines(ctx: Pen, picture: Picture, lines: Line[]): void {
  const { theme, lit, camera, progress } = picture;
  const chosen: Line[] = [];
  const drawn = new Set<number>();
  ctx.lineWidth = 1.25 / Math.max(0.5, Math.min(1, camera.scale));
  ctx.strokeStyle = ctx.fillStyle = theme.edge;
  const shown = progress < 1 ? Math.max(0, progress * 2 - 1) : 1;
  ctx.globalAlpha = shown;
  for (const line of lines) {
    const inside = lit !== null && isInside(picture, line.container);
    if (line.edge === picture.edge || (!inside && lit?.along(line.edge))) {
      chosen.push(line);
      continue;
    }
    if (lit) ctx.globalAlpha = shown * (inside ? 1 : 0.5);
    drawLine(ctx, picture, line, drawn);
  }
  ctx.globalAlpha = shown;
  ctx.strokeStyle = ctx.fillStyle = theme.accent;
  const plain = ctx.lineWidth;
  for (const line of chosen) {
    ctx.lineWidth = plain * (line.edge === picture.edge || touches(line, picture.selected) ? 2 : 1.2);
    drawLine(ctx, picture, line, drawn);
  }
  ctx.globalAlpha = 1;
}

const touches = ({ edge }: Line, id: number): boolean => edge.from === id || edge.to === id;

const ARROW = 6.5;

/** The parts of a line that are in sight and not `drawn` yet: a thousand lines may share a lane, which is drawn once. */
function drawLine(ctx: Pen, { camera, height }: Picture, line: Line, drawn: Set<number>): void {
  const { route, x, y } = line;
  const [tipX, tipY] = route.subarray(-2);
  const arrow = line.arrow && camera.scale > 0.3;
  const [top, bottom] = [camera.y - y - 9, camera.y + height / camera.scale - y + 9];
  ctx.beginPath();
  for (const { ax, ay, bx, by, ca, cb, straight, last } of bends(route, top, bottom)) {
    const short = arrow && last ? ARROW - 1 : 0;
    const [from, to] = straight ? [ay, by - short].map((end) => Math.min(bottom, Math.max(top, end))) : [ay, by - short];
    const part = numberOf(x + ax, y + from, x + bx, y + to, ctx.lineWidth);
    if (drawn.has(part)) continue;
    drawn.add(part);
    ctx.moveTo(x + ax, y + from);
    if (straight) ctx.lineTo(x + bx, y + to);
    else ctx.bezierCurveTo(x + ax, y + ca, x + bx, y + cb - short, x + bx, y + to);
  }
  ctx.stroke();
  if (!arrow) return;
  const [tx, ty] = [x + tipX, y + tipY];
  ctx.beginPath();
  ctx.moveTo(tx, ty - 0.5);
  ctx.lineTo(tx - 3.6, ty - ARROW);
  ctx.lineTo(tx + 3.6, ty - ARROW);
  ctx.closePath();
  ctx.fill();
}

/** Words beside edges: the shape where the edge leaves its box or arrives, the argument at its arrow, passes at either
 * end, and where a branch begins. */
export function drawLabels(ctx: Pen, { camera, progress, theme }: Picture, lines: Line[]): void {
  if (camera.scale * 10 < 6 || progress < 1) return;
  ctx.textBaseline = "middle";
  for (const line of lines) {
    for (const { text, size, ends, x, y } of line.words) {
      const isIf = text === IF;
      ctx.font = `${isIf ? "600 " : ""}${size}px ${theme.font}`;
      ctx.fillStyle = theme[isIf ? "decision-text" : "edge-label"];
      ctx.textAlign = ends ? "right" : "left";
      ctx.fillText(text, line.x + x, line.y + y);
    }
  }
}
