// All that lies up and down the stream of a box: the tensors it comes from and those it goes into, whatever stands open.
import type { LevelEdge, Tree } from "./tree.ts";

const UP = 1;
const DOWN = 2;

/** What a box's tensors come from and go to, itself included. */
export class Stream {
  private constructor(
    private readonly tree: Tree,
    private readonly rows: Uint8Array,
    private readonly boxes: Uint8Array,
  ) {}

  static of(tree: Tree, id: number): Stream {
    const { nodes, boxOf } = tree;
    const rows = new Uint8Array(boxOf.length);
    const own = rowsInside(tree, id);
    for (const way of [UP, DOWN]) mark(tree, own, rows, way);
    const boxes = new Uint8Array(nodes.length);
    for (let row = 0; row < rows.length; row++) {
      const ways = rows[row];
      if (ways) for (let n = boxOf[row]; n >= 0 && (boxes[n] & ways) !== ways; n = nodes[n].parent) boxes[n] |= ways;
    }
    return new Stream(tree, rows, boxes);
  }

  /** Whether a box, or something in it, lies in it. */
  has(id: number): boolean {
    return this.boxes[id] !== 0;
  }

  /** Whether a tensor of it runs along an edge. */
  along({ raw }: LevelEdge): boolean {
    const { src, dst } = this.tree.scene.edges;
    return raw.some((edge) => (this.rows[src[edge]] & this.rows[dst[edge]]) !== 0);
  }
}

/** Mark everything that lies on from some rows, up the stream or down. */
function mark(tree: Tree, from: number[], marks: Uint8Array, way: number): void {
  const { src, dst } = tree.scene.edges;
  const { starts, edges } = way === UP ? tree.ways.into : tree.ways.from;
  const far = way === UP ? src : dst;
  const waiting = from.slice();
  for (const row of waiting) marks[row] |= way;
  while (waiting.length) {
    const row = waiting.pop()!;
    for (let at = starts[row]; at < starts[row + 1]; at++) {
      const next = far[edges[at]];
      if (marks[next] & way) continue;
      marks[next] |= way;
      waiting.push(next);
    }
  }
}

/** The rows of a box and of all in it. */
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

/** The edges of a scene by the rows they lead to and those they leave: of row r, `edges` from `starts[r]` on. */
export interface EdgesByRow {
  into: RowEdges;
  from: RowEdges;
}

export interface RowEdges {
  starts: Int32Array;
  edges: Int32Array;
}

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
