// The heights of the ranks, and the routes of edges between and beside them.
import { plus } from "../model/lists.ts";
import { type Cell, type Chain, countBy, type EdgeCells, type EdgeEnd, SPACE } from "./cells.ts";
import { laneOf } from "./curve.ts";
import type { Layout, LayoutInput } from "./layers.ts";

/** A lane that edges share. */
interface Bus {
  x: number;
  from: number;
  to: number;
  /** The sum of the x of its ends, which decides on which side it runs. */
  sumOfX: number;
  edges: number[];
}

interface Reach {
  low: number;
  high: number;
}

/** The heights between which edges run straight, with boxes of a rank and the text at its arrows and starts. */
interface RankHeights {
  top: Float64Array;
  bottom: Float64Array;
  /** The room for text above the boxes and below. */
  over: Float64Array;
  under: Float64Array;
}

/** Return the layout of ordered and horizontally placed cells. */
export function assemble(
  input: LayoutInput,
  ranks: Cell[][],
  cells: Cell[],
  ends: EdgeCells,
  chains: Chain[],
  lanes: number[],
): Layout {
  const bands = placeY(input, ranks, ends);
  for (const cell of cells) {
    const [top, bottom] = [bands.top[cell.rank + 1] + bands.over[cell.rank + 1], bands.bottom[cell.rank + 1] - bands.under[cell.rank + 1]];
    const share = cell.index === -2 ? 0 : input.nodes[cell.index].low ? 1 : 0.5;
    cell.y = top + (bottom - top - cell.height) * share;
  }
  const { points, starts } = new Router(input, cells, ends, bands).routes(chains, lanes);
  const { nodes } = input;
  let { low, high } = extent(ranks, points);
  for (let i = 0; i < nodes.length; i++) high = Math.max(high, cells[i].x + nodes[i].tail - SPACE.side + 8);
  input.edges.forEach(({ mark, outMark }, edge) => {
    high = Math.max(high, points[starts[edge + 1] - 2] + mark - SPACE.side + 8);
    const lane = laneOf(points.subarray(starts[edge], starts[edge + 1]));
    if (!lane) return;
    const reach = Math.max(mark, outMark) - SPACE.side + 8;
    [low, high] = lane.side < 0 ? [Math.min(low, lane.x - reach), high] : [low, Math.max(high, lane.x + reach)];
  });
  if (!Number.isFinite(low)) [low, high] = [0, 0];
  const width = Math.max(high - low + 2 * SPACE.side, input.minWidth);
  const dx = (width - (high + low)) / 2;
  for (let at = 0; at < points.length; at += 2) points[at] += dx;
  const [x, y, portX] = [new Float64Array(nodes.length), new Float64Array(nodes.length), new Float64Array(cells.length - nodes.length)];
  cells.forEach((cell, i) => {
    if (i < nodes.length) [x[i], y[i]] = [cell.x - cell.width / 2 + dx, cell.y];
    else portX[i - nodes.length] = cell.x + dx;
  });
  return { width, height: bands.bottom[ranks.length - 1], x, y, portX, points, starts };
}

/** Return how far cells and routes reach to the left and to the right. */
function extent(ranks: Cell[][], points: Float64Array): Reach {
  let [low, high] = [Infinity, -Infinity];
  for (const rank of ranks) {
    for (const { x, width } of rank) {
      if (x - width / 2 < low) low = x - width / 2;
      if (x + width / 2 > high) high = x + width / 2;
    }
  }
  for (let at = 0; at < points.length; at += 2) {
    if (points[at] < low) low = points[at];
    if (points[at] > high) high = points[at];
  }
  return { low, high };
}

/** Return the top and bottom of every rank. */
function placeY(input: LayoutInput, ranks: Cell[][], { from, to }: EdgeCells): RankHeights {
  const [top, bottom, over, under] = [0, 0, 0, 0].map(() => new Float64Array(ranks.length));
  input.edges.forEach(({ run, outRun }, edge) => {
    over[to[edge].rank + 1] = Math.max(over[to[edge].rank + 1], run);
    under[from[edge].rank + 1] = Math.max(under[from[edge].rank + 1], outRun);
  });
  for (let r = 0; r < ranks.length; r++) {
    let height = 0;
    let reach = 0; // edges that go far sideways need more height to curve
    for (const cell of ranks[r]) {
      height = Math.max(height, cell.height);
      for (const link of cell.up) reach = Math.max(reach, Math.abs(link.cell.x + link.shift - cell.x));
    }
    const first = r === 0;
    const between = r === 1 ? (input.ins.length ? SPACE.top : SPACE.top - 4) : input.gap;
    top[r] = first ? 0 : bottom[r - 1] + between + Math.min(36, reach * 0.08);
    if (r === ranks.length - 1) top[r] = bottom[r - 1] + SPACE.bottom + Math.min(36, reach * 0.08);
    bottom[r] = top[r] + over[r] + height + under[r];
  }
  return { top, bottom, over, under };
}

const SLACK = 1; // this far to the left of the middle counts as the middle
/** The number of coordinates of a route in a lane, and of one between adjacent ranks. */
export const LANE_NUMBERS = 12;
const CHAIN_NUMBERS = 8;

/** Computes the routes. The ends of edges are spread along a box's side once all its edges are known. */
class Router {
  private readonly buses = new Map<Cell, Bus>();
  private readonly starts: Int32Array;
  private points = new Float64Array(0);

  constructor(
    private readonly input: LayoutInput,
    /** The cells of boxes and ports. */
    private readonly cells: Cell[],
    private readonly ends: EdgeCells,
    private readonly bands: RankHeights,
  ) {
    this.starts = new Int32Array(input.edges.length + 1);
  }

  routes(chains: Chain[], lanes: number[]): { points: Float64Array; starts: Int32Array } {
    const { starts } = this;
    for (const { edge, cells } of chains) starts[edge + 1] = CHAIN_NUMBERS + 4 * (cells.length - 2);
    for (const edge of lanes) starts[edge + 1] = LANE_NUMBERS;
    for (let edge = 0; edge + 1 < starts.length; edge++) starts[edge + 1] += starts[edge];
    const points = (this.points = new Float64Array(starts[starts.length - 1]));
    const reach = { low: Infinity, high: -Infinity }; // of boxes and of edges outside lanes
    for (const { edge, cells } of chains) this.chain(edge, cells, reach);
    for (const { x, width } of this.cells) this.widen(reach, x - width / 2, x + width / 2);
    this.lanes(lanes);
    this.placeBuses(reach);
    for (const cell of this.cells) {
      this.spread(cell, cell.leaving, true);
      this.spread(cell, cell.arriving, false);
    }
    return { points, starts };
  }

  private widen(reach: Reach, low: number, high: number): void {
    if (low < reach.low) reach.low = low;
    if (high > reach.high) reach.high = high;
  }

  private chain(edge: number, cells: Cell[], reach: Reach): void {
    const { top, bottom } = this.bands;
    const { points } = this;
    let at = this.starts[edge];
    const last = cells.length - 1;
    for (let i = 0; i <= last; i++) {
      const { x, y, rank, height } = cells[i];
      this.widen(reach, x, x);
      points[at] = x;
      points[at + 1] = i === 0 ? y + height : top[rank + 1];
      points[at + 2] = x;
      points[at + 3] = i === last ? y : bottom[rank + 1];
      at += 4;
    }
    cells[0].leaving = plus(cells[0].leaving, { edge, towards: cells[1].x, lane: null });
    cells[last].arriving = plus(cells[last].arriving, { edge, towards: cells[last - 1].x, lane: null });
  }

  /** Put long edges into lanes, shared with the edges of the same source, or of the same target if those are more. */
  private lanes(edges: number[]): void {
    const { from, to } = this.ends;
    const [leaving, arriving] = [countBy(edges, (edge) => from[edge]), countBy(edges, (edge) => to[edge])];
    for (const edge of edges) this.lane(edge, arriving.get(to[edge])! > leaving.get(from[edge])! ? to[edge] : from[edge]);
  }

  private lane(edge: number, shared: Cell): void {
    const [a, b] = [this.ends.from[edge], this.ends.to[edge]];
    const bus = this.buses.get(shared) ?? { x: 0, from: a.rank, to: b.rank, sumOfX: 0, edges: [] };
    bus.sumOfX += a.x + b.x;
    bus.from = Math.min(bus.from, a.rank, b.rank);
    bus.to = Math.max(bus.to, a.rank, b.rank);
    bus.edges.push(edge);
    this.buses.set(shared, bus);
  }

  /** Place lanes outside all boxes, shorter ones nearer; lanes whose ranks do not overlap share a column. */
  private placeBuses({ low, high }: Reach): void {
    const taken: Record<"left" | "right", number[][]> = { left: [], right: [] };
    const buses = [...this.buses.values()].sort((a, b) => a.to - a.from - (b.to - b.from));
    for (const bus of buses) {
      const middle = bus.sumOfX / bus.edges.length - (low + high);
      const more = taken.left.length - taken.right.length;
      const balanced = more !== 0 && Math.abs(middle) < Math.max(2 * SPACE.side, (high - low) / 2);
      const side = (balanced ? more < 0 : middle < -SLACK) ? "left" : "right";
      const columns = taken[side];
      let column = 0;
      while (columns[column]?.some((_, i, all) => i % 2 === 0 && all[i] < bus.to && bus.from < all[i + 1])) column++;
      (columns[column] ??= []).push(bus.from, bus.to);
      const away = SPACE.side + column * SPACE.lane;
      bus.x = side === "left" ? low - away : high + away;
      for (const edge of bus.edges) this.routeLane(edge, bus);
    }
  }

  private routeLane(edge: number, lane: Bus): void {
    const [a, b] = [this.ends.from[edge], this.ends.to[edge]];
    const { x } = lane;
    const { top, bottom } = this.bands;
    const [leave, arrive] = [bottom[a.rank + 1], top[b.rank + 1]];
    const bend = b.rank > a.rank ? this.input.gap : 0; // an edge against the flow turns at once
    const after = Math.min(top[Math.min(a.rank + 2, top.length - 1)], leave + bend);
    const before = Math.max(bottom[b.rank], arrive - bend);
    const route = [a.x, a.y + a.height, a.x, leave, x, after, x, before, b.x, arrive, b.x, b.y];
    this.points.set(route, this.starts[edge]);
    a.leaving = plus(a.leaving, { edge, towards: x, lane });
    b.arriving = plus(b.arriving, { edge, towards: x, lane });
  }

  /** Spread the ends of edges along one side of a box, with the straightest edge in the middle. Fixed ends stay where they
   * are, and edges in one lane share a position. */
  private spread(cell: Cell, ends: EdgeEnd[], start: boolean): void {
    if (!ends.length) return;
    if (ends.length === 1) return this.put(cell, ends[0], start, 0);
    ends.sort((a, b) => a.towards - b.towards);
    const slots: number[] = [];
    const marks: number[] = [];
    const slotOf = ends.map((end, i) => {
      const same = i > 0 && end.lane !== null && end.lane === ends[i - 1].lane;
      const slot = same ? slots.length - 1 : slots.push(end.towards - cell.x) - 1;
      marks[slot] = Math.max(marks[slot] ?? 0, this.input.edges[end.edge][start ? "outMark" : "mark"]);
      return slot;
    });
    let straightest = 0;
    slots.forEach((away, i) => {
      if (Math.abs(away) < Math.abs(slots[straightest]) - 0.5) straightest = i;
    });
    // An even number of symmetric ends looks better without a straight one in the middle.
    const even = slots.length % 2 === 0 && Math.abs(slots[0] + slots[slots.length - 1]) < 2;
    const widest = marks.reduce((a, b) => Math.max(a, b));
    let last = 0;
    const places = slots.map((_, i) => (last += !i ? 0 : marks[i - 1] ? widest + SPACE.aside : SPACE.step)); // the text is right of its arrow
    const straight = places[straightest];
    const middle = even || widest ? last / 2 : straight;
    const room = Math.max(0, cell.width / 2 - this.input.corner);
    const reach = widest ? middle : Math.max(straight, last - straight);
    const share = cell.index === -2 ? 0 : Math.min(1, room / reach);
    ends.forEach((end, i) => this.put(cell, end, start, (places[slotOf[i]] - middle) * share));
  }

  /** Place an end at an offset from the middle of its box, or where it is fixed. */
  private put(cell: Cell, { edge }: EdgeEnd, start: boolean, aside: number): void {
    const { fromDx, toDx } = this.input.edges[edge];
    const at = start ? this.starts[edge] : this.starts[edge + 1] - 4;
    this.points[at] = this.points[at + 2] = cell.x + ((start ? fromDx : toDx) ?? aside);
  }
}
