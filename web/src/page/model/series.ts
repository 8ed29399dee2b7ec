// Converts the columns of the server to one series per layer on a common axis of epochs.
import type { Columns, Measured } from "../server/api.ts";
import { addressLabel } from "./scoreLabels.ts";
import { bothSides, type Center, strength } from "./strength.ts";

/** Columns aligned with `Chart.epochs`. A value is null where nothing was measured, and where it is not a number; in the
 * latter case the note gives the reason. */
export interface Series extends Measured {
  address: string;
  /** Whether a point was computed from part of the rows: some are missing, or there are less than half as many as at another epoch. */
  part: boolean[];
  /** Whether the rows of a point are positions of items, and not items: the lengths of its batches differ. Points of both kinds do
   * not compare. */
  positions: boolean[];
}

export interface Chart {
  epochs: number[];
  series: Series[];
  /** The range of all values; [0, 1] without values. */
  low: number;
  high: number;
  /** The number of points that were scored and have no value. */
  missing: number;
  /** The number of points computed from part of the rows. */
  partial: number;
  /** The number of points that changed when they were scored again. */
  revised: number;
  /** Whether each series is a unit, named `conv2[14]`, and not a layer. */
  units: boolean;
  /** Whether there are points of epochs of training, whose rows were recorded while the weights changed. */
  changing: boolean;
}

export const EMPTY: Chart = { epochs: [], series: [], low: 0, high: 1, missing: 0, partial: 0, revised: 0, units: false, changing: false };

/** Return the epoch of every row. If no row has an epoch, all are at 0; else rows without an epoch are left out. */
function axis(columns: Columns): (number | null)[] {
  return columns.epoch.some((epoch) => epoch !== null) ? columns.epoch : columns.epoch.map(() => 0);
}

const blank = (size: number): null[] => new Array<null>(size).fill(null);

/** Return the chart of columns. Of several rows of a layer and an epoch, the one with the highest step is used. Layers are in
 * the given order. */
export function chart(columns: Columns, order: string[]): Chart {
  const at = axis(columns);
  const rows = at.flatMap((epoch, i) => (epoch === null ? [] : [i]));
  rows.sort((a, b) => (columns.step[a] ?? -1) - (columns.step[b] ?? -1));
  const epochs = [...new Set(rows.map((i) => at[i] as number))].sort((a, b) => a - b);
  const place = new Map(epochs.map((epoch, i) => [epoch, i]));
  const found = new Map<string, Series>();
  const units = Boolean(columns.unit?.some((unit) => (unit ?? -1) >= 0));
  for (const i of rows) {
    const address = units ? `${columns.address[i]}[${columns.unit[i]}]` : (columns.address[i] as string);
    const series = found.get(address) ?? fresh(address, epochs.length);
    found.set(address, series);
    put(series, place.get(at[i] as number) as number, columns, i);
  }
  const series = inOrder(found, order);
  for (const one of series) {
    one.positions = one.note.map((note) => says(note, "each position is a row"));
    one.part = partsOf(one);
  }
  return chartOf(epochs, series, { ...range(series), units, changing: rows.some(isOfChanging, columns) });
}

/** Return whether the rows of a point are each of the weights at that time, as `core/findings.py` decides it. */
function isOfChanging(this: Columns, row: number): boolean {
  return this.mode[row] === "train" && (this.step[row] ?? -1) < 0 && this.value[row] !== null && !says(this.note[row], "parameters as before");
}

function chartOf(epochs: number[], series: Series[], { low, high, units, changing }: Pick<Chart, "low" | "high" | "units" | "changing">): Chart {
  let [missing, partial, revised] = [0, 0, 0];
  for (const { value, note, part, revision } of series)
    value.forEach((x, i) => {
      if (x === null && note[i] !== null) missing++;
      if (x !== null && part[i]) partial++;
      if (revision[i]) revised++;
    });
  return { epochs, series, low, high, missing, partial, revised, units, changing };
}

/** The remarks that a note consists of. */
const remarks = (note?: string | null): string[] => note?.split("; ") ?? [];

/** Return whether a remark of a note begins so. Elsewhere in it such words may be names that the user gave. */
const says = (note: string | null | undefined, words: string): boolean => remarks(note).some((text) => text.startsWith(words));

/** The note of the evaluator reports missing rows. Rows left out for a probe's budget only show in the number of rows. */
function partsOf({ n, note, positions }: Series): boolean[] {
  const most = (kind = false): number => Math.max(0, ...n.map((rows, i) => (positions[i] === kind ? (rows ?? 0) : 0)));
  const [items, all] = [most(), most(true)];
  return n.map((rows, i) => says(note[i], "incomplete:") || (rows !== null && rows < (positions[i] ? all : items) / 2));
}

/** A note in parts, of which the odd ones are numbers, and the number of points that have it. */
export interface Noted {
  parts: string[];
  points: number;
}

/** Return the notes of the points, the most frequent first. Notes that differ only in their numbers are one, with “…” for each
 * number that differs: a number belongs to its own points. */
export function notesOf({ series }: Chart): Noted[] {
  const found = new Map<string, Noted>();
  for (const text of series.flatMap(({ note }) => note.flatMap(remarks))) {
    const parts = text.split(/(\d[\d.,]*)/);
    const alike = parts.filter((_, i) => i % 2 === 0).join("0");
    const old = found.get(alike) ?? { parts, points: 0 };
    found.set(alike, { parts: parts.map((part, i) => (part === old.parts[i] ? part : "…")), points: old.points + 1 });
  }
  return [...found.values()].sort((a, b) => b.points - a.points);
}

/** Return the layers whose name contains one of the words, on the scale of all layers. */
export function filtered(chart: Chart, words: string): Chart {
  const wanted = words.toLowerCase().split(/[\s,]+/).filter(Boolean);
  if (wanted.length === 0) return chart;
  const named = chart.series.filter(({ address }) => wanted.some((word) => addressLabel(address).toLowerCase().includes(word)));
  return chartOf(chart.epochs, named, chart);
}

/** Return the layer of a series. */
export function layerOf(chart: Chart, address: string): string {
  return chart.units ? address.replace(/\[\d+\]$/, "") : address;
}

/** Return the chart of the `most` units that are farthest from the center (0 without one) at any epoch, in the same order; of layers all. */
export function strongest(chart: Chart, most: number, center: Center = null): Chart {
  if (!chart.units || chart.series.length <= most) return chart;
  const size = ({ value }: Series): number => Math.max(...value.map((x) => (x === null ? 0 : strength(x, center ?? 0))));
  const kept = new Set([...chart.series].sort((a, b) => size(b) - size(a)).slice(0, most));
  return chartOf(chart.epochs, chart.series.filter((s) => kept.has(s)), chart);
}

function fresh(address: string, size: number): Series {
  const column = (): null[] => blank(size);
  const measured = { value: column(), low: column(), high: column(), baseline: column(), n: column(), note: column(), revision: column() };
  return { address, ...measured, part: [], positions: [] };
}

/** Return whether the rows of a point are of another kind than those of the last one before that has a value. */
export function isApart({ value, positions }: Pick<Series, "value" | "positions">, at: number): boolean {
  const before = value.findLastIndex((x, i) => i < at && x !== null);
  return before >= 0 && positions[before] !== positions[at];
}

/** Return whether some layer has points whose rows are items and points whose rows are positions. */
export function isMixed({ series }: Chart): boolean {
  return series.some((one) => one.value.some((x, i) => x !== null && isApart(one, i)));
}

function put(series: Series, at: number, columns: Columns, row: number): void {
  const value = columns.value[row] ?? null;
  series.value[at] = value;
  for (const name of ["low", "high", "baseline", "n", "revision"] as const) series[name][at] = columns[name][row] ?? null;
  series.note[at] = columns.note[row] || (value === null ? "no value" : null);
}

/** Return the layers in the given order, then all others. */
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

/** Return the index of the epoch nearest to the given one; the last for null; -1 without epochs. */
export function nearest(epochs: number[], epoch: number | null): number {
  if (epoch === null) return epochs.length - 1;
  let best = epochs.length ? 0 : -1;
  epochs.forEach((at, i) => {
    if (Math.abs(at - epoch) < Math.abs((epochs[best] as number) - epoch)) best = i;
  });
  return best;
}

export function hasBaseline(chart: Chart): boolean {
  return chart.series.some(({ baseline }) => baseline.some((value) => value !== null));
}

/** Return the lines of the baseline: that of the focused layer, or at each epoch the strongest of all layers; of a score with a
 * center one on each side. */
export function baselines({ series, epochs }: Chart, focused: Series | undefined, center: Center): (number | null)[][] {
  const strongest = epochs.map((_, i) => {
    const known = (focused ? [focused] : series).flatMap(({ baseline }) => baseline[i] ?? []);
    return known.length ? known.reduce((a, b) => (strength(b, center) > strength(a, center) ? b : a)) : null;
  });
  return bothSides(0, center).map((_, side) => strongest.map((x) => (x === null ? null : (bothSides(x, center)[side] as number))));
}

/** Return the range of values, intervals and baselines, so that the axis does not change when a layer is selected. */
export function extent(charts: Chart[], center: Center = null): { low: number; high: number } {
  const known = charts.filter((chart) => chart.series.length > 0);
  if (known.length === 0) return { low: 0, high: 1 };
  let low = Math.min(...known.map((chart) => chart.low));
  let high = Math.max(...known.map((chart) => chart.high));
  for (const series of known.flatMap((chart) => chart.series))
    for (const x of [...series.low, ...series.high, ...series.baseline.flatMap((x) => (x === null ? [] : bothSides(x, center)))])
      if (x !== null) {
        low = Math.min(low, x);
        high = Math.max(high, x);
      }
  return { low, high };
}
