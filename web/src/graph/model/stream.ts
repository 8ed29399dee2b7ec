// The ancestors and descendants of a box in the data flow, whatever is open.
import type { LevelEdge, Tree } from "./tree.ts";

const UP = 1;
const DOWN = 2;

/** Everything that a box's tensors are computed from or used for, the box included. */
export class Stream {
  private constructor(
    private readonly tree: Tree,
    private readonly rows: Uint8Array,
    private readonly boxes: Uint8Array,
  ) {}

  /** Return the stream of a box. */
  static of(tree: Tree, id: number): Stream {
    const { nodes, boxOf } = tree;
    const rows = new Uint8Array(boxOf.length);
    const own = rowsInside(tree, id);
    for (const direction of [UP, DOWN]) mark(tree, own, rows, direction);
    const boxes = new Uint8Array(nodes.length);
    for (let row = 0; row < rows.length; row++) {
      const bits = rows[row];
      if (bits) for (let n = boxOf[row]; n >= 0 && (boxes[n] & bits) !== bits; n = nodes[n].parent) boxes[n] |= bits;
    }
    return new Stream(tree, rows, boxes);
  }

  /** Return whether a box, or something inside it, is part of the stream. */
  has(id: number): boolean {
    return this.boxes[id] !== 0;
  }

  /** Return whether a tensor of the stream runs along an edge. */
  along({ raw }: LevelEdge): boolean {
    const { src, dst } = this.tree.scene.edges;
    return raw.some((edge) => (this.rows[src[edge]] & this.rows[dst[edge]]) !== 0);
  }
}

/** Mark everything reachable from some rows, upstream or downstream. */
function mark(tree: Tree, from: number[], marks: Uint8Array, direction: number): void {
  const { src, dst } = tree.scene.edges;
  const { starts, edges } = direction === UP ? tree.edgesByRow.into : tree.edgesByRow.from;
  const far = direction === UP ? src : dst;
  const waiting = from.slice();
  for (const row of waiting) marks[row] |= direction;
  while (waiting.length) {
    const row = waiting.pop()!;
    for (let at = starts[row]; at < starts[row + 1]; at++) {
      const next = far[edges[at]];
      if (marks[next] & direction) continue;
      marks[next] |= direction;
      waiting.push(next);
    }
  }
}

/** Return the rows of a box and of everything inside it. */
export function rowsInside({ nodes }: Tree, id: number): number[] {
  const rows: number[] = [];
  const stack = [id];
  while (stack.length) {
    const { rows: own, buffers, children } = nodes[stack.pop()!];
    for (const row of own) rows.push(row);
    for (const row of buffers) rows.push(row);
    for (const child of children) stack.push(child);
  }
  return rows.sort((a, b) => a - b);
}

/** The edges of a scene by the rows that they enter and leave. Those of row r are `edges[starts[r]]` to `edges[starts[r + 1] - 1]`. */
export interface EdgesByRow {
  into: RowEdges;
  from: RowEdges;
}

export interface RowEdges {
  starts: Int32Array;
  edges: Int32Array;
}

/** Index the edges of a scene by row. */
export function edgesByRow({ ops, edges }: Tree["scene"]): EdgesByRow {
  const by = (ends: number[]): RowEdges => {
    const starts = new Int32Array(ops.kind.length + 1);
    for (const row of ends) starts[row + 1]++;
    for (let row = 0; row < ops.kind.length; row++) starts[row + 1] += starts[row];
    const next = starts.slice();
    const sorted = new Int32Array(ends.length);
    ends.forEach((row, edge) => (sorted[next[row]++] = edge));
    return { starts, edges: sorted };
  };
  return { into: by(edges.dst), from: by(edges.src) };
}
