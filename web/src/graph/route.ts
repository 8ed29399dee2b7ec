// Heights of the ranks, and the routes of the edges between and beside them.
import { countBy, SPACE, type Cell, type Chain } from "./cells.ts";
import type { Layout, LayoutInput } from "./layout.ts";

/** One end of an edge at a box: where its way comes from or goes to, and the lane it shares, -1 for none. */
interface End {
  edge: number;
  start: boolean;
  towards: number;
  bus: number;
}

interface Bus {
  id: number;
  x: number;
  from: number;
  to: number;
  /** Sum of the x of its ends: which side it belongs to. */
  lean: number;
  edges: number[];
}

interface Bands {
  top: Float64Array;
  bottom: Float64Array;
}

export function assemble(
  input: LayoutInput,
  ranks: Cell[][],
  byId: Map<number, Cell>,
  chains: Chain[],
  lanes: number[],
): Layout {
  const bands = placeY(input, ranks);
  for (const cell of byId.values()) {
    const [top, bottom] = [bands.top[cell.rank + 1], bands.bottom[cell.rank + 1]];
    cell.y = cell.index === -2 ? top : top + (bottom - top - cell.height) / 2;
  }
  const draft = new Router(input, byId, bands);
  for (const { edge, cells } of chains) draft.chain(edge, cells);
  draft.lanes(lanes);
  const routes = draft.finish();
  let [low, high] = [Infinity, -Infinity];
  for (const rank of ranks) for (const cell of rank) {
    low = Math.min(low, cell.x - cell.width / 2);
    high = Math.max(high, cell.x + cell.width / 2);
  }
  for (const route of routes) {
    for (let i = 0; i < route.length; i += 2) {
      low = Math.min(low, route[i]);
      high = Math.max(high, route[i]);
    }
  }
  for (const node of input.nodes) high = Math.max(high, byId.get(node.id)!.x + node.tail - SPACE.side + 8);
  if (!Number.isFinite(low)) [low, high] = [0, 0];
  const width = Math.max(high - low + 2 * SPACE.side, input.minWidth);
  const dx = (width - (high + low)) / 2;
  const shifted = (id: number, half: number): number => byId.get(id)!.x - half + dx;
  const starts = new Int32Array(routes.length + 1);
  routes.forEach((route, edge) => (starts[edge + 1] = starts[edge] + route.length));
  const points = new Float64Array(starts[routes.length]);
  routes.forEach((route, edge) => {
    for (let i = 0, at = starts[edge]; i < route.length; i += 2, at += 2) [points[at], points[at + 1]] = [route[i] + dx, route[i + 1]];
  });
  return {
    width,
    height: bands.bottom[ranks.length - 1],
    x: Float64Array.from(input.nodes, (node) => shifted(node.id, node.width / 2)),
    y: Float64Array.from(input.nodes, (node) => byId.get(node.id)!.y),
    portX: Float64Array.from([...input.ins, ...input.outs], (id) => shifted(id, 0)),
    points,
    starts,
  };
}

function placeY(input: LayoutInput, ranks: Cell[][]): Bands {
  const top = new Float64Array(ranks.length);
  const bottom = new Float64Array(ranks.length);
  for (let r = 0; r < ranks.length; r++) {
    let height = 0;
    let reach = 0; // edges that go far sideways get more room to bend
    for (const cell of ranks[r]) {
      height = Math.max(height, cell.height);
      for (const link of cell.up) reach = Math.max(reach, Math.abs(link.cell.x + link.shift - cell.x));
    }
    const first = r === 0;
    const between = r === 1 ? (input.ins.length ? SPACE.top : SPACE.top - 4) : SPACE.rank;
    top[r] = first ? 0 : bottom[r - 1] + between + Math.min(36, reach * 0.08);
    if (r === ranks.length - 1) top[r] = bottom[r - 1] + SPACE.bottom + Math.min(36, reach * 0.08);
    bottom[r] = top[r] + height;
  }
  return { top, bottom };
}

/** Collects the routes: ends are spread over a box's side once all its edges are known. */
class Router {
  private readonly routes: number[][];
  private readonly starts = new Map<Cell, End[]>();
  private readonly stops = new Map<Cell, End[]>();
  private readonly buses = new Map<number, Bus>();

  constructor(
    private readonly input: LayoutInput,
    private readonly byId: Map<number, Cell>,
    private readonly bands: Bands,
  ) {
    this.routes = new Array<number[]>(input.edges.length).fill([]); // each is put in whole
  }

  chain(edge: number, cells: Cell[]): void {
    const { top, bottom } = this.bands;
    const [first, last] = [cells[0], cells[cells.length - 1]];
    const between = cells.length > 2 ? cells.slice(1, -1).flatMap(({ x, rank }) => [x, top[rank + 1], x, bottom[rank + 1]]) : [];
    this.routes[edge] = [first.x, first.y + first.height, first.x, bottom[first.rank + 1], ...between, last.x, top[last.rank + 1], last.x, last.y];
    this.attach(first, { edge, start: true, towards: cells[1].x, bus: -1 });
    this.attach(last, { edge, start: false, towards: cells[cells.length - 2].x, bus: -1 });
  }

  /** Long edges share a lane with those of the same source, or of the same target where those are more. */
  lanes(edges: number[]): void {
    const ends = edges.map((edge) => this.input.edges[edge]);
    const [from, to] = [countBy(ends, (edge) => edge.from), countBy(ends, (edge) => edge.to)];
    for (const index of edges) {
      const edge = this.input.edges[index];
      this.lane(index, to.get(edge.to)! > from.get(edge.from)! ? edge.to : edge.from);
    }
  }

  private lane(edge: number, shared: number): void {
    const a = this.byId.get(this.input.edges[edge].from)!;
    const b = this.byId.get(this.input.edges[edge].to)!;
    const known = this.buses.get(shared);
    const bus = known ?? { id: shared, x: 0, from: a.rank, to: b.rank, lean: 0, edges: [] };
    bus.lean += a.x + b.x;
    bus.from = Math.min(bus.from, a.rank, b.rank);
    bus.to = Math.max(bus.to, a.rank, b.rank);
    bus.edges.push(edge);
    this.buses.set(shared, bus);
  }

  finish(): number[][] {
    this.placeBuses();
    for (const sides of [this.starts, this.stops]) for (const [cell, ends] of sides) this.spread(cell, ends);
    return this.routes;
  }

  private attach(cell: Cell, end: End): void {
    const side = end.start ? this.starts : this.stops;
    const ends = side.get(cell);
    if (ends) ends.push(end);
    else side.set(cell, [end]);
  }

  /** Lanes outside everything, those of shorter reach nearer; two share a lane where they do not meet. */
  private placeBuses(): void {
    const edgesOf = { left: Infinity, right: -Infinity };
    for (const cell of this.byId.values()) {
      edgesOf.left = Math.min(edgesOf.left, cell.x - cell.width / 2);
      edgesOf.right = Math.max(edgesOf.right, cell.x + cell.width / 2);
    }
    for (const route of this.routes) {
      for (let i = 0; i < route.length; i += 2) {
        edgesOf.left = Math.min(edgesOf.left, route[i]);
        edgesOf.right = Math.max(edgesOf.right, route[i]);
      }
    }
    const taken: Record<"left" | "right", number[][]> = { left: [], right: [] };
    const buses = [...this.buses.values()].sort((a, b) => a.to - a.from - (b.to - b.from));
    for (const bus of buses) {
      const middle = bus.lean / bus.edges.length - (edgesOf.left + edgesOf.right);
      const emptier = taken.left.length < taken.right.length ? "left" : "right";
      const balanced = Math.abs(middle) < Math.max(2 * SPACE.side, (edgesOf.right - edgesOf.left) / 2);
      const side = balanced ? emptier : middle < 0 ? "left" : "right";
      const columns = taken[side];
      let column = 0;
      while (columns[column]?.some((_, i, all) => i % 2 === 0 && all[i] < bus.to && bus.from < all[i + 1])) column++;
      (columns[column] ??= []).push(bus.from, bus.to);
      const away = SPACE.side + column * SPACE.lane;
      bus.x = side === "left" ? edgesOf.left - away : edgesOf.right + away;
      for (const edge of bus.edges) this.routeLane(edge, bus);
    }
  }

  private routeLane(edge: number, { id, x }: Bus): void {
    const a = this.byId.get(this.input.edges[edge].from)!;
    const b = this.byId.get(this.input.edges[edge].to)!;
    const { top, bottom } = this.bands;
    const after = top[Math.min(a.rank + 2, top.length - 1)];
    const before = bottom[b.rank];
    const leave = bottom[a.rank + 1];
    this.routes[edge] = [
      ...[a.x, a.y + a.height, a.x, leave, x, Math.min(after, leave + SPACE.rank), x, Math.max(before, top[b.rank + 1] - SPACE.rank)],
      ...[b.x, top[b.rank + 1], b.x, b.y],
    ];
    this.attach(a, { edge, start: true, towards: x, bus: id });
    this.attach(b, { edge, start: false, towards: x, bus: id });
  }

  /** Spread the ends along one side of a box: the straightest in the middle, fixed ones where they must be.
   * Ends of one lane share a place. */
  private spread(cell: Cell, ends: End[]): void {
    if (ends.length === 1) return this.put(cell, ends[0], 0);
    ends.sort((a, b) => a.towards - b.towards);
    const slots: number[] = [];
    const slotOf = ends.map((end, i) => {
      const same = i > 0 && end.bus !== -1 && end.bus === ends[i - 1].bus;
      if (!same) slots.push(end.towards - cell.x);
      return slots.length - 1;
    });
    let straightest = 0;
    slots.forEach((away, i) => {
      if (Math.abs(away) < Math.abs(slots[straightest]) - 0.5) straightest = i;
    });
    // Two alike, one to each side: better than one straight and one askew.
    const even = slots.length % 2 === 0 && Math.abs(slots[0] + slots[slots.length - 1]) < 2;
    const widest = ends.reduce((most, end) => Math.max(most, this.input.edges[end.edge][end.start ? "outMark" : "mark"]), 0);
    const words = widest + 9 > SPACE.step ? widest + 9 : 0; // shorter ones fit between the arrows as they are
    const middle = even || words ? (slots.length - 1) / 2 : straightest;
    const room = Math.max(0, cell.width / 2 - 12);
    const last = slots.length - 1;
    const reach = words ? Math.max(last / 2, 0.5) : Math.max(straightest, last - straightest, 1);
    const step = cell.index === -2 ? 0 : Math.min(Math.max(SPACE.step, words), room / reach);
    ends.forEach((end, i) => this.put(cell, end, (slotOf[i] - middle) * step));
  }

  /** Put an end beside the middle of its box, or where it must be. */
  private put(cell: Cell, { edge, start }: End, aside: number): void {
    const { fromDx, toDx } = this.input.edges[edge];
    const route = this.routes[edge];
    const at = start ? 0 : route.length - 4;
    route[at] = route[at + 2] = cell.x + ((start ? fromDx : toDx) ?? aside);
  }
}
