// Layered layout of one container: pure, no DOM. Time gives a topological order for free (a container's
// members are intervals of it), so ranks are longest paths, the first order is the order of execution, and
// a few median sweeps and weighted isotonic placements do the rest. Edges that span many ranks run in lanes
// beside the boxes, one lane for all edges of one source, so that they cross no box and cost no dummies.

export interface LayoutNode {
  id: number;
  width: number;
  height: number;
  /** Room the label of what it gives needs, to the right of its centre. */
  tail: number;
  /** Stays in the first rank although nothing leads to it (inputs); others move down to whom they feed. */
  pinned: boolean;
}

/** `fromDx` and `toDx` say how far from its box's centre an end is fixed (a port of an open container). */
export interface LayoutEdge {
  from: number;
  to: number;
  fromDx: number | null;
  toDx: number | null;
}

export interface LayoutInput {
  nodes: LayoutNode[];
  ins: number[];
  outs: number[];
  edges: LayoutEdge[];
  minWidth: number;
}

/** Positions of the top left corners; ports and routes in the same coordinates. A route is x, y, x, y, … :
 * between two points with different x it bends with vertical tangents, else it is straight. */
export interface Layout {
  width: number;
  height: number;
  x: Map<number, number>;
  y: Map<number, number>;
  portX: Map<number, number>;
  routes: Float64Array[];
}

export const SPACE = { x: 28, dummy: 16, rank: 34, lane: 12, side: 22, top: 20, bottom: 20, step: 16 };
const LONGEST = 6; // ranks an edge may span before it takes a lane

interface Cell {
  index: number; // into nodes; -1 for a dummy, -2 for a port
  id: number;
  rank: number;
  width: number;
  height: number;
  x: number; // centre
  up: Link[];
  down: Link[];
}
interface Link {
  cell: Cell;
  weight: number;
  /** x of the other end's attachment minus ours, were both centres equal. */
  shift: number;
}

export function layoutLevel(input: LayoutInput): Layout {
  const { nodes, edges } = input;
  const place = new Map<number, number>();
  nodes.forEach((node, index) => place.set(node.id, index));
  const rank = rankNodes(input, place);
  const last = rank.reduce((a, b) => Math.max(a, b), 0);
  const cells: Cell[] = nodes.map((node, index) => newCell(index, node.id, rank[index], node.width, node.height));
  const byId = new Map<number, Cell>(cells.map((cell) => [cell.id, cell]));
  for (const [ports, portRank] of [[input.ins, -1], [input.outs, last + 1]] as const) {
    for (const id of ports) {
      const cell = newCell(-2, id, portRank, 10, 0);
      cells.push(cell);
      byId.set(id, cell);
    }
  }
  const { chains, lanes } = splitEdges(edges, byId, cells);
  const ranks = orderRanks(cells, last + 3);
  placeX(ranks);
  return assemble(input, ranks, byId, chains, lanes);
}

function newCell(index: number, id: number, rank: number, width: number, height: number): Cell {
  return { index, id, rank, width, height, x: 0, up: [], down: [] };
}

function rankNodes({ nodes, edges }: LayoutInput, place: Map<number, number>): Int32Array {
  const rank = new Int32Array(nodes.length);
  const into: number[][] = nodes.map(() => []);
  const outOf: number[][] = nodes.map(() => []);
  const fed = new Uint8Array(nodes.length); // by something that cannot move down with it
  for (const { from, to } of edges) {
    const a = place.get(from);
    const b = place.get(to);
    if (b !== undefined && a === undefined) fed[b] = 1;
    if (a === undefined || b === undefined || a >= b) continue;
    into[b].push(a);
    outOf[a].push(b);
  }
  for (let i = 0; i < nodes.length; i++) {
    if (nodes[i].pinned) fed[i] = 1;
    for (const a of into[i]) {
      rank[i] = Math.max(rank[i], rank[a] + 1);
      if (fed[a]) fed[i] = 1;
    }
  }
  for (let i = nodes.length - 1; i >= 0; i--) {
    if (fed[i] || outOf[i].length === 0) continue;
    let least = Infinity;
    for (const b of outOf[i]) least = Math.min(least, rank[b]);
    rank[i] = Math.max(rank[i], least - 1);
  }
  return rank;
}

interface Chain {
  edge: number;
  cells: Cell[];
}

/** Link cells along short edges, with a dummy in every rank they pass; leave the long ones to lanes. */
function splitEdges(edges: LayoutEdge[], byId: Map<number, Cell>, cells: Cell[]): { chains: Chain[]; lanes: number[] } {
  const chains: Chain[] = [];
  const lanes: number[] = [];
  edges.forEach((edge, index) => {
    const a = byId.get(edge.from)!;
    const b = byId.get(edge.to)!;
    const span = b.rank - a.rank;
    if (span < 1 || span > LONGEST) {
      lanes.push(index);
      return;
    }
    const chain = [a];
    for (let r = a.rank + 1; r < b.rank; r++) {
      const dummy = newCell(-1, -1, r, 8, 0);
      cells.push(dummy);
      chain.push(dummy);
    }
    chain.push(b);
    for (let i = 1; i < chain.length; i++) {
      const [p, q] = [chain[i - 1], chain[i]];
      const weight = p.index === -1 && q.index === -1 ? 6 : span === 1 ? 4 : 1;
      const shift = (i === 1 ? (edge.fromDx ?? 0) : 0) - (i === chain.length - 1 ? (edge.toDx ?? 0) : 0);
      p.down.push({ cell: q, weight, shift: -shift });
      q.up.push({ cell: p, weight, shift });
    }
    chains.push({ edge: index, cells: chain });
  });
  return { chains, lanes };
}

// -- order within ranks ---------------------------------------------------------------------------------

function orderRanks(cells: Cell[], count: number): Cell[][] {
  const ranks: Cell[][] = Array.from({ length: count }, () => []);
  for (const cell of cells) ranks[cell.rank + 1].push(cell);
  const at = new Map<Cell, number>();
  const number = (rank: Cell[]): void => rank.forEach((cell, i) => at.set(cell, i));
  ranks.forEach(number);
  if (ranks.every((rank) => rank.length < 2)) return ranks;
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
const placeOf = (link: Link, at: Map<Cell, number>): number => at.get(link.cell)! + link.shift * 1e-5;

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

// -- x --------------------------------------------------------------------------------------------------

function placeX(ranks: Cell[][]): void {
  for (const rank of ranks) {
    let x = 0;
    rank.forEach((cell, i) => {
      x += i ? gap(rank[i - 1], cell) : 0;
      cell.x = x;
    });
    for (const cell of rank) cell.x -= x / 2;
  }
  for (let sweep = 0; sweep < 8; sweep++) {
    const order = sweep % 2 ? ranks.slice().reverse() : ranks;
    for (const rank of order) settle(rank, sweep >= 6 ? "both" : sweep % 2 ? "down" : "up");
  }
  straighten(ranks);
}

interface Run {
  cells: Cell[];
  offsets: number[];
}

/** Move every run of cells that follow one another to one x, as far as their neighbours in the ranks allow. */
function straighten(ranks: Cell[][]): void {
  const beside = new Map<Cell, [left: Cell | undefined, right: Cell | undefined]>();
  for (const rank of ranks) rank.forEach((cell, i) => beside.set(cell, [rank[i - 1], rank[i + 1]]));
  const runs = findRuns(ranks);
  for (let round = 0; round < 4; round++) {
    for (const { cells, offsets } of round % 2 ? runs.slice().reverse() : runs) {
      let [low, high] = [-Infinity, Infinity];
      const own = new Set(cells);
      const pulls: Link[] = [];
      cells.forEach((cell, i) => {
        const [left, right] = beside.get(cell)!;
        if (left) low = Math.max(low, left.x + gap(left, cell) - offsets[i]);
        if (right) high = Math.min(high, right.x - gap(cell, right) - offsets[i]);
        for (const link of [...cell.up, ...cell.down]) {
          if (!own.has(link.cell)) pulls.push({ ...link, shift: link.shift - offsets[i] });
        }
      });
      if (low > high) continue;
      const middle = (cells[0].x + cells[cells.length - 1].x - offsets[cells.length - 1]) / 2;
      const want = pulls.length ? weightedMedian(pulls) : middle;
      const x = Math.min(high, Math.max(low, want));
      cells.forEach((cell, i) => (cell.x = x + offsets[i]));
    }
  }
}

/** Maximal runs in which each cell is what the one above it leads to first, and the other way round. */
function findRuns(ranks: Cell[][]): Run[] {
  const runs: Run[] = [];
  const taken = new Set<Cell>();
  for (const start of ranks.flat()) {
    if (taken.has(start)) continue;
    const run: Run = { cells: [start], offsets: [0] };
    taken.add(start);
    for (let cell = start; ; ) {
      const next = favourite(cell.down);
      const back = next && favourite(next.cell.up);
      if (!next || back?.cell !== cell || taken.has(next.cell)) break;
      run.offsets.push(run.offsets[run.offsets.length - 1] + back.shift);
      run.cells.push(next.cell);
      taken.add(next.cell);
      cell = next.cell;
    }
    runs.push(run);
  }
  return runs;
}

/** The heaviest link; of several alike the middle one, and none when there is no middle. */
function favourite(links: Link[]): Link | undefined {
  const most = Math.max(...links.map((link) => link.weight));
  const alike = links.filter((link) => link.weight === most).sort((a, b) => a.cell.x - b.cell.x);
  return alike.length % 2 ? alike[alike.length >> 1] : undefined;
}

function gap(a: Cell, b: Cell): number {
  const between = a.index === -1 || b.index === -1 ? SPACE.dummy : SPACE.x;
  return (a.width + b.width) / 2 + between;
}

/** Move a rank's cells to where their neighbours want them, keeping order and distance: isotonic regression. */
function settle(rank: Cell[], side: "up" | "down" | "both"): void {
  const blocks: { sum: number; weight: number; count: number }[] = [];
  const base: number[] = [];
  let offset = 0;
  rank.forEach((cell, i) => {
    offset += i ? gap(rank[i - 1], cell) : 0;
    base.push(offset);
    const links = side === "both" ? [...cell.up, ...cell.down] : cell[side];
    const pull = links.length ? 1 + links.reduce((sum, link) => sum + link.weight, 0) : 0.05;
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
  for (const block of blocks) {
    for (let k = 0; k < block.count; k++, i++) rank[i].x = block.sum / block.weight + base[i];
  }
}

function weightedMedian(links: Link[]): number {
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

// -- y and routes ---------------------------------------------------------------------------------------

interface Bands {
  top: Float64Array;
  bottom: Float64Array;
}

function assemble(
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
  private readonly sides = new Map<string, { edge: number; start: boolean; towards: number }[]>();
  private readonly buses = new Map<number, { x: number; from: number; to: number; left: boolean; edges: number[] }>();

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
    this.attach(edge, cells[0], true, cells[1].x);
    this.attach(edge, cells[cells.length - 1], false, cells[cells.length - 2].x);
  }

  /** Long edges share a lane with those of the same source, or of the same target where those are more. */
  lanes(edges: number[]): void {
    const from = countBy(edges, (edge) => this.input.edges[edge].from);
    const to = countBy(edges, (edge) => this.input.edges[edge].to);
    for (const index of edges) {
      const edge = this.input.edges[index];
      this.lane(index, to.get(edge.to)! > from.get(edge.from)! ? edge.to : edge.from);
    }
  }

  private lane(edge: number, shared: number): void {
    const a = this.byId.get(this.input.edges[edge].from)!;
    const b = this.byId.get(this.input.edges[edge].to)!;
    const known = this.buses.get(shared);
    const bus = known ?? { x: 0, from: Math.min(a.rank, b.rank), to: b.rank, left: b.x + a.x < 0, edges: [] };
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

  private attach(edge: number, cell: Cell, start: boolean, towards: number): void {
    const key = (start ? "b" : "t") + cell.id;
    const ends = this.sides.get(key);
    if (ends) ends.push({ edge, start, towards });
    else this.sides.set(key, [{ edge, start, towards }]);
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
      const side = bus.left ? "left" : "right";
      const columns = taken[side];
      let column = 0;
      while (columns[column]?.some((_, i, all) => i % 2 === 0 && all[i] < bus.to && bus.from < all[i + 1])) column++;
      (columns[column] ??= []).push(bus.from, bus.to);
      const away = SPACE.side + column * SPACE.lane;
      bus.x = bus.left ? edgesOf.left - away : edgesOf.right + away;
      for (const edge of bus.edges) this.routeLane(edge, bus.x);
    }
  }

  private routeLane(edge: number, x: number): void {
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
    this.attach(edge, a, true, x);
    this.attach(edge, b, false, x);
  }

  /** Spread the ends along one side of a box: the straightest in the middle, fixed ones where they must be. */
  private spread(cell: Cell, ends: { edge: number; start: boolean; towards: number }[]): void {
    ends.sort((a, b) => a.towards - b.towards);
    let straightest = 0;
    ends.forEach((end, i) => {
      if (Math.abs(end.towards - cell.x) < Math.abs(ends[straightest].towards - cell.x) - 0.5) straightest = i;
    });
    const room = Math.max(0, cell.width / 2 - 12);
    const reach = Math.max(straightest, ends.length - 1 - straightest, 1);
    const step = cell.index === -2 ? 0 : Math.min(SPACE.step, room / reach);
    // Two alike, one to each side: better than one straight and one askew.
    const even = ends.length % 2 === 0 && Math.abs(ends[0].towards + ends[ends.length - 1].towards - 2 * cell.x) < 2;
    const middle = even ? (ends.length - 1) / 2 : straightest;
    ends.forEach((end, i) => {
      const { fromDx, toDx } = this.input.edges[end.edge];
      const x = cell.x + ((end.start ? fromDx : toDx) ?? (i - middle) * step);
      const route = this.routes[end.edge];
      const at = end.start ? 0 : route.length - 4;
      route[at] = route[at + 2] = x;
    });
  }
}

function countBy(edges: number[], key: (edge: number) => number): Map<number, number> {
  const counts = new Map<number, number>();
  for (const edge of edges) counts.set(key(edge), (counts.get(key(edge)) ?? 0) + 1);
  return counts;
}
