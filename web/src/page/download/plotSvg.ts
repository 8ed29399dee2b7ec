// The plot as an SVG file without external resources.
import { epoch as epochText, plural, shown } from "../../ui/format.ts";
import { type Compared, dash, isMany, keyLabel, otherLines } from "../model/comparedRuns.ts";
import { type Crowd, crowdOf } from "../model/crowd.ts";
import type { Inks } from "../model/inks.ts";
import { addressLabel } from "../model/scoreLabels.ts";
import { baselines, type Chart, type Series } from "../model/series.ts";
import type { Center } from "../model/strength.ts";
import { type Frame, frameOf, stretches } from "../plot/frame.ts";
import { GRAY, LONE } from "../plot/marks.ts";
import { type PointMarks, pointMarks } from "../plot/pointMarks.ts";
import { tickText } from "../plot/scales.ts";

/** The contents of the picture beside the chart. */
export interface PlotOptions {
  title: string;
  subtitle: string;
  colours: Map<string, string>;
  /** The layer that is shown with its interval. */
  focus: string | null;
  inks: Inks;
  /** The center of the score, whose baseline is drawn on both of its sides. */
  center: Center;
  compared: Compared[];
  /** What is drawn of the layers of the chart. */
  crowd?: Crowd;
}

const HEIGHT = 540;
const BOX = { left: 64, top: 64, width: 660, height: 416 };
const LEGEND = { left: BOX.left + BOX.width + 24, top: BOX.top + 8 };

export function escape(text: string): string {
  const named: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return shown(text).replace(/[&<>"']/g, (c) => named[c] as string);
}

/** Return the chart with axes, baseline, the focused layer and a legend. */
export function plotSvg(chart: Chart, options: PlotOptions): string {
  const frame = frameOf([chart, ...options.compared.map((other) => other.chart)], BOX, options.center);
  const line = ({ value, positions }: Series, epochs = chart.epochs): string => path(value, epochs, frame, positions);
  const focused = chart.series.find((s) => s.address === options.focus);
  const { lines, bands } = options.crowd ?? crowdOf(chart, chart);
  const drawn = focused ? [...lines.filter((s) => s !== focused), focused] : lines; // the focused one is on top
  const key = legend(drawn, chart, options);
  const parts = [
    text(BOX.left, 28, options.title, `font-size="17" font-weight="600" fill="${options.inks.text}"`),
    text(BOX.left, 47, options.subtitle, `fill="${options.inks["text-soft"]}"`),
    ...frame.yTicks.map((v) => gridline(frame.y(v), tickText(v), options)),
    ...frame.xTicks.map((v) => text(frame.x(v), BOX.top + BOX.height + 20, epochText(v), `text-anchor="middle" fill="${options.inks["text-soft"]}"`)),
    text(BOX.left + BOX.width / 2, HEIGHT - 14, "epoch", `text-anchor="middle" fill="${options.inks["text-soft"]}"`),
    ...baselines(chart, focused, options.center).map((column) =>
      `<path d="${path(column, chart.epochs, frame, [], LONE)}" fill="none" stroke="${options.inks["text-soft"]}" stroke-dasharray="5 4"/>`,
    ),
    ...bands.map(({ low, high }) => bandPath(low, high, chart.epochs, frame, options.inks["text-soft"], GRAY)),
    ...drawn.map((s) => {
      const dim = focused && s !== focused ? ' opacity="0.25"' : "";
      return `<path d="${line(s)}" fill="none" stroke="${options.colours.get(s.address)}" stroke-width="${s === focused ? 2.75 : isMany(chart) ? 1 : 1.75}" stroke-linecap="round"${dim}/>`;
    }),
    ...otherLines(chart, options.compared, options.focus).map(({ dash, epochs, series }) =>
      `<path d="${line(series, epochs)}" fill="none" stroke="${options.colours.get(series.address) ?? options.inks["text-soft"]}" stroke-width="1.75" stroke-dasharray="${dash.join(" ")}"/>`,
    ),
    ...(focused ? [bandPath(focused.low, focused.high, chart.epochs, frame, options.colours.get(focused.address) ?? "", 0.18, focused.positions)] : []),
    drawMarks(pointMarks(frame, chart.epochs, focused ? [focused] : chart.series), options.inks.warning),
    ...key.rows,
  ];
  const width = Math.max(960, Math.ceil(key.right));
  const root = `xmlns="http://www.w3.org/2000/svg" width="${width}" height="${HEIGHT}" viewBox="0 0 ${width} ${HEIGHT}"`;
  const paper = `<rect width="100%" height="100%" fill="${options.inks.surface}"/>`;
  return `<svg ${root} font-family="Inter, Helvetica, Arial, sans-serif" font-size="12">${paper}${parts.join("")}</svg>`;
}

function text(x: number, y: number, words: string, attributes: string): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${attributes}>${escape(words)}</text>`;
}

function gridline(y: number, words: string, options: PlotOptions): string {
  const right = BOX.left + BOX.width;
  const rule = `<line x1="${BOX.left}" x2="${right}" y1="${y.toFixed(1)}" y2="${y.toFixed(1)}" stroke="${options.inks.line}"/>`;
  return rule + text(BOX.left - 8, y + 4, words, `text-anchor="end" fill="${options.inks["text-soft"]}"`);
}

/** Return a column as a path. A point between two gaps extends `lone` to either side. */
function path(column: (number | null)[], epochs: number[], { x, y }: Frame, kinds: boolean[] = [], lone = 0.05): string {
  const point = (i: number): string => `${x(epochs[i] as number).toFixed(1)} ${y(column[i] as number).toFixed(1)}`;
  return stretches(column.length, (i) => column[i] != null, kinds)
    .map((at) => `M${at.map(point).join("L")}${at.length === 1 ? `m${-lone} 0h${2 * lone}` : ""}`)
    .join("");
}

function bandPath(low: (number | null)[], high: (number | null)[], epochs: number[], { x, y }: Frame, colour: string, opacity: number, kinds: boolean[] = []): string {
  const areas = stretches(low.length, (i) => low[i] != null && high[i] != null, kinds).map((at) => {
    const point = (column: (number | null)[]) => (i: number): string =>
      `${x(epochs[i] as number).toFixed(1)} ${y(column[i] as number).toFixed(1)}`;
    const [first] = at as [number];
    if (at.length === 1) return `M${point(high)(first)}m${-LONE} 0h${2 * LONE}V${y(low[first] as number).toFixed(1)}h${-2 * LONE}Z`;
    return `M${at.map(point(high)).join("L")}L${[...at].reverse().map(point(low)).join("L")}Z`;
  });
  return `<path d="${areas.join("")}" fill="${colour}" opacity="${opacity}"/>`;
}

/** Return the marks: a ring around a point computed from part of the rows, a diamond around one that changed when it was scored
 * again, and a cross at the bottom for one without a value. */
function drawMarks({ missing, partial, revised }: PointMarks, ink: string): string {
  const all = (places: PointMarks["missing"], shape: string): string => [...places.values()].map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}${shape}`).join("");
  const rings = all(partial, "m6 0a6 6 0 1 0-12 0a6 6 0 1 0 12 0");
  const paths = [all(missing, "m-3 -3l6 6m0 -6l-6 6"), rings, all(revised, "m0 -9l9 9l-9 9l-9 -9z")].filter(Boolean);
  return `<g fill="none" stroke="${ink}" stroke-width="1.5">${paths.map((d) => `<path d="${d}"/>`).join("")}</g>`;
}

/** Return the legend: the compared runs, then all lines and how many layers have none, in as many columns as needed. */
function legend(drawn: Series[], chart: Chart, options: PlotOptions): { rows: string[]; right: number } {
  const runs = options.compared.map(({ key }, i) => ({ name: keyLabel(key), ink: options.inks["text-soft"], dash: dash(i).join(" ") }));
  const named = new Set(drawn);
  const rest = chart.series.length - named.size;
  const layers = chart.series.filter((s) => named.has(s)).map((s) => ({ name: addressLabel(s.address), ink: options.colours.get(s.address) ?? "", dash: "" }));
  const others = rest ? [{ name: `${plural(rest, "other layer")} (gray)`, ink: options.inks["text-soft"], dash: "" }] : [];
  const entries = [...runs, ...layers, ...others];
  const [high, size] = entries.length > 22 ? [12, 9] : [18, 12];
  const deep = Math.floor((BOX.height + 12) / high);
  const wide = 40 + 0.62 * size * Math.max(0, ...entries.map(({ name }) => name.length));
  const rows = entries.map(({ name, ink, dash }, i) => {
    const [left, y] = [LEGEND.left + Math.floor(i / deep) * wide, LEGEND.top + (i % deep) * high];
    const dashed = dash && ` stroke-dasharray="${dash}"`;
    const rule = `<line x1="${left.toFixed(1)}" x2="${(left + 16).toFixed(1)}" y1="${y}" y2="${y}" stroke="${ink}" stroke-width="3"${dashed}/>`;
    return rule + text(left + 24, y + size / 3, name, `font-size="${size}" fill="${options.inks.text}"`);
  });
  return { rows, right: LEGEND.left + Math.ceil(entries.length / deep) * wide };
}
