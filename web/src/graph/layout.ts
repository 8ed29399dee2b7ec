// Layered layout of one container: pure, no DOM. Time gives a topological order for free (a container's
// members are intervals of it), so ranks are longest paths, the first order is the order of execution, and
// a few median sweeps and weighted isotonic placements do the rest. Edges that span many ranks run in lanes
// beside the boxes, one lane for all edges of one source, so that they cross no box and cost no dummies.

import { countBy, newCell, type Cell, type Chain } from "./cells.ts";
import { orderRanks } from "./order.ts";
import { placeX } from "./place.ts";
import { assemble } from "./route.ts";

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
  /** Width of the words beside its arrow, and beside its start; 0 for none. */
  mark: number;
  outMark: number;
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

const LONGEST = 6; // ranks an edge may span before it takes a lane
const HUB = 3; // so many edges over more than one rank, from or to one box, share a lane

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

/** Longest paths from above. What nothing holds up moves down to just above the first it feeds: constants, and
 * what takes its part of one tensor late, such as a loop's steps from their sequence. */
function rankNodes({ nodes, edges }: LayoutInput, place: Map<number, number>): Int32Array {
  const rank = new Int32Array(nodes.length);
  const into: number[][] = nodes.map(() => []);
  const outOf: number[][] = nodes.map(() => []);
  const forward = edges.filter(({ from, to }) => place.has(to) && (place.get(from) ?? -1) < place.get(to)!);
  forward.sort((a, b) => place.get(a.to)! - place.get(b.to)!);
  for (const { from, to } of forward) {
    if (!place.has(from)) continue;
    into[place.get(to)!].push(place.get(from)!);
    outOf[place.get(from)!].push(place.get(to)!);
  }
  for (let i = 0; i < nodes.length; i++) for (const a of into[i]) rank[i] = Math.max(rank[i], rank[a] + 1);
  const held = heldUp(nodes, forward, place, rank, outOf);
  for (let i = nodes.length - 1; i >= 0; i--) {
    if (held[i] || outOf[i].length === 0) continue;
    let least = Infinity;
    for (const b of outOf[i]) least = Math.min(least, rank[b]);
    rank[i] = Math.max(rank[i], least - 1);
  }
  return rank;
}

/** Which nodes stay where their longest path puts them: those a chain leads to that begins at something pinned. */
function heldUp(
  nodes: LayoutNode[],
  forward: LayoutEdge[],
  place: Map<number, number>,
  rank: Int32Array,
  outOf: number[][],
): Uint8Array {
  const latest = new Int32Array(nodes.length);
  for (let i = nodes.length - 1; i >= 0; i--) {
    latest[i] = outOf[i].length ? outOf[i].reduce((least, b) => Math.min(least, latest[b] - 1), Infinity) : rank[i];
  }
  const reach = new Map<number, { low: number; high: number; count: number }>();
  for (const { from, to } of forward) {
    const at = latest[place.get(to)!];
    const known = reach.get(from) ?? { low: at, high: at, count: 0 };
    reach.set(from, { low: Math.min(known.low, at), high: Math.max(known.high, at), count: known.count + 1 });
  }
  const isSpread = (id: number): boolean => reach.get(id)!.count > HUB && reach.get(id)!.high - reach.get(id)!.low > LONGEST;
  const held = Uint8Array.from(nodes, (node) => (node.pinned ? 1 : 0));
  for (const { from, to } of forward) {
    const a = place.get(from);
    if ((a === undefined || held[a]) && !isSpread(from)) held[place.get(to)!] = 1;
  }
  return held;
}

/** Link cells along short edges, with a dummy in every rank they pass; leave the long ones to lanes. */
function splitEdges(edges: LayoutEdge[], byId: Map<number, Cell>, cells: Cell[]): { chains: Chain[]; lanes: number[] } {
  const chains: Chain[] = [];
  const lanes: number[] = [];
  const spanOf = (edge: LayoutEdge): number => byId.get(edge.to)!.rank - byId.get(edge.from)!.rank;
  const long = edges.filter((edge) => spanOf(edge) > 1);
  const [leaving, arriving] = [countBy(long, (edge) => edge.from), countBy(long, (edge) => edge.to)];
  const isHub = (edge: LayoutEdge): boolean => leaving.get(edge.from)! >= HUB || arriving.get(edge.to)! >= HUB;
  edges.forEach((edge, index) => {
    const span = spanOf(edge);
    if (span < 1 || span > LONGEST || (span > 1 && isHub(edge))) {
      lanes.push(index);
      return;
    }
    const a = byId.get(edge.from)!;
    const b = byId.get(edge.to)!;
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
      const straight = (i === 1 ? (edge.fromDx ?? 0) : 0) - (i === chain.length - 1 ? (edge.toDx ?? 0) : 0);
      // Two open boxes stand centre under centre: a stack of them must not wander off along its ports.
      const shift = edge.fromDx !== null && edge.toDx !== null && span === 1 ? 0 : straight;
      p.down.push({ cell: q, weight, shift: -shift });
      q.up.push({ cell: p, weight, shift });
    }
    chains.push({ edge: index, cells: chain });
  });
  return { chains, lanes };
}
