// The order of cells within their ranks: a few median sweeps, of which the one with the fewest crossings counts.
import { plus } from "../model/lists.ts";
import type { Cell, CellLink } from "./cells.ts";

export function orderRanks(cells: Cell[], count: number): Cell[][] {
  const ranks: Cell[][] = new Array<Cell[]>(count);
  for (const cell of cells) ranks[cell.rank + 1] = plus(ranks[cell.rank + 1], cell);
  for (let i = 0; i < count; i++) ranks[i] ??= [];
  if (ranks.every((rank) => rank.length < 2)) return ranks;
  const at = new Map<Cell, number>();
  const number = (rank: Cell[]): void => rank.forEach((cell, i) => at.set(cell, i));
  ranks.forEach(number);
  let best = ranks.map((rank) => rank.slice());
  let fewest = Infinity;
  for (let sweep = 0; sweep < 6 && fewest > 0; sweep++) {
    const down = sweep % 2 === 0;
    for (let i = 0; i < count; i++) {
      const rank = ranks[down ? i : count - 1 - i];
      if (rank.length < 2) continue;
      const wish = new Map<Cell, number>();
      rank.forEach((cell, i) => {
        const links = down ? cell.up : cell.down;
        const where = links.map((link) => placeOf(link, at)).sort((a, b) => a - b);
        wish.set(cell, where.length ? (where[(where.length - 1) >> 1] + where[where.length >> 1]) / 2 : i);
      });
      rank.sort((a, b) => wish.get(a)! - wish.get(b)! || at.get(a)! - at.get(b)!);
      number(rank);
    }
    const crossings = countCrossings(ranks, at, fewest);
    if (crossings < fewest) {
      fewest = crossings;
      best = ranks.map((rank) => rank.slice());
    }
  }
  return best;
}

/** Place of a link's other end in its rank; ports of one open box differ by less than boxes do. */
const placeOf = (link: CellLink, at: Map<Cell, number>): number => at.get(link.cell)! + link.shift * 1e-5;

/** Crossings between neighbouring ranks; gives up once it is no better than `limit`. */
function countCrossings(ranks: Cell[][], at: Map<Cell, number>, limit: number): number {
  let total = 0;
  for (const rank of ranks) {
    const ends: number[] = [];
    for (const cell of rank) {
      const row = cell.down.map((link) => placeOf(link, at)).sort((a, b) => a - b);
      ends.push(...row);
    }
    for (let i = 1; i < ends.length; i++) {
      for (let j = Math.max(0, i - 400); j < i; j++) if (ends[j] > ends[i]) total++;
    }
    if (total >= limit) return total;
  }
  return total;
}
