// Figures of boxes, summed over what is inside them, and how figures are written.
import type { Scene } from "./scene.ts";
import { preorder, type Tree, type TreeNode } from "./tree.ts";

export interface Figures {
  /** Nanoseconds, bytes of the tensors made, distinct parameters, and known floating point operations, by box. */
  time: Float64Array;
  flops: Float64Array;
  memory: Float64Array;
  parameters: Float64Array;
  operations: Int32Array;
}

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
    if (own) for (const param of own) parameters[id] += product(scene.params[param][1]);
    if (parent < 0) continue;
    for (const column of [time, flops, memory, operations]) column[parent] += column[id];
    if (own) {
      const above = (held[parent] ??= new Set());
      for (const param of own) above.add(param);
    }
  }
  return { time, memory, parameters, operations, flops };
}

export const product = (shape: number[]): number => shape.reduce((a, b) => a * b, 1);

export const dimensions = (shape: number[]): string => shape.join("×") || "scalar";

export function count(n: number): string {
  if (n < 1000) return String(n);
  for (const [unit, scale] of [["T", 1e12], ["B", 1e9], ["M", 1e6], ["K", 1e3]] as const) {
    if (n >= scale) return `${trim(n / scale)}${unit}`;
  }
  return String(n);
}

export function bytes(n: number): string {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let power = 0;
  while (n >= 1024 && power < units.length - 1) {
    n /= 1024;
    power++;
  }
  return `${power ? trim(n) : n} ${units[power]}`;
}

export function duration(ns: number): string {
  for (const [unit, scale] of [["s", 1e9], ["ms", 1e6], ["µs", 1e3]] as const) {
    if (ns >= scale) return `${trim(ns / scale)} ${unit}`;
  }
  return `${Math.round(ns)} ns`;
}

/** 12,345: a number with its thousands set apart. Intl does the same, and takes 25 ms to begin. */
export const grouped = (n: number): string => String(n).replace(/\B(?=(\d{3})+$)/g, ",");

export const plural = (n: number, noun: string): string => `${grouped(n)} ${noun}${n === 1 ? "" : "s"}`;

const trim = (n: number): string => (n >= 100 ? n.toFixed(0) : n.toFixed(1).replace(/\.0$/, ""));

/** A graph's totals in a line. */
export function totals({ totals: t }: Scene): string {
  const parts = [plural(t.operations, "operation"), plural(t.modules, "module")];
  if (t.parameters) parts.push(`${count(t.parameters)} parameters`, bytes(t.bytes));
  if (t.seconds) parts.push(duration(t.seconds * 1e9));
  return parts.join(" · ");
}
