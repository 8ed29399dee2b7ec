// The plot as a picture for a paper or a talk: one SVG that needs nothing else. Pure.

import { epoch as epochText } from "./format.ts";
import { type Frame, frameOf, stretches } from "./frame.ts";
import { tickText } from "./scales.ts";
import { type Chart, highestBaseline } from "./series.ts";
import { addressLabel } from "./words.ts";

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
}

const [WIDTH, HEIGHT] = [960, 540];
const BOX = { left: 64, top: 64, width: 660, height: 416 };
const LEGEND = 22; // as many layers as fit beside the plot

export const SIZE = { width: WIDTH, height: HEIGHT };

export function escape(text: string): string {
  const named: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  // one character that XML forbids would make the whole file unreadable
  return text.replace(/[&<>"']/g, (c) => named[c] as string).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "\ufffd");
}

/** The chart with axes, baseline, the layer in focus and a legend. */
export function plotSvg(chart: Chart, look: Look): string {
  const frame = frameOf(chart, BOX);
  const line = (column: (number | null)[]): string => path(column, chart.epochs, frame);
  const focused = chart.series.find((s) => s.address === look.focus);
  const baseline = focused ? focused.baseline : highestBaseline(chart.series, chart.epochs.length);
  const parts = [
    text(BOX.left, 28, look.title, `font-size="17" font-weight="600" fill="${look.text}"`),
    text(BOX.left, 47, look.subtitle, `fill="${look.soft}"`),
    ...frame.yTicks.map((v) => gridline(frame.y(v), tickText(v), look)),
    ...frame.xTicks.map((v) => text(frame.x(v), BOX.top + BOX.height + 20, epochText(v), `text-anchor="middle" fill="${look.soft}"`)),
    text(BOX.left + BOX.width / 2, HEIGHT - 14, "epoch", `text-anchor="middle" fill="${look.soft}"`),
    `<path d="${line(baseline)}" fill="none" stroke="${look.soft}" stroke-dasharray="5 4"/>`,
    ...chart.series.map((s) => {
      const dim = focused && s !== focused ? ' opacity="0.25"' : "";
      return `<path d="${line(s.value)}" fill="none" stroke="${look.colours.get(s.address)}" stroke-width="${s === focused ? 2.75 : 1.75}"${dim}/>`;
    }),
    ...(focused ? [bandPath(focused.low, focused.high, chart.epochs, frame, look.colours.get(focused.address) ?? "")] : []),
    ...legend(chart, look),
  ];
  const root = `xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" viewBox="0 0 ${WIDTH} ${HEIGHT}"`;
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

function path(column: (number | null)[], epochs: number[], { x, y }: Frame): string {
  const point = (i: number): string => `${x(epochs[i] as number).toFixed(1)} ${y(column[i] as number).toFixed(1)}`;
  return stretches(column.length, (i) => column[i] != null)
    .map((at) => `M${at.map(point).join("L")}${at.length === 1 ? "h0.1" : ""}`)
    .join("");
}

function bandPath(low: (number | null)[], high: (number | null)[], epochs: number[], { x, y }: Frame, colour: string): string {
  const areas = stretches(low.length, (i) => low[i] != null && high[i] != null).map((at) => {
    const point = (column: (number | null)[]) => (i: number): string =>
      `${x(epochs[i] as number).toFixed(1)} ${y(column[i] as number).toFixed(1)}`;
    return `M${at.map(point(high)).join("L")}L${[...at].reverse().map(point(low)).join("L")}Z`;
  });
  return `<path d="${areas.join("")}" fill="${colour}" opacity="0.18"/>`;
}

function legend(chart: Chart, look: Look): string[] {
  const shown = chart.series.slice(0, LEGEND);
  const left = BOX.left + BOX.width + 24;
  const rows = shown.map((s, i) => {
    const y = BOX.top + 8 + i * 18;
    const rule = `<line x1="${left}" x2="${left + 16}" y1="${y}" y2="${y}" stroke="${look.colours.get(s.address)}" stroke-width="3"/>`;
    return rule + text(left + 24, y + 4, addressLabel(s.address), `fill="${look.text}"`);
  });
  const more = chart.series.length - shown.length;
  return more > 0 ? [...rows, text(left, BOX.top + 8 + LEGEND * 18 + 4, `and ${more} more`, `fill="${look.soft}"`)] : rows;
}
