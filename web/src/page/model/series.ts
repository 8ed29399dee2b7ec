// From the server's columns to one series per layer on a common axis of epochs. Pure.

import type { Columns, Measured } from "../server/api.ts";
import { addressLabel } from "./scoreLabels.ts";

/** Columns aligned with `Chart.epochs`. A value is null where nothing was measured, and where it is not a number:
 * then the note says why. */
export interface Series extends Measured {
  address: string;
  /** Whether a point stands on part of the rows: not all came, or less than half as many as at another epoch. */
  part: boolean[];
}

export interface Chart {
  epochs: number[];
  series: Series[];
  /** Range of every value; [0, 1] when there is none. */
  low: number;
  high: number;
  /** Points that were scored and have no value. */
  missing: number;
  /** Points that stand on part of the rows. */
  partial: number;
  /** Points that were scored again and found to be something else. */
  revised: number;
}

export const EMPTY: Chart = { epochs: [], series: [], low: 0, high: 1, missing: 0, partial: 0, revised: 0 };

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
  for (const one of series) one.part = partsOf(one);
  return of(epochs, series, range(series));
}

function of(epochs: number[], series: Series[], { low, high }: { low: number; high: number }): Chart {
  let [missing, partial, revised] = [0, 0, 0];
  for (const { value, note, part, revision } of series)
    value.forEach((x, i) => {
      if (x === null && note[i] !== null) missing++;
      if (x !== null && part[i]) partial++;
      if (revision[i]) revised++;
    });
  return { epochs, series, low, high, missing, partial, revised };
}

/** The evaluator's note tells that not all came; that a probe's budget left rows out shows in their number alone. */
function partsOf({ n, note }: Series): boolean[] {
  const most = Math.max(0, ...n.map((rows) => rows ?? 0));
  return n.map((rows, i) => /\bincomplete\b/.test(note[i] ?? "") || (rows !== null && rows < most / 2));
}

export interface Noted {
  text: string;
  points: number;
}

/** What the notes of the points say, the most frequent first. Those that differ by their numbers alone are one, with
 * the words of the newest epoch. */
export function notesOf({ series }: Chart): Noted[] {
  const found = new Map<string, Noted & { epoch: number }>();
  for (const { note } of series)
    note.forEach((said, epoch) => {
      for (const text of said?.split("; ") ?? []) {
        const alike = text.replace(/\d[\d.,\s]*/g, "0");
        const old = found.get(alike) ?? { text, points: 0, epoch };
        found.set(alike, { text: epoch >= old.epoch ? text : old.text, points: old.points + 1, epoch: Math.max(epoch, old.epoch) });
      }
    });
  return [...found.values()].sort((a, b) => b.points - a.points).map(({ text, points }) => ({ text, points }));
}

/** Only the layers with one of these words in their name; scales stay those of the whole. */
export function filtered(chart: Chart, words: string): Chart {
  const wanted = words.toLowerCase().split(/[\s,]+/).filter(Boolean);
  if (wanted.length === 0) return chart;
  const named = chart.series.filter(({ address }) => wanted.some((word) => addressLabel(address).toLowerCase().includes(word)));
  return of(chart.epochs, named, chart);
}

function fresh(address: string, size: number): Series {
  const column = (): null[] => blank(size);
  const measured = { value: column(), low: column(), high: column(), baseline: column(), n: column(), note: column(), revision: column() };
  return { address, ...measured, part: [] };
}

function put(series: Series, at: number, columns: Columns, row: number): void {
  const value = columns.value[row] ?? null;
  series.value[at] = value;
  for (const name of ["low", "high", "baseline", "n", "revision"] as const) series[name][at] = columns[name][row] ?? null;
  series.note[at] = columns.note[row] || (value === null ? "no value" : null);
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
export function extent(charts: Chart[]): { low: number; high: number } {
  const known = charts.filter((chart) => chart.series.length > 0);
  if (known.length === 0) return { low: 0, high: 1 };
  let low = Math.min(...known.map((chart) => chart.low));
  let high = Math.max(...known.map((chart) => chart.high));
  for (const series of known.flatMap((chart) => chart.series))
    for (const column of [series.low, series.high, series.baseline])
      for (const x of column)
        if (x !== null) {
          low = Math.min(low, x);
          high = Math.max(high, x);
        }
  return { low, high };
}
