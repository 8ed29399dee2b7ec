// Drawing edges and the shapes beside them.
import { bends } from "./curve.ts";
import { isInside, type Picture } from "./picture.ts";
import { FONT_MARK } from "./sizes.ts";
import type { Line } from "./strokes.ts";

export function drawLines(ctx: CanvasRenderingContext2D, picture: Picture, lines: Line[]): void {
  const { theme, lit, camera, progress } = picture;
  const chosen: Line[] = [];
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
    drawLine(ctx, line, camera.scale);
  }
  ctx.globalAlpha = shown;
  ctx.strokeStyle = ctx.fillStyle = theme.accent;
  const plain = ctx.lineWidth;
  for (const line of chosen) {
    ctx.lineWidth = plain * (line.edge === picture.edge || touches(line, picture.selected) ? 2 : 1.2);
    drawLine(ctx, line, camera.scale);
  }
  ctx.globalAlpha = 1;
}

const touches = ({ edge }: Line, id: number): boolean => edge.from === id || edge.to === id;

const ARROW = 6.5;

function drawLine(ctx: CanvasRenderingContext2D, line: Line, scale: number): void {
  const { route, x, y } = line;
  const last = route.length - 2;
  const arrow = line.arrow && scale > 0.3;
  ctx.beginPath();
  ctx.moveTo(x + route[0], y + route[1]);
  const parts = bends(route);
  parts.forEach((part, i) => {
    const short = arrow && i === parts.length - 1 ? ARROW - 1 : 0;
    if (part.straight) ctx.lineTo(x + part.bx, y + part.by - short);
    else ctx.bezierCurveTo(x + part.ax, y + part.ca, x + part.bx, y + part.cb - short, x + part.bx, y + part.by - short);
  });
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

/** Words beside edges, on a halo of the ground so that crossing lines do not hurt: the shape where the edge
 * leaves its box or arrives, the argument at its arrow, passes at either end. */
export function drawLabels(ctx: CanvasRenderingContext2D, picture: Picture, lines: Line[]): void {
  const { camera, progress } = picture;
  if (camera.scale * 10 < 6 || progress < 1) return;
  ctx.textBaseline = "middle";
  ctx.lineJoin = "round";
  ctx.lineWidth = 4;
  for (const line of lines) {
    const { route } = line;
    const last = route.length - 2;
    const [x1, y1, x2, y2] = [line.x + route[0], line.y + route[3], line.x + route[last], line.y + route[last + 1]];
    if (line.label) word(ctx, picture, line, line.label, (line.labelAtEnd ? x2 : x1) + 6, line.labelAtEnd ? y2 - (line.into ? 22 : 16) : y1 + 12, 10.5);
    if (line.into) word(ctx, picture, line, line.into, x2 + 5, y2 - 9 - 11 * line.intoRow, FONT_MARK);
    if (line.out) word(ctx, picture, line, line.out, x1 - 6, y1 + 9 + 11 * line.outRow, FONT_MARK);
    if (line.branch) drawIf(ctx, picture, x2, y2 - 14);
  }
}

function word(ctx: CanvasRenderingContext2D, picture: Picture, line: Line, text: string, x: number, y: number, size: number): void {
  const { theme } = picture;
  const holder = picture.tree.nodes[line.container];
  ctx.font = `${size}px ${theme.font}`;
  ctx.textAlign = text === line.out ? "right" : "left";
  ctx.strokeStyle = line.container === 0 ? theme.bg : holder.depth % 2 ? theme["frame-a"] : theme["frame-b"];
  ctx.strokeText(text, x, y);
  ctx.fillStyle = theme["edge-label"];
  ctx.fillText(text, x, y);
}

/** Where a branch begins: what follows serves a decision alone. */
function drawIf(ctx: CanvasRenderingContext2D, { theme }: Picture, x: number, y: number): void {
  ctx.fillStyle = theme["decision-fill"];
  ctx.strokeStyle = theme["decision-line"];
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.roundRect(x - 20, y - 7, 15, 13, 4);
  ctx.fill();
  ctx.stroke();
  ctx.font = `600 9px ${theme.font}`;
  ctx.textAlign = "center";
  ctx.fillStyle = theme["decision-text"];
  ctx.fillText("IF", x - 12.5, y);
  ctx.lineWidth = 4;
}
