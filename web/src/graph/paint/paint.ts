// Paints: values by address that color the boxes, and the paints that a graph provides itself.
import { scaleColour } from "../../ui/colour.ts";
import { bytes, count, duration } from "../../ui/format.ts";
import { isFold } from "../model/captions.ts";
import type { Figures } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import { preorder, type Tree, type TreeNode } from "../model/tree.ts";
import { badParams, summaryOf } from "../panel/values.ts";
import type { CanvasTheme } from "./colour.ts";
import { shareOf } from "./scale.ts";

/** Values that color the boxes, by address; null or absent means that the value is missing, which is shown. */
export interface Paint {
  title: string;
  values: Map<string, number | null>;
  low: number;
  high: number;
  format?: (value: number) => string;
  /** Of values that count on both sides of a center: the distance from it, which colors the box, and which the ends are of. */
  strength?: (value: number) => number;
  /** Whether the scale is logarithmic, and the least positive value (see scale.ts). */
  log?: boolean;
  least?: number;
  /** Of a paint that the graph provides, by box: the value, NaN if it is missing, and the value that colors the box, which for a
   * module or a fold is that of the operation inside with the highest value. */
  byBox?: { values: Float64Array; shades: Float64Array };
  /** Whether zero leaves a box its own color, and anything above is hot. */
  hot?: boolean;
  /** A remark for the legend. */
  note?: string;
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

/** Return a built-in paint. Its scale is that of operations; a module, whose value is a sum, has the color of the operation
 * inside with the highest value. */
export function builtInPaint(which: BuiltIn, tree: Tree, figures: Figures): Paint {
  const values = new Map<string, number | null>();
  const format = { time: duration, memory: bytes, parameters: count, flops: count, nan: count }[which as string];
  const column = which in SUMS ? figures[which as keyof typeof SUMS] : ofValues(which as keyof typeof OF_VALUES, tree);
  const hot = which === "nan";
  let [low, high] = [which in SUMS || which === "zero" ? 0 : Infinity, which === "zero" ? 1 : -Infinity];
  for (const node of tree.nodes) {
    const value = column[node.id];
    if (node.id === 0 || !node.address || !isPaintable(node) || Number.isNaN(value)) continue;
    if (which === "parameters" && !value) continue;
    values.set(node.address, value);
    if (node.children.length === 0 && (value || !hot)) [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  const paint: Paint = { title: TITLES[which], values, low, high, format, ...(which === "zero" && { log: false }) };
  if (hot) Object.assign(paint, { hot, first: firstBad(tree), note: "Boxes without any keep their color" }, high < low && { low: 0, high: 0 });
  else if (which in SUMS) paint.note = "A module has the color of its costliest operation";
  if (paint.note) paint.byBox = { values: column, shades: mostInside(tree, column) };
  return paint;
}

/** Return for every box the highest value of a box without children inside it, or its own value. */
function mostInside({ nodes }: Tree, column: Float64Array): Float64Array {
  const most = column.map((value, id) => (nodes[id].children.length ? NaN : value));
  const order: TreeNode[] = [];
  preorder(nodes, (node) => void order.push(node));
  for (const { id, parent } of order.reverse()) if (parent >= 0 && !(most[id] <= most[parent])) most[parent] = Number.isNaN(most[id]) ? most[parent] : most[id];
  return most;
}

/** Return the first row with NaN, in its value or in a parameter, or if there is none the first with infinities. */
function firstBad({ scene, boxOf }: Tree): number | undefined {
  const { row, ...columns } = scene.values!;
  const bad = badParams(scene);
  const { op, param } = scene.opParams;
  const first = (which: "nan" | "inf"): number => {
    const rows = [...row.filter((_, i) => columns[which][i]), ...op.filter((_, i) => bad.get(param[i])?.[which === "nan" ? 0 : 1])];
    return rows.filter((at) => boxOf[at] >= 0).reduce((least, at) => Math.min(least, at), Infinity);
  };
  return [first("nan"), first("inf")].find(Number.isFinite);
}

/** Return a statistic of every box's value, NaN if it is missing; counts of NaN include parameters and are summed over the
 * contents. */
function ofValues(which: keyof typeof OF_VALUES, { scene, nodes, boxOf }: Tree): Float64Array {
  const column = new Float64Array(nodes.length).fill(NaN);
  const bad = badParams(scene);
  const inParams = new Map<number, Set<number>>();
  scene.opParams.op.forEach((row, i) => {
    const param = scene.opParams.param[i];
    if (bad.has(param)) inParams.set(boxOf[row], (inParams.get(boxOf[row]) ?? new Set()).add(param));
  });
  const order: TreeNode[] = [];
  preorder(nodes, (node) => void order.push(node));
  for (const { id, parent, rows } of order.reverse()) {
    const summary = rows.length ? summaryOf(scene, rows[0]) : null;
    if (summary) column[id] = which === "nan" ? summary.nan + summary.inf : (summary[which] ?? NaN);
    if (which === "nan") for (const param of inParams.get(id) ?? []) column[id] = bad.get(param)!.reduce((sum, count) => sum + count, column[id] || 0);
    if (which === "nan" && parent >= 0 && !Number.isNaN(column[id])) column[parent] = (column[parent] || 0) + column[id];
  }
  return column;
}

/** Return the value of a box by any of its names, with and without the number of a call or pass. */
export function valueOf(paint: Paint, node: TreeNode): number | null {
  if (paint.byBox && isFold(node)) return finite(paint.byBox.values[node.id]);
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
export const colourOf = (paint: Paint, value: number): string => scaleColour(shareOf(paint, value), paint.hot);

/** Format a value. */
export function formatValue(paint: Paint, value: number): string {
  if (paint.format) return paint.format(value);
  const size = Math.abs(value);
  if (value === 0) return "0";
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** Return whether a box can be painted; inputs, outputs and buffers are not computed and cannot. */
export const isPaintable = (node: TreeNode, paint?: Paint): boolean => node.kind === "op" || node.kind === "module" || (paint?.byBox !== undefined && isFold(node));
