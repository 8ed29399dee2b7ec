// The coordinates of epochs and values in a plot, and its ticks, for the canvas and the saved picture.
import { type Chart, extent } from "../model/series.ts";
import type { Center } from "../model/strength.ts";
import { padded, share, ticks } from "./scales.ts";

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface Frame extends Box {
  x(epoch: number): number;
  y(value: number): number;
  /** Return the epoch at a horizontal position, not rounded. */
  epochAt(x: number): number;
  xTicks: number[];
  yTicks: number[];
}

/** Return a frame for all of the charts. */
export function frameOf(charts: Chart[], box: Box, center: Center = null): Frame {
  const { low, high } = extent(charts, center);
  const [bottom, top] = padded(low, high);
  const epochs = charts.flatMap((chart) => chart.epochs);
  const [first, last] = epochs.length ? [Math.min(...epochs), Math.max(...epochs)] : [0, 0];
  const padding = last > first ? (last - first) * 0.015 : 0.5;
  const [start, stop] = [first - padding, last + padding];
  const whole = epochs.every(Number.isInteger);
  return {
    ...box,
    x: (epoch) => box.left + share(epoch, start, stop) * box.width,
    y: (value) => box.top + (1 - share(value, bottom, top)) * box.height,
    epochAt: (x) => start + ((x - box.left) / box.width) * (stop - start),
    xTicks: ticks(start, stop, Math.max(2, box.width / 50)).filter((tick) => !whole || Number.isInteger(tick)),
    yTicks: ticks(bottom, top, Math.max(2, box.height / 44)),
  };
}

/** Return the runs of consecutive indices that are known and of one kind. */
export function stretches(size: number, known: (i: number) => boolean, kinds: boolean[] = []): number[][] {
  const runs: number[][] = [];
  for (let i = 0; i < size; i++) {
    if (!known(i)) continue;
    if (i > 0 && known(i - 1) && kinds[i] === kinds[i - 1]) (runs.at(-1) as number[]).push(i);
    else runs.push([i]);
  }
  return runs;
}
