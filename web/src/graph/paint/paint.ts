// Paints: values by address, looked up for a box; and the paints a graph brings with it.
import { bytes, count, duration, type Figures } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import { preorder, type Tree, type TreeNode } from "../model/tree.ts";
import { summaryOf } from "../panel/values.ts";
import { type CanvasTheme, scaleColour } from "./colour.ts";
import { shareOf } from "./scale.ts";

/** Values that colour the boxes, by address; null or absent means there is none, which is shown as such. */
export interface Paint {
  title: string;
  values: Map<string, number | null>;
  low: number;
  high: number;
  format?: (value: number) => string;
  /** Whether colour goes by power rather than by amount, and the least amount above zero (see scale.ts). */
  log?: boolean;
  least?: number;
  /** A row to go to: the first that is not a number. */
  first?: number;
  /** A few kinds instead of a scale, with the theme's colour of each (none: left plain): a value is an index into
   * them, and the highest of a box's names counts. */
  kinds?: [word: string, token: keyof CanvasTheme | undefined][];
  /** Which boxes are hatched in their colour, told apart without it, and the kind that says so in the legend. */
  hatched?: [word: string, has: (node: TreeNode) => boolean];
  /** What the panel says of a box instead of its value. */
  facts?: (node: TreeNode) => [string, string][];
}

const SUMS = { time: "Time", memory: "Activation memory", parameters: "Parameters", flops: "FLOPs" };
const OF_VALUES = { mean: "Mean of values", std: "Spread of values", zero: "Share of zeros", nan: "NaN and infinite" };
export type BuiltIn = keyof typeof SUMS | keyof typeof OF_VALUES;
/** What colours the boxes: something the graph knows, what came from outside, or nothing. */
export type PaintName = BuiltIn | "given" | "";
export const TITLES: Record<BuiltIn, string> = { ...SUMS, ...OF_VALUES };

/** The paints a graph brings with it: of what its operations cost, and of its values where these were saved. */
export const builtIns = ({ values }: Scene): [BuiltIn, string][] =>
  Object.entries({ ...SUMS, ...(values?.row.length ? OF_VALUES : {}) }) as [BuiltIn, string][];

/** A paint of what the graph itself knows. Where containers bear the sum of what is inside them, they may lie
 * beyond the scale, which ends at the largest single box. */
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

/** The first row that holds NaN; where none does, the first that holds infinities. */
function firstBad({ scene, boxOf }: Tree): number | undefined {
  const { row, nan, inf } = scene.values!;
  const places = [...row.keys()].filter((i) => boxOf[row[i]] >= 0).sort((a, b) => row[a] - row[b]);
  const place = places.find((i) => nan[i] > 0) ?? places.find((i) => inf[i] > 0);
  return place === undefined ? undefined : row[place];
}

/** A figure of every box's value, NaN where there is none; how many are no numbers is summed over what is inside. */
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

/** The value of a box: under any of its names, and for a module called once more also under its path. */
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

export const colourOf = (paint: Paint, value: number): string => scaleColour(shareOf(paint, value));

export function formatValue(paint: Paint, value: number): string {
  if (paint.format) return paint.format(value);
  const size = Math.abs(value);
  if (value === 0) return "0";
  return size >= 1e5 || size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
}

/** Whether a box can be painted at all: inputs, outputs and buffers are not computed. */
export const isPaintable = (node: TreeNode): boolean => node.kind === "op" || node.kind === "module";
