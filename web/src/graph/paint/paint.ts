// Paints: values by address that color the boxes, and the paints that a graph provides itself.
import { scaleColour } from "../../ui/colour.ts";
import { bytes, count, duration } from "../../ui/format.ts";
import type { Figures } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import { preorder, type Tree, type TreeNode } from "../model/tree.ts";
import { summaryOf } from "../panel/values.ts";
import type { CanvasTheme } from "./colour.ts";
import { shareOf } from "./scale.ts";

/** Values that color the boxes, by address; null or absent means that the value is missing, which is shown. */
export interface Paint {
  title: string;
  values: Map<string, number | null>;
  low: number;
  high: number;
  format?: (value: number) => string;
  /** Whether the scale is logarithmic, and the least positive value (see scale.ts). */
  log?: boolean;
  least?: number;
  /** A row to go to: the first with NaN or infinities. */
  first?: number;
  /** Categories instead of a scale, with the theme's color of each (undefined: no color). A value is an index into them, and
   * the highest of a box's names counts. */
  kinds?: [word: string, token: keyof CanvasTheme | undefined][];
  /** The category whose boxes are also hatched, to be distinguished without color, and which boxes these are. */
  hatched?: [word: string, has: (node: TreeNode) => boolean];
  /** Facts that the panel shows for a box instead of its value. */
  facts?: (node: TreeNode) => [string, string][];
}

const SUMS = { time: "Time", memory: "Activation memory", parameters: "Parameters", flops: "FLOPs" };
const OF_VALUES = { mean: "Mean of values", std: "Standard deviation", zero: "Fraction of zeros", nan: "NaN and infinite" };
export type BuiltIn = keyof typeof SUMS | keyof typeof OF_VALUES;
/** The name of a paint: a built-in one, the one given from outside, or none. */
export type PaintName = BuiltIn | "given" | "";
export const TITLES: Record<BuiltIn, string> = { ...SUMS, ...OF_VALUES };

/** Return the paints that a graph provides: costs of operations and, if they were saved, values. */
export const builtIns = ({ values }: Scene): [BuiltIn, string][] =>
  Object.entries({ ...SUMS, ...(values?.row.length ? OF_VALUES : {}) }) as [BuiltIn, string][];

/** Return a built-in paint. The scale ends at the largest box without children, so the sums of containers may exceed it. */
export function builtInPaint(which: BuiltIn, tree: Tree, figures: Figures): Paint {
  const values = new Map<string, number | null>();
  const format = { time: duration, memory: bytes, parameters: count, flops: count, nan: count }[which as string];
  const column = which in SUMS ? figures[which as keyof typeof SUMS] : ofValues(which as keyof typeof OF_VALUES, tree);
  let [low, high] = [which in SUMS || which === "nan" || which === "zero" ? 0 : Infinity, which === "zero" ? 1 : -Infinity];
  for (const node of tree.nodes) {
    const value = column[node.id];
    if (node.id === 0 || !node.address || !isPaintable(node) || Number.isNaN(value)) continue;
    if (which === "parameters" && !value) continue;
    values.set(node.address, value);
    if (node.children.length === 0) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  const first = which === "nan" ? firstBad(tree) : undefined;
  return { title: TITLES[which], values, low, high, format, first, ...(which === "zero" && { log: false }) };
}

/** Return the first row with NaN, or if there is none the first with infinities. */
function firstBad({ scene, boxOf }: Tree): number | undefined {
  const { row, nan, inf } = scene.values!;
  const places = [...row.keys()].filter((i) => boxOf[row[i]] >= 0).sort((a, b) => row[a] - row[b]);
  const place = places.find((i) => nan[i] > 0) ?? places.find((i) => inf[i] > 0);
  return place === undefined ? undefined : row[place];
}

/** Return a statistic of every box's value, NaN if it is missing; counts of NaN are summed over the contents. */
function ofValues(which: keyof typeof OF_VALUES, { scene, nodes }: Tree): Float64Array {
  const column = new Float64Array(nodes.length).fill(NaN);
  const order: TreeNode[] = [];
  preorder(nodes, (node) => void order.push(node));
  for (const { id, parent, rows } of order.reverse()) {
    const summary = rows.length ? summaryOf(scene, rows[0]) : null;
    if (summary) column[id] = which === "nan" ? summary.nan + summary.inf : (summary[which] ?? NaN);
    if (which === "nan" && parent >= 0 && !Number.isNaN(column[id])) column[parent] = (column[parent] || 0) + column[id];
  }
  return column;
}

/** Return the value of a box by any of its names, with and without the number of a call or pass. */
export function valueOf(paint: Paint, node: TreeNode): number | null {
  if (paint.kinds) return Math.max(...node.names.map((name) => paint.values.get(name) ?? 0), 0) || null;
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

/** Return the color of a value. */
export const colourOf = (paint: Paint, value: number): string => scaleColour(shareOf(paint, value));

/** Format a value. */
export function formatValue(paint: Paint, value: number): string {
  if (paint.format) return paint.format(value);
  const size = Math.abs(value);
  if (value === 0) return "0";
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** Return whether a box can be painted; inputs, outputs and buffers are not computed and cannot. */
export const isPaintable = (node: TreeNode): boolean => node.kind === "op" || node.kind === "module";
