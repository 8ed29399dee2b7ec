// Where epochs and values stand in a box of a plot, and the ticks beside it; the canvas and the saved picture
// share it. Pure.

import { padded, place, ticks } from "./scales.ts";
import { type Chart, extent } from "../model/series.ts";

export interface Box {
  left: number;
  top: number;
  width: number;
  height: number;
}

export interface Frame extends Box {
  x(epoch: number): number;
  y(value: number): number;
  /** The epoch at a place across, not rounded. */
  epochAt(x: number): number;
  xTicks: number[];
  yTicks: number[];
}

/** One frame that holds all of the charts. */
export function frameOf(charts: Chart[], box: Box): Frame {
  const { low, high } = extent(charts);
  const [bottom, top] = padded(low, high);
  const epochs = charts.flatMap((chart) => chart.epochs);
  const [first, last] = epochs.length ? [Math.min(...epochs), Math.max(...epochs)] : [0, 0];
  const air = last > first ? (last - first) * 0.015 : 0.5;
  const [start, stop] = [first - air, last + air];
  const whole = epochs.every(Number.isInteger);
  return {
    ...box,
    x: (epoch) => box.left + place(epoch, start, stop, box.width),
    y: (value) => box.top + box.height - place(value, bottom, top, box.height),
    epochAt: (x) => start + ((x - box.left) / box.width) * (stop - start),
    xTicks: ticks(start, stop, Math.max(2, box.width / 50)).filter((tick) => !whole || Number.isInteger(tick)),
    yTicks: ticks(bottom, top, Math.max(2, box.height / 44)),
  };
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
