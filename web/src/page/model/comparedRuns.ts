// Runs beside the one on show: which of their lines are drawn, and how each run is told apart. Pure.

import type { Chart, Series } from "./series.ts";
import { type Compared, runLabel } from "../state/state.ts";

const DASHES = [[7, 4], [2, 3], [11, 3, 2, 3], [4, 2], [14, 5], [2, 6], [8, 2, 2, 2, 2, 2], [20, 4], [5, 6]];
const MANY = 40; // lines; more are drawn as hairlines, and other runs' only for the layer in focus

export interface OtherLine {
  dash: number[];
  epochs: number[];
  series: Series;
}

/** Dashes of the `i`-th run compared. */
export function dash(i: number): number[] {
  return DASHES[i % DASHES.length] as number[];
}

export function keyLabel(key: string): string {
  const [run = "", model = ""] = JSON.parse(key) as string[];
  return runLabel({ run, model });
}

export function isMany(chart: Chart): boolean {
  return chart.series.length > MANY;
}

/** The layer in focus in every run compared; without one every layer, as long as they can be told apart. */
export function otherLines(chart: Chart, compared: Compared[], focus: string | null): OtherLine[] {
  const all = compared.flatMap(({ chart: { epochs, series } }, i) => series.map((s) => ({ dash: dash(i), epochs, series: s })));
  const focused = all.filter(({ series }) => series.address === focus);
  if (focused.length > 0) return focused;
  return all.length + chart.series.length > MANY || focus !== null ? [] : all;
}

/** What the runs compared say of a layer at an epoch: label and value of each that has one. */
export function othersAt(compared: Compared[], address: string, epoch: number | undefined): [string, number][] {
  return compared.flatMap(({ key, chart }) => {
    const value = chart.series.find((s) => s.address === address)?.value[chart.epochs.indexOf(epoch ?? NaN)];
    return value == null ? [] : [[keyLabel(key), value] as [string, number]];
  });
}
