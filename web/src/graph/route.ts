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
  const y = new Map<number, number>();
  for (const node of input.nodes) {
    const cell = byId.get(node.id)!;
    const r = cell.rank + 1;
    y.set(node.id, bands.top[r] + (bands.bottom[r] - bands.top[r] - node.height) / 2);
  }
  const draft = new Router(input, byId, bands, y);
  for (const { edge, cells } of chains) draft.chain(edge, cells);
  draft.lanes(lanes);
  const routes = draft.finish();
  let [low, high] = [Infinity, -Infinity];
  for (const cell of ranks.flat()) {
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
  for (const route of routes) for (let i = 0; i < route.length; i += 2) route[i] += dx;
  return {
    width,
    height: bands.bottom[ranks.length - 1],
    x: new Map(input.nodes.map((node) => [node.id, shifted(node.id, node.width / 2)])),
    y,
    portX: new Map([...input.ins, ...input.outs].map((id) => [id, shifted(id, 0)])),
    routes,
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
  private readonly sides = new Map<string, End[]>();
  private readonly buses = new Map<number, Bus>();

  constructor(
    private readonly input: LayoutInput,
    private readonly byId: Map<number, Cell>,
    private readonly bands: Bands,
    private readonly y: Map<number, number>,
  ) {
    this.routes = input.edges.map(() => []);
  }

  chain(edge: number, cells: Cell[]): void {
    const { top, bottom } = this.bands;
    const points: number[] = [];
    cells.forEach((cell, i) => {
      const r = cell.rank + 1;
      if (i === 0) points.push(cell.x, this.bottomOf(cell), cell.x, bottom[r]);
      else if (i < cells.length - 1) points.push(cell.x, top[r], cell.x, bottom[r]);
      else points.push(cell.x, top[r], cell.x, this.topOf(cell));
    });
    this.routes[edge] = points;
    this.attach(cells[0], { edge, start: true, towards: cells[1].x, bus: -1 });
    this.attach(cells[cells.length - 1], { edge, start: false, towards: cells[cells.length - 2].x, bus: -1 });
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

  finish(): Float64Array[] {
    this.placeBuses();
    for (const [key, ends] of this.sides) this.spread(this.byId.get(Number(key.slice(1)))!, ends);
    return this.routes.map((route) => Float64Array.from(route));
  }

  private topOf(cell: Cell): number {
    return this.y.get(cell.id) ?? this.bands.top[cell.rank + 1];
  }

  private bottomOf(cell: Cell): number {
    return (this.y.get(cell.id) ?? this.bands.top[cell.rank + 1]) + cell.height;
  }

  private attach(cell: Cell, end: End): void {
    const key = (end.start ? "b" : "t") + cell.id;
    const ends = this.sides.get(key);
    if (ends) ends.push(end);
    else this.sides.set(key, [end]);
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
      ...[a.x, this.bottomOf(a), a.x, leave, x, Math.min(after, leave + SPACE.rank), x, Math.max(before, top[b.rank + 1] - SPACE.rank)],
      ...[b.x, top[b.rank + 1], b.x, this.topOf(b)],
    ];
    this.attach(a, { edge, start: true, towards: x, bus: id });
    this.attach(b, { edge, start: false, towards: x, bus: id });
  }

  /** Spread the ends along one side of a box: the straightest in the middle, fixed ones where they must be.
   * Ends of one lane share a place. */
  private spread(cell: Cell, ends: End[]): void {
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
    ends.forEach((end, i) => {
      const { fromDx, toDx } = this.input.edges[end.edge];
      const x = cell.x + ((end.start ? fromDx : toDx) ?? (slotOf[i] - middle) * step);
      const route = this.routes[end.edge];
      const at = end.start ? 0 : route.length - 4;
      route[at] = route[at + 2] = x;
    });
  }
}
