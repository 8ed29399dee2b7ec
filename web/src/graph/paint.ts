// Paints: values by address, looked up for a box; and the paints a graph brings with it.
import { bytes, count, duration, type Figures } from "./facts.ts";
import { scaleColour } from "./colour.ts";
import type { Tree, TreeNode } from "./model.ts";

/** Values that colour the boxes, by address; null or absent means there is none, which is shown as such. */
export interface Paint {
  title: string;
  values: Map<string, number | null>;
  low: number;
  high: number;
  format?: (value: number) => string;
}

export type BuiltIn = "time" | "memory" | "parameters" | "flops";
export const BUILT_IN: Record<BuiltIn, string> = {
  time: "Time",
  memory: "Activation memory",
  parameters: "Parameters",
  flops: "FLOPs",
};

/** A paint of what the graph itself knows. Containers bear the sum of what is inside them, and so may lie
 * beyond the scale, which ends at the largest single box. */
export function builtInPaint(which: BuiltIn, tree: Tree, figures: Figures): Paint {
  const values = new Map<string, number | null>();
  const column = figures[which];
  const format = { time: duration, memory: bytes, parameters: count, flops: count }[which];
  let high = 0;
  for (const node of tree.nodes) {
    if (node.id === 0 || !node.address || (node.kind !== "op" && node.kind !== "module")) continue;
    if (which === "parameters" && !column[node.id]) continue;
    values.set(node.address, column[node.id]);
    if (node.children.length === 0) high = Math.max(high, column[node.id]);
  }
  return { title: BUILT_IN[which], values, low: 0, high, format };
}

/** The value of a box: under any of its names, and for a module called once more also under its path. */
export function valueOf(paint: Paint, node: TreeNode): number | null {
  for (const name of node.names) {
    const value = paint.values.get(name);
    if (value !== undefined) return finite(value);
  }
  for (const name of node.names) {
    const value = paint.values.get(name.replace(/:\d+$/, "")) ?? paint.values.get(`${name}:1`);
    if (value !== undefined) return finite(value);
  }
  return null;
}

const finite = (value: number | null): number | null => (value !== null && Number.isFinite(value) ? value : null);

export function colourOf(paint: Paint, value: number): string {
  const span = paint.high - paint.low;
  return scaleColour(span > 0 ? (value - paint.low) / span : 0.5);
}

export function formatValue(paint: Paint, value: number): string {
  if (paint.format) return paint.format(value);
  const size = Math.abs(value);
  if (value === 0) return "0";
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** Whether a box can be painted at all: inputs, outputs and buffers are not computed. */
export const isPaintable = (node: TreeNode): boolean => node.kind === "op" || node.kind === "module";
