// Very many layers in one plot: bands that span all of them, and the lines of some.
import { grouped, plural } from "../../ui/format.ts";
import type { Chart, Series } from "./series.ts";

const MOST = 200; // layers that are all drawn as lines
const SOME = 40; // lines that are drawn of more layers

/** An area between two columns of values. */
export interface Band {
  low: (number | null)[];
  high: (number | null)[];
}

/** What a plot shows of its layers. */
export interface Crowd {
  /** The layers that have a line: all, or some from the first to the last. */
  lines: Series[];
  /** None if the run has few layers; else the range of all its layers, and the middle half of those that match if they are many. */
  bands: Band[];
}

/** Return what to draw of the layers that match the filter, among all layers of a run. */
export function crowdOf(chart: Chart, all: Chart): Crowd {
  const { series } = chart;
  const crowded = series.length > MOST;
  const lines = crowded ? Array.from({ length: SOME }, (_, i) => series[Math.round((i * (series.length - 1)) / (SOME - 1))] as Series) : series;
  if (all.units || all.series.length <= MOST) return { lines, bands: [] };
  return { lines, bands: [range(all), ...(crowded ? [middleHalf(chart)] : [])] };
}

function range({ epochs, series }: Chart): Band {
  const band: Band = { low: epochs.map(() => null), high: epochs.map(() => null) };
  for (const { value } of series)
    value.forEach((x, i) => {
      if (x === null) return;
      band.low[i] = Math.min(x, band.low[i] ?? x);
      band.high[i] = Math.max(x, band.high[i] ?? x);
    });
  return band;
}

function middleHalf({ epochs, series }: Chart): Band {
  const sorted = epochs.map((_, i) => Float64Array.from(series.flatMap(({ value }) => value[i] ?? [])).sort());
  const at = (share: number): (number | null)[] => sorted.map((values) => values[Math.round(share * (values.length - 1))] ?? null);
  return { low: at(0.25), high: at(0.75) };
}

/** Return what the gray bands and the lines of a plot are; "" if it has no bands. `shown` layers match the filter. */
export function crowdText({ lines, bands }: Crowd, shown: number, all: number): string {
  if (bands.length === 0) return "";
  const gray = `Gray: the range of all ${plural(all, "layer")}`;
  if (bands.length === 1) return `${gray}.`;
  return `${gray}, darker the middle half${shown === all ? "" : ` of the ${grouped(shown)}`}. Lines: ${lines.length} from input to output; point, select or filter to see others.`;
}
