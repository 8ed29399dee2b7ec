// The figures of boxes, summed over their contents.
import { bytes, count, duration, plural } from "../../ui/format.ts";
import type { Scene } from "./scene.ts";
import { preorder, type Tree, type TreeNode } from "./tree.ts";

export interface Figures {
  /** By box: nanoseconds, known floating point operations, bytes of activations, and the size of distinct parameters. */
  time: Float64Array;
  flops: Float64Array;
  memory: Float64Array;
  parameters: Float64Array;
  operations: Int32Array;
}

/** Compute the figures of all boxes. */
export function figures(tree: Tree): Figures {
  const { scene, nodes, boxOf } = tree;
  const size = nodes.length;
  const time = new Float64Array(size);
  const memory = new Float64Array(size);
  const flops = new Float64Array(size);
  const parameters = new Float64Array(size);
  const operations = new Int32Array(size);
  const held: Array<Set<number> | undefined> = new Array(size);
  for (const node of nodes) {
    for (const row of node.rows) {
      time[node.id] += scene.ops.time[row];
      flops[node.id] += scene.ops.flops[row] ?? 0;
      if (scene.ops.kind[row] === 0) memory[node.id] += scene.metas[scene.ops.meta[row]][3] * node.passes;
    }
    if (node.rows.length && scene.ops.kind[node.rows[0]] === 0) operations[node.id] = node.passes;
  }
  scene.opParams.op.forEach((row, i) => {
    if (boxOf[row] >= 0) (held[boxOf[row]] ??= new Set()).add(scene.opParams.param[i]);
  });
  const order: TreeNode[] = [];
  preorder(nodes, (node) => void order.push(node));
  for (let i = order.length - 1; i >= 0; i--) {
    const { id, parent } = order[i];
    const own = held[id];
    if (own) parameters[id] = elements([...own].map((param) => scene.params[param][1]));
    if (parent < 0) continue;
    for (const column of [time, flops, memory, operations]) column[parent] += column[id];
    if (own) {
      const above = (held[parent] ??= new Set());
      for (const param of own) above.add(param);
    }
  }
  return { time, memory, parameters, operations, flops };
}

/** Return the number of elements of parameters; 0, which is not shown, if a length of one is not known. */
const elements = (shapes: number[][]): number =>
  shapes.flat().some((length) => length < 0) ? 0 : shapes.reduce((sum, shape) => sum + product(shape), 0);

export const product = (shape: number[]): number => shape.reduce((a, b) => a * b, 1);

/** Format a shape; a negative length is not known. */
export const dimensions = (shape: number[]): string => shape.map((length) => (length < 0 ? "?" : length)).join("×") || "scalar";

/** Format a graph's totals: what ran, and what it holds. */
export function totals({ totals: t }: Scene): [ran: string, holds: string] {
  const ran = [plural(t.operations, "operation"), plural(t.modules, "module")];
  if (t.seconds) ran.push(duration(t.seconds * 1e9));
  const holds = [`${plural(t.tensors, "tensor")} (${bytes(t.tensorBytes)})`];
  if (t.parameters) holds.push(`${count(t.parameters)} parameters (${bytes(t.bytes ?? 0)})`);
  else if (t.parameters === null) holds.push("? parameters");
  return [ran.join(" · "), holds.join(" · ")];
}
