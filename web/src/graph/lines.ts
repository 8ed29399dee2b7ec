// Drawing edges and the shapes beside them.
import { bends } from "./curve.ts";
import { isInside, type Picture } from "./picture.ts";
import { FONT_MARK } from "./sizes.ts";
import type { Line } from "./strokes.ts";

export function drawLines(ctx: CanvasRenderingContext2D, picture: Picture, lines: Line[]): void {
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
function drawLine(ctx: CanvasRenderingContext2D, { camera, height }: Picture, line: Line, drawn: Set<number>): void {
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

/** One number for several: the same for parts that lie on each other, and as good as never for others. */
const numberOf = (...numbers: number[]): number => numbers.reduce((sum, number) => sum * Math.PI + number, 0);

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
