// Where cells stand from left to right: isotonic placement under their neighbours, then runs made straight.
import { type Cell, type CellLink, gap } from "./cells.ts";

export function placeX(ranks: Cell[][]): void {
  for (const rank of ranks) {
    let x = 0;
    rank.forEach((cell, i) => {
      x += i ? gap(rank[i - 1], cell) : 0;
      cell.x = x;
    });
    for (const cell of rank) cell.x -= x / 2;
  }
  const upwards = ranks.slice().reverse();
  const down = (): boolean => settleAll(ranks, "up");
  const up = (): boolean => settleAll(upwards, "down");
  for (let sweep = 0; sweep < 3; sweep++) if (![down(), up()].includes(true)) break; // nothing would move again
  settleAll(ranks, "both");
  settleAll(upwards, "both");
  straighten(ranks);
}

/** Settle one rank after another; tells whether anything moved. */
function settleAll(ranks: Cell[][], side: "up" | "down" | "both"): boolean {
  let moved = false;
  for (const rank of ranks) if (settle(rank, side)) moved = true;
  return moved;
}

const FARTHEST = 70; // a run may step aside so far, to be straight from port to port, before it steps back

interface CellRun {
  number: number;
  cells: Cell[];
  offsets: number[];
}

/** Move every run of cells that follow one another to one x, as far as their neighbours in the ranks allow. */
function straighten(ranks: Cell[][]): void {
  for (const rank of ranks) {
    for (let i = 1; i < rank.length; i++) {
      rank[i].left = rank[i - 1];
      rank[i - 1].right = rank[i];
    }
  }
  const runs = findRuns(ranks);
  const upwards = runs.slice().reverse();
  for (let round = 0, still = 0; round < 4 && still < 2; round++) {
    still++;
    for (const { number, cells, offsets } of round % 2 ? upwards : runs) {
      let [low, high] = [-Infinity, Infinity];
      const pulls: CellLink[] = [];
      for (let i = 0; i < cells.length; i++) {
        const cell = cells[i];
        const { left, right } = cell;
        if (left) low = Math.max(low, left.x + gap(left, cell) - offsets[i]);
        if (right) high = Math.min(high, right.x - gap(cell, right) - offsets[i]);
        for (const link of cell.up) if (link.cell.run !== number) pulls.push({ ...link, shift: link.shift - offsets[i] });
        for (const link of cell.down) if (link.cell.run !== number) pulls.push({ ...link, shift: link.shift - offsets[i] });
      }
      if (low > high + 1) continue;
      const middle = (cells[0].x + cells[cells.length - 1].x - offsets[cells.length - 1]) / 2;
      const want = pulls.length ? weightedMedian(pulls) : middle;
      const x = Math.min(high, Math.max(low, want));
      for (let i = 0; i < cells.length; i++) {
        if (cells[i].x !== x + offsets[i]) still = 0;
        cells[i].x = x + offsets[i];
      }
    }
  }
}

/** Maximal runs in which each cell is what the one above it leads to first, and the other way round. What is late
 * begins one: many such, one below the other, must not push each other aside. */
function findRuns(ranks: Cell[][]): CellRun[] {
  const runs: CellRun[] = [];
  for (const rank of ranks) {
    for (const start of rank) {
      if (start.run >= 0) continue;
      const run: CellRun = { number: runs.length, cells: [start], offsets: [0] };
      start.run = run.number;
      for (let cell = start; ; ) {
        const next = favourite(cell.down);
        const back = next && favourite(next.cell.up);
        if (!next || back?.cell !== cell || next.cell.run >= 0 || next.cell.late) break;
        const offset = run.offsets[run.offsets.length - 1] + back.shift;
        run.offsets.push(Math.abs(offset) > FARTHEST ? 0 : offset);
        run.cells.push(next.cell);
        next.cell.run = run.number;
        cell = next.cell;
      }
      runs.push(run);
    }
  }
  return runs;
}

/** The heaviest link; of several alike the middle one, and none when there is no middle. */
function favourite(links: CellLink[]): CellLink | undefined {
  if (links.length < 2) return links[0];
  const most = Math.max(...links.map((link) => link.weight));
  const alike = links.filter((link) => link.weight === most).sort((a, b) => a.cell.x - b.cell.x);
  return alike.length % 2 ? alike[alike.length >> 1] : undefined;
}

/** Move a rank's cells to where their neighbours want them, keeping order and distance: isotonic regression. Tells
 * whether any moved. */
function settle(rank: Cell[], side: "up" | "down" | "both"): boolean {
  if (rank.length === 1) {
    const [cell] = rank;
    const { x, up, down } = cell;
    if (side === "both" && up.length === 1 && down.length === 1) cell.x = medianOfTwo(up[0], down[0]);
    else {
      const links = side === "both" ? [...up, ...down] : cell[side];
      if (links.length) cell.x = weightedMedian(links);
    }
    return cell.x !== x;
  }
  const blocks: { sum: number; weight: number; count: number }[] = [];
  const base: number[] = [];
  let offset = 0;
  rank.forEach((cell, i) => {
    offset += i ? gap(rank[i - 1], cell) : 0;
    base.push(offset);
    const links = side === "both" ? [...cell.up, ...cell.down] : cell[side];
    const pull = links.length && !cell.late ? 1 + links.reduce((sum, link) => sum + link.weight, 0) : 1e-3;
    const want = links.length ? weightedMedian(links) : cell.x;
    blocks.push({ sum: (want - offset) * pull, weight: pull, count: 1 });
    while (blocks.length > 1) {
      const b = blocks[blocks.length - 1];
      const a = blocks[blocks.length - 2];
      if (a.sum / a.weight <= b.sum / b.weight) break;
      a.sum += b.sum;
      a.weight += b.weight;
      a.count += b.count;
      blocks.pop();
    }
  });
  let i = 0;
  let moved = false;
  for (const block of blocks) {
    for (let k = 0; k < block.count; k++, i++) {
      const x = block.sum / block.weight + base[i];
      if (rank[i].x !== x) moved = true;
      rank[i].x = x;
    }
  }
  return moved;
}

function medianOfTwo(a: CellLink, b: CellLink): number {
  const [p, q] = [a.cell.x + a.shift, b.cell.x + b.shift];
  return a.weight === b.weight ? (p + q) / 2 : a.weight > b.weight ? p : q;
}

function weightedMedian(links: CellLink[]): number {
  if (links.length === 1) return links[0].cell.x + links[0].shift;
  const points = links.map((link) => ({ x: link.cell.x + link.shift, weight: link.weight }));
  points.sort((a, b) => a.x - b.x);
  const half = points.reduce((sum, p) => sum + p.weight, 0) / 2;
  let sum = 0;
  for (let i = 0; i < points.length; i++) {
    sum += points[i].weight;
    if (sum > half) return points[i].x;
    if (sum === half) return (points[i].x + points[Math.min(i + 1, points.length - 1)].x) / 2;
  }
  return points[points.length - 1].x;
}
