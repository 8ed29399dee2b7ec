// The runs compared with the current one: which of their lines are drawn, and how.
import { shown } from "../../ui/format.ts";
import type { Chart, Series } from "./series.ts";

/** The chart of another run. */
export interface Compared {
  key: string;
  chart: Chart;
}

const DASHES = [[7, 4], [2, 3], [11, 3, 2, 3], [4, 2], [14, 5], [2, 6], [8, 2, 2, 2, 2, 2], [20, 4], [5, 6]];
const MANY = 40; // with more lines, all are thin, and those of other runs are drawn only for the focused layer

export interface OtherLine {
  dash: number[];
  epochs: number[];
  series: Series;
}

/** Return a run and its model as one text, for a picker's value and the address bar. */
export function runKey({ run, model }: { run: string; model: string }): string {
  return JSON.stringify([run, model]);
}

/** Return the run and the model of a key. */
export function runOfKey(key: string): { run: string; model: string } {
  const [run = "", model = ""] = JSON.parse(key) as string[];
  return { run, model };
}

export function runLabel({ run, model }: { run: string; model: string }): string {
  return shown(model === run || !model ? run : `${run} · ${model}`);
}

export const keyLabel = (key: string): string => runLabel(runOfKey(key));

/** Return the dashes of the `i`-th compared run. */
export function dash(i: number): number[] {
  return DASHES[i % DASHES.length] as number[];
}

export function isMany(chart: Chart): boolean {
  return chart.series.length > MANY;
}

/** Return the lines of other runs to draw: those of the focused layer; without one those of all layers, unless they are too many. */
export function otherLines(chart: Chart, compared: Compared[], focus: string | null): OtherLine[] {
  const all = compared.flatMap(({ chart: { epochs, series } }, i) => series.map((s) => ({ dash: dash(i), epochs, series: s })));
  const focused = all.filter(({ series }) => series.address === focus);
  if (focused.length > 0) return focused;
  return all.length + chart.series.length > MANY || focus !== null ? [] : all;
}

/** Return the label and the value of each compared run that has a value of a layer at an epoch. */
export function othersAt(compared: Compared[], address: string, epoch: number | undefined): [string, number][] {
  return compared.flatMap(({ key, chart }) => {
    const value = chart.series.find((s) => s.address === address)?.value[chart.epochs.indexOf(epoch ?? NaN)];
    return value == null ? [] : [[keyLabel(key), value] as [string, number]];
  });
}
