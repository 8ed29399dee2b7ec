// The plot as a picture for a paper or a talk: one SVG that needs nothing else. Pure.

import { dash, isMany, keyLabel, otherLines } from "../model/comparedRuns.ts";
import { epoch as epochText } from "../../ui/format.ts";
import { type Frame, frameOf, stretches } from "../plot/frame.ts";
import { tickText } from "../plot/scales.ts";
import { type Chart, highestBaseline, type Series } from "../model/series.ts";
import type { Compared } from "../state/state.ts";
import { addressLabel } from "../model/scoreLabels.ts";

export interface Look {
  title: string;
  subtitle: string;
  colours: Map<string, string>;
  /** The layer to show with its interval. */
  focus: string | null;
  text: string;
  soft: string;
  line: string;
  background: string;
  warning: string;
  compared: Compared[];
}

const HEIGHT = 540;
const BOX = { left: 64, top: 64, width: 660, height: 416 };
const LONE = 10; // that an interval or baseline of one epoch alone reaches to either side
const LEGEND = { left: BOX.left + BOX.width + 24, top: BOX.top + 8 };

export function escape(text: string): string {
  const named: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  // one character that XML forbids would make the whole file unreadable
  return text.replace(/[&<>"']/g, (c) => named[c] as string).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd");
}

/** The chart with axes, baseline, the layer in focus and a legend. */
export function plotSvg(chart: Chart, look: Look): string {
  const frame = frameOf([chart, ...look.compared.map((other) => other.chart)], BOX);
  const line = (column: (number | null)[], epochs = chart.epochs): string => path(column, epochs, frame);
  const key = legend(chart, look);
  const focused = chart.series.find((s) => s.address === look.focus);
  const baseline = focused ? focused.baseline : highestBaseline(chart.series, chart.epochs.length);
  const parts = [
    text(BOX.left, 28, look.title, `font-size="17" font-weight="600" fill="${look.text}"`),
    text(BOX.left, 47, look.subtitle, `fill="${look.soft}"`),
    ...frame.yTicks.map((v) => gridline(frame.y(v), tickText(v), look)),
    ...frame.xTicks.map((v) => text(frame.x(v), BOX.top + BOX.height + 20, epochText(v), `text-anchor="middle" fill="${look.soft}"`)),
    text(BOX.left + BOX.width / 2, HEIGHT - 14, "epoch", `text-anchor="middle" fill="${look.soft}"`),
    `<path d="${path(baseline, chart.epochs, frame, LONE)}" fill="none" stroke="${look.soft}" stroke-dasharray="5 4"/>`,
    ...chart.series.map((s) => {
      const dim = focused && s !== focused ? ' opacity="0.25"' : "";
      return `<path d="${line(s.value)}" fill="none" stroke="${look.colours.get(s.address)}" stroke-width="${s === focused ? 2.75 : isMany(chart) ? 1 : 1.75}" stroke-linecap="round"${dim}/>`;
    }),
    ...otherLines(chart, look.compared, look.focus).map(({ dash, epochs, series }) =>
      `<path d="${line(series.value, epochs)}" fill="none" stroke="${look.colours.get(series.address) ?? look.soft}" stroke-width="1.75" stroke-dasharray="${dash.join(" ")}"/>`,
    ),
    ...(focused ? [bandPath(focused.low, focused.high, chart.epochs, frame, look.colours.get(focused.address) ?? "")] : []),
    doubts(focused ? [focused] : chart.series, chart.epochs, frame, look.warning),
    ...key.rows,
  ];
  const width = Math.max(960, Math.ceil(key.right));
  const root = `xmlns="http://www.w3.org/2000/svg" width="${width}" height="${HEIGHT}" viewBox="0 0 ${width} ${HEIGHT}"`;
  const paper = `<rect width="100%" height="100%" fill="${look.background}"/>`;
  return `<svg ${root} font-family="Inter, Helvetica, Arial, sans-serif" font-size="12">${paper}${parts.join("")}</svg>`;
}

function text(x: number, y: number, words: string, attributes: string): string {
  return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${attributes}>${escape(words)}</text>`;
}

function gridline(y: number, words: string, look: Look): string {
  const right = BOX.left + BOX.width;
  const rule = `<line x1="${BOX.left}" x2="${right}" y1="${y.toFixed(1)}" y2="${y.toFixed(1)}" stroke="${look.line}"/>`;
  return rule + text(BOX.left - 8, y + 4, words, `text-anchor="end" fill="${look.soft}"`);
}

/** A point alone between two gaps reaches `lone` to each side. */
function path(column: (number | null)[], epochs: number[], { x, y }: Frame, lone = 0.05): string {
  const point = (i: number): string => `${x(epochs[i] as number).toFixed(1)} ${y(column[i] as number).toFixed(1)}`;
  return stretches(column.length, (i) => column[i] != null)
    .map((at) => `M${at.map(point).join("L")}${at.length === 1 ? `m${-lone} 0h${2 * lone}` : ""}`)
    .join("");
}

function bandPath(low: (number | null)[], high: (number | null)[], epochs: number[], { x, y }: Frame, colour: string): string {
  const areas = stretches(low.length, (i) => low[i] != null && high[i] != null).map((at) => {
    const point = (column: (number | null)[]) => (i: number): string =>
      `${x(epochs[i] as number).toFixed(1)} ${y(column[i] as number).toFixed(1)}`;
    const [first] = at as [number];
    if (at.length === 1) return `M${point(high)(first)}m${-LONE} 0h${2 * LONE}V${y(low[first] as number).toFixed(1)}h${-2 * LONE}Z`;
    return `M${at.map(point(high)).join("L")}L${[...at].reverse().map(point(low)).join("L")}Z`;
  });
  return `<path d="${areas.join("")}" fill="${colour}" opacity="0.18"/>`;
}

/** A ring round what stands on part of the rows, a diamond round what was found anew to be something else, a cross at
 * the foot for what has no value. */
function doubts(series: Series[], epochs: number[], { x, y, top, height }: Frame, ink: string): string {
  const marks = series.flatMap(({ value, note, part, revision }) =>
    note.map((text, i) => {
      const across = x(epochs[i] as number).toFixed(1);
      if (value[i] == null) return text === null ? "" : `<path d="M${across} ${top + height - 7}m-3 -3l6 6m0 -6l-6 6"/>`;
      const up = y(value[i] as number).toFixed(1);
      const ring = part[i] ? `<circle cx="${across}" cy="${up}" r="6"/>` : "";
      return ring + (revision[i] ? `<path d="M${across} ${up}m0 -9l9 9l-9 9l-9 -9z"/>` : "");
    }),
  );
  return `<g fill="none" stroke="${ink}" stroke-width="1.5">${marks.join("")}</g>`;
}

/** The runs where several are drawn, then every layer, in as many columns as it takes. */
function legend(chart: Chart, look: Look): { rows: string[]; right: number } {
  const runs = look.compared.map(({ key }, i) => ({ name: keyLabel(key), ink: look.soft, dash: dash(i).join(" ") }));
  const layers = chart.series.map((s) => ({ name: addressLabel(s.address), ink: look.colours.get(s.address) ?? "", dash: "" }));
  const entries = [...runs, ...layers];
  const [high, size] = entries.length > 22 ? [12, 9] : [18, 12];
  const deep = Math.floor((BOX.height + 12) / high);
  const wide = 40 + 0.62 * size * Math.max(0, ...entries.map(({ name }) => name.length));
  const rows = entries.map(({ name, ink, dash }, i) => {
    const [left, y] = [LEGEND.left + Math.floor(i / deep) * wide, LEGEND.top + (i % deep) * high];
    const dashed = dash && ` stroke-dasharray="${dash}"`;
    const rule = `<line x1="${left.toFixed(1)}" x2="${(left + 16).toFixed(1)}" y1="${y}" y2="${y}" stroke="${ink}" stroke-width="3"${dashed}/>`;
    return rule + text(left + 24, y + size / 3, name, `font-size="${size}" fill="${look.text}"`);
  });
  return { rows, right: LEGEND.left + Math.ceil(entries.length / deep) * wide };
}
