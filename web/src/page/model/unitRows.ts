// From unit rows to a table: each unit with its curve over checkpoints. Pure.

import type { Columns } from "../server/api.ts";

export interface UnitRow {
  address: string;
  unit: number;
  /** Checkpoints in order, and the value at each. */
  epochs: (number | null)[];
  curve: (number | null)[];
  /** The newest checkpoint's row. */
  value: number | null;
  low: number | null;
  high: number | null;
  baseline: number | null;
  n: number | null;
  note: string | null;
}

export type SortKey = "unit" | "value" | "baseline" | "n" | "gain";

/** One row per unit of one score and target; rows come ordered by epoch. */
export function unitRows(columns: Columns, target: string): UnitRow[] {
  const rows = new Map<string, UnitRow>();
  columns.address.forEach((address, i) => {
    const unit = columns.unit[i];
    if (unit == null || (columns.target[i] ?? "") !== target) return;
    const key = `${unit} ${address}`;
    const old = rows.get(key);
    rows.set(key, {
      address,
      unit,
      epochs: [...(old?.epochs ?? []), columns.epoch[i] ?? null],
      curve: [...(old?.curve ?? []), columns.value[i] ?? null],
      value: columns.value[i] ?? null,
      low: columns.low[i] ?? null,
      high: columns.high[i] ?? null,
      baseline: columns.baseline[i] ?? null,
      n: columns.n[i] ?? null,
      note: columns.note[i] || null,
    });
  });
  return [...rows.values()];
}

/** How far a unit stands above its baseline; null when either is missing. */
export function gain(row: UnitRow): number | null {
  return row.value === null || row.baseline === null ? null : row.value - row.baseline;
}

/** Sorted by one column; rows with no number come last whichever way. Ties keep network order. */
export function sortUnits(rows: UnitRow[], key: SortKey, down: boolean): UnitRow[] {
  if (key === "unit") return down ? [...rows].reverse() : [...rows];
  const of = (row: UnitRow): number | null => (key === "gain" ? gain(row) : row[key]);
  return [...rows].sort((a, b) => {
    const [x, y] = [of(a), of(b)];
    if (x === null || y === null) return (x === null ? 1 : 0) - (y === null ? 1 : 0);
    return down ? y - x : x - y;
  });
}

/** `conv2[14]`: the same words as in a query, a DataFrame or the store. */
export function unitAddress(row: UnitRow): string {
  return `${row.address}[${row.unit}]`;
}
