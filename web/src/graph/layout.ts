// Layered layout of one container: pure, no DOM. Time gives a topological order for free (a container's
// members are intervals of it), so ranks are longest paths, the first order is the order of execution, and
// a few median sweeps and weighted isotonic placements do the rest. Edges that span many ranks run in lanes
// beside the boxes, one lane for all edges of one source, so that they cross no box and cost no dummies.

import { countBy, newCell, type Cell, type Chain } from "./cells.ts";
import { plus } from "./lists.ts";
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

/** Top left corners of the nodes and places of the ports, ins before outs, in the order they were given; so one
 * layout is that of every container that is alike. */
export interface Layout {
  width: number;
  height: number;
  x: Float64Array;
  y: Float64Array;
  portX: Float64Array;
  /** The routes of all edges one after another, and where each begins (see `routeOf`). */
  points: Float64Array;
  starts: Int32Array;
}

/** The route of an edge: x, y, x, y, … Between two points with different x it bends with vertical tangents, else it
 * is straight. */
export const routeOf = ({ points, starts }: Layout, edge: number): Float64Array => points.subarray(starts[edge], starts[edge + 1]);

const LONGEST = 6; // ranks an edge may span before it takes a lane
const HUB = 3; // so many edges over more than one rank, from or to one box, share a lane

export function layoutLevel(input: LayoutInput): Layout {
  const { nodes, edges } = input;
  const rank = rankNodes(input);
  const last = rank.reduce((a, b) => Math.max(a, b), 0);
  const cells: Cell[] = nodes.map((node, index) => newCell(index, node.id, rank[index], node.width, node.height));
  const ports = [...input.ins.map((id) => newCell(-2, id, -1, 10, 0)), ...input.outs.map((id) => newCell(-2, id, last + 1, 10, 0))];
  cells.push(...ports);
  const byId = new Map<number, Cell>();
  for (const cell of cells) byId.set(cell.id, cell);
  const { chains, lanes } = splitEdges(edges, byId, cells);
  const ranks = orderRanks(cells, last + 3);
  placeX(ranks);
  return assemble(input, ranks, byId, chains, lanes);
}

/** The forward edges of a level by places: of nodes in their order, then of the ports they come from. */
interface Ways {
  from: Int32Array;
  to: Int32Array;
  /** The forward edges that lead to a node, and those that leave it: the first, then the next after each; -1 ends. */
  firstIn: Int32Array;
  nextIn: Int32Array;
  firstOut: Int32Array;
  nextOut: Int32Array;
}

function waysOf({ nodes, ins, edges }: LayoutInput): Ways {
  const places = new Map<number, number>();
  for (const { id } of nodes) places.set(id, places.size);
  for (const id of ins) places.set(id, places.size);
  const [from, to, nextIn, nextOut] = [0, 0, 0, 0].map(() => new Int32Array(edges.length));
  const [firstIn, firstOut] = [nodes.length, places.size].map((size) => new Int32Array(size).fill(-1));
  edges.forEach((edge, at) => {
    const [a, b] = [places.get(edge.from) ?? -1, places.get(edge.to) ?? -1];
    if (a < 0 || b < 0 || b >= nodes.length || (a >= b && a < nodes.length)) return;
    [from[at], to[at]] = [a, b];
    [nextIn[at], firstIn[b]] = [firstIn[b], at];
    [nextOut[at], firstOut[a]] = [firstOut[a], at];
  });
  return { from, to, firstIn, nextIn, firstOut, nextOut };
}

/** Longest paths from above. What nothing holds up moves down to just above the first it feeds: constants, and
 * what takes its part of one tensor late, such as a loop's steps from their sequence. */
function rankNodes(input: LayoutInput): Int32Array {
  const { nodes } = input;
  const ways = waysOf(input);
  const { from, to, firstIn, nextIn, firstOut, nextOut } = ways;
  const rank = new Int32Array(nodes.length);
  for (let i = 0; i < nodes.length; i++) {
    for (let e = firstIn[i]; e >= 0; e = nextIn[e]) if (from[e] < nodes.length) rank[i] = Math.max(rank[i], rank[from[e]] + 1);
  }
  const held = heldUp(nodes, ways, rank);
  for (let i = nodes.length - 1; i >= 0; i--) {
    if (held[i] || firstOut[i] < 0) continue;
    let least = Infinity;
    for (let e = firstOut[i]; e >= 0; e = nextOut[e]) least = Math.min(least, rank[to[e]]);
    rank[i] = Math.max(rank[i], least - 1);
  }
  return rank;
}

/** Which nodes stay where their longest path puts them: those a chain leads to that begins at something pinned. */
function heldUp(nodes: LayoutNode[], { from, to, firstIn, nextIn, firstOut, nextOut }: Ways, rank: Int32Array): Uint8Array {
  const latest = new Int32Array(nodes.length);
  for (let i = nodes.length - 1; i >= 0; i--) {
    latest[i] = firstOut[i] < 0 ? rank[i] : 2 ** 30;
    for (let e = firstOut[i]; e >= 0; e = nextOut[e]) latest[i] = Math.min(latest[i], latest[to[e]] - 1);
  }
  const isSpread = Uint8Array.from(firstOut, (first) => {
    let [count, low, high] = [0, Infinity, -Infinity];
    for (let e = first; e >= 0; e = nextOut[e]) [count, low, high] = [count + 1, Math.min(low, latest[to[e]]), Math.max(high, latest[to[e]])];
    return count > HUB && high - low > LONGEST ? 1 : 0;
  });
  const held = Uint8Array.from(nodes, (node) => (node.pinned ? 1 : 0));
  for (let i = 0; i < nodes.length; i++) {
    for (let e = firstIn[i]; e >= 0; e = nextIn[e]) if ((from[e] >= nodes.length || held[from[e]]) && !isSpread[from[e]]) held[i] = 1;
  }
  return held;
}

/** Link cells along short edges, with a dummy in every rank they pass; leave the long ones to lanes. */
function splitEdges(edges: LayoutEdge[], byId: Map<number, Cell>, cells: Cell[]): { chains: Chain[]; lanes: number[] } {
  const chains: Chain[] = [];
  const lanes: number[] = [];
  const spans = Int32Array.from(edges, ({ from, to }) => byId.get(to)!.rank - byId.get(from)!.rank);
  const long = edges.filter((_, index) => spans[index] > 1);
  const [leaving, arriving] = [countBy(long, (edge) => edge.from), countBy(long, (edge) => edge.to)];
  const isHub = (edge: LayoutEdge): boolean => leaving.get(edge.from)! >= HUB || arriving.get(edge.to)! >= HUB;
  edges.forEach((edge, index) => {
    const span = spans[index];
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
      p.down = plus(p.down, { cell: q, weight, shift: -shift });
      q.up = plus(q.up, { cell: p, weight, shift });
    }
    chains.push({ edge: index, cells: chain });
  });
  return { chains, lanes };
}
