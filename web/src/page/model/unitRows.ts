// The rows of the table of units: each unit with its values over checkpoints, and those at one of them.
import type { Columns } from "../server/api.ts";
import { type Chart, chart, layerOf } from "./series.ts";
import { type Center, strength } from "./strength.ts";

export interface UnitRow {
  /** The layer, and the unit, such as `conv2[14]`. */
  layer: string;
  address: string;
  /** The value at each checkpoint. */
  curve: (number | null)[];
  /** The values at one checkpoint. */
  value: number | null;
  low: number | null;
  high: number | null;
  baseline: number | null;
  n: number | null;
  /** Null if nothing was measured. */
  note: string | null;
}

export type SortKey = "unit" | "value" | "baseline" | "n" | "gain";

/** Return the chart of the units of a target. */
export function unitChart(columns: Columns, target: string): Chart {
  const isOurs = columns.unit.map((unit, i) => unit !== null && (columns.target[i] ?? "") === target);
  const kept = Object.entries(columns).map(([name, column]) => [name, column.filter((_: unknown, i: number) => isOurs[i])]);
  return chart(Object.fromEntries(kept) as Columns, []);
}

/** Return one row per unit, with its values at a checkpoint. */
export function unitRows(units: Chart, at: number): UnitRow[] {
  return units.series.map(({ address, value, low, high, baseline, n, note }) => ({
    layer: layerOf(units, address),
    address,
    curve: value,
    value: value[at] ?? null,
    low: low[at] ?? null,
    high: high[at] ?? null,
    baseline: baseline[at] ?? null,
    n: n[at] ?? null,
    note: note[at] ?? null,
  }));
}

/** Return how much stronger a unit responds than its baseline; null if one of them is missing. */
export function gain({ value, baseline }: UnitRow, center: Center): number | null {
  return value === null || baseline === null ? null : strength(value, center) - strength(baseline, center);
}

/** Sort by a column, values by their strength. Rows without a number come last in both directions; equal rows keep the order
 * of the network. */
export function sortUnits(rows: UnitRow[], key: SortKey, down: boolean, center: Center): UnitRow[] {
  if (key === "unit") return down ? [...rows].reverse() : [...rows];
  const keyOf = (row: UnitRow): number | null => {
    if (key === "gain") return gain(row, center);
    const x = row[key];
    return x === null || key === "n" ? x : strength(x, center);
  };
  return rows
    .map((row) => [row, keyOf(row)] as const)
    .sort(([, x], [, y]) => (x === null || y === null ? (x === null ? 1 : 0) - (y === null ? 1 : 0) : down ? y - x : x - y))
    .map(([row]) => row);
}
