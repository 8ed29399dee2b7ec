// Layered layout of one container: pure, no DOM. Time gives a topological order for free (a container's
// members are intervals of it), so ranks are longest paths, the first order is the order of execution, and
// a few median sweeps and weighted isotonic placements do the rest. Edges that span many ranks run in lanes
// beside the boxes, one lane for all edges of one source, so that they cross no box and cost no dummies.

import { plus } from "../model/lists.ts";
import { type Cell, type Chain, countBy, type EdgeCells, newCell } from "./cells.ts";
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
  /** Room between two ranks, and between a box's corner and the nearest edge. */
  gap: number;
  corner: number;
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
  const { nodes, ins, outs, edges } = input;
  const places = new Map<number, number>();
  for (const { id } of nodes) places.set(id, places.size);
  for (const id of ins) places.set(id, places.size);
  for (const id of outs) places.set(id, places.size);
  const [from, to] = [new Int32Array(edges.length), new Int32Array(edges.length)];
  edges.forEach((edge, i) => {
    from[i] = places.get(edge.from)!;
    to[i] = places.get(edge.to)!;
  });
  const { rank, late } = rankNodes(nodes, forwardEdges(from, to, nodes.length, nodes.length + ins.length));
  const last = rank.reduce((a, b) => Math.max(a, b), 0);
  const cells: Cell[] = nodes.map((node, index) => newCell(index, rank[index], node.width, node.height, late[index] > 0));
  for (let i = 0; i < ins.length; i++) cells.push(newCell(-2, -1, 10, 0));
  for (let i = 0; i < outs.length; i++) cells.push(newCell(-2, last + 1, 10, 0));
  const known = cells.slice();
  const ends: EdgeCells = { from: edges.map((_, edge) => known[from[edge]]), to: edges.map((_, edge) => known[to[edge]]) };
  const { chains, lanes } = splitEdges(edges, ends, cells);
  const ranks = orderRanks(cells, last + 3);
  placeX(ranks);
  return assemble(input, ranks, known, ends, chains, lanes);
}

/** The forward edges of a level by places: of nodes in their order, then of the ports they come from. */
interface ForwardEdges {
  from: Int32Array;
  to: Int32Array;
  /** The forward edges that lead to a node, and those that leave it: the first, then the next after each; -1 ends. */
  firstIn: Int32Array;
  nextIn: Int32Array;
  firstOut: Int32Array;
  nextOut: Int32Array;
}

function forwardEdges(from: Int32Array, to: Int32Array, nodes: number, sources: number): ForwardEdges {
  const [nextIn, nextOut] = [new Int32Array(from.length), new Int32Array(from.length)];
  const [firstIn, firstOut] = [nodes, sources].map((size) => new Int32Array(size).fill(-1));
  for (let at = 0; at < from.length; at++) {
    const a = from[at];
    const b = to[at];
    if (a >= sources || b >= nodes || (a >= b && a < nodes)) continue;
    nextIn[at] = firstIn[b];
    nextOut[at] = firstOut[a];
    firstIn[b] = firstOut[a] = at;
  }
  return { from, to, firstIn, nextIn, firstOut, nextOut };
}

/** Longest paths from above. What nothing holds up moves down to just above the first it feeds: constants, and
 * what takes its part of one tensor late, such as a loop's steps from their sequence. `late`: which moved. */
function rankNodes(nodes: LayoutNode[], ways: ForwardEdges): { rank: Int32Array; late: Uint8Array } {
  const { from, to, firstIn, nextIn, firstOut, nextOut } = ways;
  const rank = new Int32Array(nodes.length);
  for (let i = 0; i < nodes.length; i++) {
    for (let e = firstIn[i]; e >= 0; e = nextIn[e]) if (from[e] < nodes.length) rank[i] = Math.max(rank[i], rank[from[e]] + 1);
  }
  const held = heldUp(nodes, ways, rank);
  const late = new Uint8Array(nodes.length);
  for (let i = nodes.length - 1; i >= 0; i--) {
    if (held[i] || firstOut[i] < 0) continue;
    let least = Infinity;
    for (let e = firstOut[i]; e >= 0; e = nextOut[e]) least = Math.min(least, rank[to[e]]);
    if (rank[i] < least - 1) [rank[i], late[i]] = [least - 1, 1];
  }
  return { rank, late };
}

/** Which nodes stay where their longest path puts them: those a chain leads to that begins at something pinned. */
function heldUp(nodes: LayoutNode[], { from, to, firstIn, nextIn, firstOut, nextOut }: ForwardEdges, rank: Int32Array): Uint8Array {
  const latest = new Int32Array(nodes.length);
  for (let i = nodes.length - 1; i >= 0; i--) {
    latest[i] = firstOut[i] < 0 ? rank[i] : 2 ** 30;
    for (let e = firstOut[i]; e >= 0; e = nextOut[e]) latest[i] = Math.min(latest[i], latest[to[e]] - 1);
  }
  const isSpread = new Uint8Array(firstOut.length);
  for (let i = 0; i < firstOut.length; i++) {
    let count = 0;
    let low = Infinity;
    let high = -Infinity;
    for (let e = firstOut[i]; e >= 0; e = nextOut[e]) {
      count++;
      low = Math.min(low, latest[to[e]]);
      high = Math.max(high, latest[to[e]]);
    }
    if (count > HUB && high - low > LONGEST) isSpread[i] = 1;
  }
  const held = new Uint8Array(nodes.length);
  nodes.forEach(({ pinned }, i) => (held[i] = pinned ? 1 : 0));
  for (let i = 0; i < nodes.length; i++) {
    for (let e = firstIn[i]; e >= 0; e = nextIn[e]) if ((from[e] >= nodes.length || held[from[e]]) && !isSpread[from[e]]) held[i] = 1;
  }
  return held;
}

/** Link cells along short edges, with a dummy in every rank they pass; leave the long ones to lanes. What came late pulls
 * less: the steps of a sum stand below one another, each beside its part. */
function splitEdges(edges: LayoutEdge[], { from, to }: EdgeCells, cells: Cell[]): { chains: Chain[]; lanes: number[] } {
  const chains: Chain[] = [];
  const lanes: number[] = [];
  const spanOf = (edge: number): number => to[edge].rank - from[edge].rank;
  const long: number[] = [];
  for (let edge = 0; edge < edges.length; edge++) if (spanOf(edge) > 1) long.push(edge);
  const [leaving, arriving] = [countBy(long, (edge) => from[edge]), countBy(long, (edge) => to[edge])];
  const isHub = (edge: number): boolean => leaving.get(from[edge])! >= HUB || arriving.get(to[edge])! >= HUB;
  edges.forEach(({ fromDx, toDx }, edge) => {
    const span = spanOf(edge);
    if (span < 1 || span > LONGEST || (span > 1 && isHub(edge))) {
      lanes.push(edge);
      return;
    }
    const chain = [from[edge]];
    for (let r = from[edge].rank + 1; r < to[edge].rank; r++) {
      const dummy = newCell(-1, r, 8, 0);
      cells.push(dummy);
      chain.push(dummy);
    }
    chain.push(to[edge]);
    for (let i = 1; i < chain.length; i++) {
      const [p, q] = [chain[i - 1], chain[i]];
      const weight = p.index === -1 && q.index === -1 ? 6 : span > 1 ? 1 : p.late ? 2 : 4;
      const straight = (i === 1 ? (fromDx ?? 0) : 0) - (i === chain.length - 1 ? (toDx ?? 0) : 0);
      // Two open boxes stand centre under centre: a stack of them must not wander off along its ports.
      const shift = fromDx !== null && toDx !== null && span === 1 ? 0 : straight;
      p.down = plus(p.down, { cell: q, weight, shift: -shift });
      q.up = plus(q.up, { cell: p, weight, shift });
    }
    chains.push({ edge, cells: chain });
  });
  return { chains, lanes };
}
