// Summaries of saved activations: statistics and a histogram for a row of the scene.
import { el, svg } from "../../ui/dom.ts";
import { grouped } from "../../ui/format.ts";
import { product } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import { type Thumbnail, thumbnailOf } from "./thumbnail.ts";

export interface Summary {
  mean: number | null;
  std: number | null;
  low: number | null;
  high: number | null;
  nan: number;
  inf: number;
  /** The fraction of the finite values that are zero. */
  zero: number | null;
  /** Counts of equally wide bins from low to high; empty without finite values. */
  histogram: number[];
  picture?: Thumbnail | null;
}

const placesByScene = new WeakMap<Scene, Map<number, number>>();

/** Return the summary of a row's value; null if it was not saved. */
export function summaryOf(scene: Scene, row: number): Summary | null {
  const { values } = scene;
  if (!values) return null;
  let places = placesByScene.get(scene);
  if (!places) placesByScene.set(scene, (places = new Map(values.row.map((at, i) => [at, i]))));
  const i = places.get(row);
  if (i === undefined) return null;
  const { params, ...columns } = values;
  return Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, column[i]])) as unknown as Summary;
}

/** Return the number of NaN and infinite elements of each parameter that has any. */
export function badParams({ values }: Scene): Map<number, [nan: number, inf: number]> {
  const { param = [], nan, inf } = values?.params ?? {};
  return new Map(param.flatMap((index, i) => (nan![i] + inf![i] ? [[index, [nan![i], inf![i]]]] : [])));
}

/** Name counts of NaN and infinite elements; "" without any. */
export const badText = (nan: number, inf: number): string => [nan && `${grouped(nan)} NaN`, inf && `${grouped(inf)} infinite`].filter(Boolean).join(", ");

/** Format a statistic. */
export function figure(value: number | null): string {
  if (value === null) return "none";
  const size = Math.abs(value);
  if (value === 0) return "0";
  return size >= 1e5 || size < 1e-3 ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

/** Return the statistics and the picture of a row's value for the panel; null if it was not saved. */
export function valueOfRow(scene: Scene, row: number): HTMLElement | null {
  const summary = summaryOf(scene, row);
  if (!summary) return null;
  const { mean, std, low, high, nan, inf, zero, picture } = summary;
  const isOne = product(scene.metas[scene.ops.meta[row]][0]) === 1;
  const bad = badText(nan, inf);
  const rows: [string, string][] = [];
  if (low !== null && low === high) rows.push([isOne ? "Number" : "All values", figure(low)]);
  else if (low !== null) rows.push(["Mean", figure(mean)], ["Std", figure(std)], ["Range", `${figure(low)} … ${figure(high)}`]);
  if (zero && low !== high) rows.push(["Zeros", zero < 0.0005 ? "under 0.1 %" : `${(zero * 100).toPrecision(3)} %`]);
  if (picture?.numbers) rows.push(["Values", picture.numbers]);
  const list = el("dl", {});
  for (const [name, text] of rows) list.append(el("dt", {}, name), el("dd", {}, text));
  return el("section", {}, el("h3", {}, "Value"), bad && el("p", { class: "ig-bad" }, bad), picture?.pixels && thumbnailOf(picture), histogram(summary), list);
}

const [WIDTH, HEIGHT] = [264, 56];

function histogram({ histogram: counts, low, high }: Summary): SVGSVGElement | null {
  const most = Math.max(...counts, 0);
  if (!most) return null;
  const step = WIDTH / counts.length;
  const bars = counts.map((n, i) => {
    const height = n ? Math.max(1.5, (n / most) * HEIGHT) : 0;
    return svg("rect", { x: (i * step + 0.5).toFixed(2), y: (HEIGHT - height).toFixed(2), width: (step - 1).toFixed(2), height: height.toFixed(2) });
  });
  const label = `Histogram of ${counts.length} bins from ${figure(low)} to ${figure(high)}`;
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "ig-histogram", role: "img", "aria-label": label }, ...bars);
}
