// Builds a tree of boxes from the columns of a scene and, for every container, the edges between its contents.
import { decided, decisions, type Decisions } from "./branches.ts";
import type { Details } from "./details.ts";
import { foldRepeats, groupEnds } from "./folds.ts";
import { Levels } from "./levels.ts";
import { NONE, plus } from "./lists.ts";
import { type Marks, takesSeveral } from "./marks.ts";
import { nameBoxes, namesOf } from "./naming.ts";
import { BUFFER, CREATED, FAILED, INPUT, OP, PARAMETER, type Scene } from "./scene.ts";
import { edgesByRow, type EdgesByRow } from "./stream.ts";

export type Kind = "root" | "module" | "op" | "input" | "output" | "buffer" | "constant" | "parameter" | "group";

/** A box: a module call, an operation, an input … Containers have children. */
export interface TreeNode {
  id: number;
  kind: Kind;
  parent: number;
  depth: number;
  children: number[];
  /** The address: of a module call, or the label of an operation; "" for the root and for groups. */
  address: string;
  /** All addresses of this box, the main one first; a module that runs one operation has two. */
  names: string[];
  title: string;
  subtitle: string;
  call: number;
  /** The rows of the scene that it represents: the tensors that an operation returned. */
  rows: number[];
  /** Buffers and constants that only this box reads. */
  buffers: number[];
  /** The number of passes that it represents; more than one only in a rolled scene. */
  passes: number;
  /** The decision that read its tensor: "if ✓", or "". */
  decision: string;
  order: number;
  flags: number;
  /** Whether it reads parameters, or is one. */
  hasParams: boolean;
}

/** An edge between two members of one container: children, or ports on its border. */
export interface LevelEdge {
  from: number;
  to: number;
  /** Indices into the scene's edges that run along it. */
  raw: number[];
  /** The ports where it continues inside its ends, if these are containers; else -1. */
  outPort: number;
  inPort: number;
  /** Its small labels, cached (model/marks.ts). */
  marks?: Marks;
}

/** The edges and ports of one container. Ids from `Tree.firstPort` on are ports. */
export interface Level {
  edges: LevelEdge[];
  ins: number[];
  outs: number[];
}

export interface Tree {
  scene: Scene;
  nodes: TreeNode[];
  /** The box of each row of the scene. */
  boxOf: Int32Array;
  /** The box of each address, created on request. */
  readonly byAddress: Map<string, number>;
  /** The scene's edges by the rows at their ends, created on request. */
  readonly edgesByRow: EdgesByRow;
  /** The position of each box among its container's children. */
  placeOf: Int32Array;
  levels: Levels;
  firstPort: number;
  /** The container of each port, from `firstPort` on. */
  holders: number[];
  decisions: Decisions;
  /** Boxes that take more than one tensor. */
  several: Set<number>;
  details: Details;
}

/** Build the tree of a scene. */
export function buildTree(scene: Scene, details: Details): Tree {
  const nodes: TreeNode[] = [];
  const boxOf = new Int32Array(scene.ops.kind.length).fill(-1);
  const builder = { scene, nodes, boxOf };
  newNode(builder, "root", -1, 0);
  const callBox = placeRows(builder);
  placeBuffers(builder);
  groupEnds(builder, "input");
  groupEnds(builder, "output");
  foldRepeats(builder);
  setDepths(nodes);
  nameBoxes(builder, callBox);
  markFailedModule(builder, callBox);
  let byAddress: Map<string, number> | null = null;
  let byRow: EdgesByRow | null = null;
  const placeOf = new Int32Array(nodes.length);
  for (const { children } of nodes) children.forEach((id, place) => (placeOf[id] = place));
  const tree: Tree = {
    get byAddress() {
      return (byAddress ??= namesOf(scene, nodes));
    },
    get edgesByRow() {
      return (byRow ??= edgesByRow(scene));
    },
    ...{ scene, nodes, boxOf, placeOf, levels: new Levels(() => tree), firstPort: nodes.length, holders: [] },
    decisions: decisions(scene),
    several: takesSeveral({ scene, boxOf }),
    details,
  };
  for (const [row, decision] of tree.decisions.byRow) if (nodes[boxOf[row]]) nodes[boxOf[row]].decision = decided(decision);
  return tree;
}

export interface Builder {
  scene: Scene;
  nodes: TreeNode[];
  boxOf: Int32Array;
}

export function newNode({ nodes }: Builder, kind: Kind, parent: number, order: number): TreeNode {
  const node: TreeNode = {
    id: nodes.length,
    kind,
    parent,
    depth: 0,
    children: NONE,
    address: "",
    names: NONE,
    title: "",
    subtitle: "",
    call: -1,
    rows: NONE,
    buffers: NONE,
    passes: 1,
    decision: "",
    order,
    flags: 0,
    hasParams: false,
  };
  nodes.push(node);
  if (parent >= 0) nodes[parent].children = plus(nodes[parent].children, node.id);
  return node;
}

/** Count the operations inside each call, at any depth; several tensors of one function count once. */
function operationsInside(scene: Scene): Int32Array {
  const { ops, calls } = scene;
  const inside = new Int32Array(calls.parent.length);
  for (let row = 0; row < ops.kind.length; row++) {
    if (ops.kind[row] !== OP || ops.call[row] < 0 || isLaterTensor(scene, row)) continue;
    inside[ops.call[row]]++;
  }
  for (let call = inside.length - 1; call >= 0; call--) {
    if (calls.parent[call] >= 0) inside[calls.parent[call]] += inside[call];
  }
  return inside;
}

/** Return whether a row is a further tensor of the function call that the previous row came from. */
function isLaterTensor({ ops }: Scene, row: number): boolean {
  return row > 0 && ops.kind[row - 1] === OP && ops.event[row] >= 0 && ops.event[row] === ops.event[row - 1];
}

/** The kinds of rows that exist before the pass, from BUFFER on. */
const STATE: Kind[] = ["buffer", "constant", "parameter"];
const isState = (kind: number): boolean => kind >= BUFFER && kind <= PARAMETER;

/** Create the boxes of all rows except buffers, constants and parameters that something reads, and of the module calls around them; return
 * the box of each call. */
function placeRows(builder: Builder): Int32Array {
  const { scene, nodes, boxOf } = builder;
  const { ops, calls } = scene;
  const inside = operationsInside(scene);
  const read = new Set(scene.edges.src);
  const callBox = new Int32Array(calls.parent.length).fill(-1);
  for (let call = 0; call < callBox.length; call++) {
    if (calls.parent[call] < 0 && calls.address[call] === "") callBox[call] = 0;
  }
  const boxForCall = (innermost: number, row: number): number => {
    const missing: number[] = [];
    let call = innermost;
    for (; call >= 0 && callBox[call] < 0; call = calls.parent[call]) missing.push(call);
    let box = call >= 0 ? callBox[call] : 0;
    for (let i = missing.length - 1; i >= 0; i--) {
      const parentIsAtomic = calls.parent[missing[i]] >= 0 && box !== 0 && inside[calls.parent[missing[i]]] === 1;
      if (!parentIsAtomic) box = newNode(builder, "module", box, row).id;
      nodes[box].call = missing[i];
      callBox[missing[i]] = box;
    }
    return box;
  };
  for (let row = 0; row < ops.kind.length; row++) {
    const kind = ops.kind[row];
    if (kind === PARAMETER && !read.has(row)) {
      // Of a file of weights: what reads it is not known.
      const box = newNode(builder, "parameter", boxForCall(ops.call[row], row), row);
      box.rows = [row];
      box.hasParams = true;
      boxOf[row] = box.id;
    }
    if (isState(kind)) continue;
    if (kind === OP && isLaterTensor(scene, row)) {
      boxOf[row] = boxOf[row - 1];
      nodes[boxOf[row]].rows = plus(nodes[boxOf[row]].rows, row);
      continue;
    }
    let box: TreeNode;
    if (kind === OP) {
      const home = boxForCall(ops.call[row], row);
      const atomic = home !== 0 && inside[ops.call[row]] === 1;
      box = atomic ? nodes[home] : newNode(builder, "op", home, row);
    } else {
      box = newNode(builder, kind === INPUT ? "input" : "output", 0, row);
    }
    box.rows = plus(box.rows, row);
    box.flags |= ops.flags[row];
    boxOf[row] = box.id;
  }
  for (const row of scene.opParams.op) if (boxOf[row] >= 0) nodes[boxOf[row]].hasParams = true;
  return callBox;
}

/** Place each buffer, constant or parameter in the smallest container around its consumers; a buffer that only one module reads, which
 * runs one operation, becomes part of that module's box. */
function placeBuffers(builder: Builder): void {
  const { scene, nodes, boxOf } = builder;
  const readers = new Map<number, number[]>();
  scene.edges.src.forEach((src, edge) => {
    if (!isState(scene.ops.kind[src])) return;
    const reader = boxOf[scene.edges.dst[edge]];
    if (reader >= 0) readers.get(src)?.push(reader) ?? readers.set(src, [reader]);
  });
  const touched = new Set<TreeNode>();
  for (const [row, boxes] of readers) {
    const kind = STATE[scene.ops.kind[row] - BUFFER];
    let home = nodes[boxes.reduce((a, b) => commonParent(nodes, a, b))];
    if (home.children.length === 0 && home.id !== 0 && !(kind === "buffer" && home.kind === "module")) home = nodes[home.parent];
    if (home.children.length === 0 && home.id !== 0) {
      boxOf[row] = home.id;
      home.buffers = plus(home.buffers, row);
      continue;
    }
    const box = newNode(builder, kind, home.id, boxes.reduce((least, b) => Math.min(least, orderIn(nodes, home.id, b)), Infinity) - 0.5);
    box.rows = [row];
    box.hasParams = kind === "parameter";
    boxOf[row] = box.id;
    touched.add(home);
  }
  for (const home of touched) home.children.sort((a, b) => nodes[a].order - nodes[b].order);
}

/** Return the order of the child of a container that a box is, or is in. */
function orderIn(nodes: TreeNode[], container: number, box: number): number {
  while (nodes[box].parent !== container) box = nodes[box].parent;
  return nodes[box].order;
}

function commonParent(nodes: TreeNode[], a: number, b: number): number {
  const above = new Set<number>();
  for (let n = a; n >= 0; n = nodes[n].parent) above.add(n);
  let n = b;
  while (!above.has(n)) n = nodes[n].parent;
  return n;
}

/** Visit boxes from the root downwards, each before its children: all children, none if `visit` returns false, or those that
 * it returns. */
export function preorder(nodes: TreeNode[], visit: (node: TreeNode) => boolean | number[] | void): void {
  const stack = [0];
  while (stack.length) {
    const node = nodes[stack.pop()!];
    const next = visit(node);
    if (next === false) continue;
    const inside = Array.isArray(next) ? next : node.children;
    for (let i = inside.length - 1; i >= 0; i--) stack.push(inside[i]);
  }
}

function setDepths(nodes: TreeNode[]): void {
  preorder(nodes, (node) => {
    node.depth = node.parent < 0 ? 0 : nodes[node.parent].depth + 1;
  });
}

/** Mark a module as failed if its code raised rather than an operation. */
function markFailedModule({ scene: { error, facts, ops, calls }, nodes }: Builder, callBox: Int32Array): void {
  const { module } = (facts?.raised ?? {}) as { module?: string };
  if (!error || !module || ops.flags.some((flags) => flags & FAILED)) return;
  const call = calls.address.findLastIndex((address) => address.replace(/:\d+$/, "") === module);
  const box = callBox[call] ?? -1;
  if (box > 0) nodes[box].flags |= FAILED;
}

/** Return whether a box is an operation that creates a tensor without tensor inputs, such as torch.zeros. */
export const isCreated = (node: TreeNode): boolean => (node.flags & CREATED) !== 0;
export const isFailed = (node: TreeNode): boolean => (node.flags & FAILED) !== 0;
