// Keeps the rows of scores on show, so that only the epochs that changed are loaded again.
import { type Columns, getPoints, type PointsQuery, type PointsReply } from "./api.ts";

const MOST_ROWS = 1_000_000; // kept in all, of the queries that were used last

/** Return the columns with all rows of the epochs of a later reply in place of earlier ones. */
export function merged(known: Columns, news: Columns): Columns {
  const epochs = new Set(news.epoch);
  const kept = known.epoch.flatMap((epoch, i) => (epochs.has(epoch) ? [] : [i]));
  const names = Object.keys(news) as (keyof Columns)[];
  const column = (name: keyof Columns): unknown[] => [...kept.map((i) => known[name][i]), ...news[name]];
  return Object.fromEntries(names.map((name) => [name, column(name)])) as unknown as Columns;
}

export class KnownPoints {
  private readonly known = new Map<string, { columns: Columns; change: number }>();

  constructor(private readonly load: typeof getPoints = getPoints) {}

  /** Return all rows of a score. */
  async of(query: PointsQuery): Promise<Columns> {
    const key = JSON.stringify(query);
    const before = this.known.get(key);
    const { change, whole, ...news } = (await this.load(query, before?.change)) satisfies PointsReply;
    const columns = before && whole === false ? merged(before.columns, news) : news;
    this.known.delete(key);
    this.known.set(key, { columns, change }); // as the last
    let rows = [...this.known.values()].reduce((sum, each) => sum + each.columns.epoch.length, 0);
    for (const [old, each] of this.known) {
      if (rows <= MOST_ROWS) break;
      this.known.delete(old);
      rows -= each.columns.epoch.length;
    }
    return columns;
  }
}
