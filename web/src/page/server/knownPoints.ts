// Keeps the rows of scores on show, so that only the epochs that changed are loaded again.
import { type Columns, getPoints, type PointsQuery } from "./api.ts";

const MOST_ROWS = 1_000_000; // kept in all

/** Return columns with all rows of the epochs of later ones in place of earlier rows. */
export function merged(known: Columns, news: Columns): Columns {
  const epochs = new Set(news.epoch);
  const kept = (_: unknown, i: number): boolean => !epochs.has(known.epoch[i] as number | null);
  const names = Object.keys(news) as (keyof Columns)[];
  return Object.fromEntries(names.map((name) => [name, [...(known[name] as unknown[]).filter(kept), ...news[name]]])) as unknown as Columns;
}

export class KnownPoints {
  private readonly known = new Map<string, { columns: Columns; change: number }>();
  private rows = 0;

  constructor(private readonly load = getPoints) {}

  /** Return all rows of a score. */
  async of(query: PointsQuery): Promise<Columns> {
    const key = JSON.stringify(query);
    const before = this.known.get(key);
    const { change, whole, ...news } = await this.load(query, before?.change);
    const columns = before && !whole ? merged(before.columns, news) : news;
    this.rows += columns.epoch.length - (before?.columns.epoch.length ?? 0);
    if (this.rows > MOST_ROWS) {
      this.known.clear();
      this.rows = columns.epoch.length;
    }
    this.known.set(key, { columns, change });
    return columns;
  }
}
