// What the plot draws beside its lines: interval, baseline, the picked line on top, the epoch, what is not a number.

import type uPlot from "uplot";
import { highestBaseline } from "./series.ts";
import type { View } from "./view.ts";

export type Inks = Record<"text-soft" | "line" | "line-strong" | "surface" | "warning" | "accent", string>;

type Column = (number | null)[];

/** A canvas in CSS pixels, clipped to the plot's box; `x` and `y` place epochs and values. */
function inside(u: uPlot, draw: (ctx: CanvasRenderingContext2D, x: (i: number) => number, y: (v: number) => number) => void): void {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  const epochs = u.data[0] as number[];
  draw(ctx, (i) => u.valToPos(epochs[i] as number, "x", true), (v) => u.valToPos(v, "y", true));
  ctx.restore();
}

/** The stretches of indices without a gap. */
export function stretches(size: number, known: (i: number) => boolean): number[][] {
  const found: number[][] = [];
  for (let i = 0; i < size; i++) {
    if (!known(i)) continue;
    if (i > 0 && known(i - 1)) (found.at(-1) as number[]).push(i);
    else found.push([i]);
  }
  return found;
}

function trace(ctx: CanvasRenderingContext2D, at: number[], x: (i: number) => number, y: (i: number) => number): void {
  ctx.beginPath();
  at.forEach((i, k) => (k ? ctx.lineTo(x(i), y(i)) : ctx.moveTo(x(i), y(i))));
}

/** Under the lines: the 95 % interval of the layer in focus, and the baseline, dashed. */
export function drawUnder(u: uPlot, view: View, inks: Inks, ratio: number): void {
  const { focused, chart } = view;
  const baseline = focused ? focused.baseline : highestBaseline(chart.series, chart.epochs.length);
  inside(u, (ctx, x, y) => {
    if (focused) band(ctx, focused.low, focused.high, view.colours.get(focused.address) ?? "", x, y);
    ctx.strokeStyle = inks["text-soft"];
    ctx.lineWidth = 1.25 * ratio;
    ctx.setLineDash([5 * ratio, 4 * ratio]);
    for (const at of stretches(baseline.length, (i) => baseline[i] != null)) {
      trace(ctx, at, x, (i) => y(baseline[i] as number));
      ctx.stroke();
    }
  });
}

function band(ctx: CanvasRenderingContext2D, low: Column, high: Column, colour: string, x: (i: number) => number, y: (v: number) => number): void {
  ctx.fillStyle = colour;
  ctx.globalAlpha = 0.18;
  for (const at of stretches(low.length, (i) => low[i] != null && high[i] != null)) {
    trace(ctx, at, x, (i) => y(high[i] as number));
    for (const i of [...at].reverse()) ctx.lineTo(x(i), y(low[i] as number));
    ctx.closePath();
    ctx.fill();
  }
  ctx.globalAlpha = 1;
}

/** Over the lines: the layer in focus once more and thicker, the epoch on show, and a tick for every NaN. */
export function drawOver(u: uPlot, view: View, inks: Inks, ratio: number): void {
  const { chart, focused, at, colours } = view;
  inside(u, (ctx, x, y) => {
    for (const series of focused ? [focused] : chart.series) missing(ctx, u, series, inks, ratio, x);
    if (at >= 0) {
      ctx.strokeStyle = inks.accent;
      ctx.lineWidth = 1.5 * ratio;
      ctx.beginPath();
      ctx.moveTo(x(at), u.bbox.top);
      ctx.lineTo(x(at), u.bbox.top + u.bbox.height);
      ctx.stroke();
    }
    const shown = focused ? [focused] : chart.series.length <= 24 ? chart.series : [];
    if (focused) strong(ctx, focused.value, colours.get(focused.address) ?? "", ratio, x, y);
    for (const series of shown) {
      const value = series.value[at];
      if (value != null) dot(ctx, x(at), y(value), colours.get(series.address) ?? "", inks.surface, ratio);
    }
  });
}

function strong(ctx: CanvasRenderingContext2D, value: Column, colour: string, ratio: number, x: (i: number) => number, y: (v: number) => number): void {
  ctx.strokeStyle = colour;
  ctx.lineWidth = 2.75 * ratio;
  ctx.lineJoin = "round";
  for (const at of stretches(value.length, (i) => value[i] !== null)) {
    trace(ctx, at, x, (i) => y(value[i] as number));
    ctx.stroke();
  }
}

function dot(ctx: CanvasRenderingContext2D, x: number, y: number, fill: string, ring: string, ratio: number): void {
  ctx.beginPath();
  ctx.arc(x, y, 3.5 * ratio, 0, 2 * Math.PI);
  ctx.fillStyle = fill;
  ctx.strokeStyle = ring;
  ctx.lineWidth = 1.5 * ratio;
  ctx.fill();
  ctx.stroke();
}

/** A small cross on the axis where something was measured and is not a number. */
function missing(
  ctx: CanvasRenderingContext2D,
  u: uPlot,
  series: View["chart"]["series"][number],
  inks: Inks,
  ratio: number,
  x: (i: number) => number,
): void {
  const [size, y] = [3 * ratio, u.bbox.top + u.bbox.height - 7 * ratio];
  ctx.strokeStyle = inks.warning;
  ctx.lineWidth = 1.5 * ratio;
  ctx.beginPath();
  series.value.forEach((value, i) => {
    if (value !== null || series.note[i] === null) return;
    ctx.moveTo(x(i) - size, y - size);
    ctx.lineTo(x(i) + size, y + size);
    ctx.moveTo(x(i) + size, y - size);
    ctx.lineTo(x(i) - size, y + size);
  });
  ctx.stroke();
}
