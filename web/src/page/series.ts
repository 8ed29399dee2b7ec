// From the server's columns to one series per layer on a common axis of epochs. Pure.

import type { Columns } from "./api.ts";

export interface Series {
  address: string;
  /** Aligned with `Chart.epochs`; null where nothing was measured or the value is not a number. */
  value: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  baseline: (number | null)[];
  n: (number | null)[];
  /** Why there is no number; null where nothing was measured at all. */
  note: (string | null)[];
}

export interface Chart {
  epochs: number[];
  series: Series[];
  /** Range of every value; [0, 1] when there is none. */
  low: number;
  high: number;
  /** Points that were measured and are not a number. */
  missing: number;
}

export const EMPTY: Chart = { epochs: [], series: [], low: 0, high: 1, missing: 0 };

/** An epoch for every row: rows that know none stand at 0 when no row does, else they are left out. */
function axis(columns: Columns): (number | null)[] {
  return columns.epoch.some((epoch) => epoch !== null) ? columns.epoch : columns.epoch.map(() => 0);
}

const blank = (size: number): null[] => new Array<null>(size).fill(null);

/** Of several rows for one layer and epoch the one with the highest step stands. Layers follow `order`. */
export function chart(columns: Columns, order: string[]): Chart {
  const at = axis(columns);
  const rows = at.flatMap((epoch, i) => (epoch === null ? [] : [i]));
  rows.sort((a, b) => (columns.step[a] ?? -1) - (columns.step[b] ?? -1));
  const epochs = [...new Set(rows.map((i) => at[i] as number))].sort((a, b) => a - b);
  const place = new Map(epochs.map((epoch, i) => [epoch, i]));
  const found = new Map<string, Series>();
  for (const i of rows) {
    const address = columns.address[i] as string;
    const series = found.get(address) ?? fresh(address, epochs.length);
    found.set(address, series);
    put(series, place.get(at[i] as number) as number, columns, i);
  }
  const series = inOrder(found, order);
  return { epochs, series, ...range(series), missing: missing(series) };
}

function fresh(address: string, size: number): Series {
  const column = (): null[] => blank(size);
  return { address, value: column(), low: column(), high: column(), baseline: column(), n: column(), note: column() };
}

function put(series: Series, at: number, columns: Columns, row: number): void {
  const value = columns.value[row] ?? null;
  series.value[at] = value;
  series.low[at] = columns.low[row] ?? null;
  series.high[at] = columns.high[row] ?? null;
  series.baseline[at] = columns.baseline[row] ?? null;
  series.n[at] = columns.n[row] ?? null;
  series.note[at] = columns.note[row] || (value === null ? "not a number" : null);
}

/** Layers in network order, then those the order does not know, as they came. */
function inOrder(found: Map<string, Series>, order: string[]): Series[] {
  const known = order.flatMap((address) => found.get(address) ?? []);
  const names = new Set(order);
  return [...known, ...[...found.values()].filter((series) => !names.has(series.address))];
}

function range(series: Series[]): { low: number; high: number } {
  let low = Infinity;
  let high = -Infinity;
  for (const { value } of series)
    for (const x of value)
      if (x !== null) {
        if (x < low) low = x;
        if (x > high) high = x;
      }
  return low > high ? { low: 0, high: 1 } : { low, high };
}

function missing(series: Series[]): number {
  let found = 0;
  for (const { value, note } of series) note.forEach((text, i) => (found += text !== null && value[i] === null ? 1 : 0));
  return found;
}

/** Where in the range a value lies, 0 to 1; null for none. */
export function share(value: number | null | undefined, low: number, high: number): number | null {
  return value == null ? null : (value - low) / (high - low || 1);
}

/** Index of the epoch at or nearest to the one asked for; the last for null; -1 when there are none. */
export function nearest(epochs: number[], epoch: number | null): number {
  if (epoch === null) return epochs.length - 1;
  let best = epochs.length ? 0 : -1;
  epochs.forEach((at, i) => {
    if (Math.abs(at - epoch) < Math.abs((epochs[best] as number) - epoch)) best = i;
  });
  return best;
}

/** Is there anything to compare with? */
export function hasBaseline(chart: Chart): boolean {
  return chart.series.some(({ baseline }) => baseline.some((value) => value !== null));
}

/** The common baseline when no layer is picked: at each epoch the highest any layer has to beat. */
export function highestBaseline(series: Series[], size: number): (number | null)[] {
  return Array.from({ length: size }, (_, i) => {
    const known = series.flatMap(({ baseline }) => baseline[i] ?? []);
    return known.length ? Math.max(...known) : null;
  });
}

/** Range that holds values, intervals and baselines alike, so the axis does not jump when a layer is picked. */
export function extent(chart: Chart): { low: number; high: number } {
  let { low, high } = chart;
  for (const series of chart.series)
    for (const column of [series.low, series.high, series.baseline])
      for (const x of column)
        if (x !== null) {
          low = Math.min(low, x);
          high = Math.max(high, x);
        }
  return { low, high };
}
