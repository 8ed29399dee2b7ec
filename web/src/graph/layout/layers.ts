// Layered layout (Sugiyama) of one container. The order of execution is a topological order, so ranks are longest paths
// and the initial order within a rank is the order of execution; median sweeps and weighted isotonic placement improve
// it. Edges that span many ranks run in lanes beside the boxes, one lane for all edges of a source, so that they cross
// no box and need no dummies.

import { plus } from "../model/lists.ts";
import { type Cell, type Chain, countBy, type EdgeCells, newCell } from "./cells.ts";
import { orderRanks } from "./order.ts";
import { placeX } from "./place.ts";
import { assemble } from "./route.ts";

export interface LayoutNode {
  id: number;
  width: number;
  height: number;
  /** The width to the right of its center that the label of its output needs. */
  tail: number;
  /** Whether it stays in the first rank (inputs); other nodes without producers move down to their consumers. */
  pinned: boolean;
  /** Whether it is at the bottom of its rank, near its consumers (parameters). */
  low: boolean;
}

/** `fromDx` and `toDx` are the offset of a fixed end from its box's center (a port of an open container), or null. */
export interface LayoutEdge {
  from: number;
  to: number;
  fromDx: number | null;
  toDx: number | null;
  /** The room across it for the text beside its arrow and beside its start; 0 for none. */
  mark: number;
  outMark: number;
  /** The same room along it. */
  run: number;
  outRun: number;
}

export interface LayoutInput {
  nodes: LayoutNode[];
  ins: number[];
  outs: number[];
  edges: LayoutEdge[];
  minWidth: number;
  /** The distance between two ranks, and between a box's corner and the nearest edge. */
  gap: number;
  corner: number;
}

/** Top left corners of the nodes and positions of the ports (ins, then outs), in input order and without ids, so that
 * equal containers share one layout. */
export interface Layout {
  width: number;
  height: number;
  x: Float64Array;
  y: Float64Array;
  portX: Float64Array;
  /** The concatenated routes of all edges, and where each begins (see `routeOf`). */
  points: Float64Array;
  starts: Int32Array;
}

/** Return the route of an edge: x, y, x, y, … It curves with vertical tangents between points with different x and is
 * straight otherwise. */
export const routeOf = ({ points, starts }: Layout, edge: number): Float64Array => points.subarray(starts[edge], starts[edge + 1]);

const LONGEST = 6; // an edge that spans more ranks takes a lane
const HUB = 3; // this many edges of one box that span several ranks share a lane

/** Lay out one container. */
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

/** The forward edges of a level, whose ends are indices of nodes and then of in-ports. */
interface ForwardEdges {
  from: Int32Array;
  to: Int32Array;
  /** Linked lists of the edges that enter and leave each node: the first, and the next after each; -1 ends a list. */
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

/** Assign ranks by longest paths from above. Nodes that no pinned node leads to move down to just above their first
 * consumer: constants, and slices of one tensor that are consumed late, such as the steps of a loop. `late`: which moved. */
function rankNodes(nodes: LayoutNode[], forward: ForwardEdges): { rank: Int32Array; late: Uint8Array } {
  const { from, to, firstIn, nextIn, firstOut, nextOut } = forward;
  const rank = new Int32Array(nodes.length);
  for (let i = 0; i < nodes.length; i++) {
    for (let e = firstIn[i]; e >= 0; e = nextIn[e]) if (from[e] < nodes.length) rank[i] = Math.max(rank[i], rank[from[e]] + 1);
  }
  const fixed = fixedNodes(nodes, forward, rank);
  const late = new Uint8Array(nodes.length);
  for (let i = nodes.length - 1; i >= 0; i--) {
    if (fixed[i] || firstOut[i] < 0) continue;
    let least = Infinity;
    for (let e = firstOut[i]; e >= 0; e = nextOut[e]) least = Math.min(least, rank[to[e]]);
    if (rank[i] < least - 1) [rank[i], late[i]] = [least - 1, 1];
  }
  return { rank, late };
}

/** Mark the nodes that stay in the rank of their longest path: those reachable from a pinned node or a port, other than
 * through a source whose consumers are spread over many ranks. */
function fixedNodes(nodes: LayoutNode[], { from, to, firstIn, nextIn, firstOut, nextOut }: ForwardEdges, rank: Int32Array): Uint8Array {
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
  const fixed = new Uint8Array(nodes.length);
  nodes.forEach(({ pinned }, i) => (fixed[i] = pinned ? 1 : 0));
  for (let i = 0; i < nodes.length; i++) {
    for (let e = firstIn[i]; e >= 0; e = nextIn[e]) if ((from[e] >= nodes.length || fixed[from[e]]) && !isSpread[from[e]]) fixed[i] = 1;
  }
  return fixed;
}

/** Link cells along short edges, with a dummy in every rank that they pass; leave long edges to lanes. Late nodes pull
 * less, so that the steps of a sum are placed below one another, each beside its summand. */
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
      // Two open boxes are centered below each other: aligning their ports would make a stack of them drift sideways.
      const shift = fromDx !== null && toDx !== null && span === 1 ? 0 : straight;
      p.down = plus(p.down, { cell: q, weight, shift: -shift });
      q.up = plus(q.up, { cell: p, weight, shift });
    }
    chains.push({ edge, cells: chain });
  });
  return { chains, lanes };
}
