// Drawing edges and the shapes beside them.
import { curve } from "./curve.ts";
import type { Picture, Rect } from "./picture.ts";
import type { Line } from "./stage.ts";

export function drawLines(ctx: CanvasRenderingContext2D, picture: Picture, view: Rect): void {
  const { theme, selected, camera, progress } = picture;
  const chosen: Line[] = [];
  ctx.lineWidth = 1.25 / Math.max(0.5, Math.min(1, camera.scale));
  ctx.strokeStyle = ctx.fillStyle = theme.edge;
  ctx.globalAlpha = progress < 1 ? Math.max(0, progress * 2 - 1) : 1;
  for (const line of picture.frame.lines) {
    if (!isLineVisible(line, view)) continue;
    if (line.edge.from === selected || line.edge.to === selected) chosen.push(line);
    else drawLine(ctx, line, camera.scale);
  }
  ctx.strokeStyle = ctx.fillStyle = theme.accent;
  ctx.lineWidth *= 1.7;
  for (const line of chosen) drawLine(ctx, line, camera.scale);
  ctx.globalAlpha = 1;
}

function isLineVisible(line: Line, view: Rect): boolean {
  const { route } = line;
  const last = route.length - 1;
  if (last < 0) return false;
  if (line.y + route[last] < view.y || line.y + route[1] > view.y + view.height) return false;
  let [low, high] = [Infinity, -Infinity];
  for (let i = 0; i < last; i += 2) {
    low = Math.min(low, route[i]);
    high = Math.max(high, route[i]);
  }
  return line.x + high >= view.x && line.x + low <= view.x + view.width;
}

const ARROW = 6.5;

function drawLine(ctx: CanvasRenderingContext2D, line: Line, scale: number): void {
  const { route, x, y } = line;
  const last = route.length - 2;
  const arrow = line.arrow && scale > 0.3;
  ctx.beginPath();
  ctx.moveTo(x + route[0], y + route[1]);
  for (let i = 2; i <= last; i += 2) {
    const [ax, ay, bx] = [x + route[i - 2], y + route[i - 1], x + route[i]];
    const by = y + route[i + 1] - (arrow && i === last ? ARROW - 1 : 0);
    if (Math.abs(ax - bx) < 0.5) ctx.lineTo(bx, by);
    else {
      const bend = curve(ax, ay, bx, by);
      ctx.bezierCurveTo(ax, bend.ay, bx, bend.by, bx, by);
    }
  }
  ctx.stroke();
  if (!arrow) return;
  const [tx, ty] = [x + route[last], y + route[last + 1]];
  ctx.beginPath();
  ctx.moveTo(tx, ty - 0.5);
  ctx.lineTo(tx - 3.6, ty - ARROW);
  ctx.lineTo(tx + 3.6, ty - ARROW);
  ctx.closePath();
  ctx.fill();
}

/** Shapes, beside an edge where it leaves its box or arrives, on a halo of the ground so that crossing lines do not hurt. */
export function drawLabels(ctx: CanvasRenderingContext2D, picture: Picture, view: Rect): void {
  const { theme, camera, progress } = picture;
  if (camera.scale * 10 < 6 || progress < 1) return;
  for (const line of picture.frame.lines) {
    if (!line.label || !isLineVisible(line, view)) continue;
    const { route } = line;
    const last = route.length - 2;
    const x = line.x + route[line.labelAtEnd ? last : 0] + 6;
    const y = line.y + (line.labelAtEnd ? route[last + 1] - 16 : route[3] + 12);
    const holder = picture.tree.nodes[line.container];
    const ground = line.container === 0 ? theme.bg : holder.depth % 2 ? theme["frame-a"] : theme["frame-b"];
    ctx.font = `10.5px ${theme.font}`;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    ctx.strokeStyle = ground;
    ctx.lineWidth = 4;
    ctx.lineJoin = "round";
    ctx.strokeText(line.label, x, y);
    ctx.fillStyle = theme["edge-label"];
    ctx.fillText(line.label, x, y);
  }
}
