// Converts the rows of units to a table: each unit with its values over checkpoints.
import type { Columns } from "../server/api.ts";

export interface UnitRow {
  address: string;
  unit: number;
  /** The checkpoints in order, and the value at each. */
  epochs: (number | null)[];
  curve: (number | null)[];
  /** The values at the newest checkpoint. */
  value: number | null;
  low: number | null;
  high: number | null;
  baseline: number | null;
  n: number | null;
  note: string | null;
}

export type SortKey = "unit" | "value" | "baseline" | "n" | "gain";

/** Return one row per unit of a target; the columns are ordered by epoch. */
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

/** Return the difference of a unit's value and its baseline; null if one of them is missing. */
export function gain(row: UnitRow): number | null {
  return row.value === null || row.baseline === null ? null : row.value - row.baseline;
}

/** Sort by a column. Rows without a number come last in both directions; equal rows keep the order of the network. */
export function sortUnits(rows: UnitRow[], key: SortKey, down: boolean): UnitRow[] {
  if (key === "unit") return down ? [...rows].reverse() : [...rows];
  const valueOf = (row: UnitRow): number | null => (key === "gain" ? gain(row) : row[key]);
  return [...rows].sort((a, b) => {
    const [x, y] = [valueOf(a), valueOf(b)];
    if (x === null || y === null) return (x === null ? 1 : 0) - (y === null ? 1 : 0);
    return down ? y - x : x - y;
  });
}

/** Return the address of a unit, such as `conv2[14]`. */
export function unitAddress(row: UnitRow): string {
  return `${row.address}[${row.unit}]`;
}
