// Draws the parts of the plot: axes, intervals and baseline, lines, and the marks of points and of the current epoch.
import { epoch as epochText } from "../../ui/format.ts";
import { isMany, otherLines } from "../model/comparedRuns.ts";
import type { Band } from "../model/crowd.ts";
import type { Inks } from "../model/inks.ts";
import { baselines } from "../model/series.ts";
import type { View } from "../state/view.ts";
import { type Frame, stretches } from "./frame.ts";
import { type PointMarks, pointMarks } from "./pointMarks.ts";
import { tickText } from "./scales.ts";

type Context = CanvasRenderingContext2D;
type Column = (number | null | undefined)[];

const FEW = 12; // layers; up to so many, all intervals are drawn
export const LONE = 10; // pixels to either side that an interval or a baseline of a single epoch extends
export const GRAY = 0.16; // the opacity of a band of a crowd
const DIM = 0.22; // the opacity of the other lines while one is focused

export function drawAxes(ctx: Context, frame: Frame, inks: Inks, font: string): void {
  const [right, bottom] = [frame.left + frame.width, frame.top + frame.height];
  ctx.font = `12px ${font}`;
  ctx.fillStyle = inks["text-soft"];
  ctx.strokeStyle = inks.line;
  ctx.lineWidth = 1;
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.beginPath();
  for (const value of frame.yTicks) {
    const y = Math.round(frame.y(value)) + 0.5;
    ctx.moveTo(frame.left, y);
    ctx.lineTo(right, y);
    ctx.fillText(tickText(value), frame.left - 8, y);
  }
  ctx.stroke();
  ctx.textAlign = "center";
  for (const epoch of frame.xTicks) ctx.fillText(epochText(epoch), frame.x(epoch), bottom + 14);
  ctx.fillText("epoch", frame.left + frame.width / 2, bottom + 34);
}

/** Draw below the lines: the bands of a crowd in gray, the 95 % interval of the focused layer, or of all if they are few, and the
 * baseline with gray dashes, on both sides of the center of a score. */
export function drawUnder(ctx: Context, frame: Frame, view: View, inks: Inks): void {
  const { focused, chart, center, colours, crowd } = view;
  const drawn = focused ? [focused] : chart.series.length <= FEW ? chart.series : [];
  for (const band of crowd.bands) drawBand(ctx, frame, chart.epochs, band, inks["text-soft"], GRAY);
  for (const series of drawn) drawBand(ctx, frame, chart.epochs, series, colours.get(series.address) ?? "", focused ? 0.18 : 0.08);
  ctx.save();
  ctx.strokeStyle = inks["text-soft"];
  ctx.lineWidth = 1.25;
  ctx.setLineDash([5, 4]);
  for (const baseline of baselines(chart, focused, center)) ctx.stroke(linePath(frame, chart.epochs, baseline, [], LONE));
  ctx.restore();
}

function drawBand(ctx: Context, frame: Frame, epochs: number[], { low, high, positions }: Band & { positions?: boolean[] }, colour: string, strength: number): void {
  const x = (i: number): number => frame.x(epochs[i] as number);
  ctx.fillStyle = colour;
  ctx.globalAlpha = strength;
  for (const at of stretches(low.length, (i) => low[i] != null && high[i] != null, positions)) {
    ctx.beginPath();
    const [first, last] = [at[0] as number, at.at(-1) as number];
    const half = first === last ? LONE : 0; // a single epoch has no width
    ctx.moveTo(x(first) - half, frame.y(high[first] as number));
    for (const i of at) ctx.lineTo(x(i) + half, frame.y(high[i] as number));
    for (const i of at.reverse()) ctx.lineTo(x(i) + half, frame.y(low[i] as number));
    ctx.lineTo(x(first) - half, frame.y(low[first] as number));
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}

/** Draw the lines in order of depth. If one is focused, the others are faint; the selected one and the focused one are on top. The
 * lines of other runs are dashed, in the color of the same layer. */
export function drawSeries(ctx: Context, frame: Frame, { chart, crowd, compared, colours, focus, focused, selected }: View): void {
  ctx.lineJoin = "round";
  ctx.lineCap = "round"; // a point between two gaps is a dot
  ctx.lineWidth = isMany(chart) ? 1 : 1.75;
  ctx.globalAlpha = focused ? DIM : 1;
  for (const { address, value, positions } of crowd.lines) {
    ctx.strokeStyle = colours.get(address) ?? "";
    ctx.stroke(linePath(frame, chart.epochs, value, positions));
  }
  ctx.globalAlpha = 1;
  ctx.lineCap = "butt";
  for (const { dash, epochs, series } of otherLines(chart, compared, focus)) {
    ctx.strokeStyle = colours.get(series.address) ?? "gray";
    ctx.setLineDash(dash);
    ctx.stroke(linePath(frame, epochs, series.value, series.positions));
  }
  ctx.setLineDash([]);
  ctx.lineCap = "round";
  for (const [series, width] of [[selected, 2], [focused, 2.75]] as const) {
    if (!series) continue;
    ctx.lineWidth = width;
    ctx.strokeStyle = colours.get(series.address) ?? "";
    ctx.stroke(linePath(frame, chart.epochs, series.value, series.positions));
  }
}

/** Return a column as a path with gaps at missing values and between points of different kinds. A point between two gaps extends `lone` to either side. */
function linePath(frame: Frame, epochs: number[], column: Column, kinds: boolean[] = [], lone = 0): Path2D {
  const path = new Path2D();
  const x = (i: number): number => frame.x(epochs[i] as number);
  const y = (i: number): number => frame.y(column[i] as number);
  for (const at of stretches(column.length, (i) => column[i] != null, kinds)) {
    const [first, last] = [at[0] as number, at.at(-1) as number];
    const half = first === last ? lone : 0;
    path.moveTo(x(first) - half, y(first));
    for (const i of at) path.lineTo(x(i) + half, y(i));
  }
  return path;
}

/** Draw above the lines: a cross on the axis for a point without a value, a ring around a point computed from part of the rows, a
 * diamond around a point that changed when it was scored again, and the current epoch with a dot on each line. */
export function drawOver(ctx: Context, frame: Frame, view: View, inks: Inks): void {
  const { chart, focused, selected, at, colours } = view;
  drawMarks(ctx, pointMarks(frame, chart.epochs, focused ? [focused] : chart.series), inks);
  if (at < 0) return;
  const x = frame.x(chart.epochs[at] as number);
  ctx.strokeStyle = inks.accent;
  ctx.lineWidth = 1.5;
  ctx.beginPath();
  ctx.moveTo(x, frame.top);
  ctx.lineTo(x, frame.top + frame.height);
  ctx.stroke();
  ctx.strokeStyle = inks.surface;
  for (const { address, value } of focused ? [selected ?? focused, focused] : isMany(chart) ? [] : chart.series) {
    if (value[at] == null) continue;
    ctx.fillStyle = colours.get(address) ?? "";
    ctx.beginPath();
    ctx.arc(x, frame.y(value[at] as number), 4, 0, 2 * Math.PI);
    ctx.fill();
    ctx.stroke();
  }
}

function drawMarks(ctx: Context, { missing, partial, revised }: PointMarks, inks: Inks): void {
  ctx.lineWidth = 1.5;
  ctx.strokeStyle = inks.warning;
  ctx.beginPath();
  for (const [x, y] of missing.values()) {
    ctx.moveTo(x - 3, y - 3);
    ctx.lineTo(x + 3, y + 3);
    ctx.moveTo(x + 3, y - 3);
    ctx.lineTo(x - 3, y + 3);
  }
  for (const [x, y] of partial.values()) {
    ctx.moveTo(x + 6, y);
    ctx.arc(x, y, 6, 0, 2 * Math.PI);
  }
  ctx.stroke();
  ctx.strokeStyle = inks["text-soft"];
  ctx.beginPath();
  for (const [x, y] of revised.values()) {
    ctx.moveTo(x, y - 9);
    for (const [dx, dy] of [[9, 0], [0, 9], [-9, 0], [0, -9]] as const) ctx.lineTo(x + dx, y + dy);
  }
  ctx.stroke();
}
