// The plot of one score over epochs, a line per layer. uPlot draws the lines and the axes, marks.ts the rest.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import * as format from "./format.ts";
import { h } from "./dom.ts";
import { drawOver, drawUnder, type Inks } from "./marks.ts";
import { padded } from "./scales.ts";
import { extent } from "./series.ts";
import { tokens } from "./theme.ts";
import { tooltip } from "./tooltip.ts";
import type { Dispatch, Part, View } from "./view.ts";

const REACH = 28; // how near, in CSS pixels, the pointer must be to a line to mean it
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];

export class Plot implements Part {
  readonly root = h("div", { class: "canvas", role: "img" });
  private readonly tip = tooltip();
  private plot: uPlot | null = null;
  private view!: View;
  private inks!: Inks;

  constructor(private readonly dispatch: Dispatch) {
    this.root.append(...this.tip.parts);
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(this.root);
    this.root.addEventListener("pointerleave", () => this.point(""));
    this.root.addEventListener("click", (event) => this.click(event));
  }

  update(view: View): void {
    const before = this.view as View | undefined;
    this.view = view;
    this.root.setAttribute("aria-label", describe(view));
    if (before && before.colours === view.colours) {
      if (before.at !== view.at || before.focus !== view.focus) this.repaint();
      return;
    }
    const alike = before && before.state.theme === view.state.theme && names(before) === names(view);
    if (this.plot && alike) this.plot.setData(this.data());
    else this.rebuild();
    this.repaint();
  }

  private data(): uPlot.AlignedData {
    return [this.view.chart.epochs, ...this.view.chart.series.map((s) => s.value)] as uPlot.AlignedData;
  }

  private size(): { width: number; height: number } {
    return { width: Math.max(120, this.root.clientWidth), height: Math.max(120, this.root.clientHeight) };
  }

  private repaint(): void {
    if (!this.plot) return;
    const { focused } = this.view;
    for (const series of this.plot.series.slice(1)) series.alpha = focused ? 0.22 : 1;
    this.plot.redraw(false);
  }

  private rebuild(): void {
    this.plot?.destroy();
    this.plot = null;
    if (this.view.chart.series.length === 0) return;
    this.inks = tokens(this.root, ["text-soft", "line", "line-strong", "surface", "warning", "accent"]);
    this.plot = new uPlot(this.options(), this.data(), this.root);
  }

  private options(): uPlot.Options {
    const { chart } = this.view;
    const font = `12px ${getComputedStyle(this.root).fontFamily}`;
    const axis = { font, stroke: this.inks["text-soft"], ticks: { show: false }, grid: { stroke: this.inks.line, width: 1 } };
    const many = chart.series.length > 40;
    return {
      ...this.size(),
      padding: [10, 14, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false }, y: false, x: false },
      scales: { x: { time: false, range: () => this.across() }, y: { range: () => this.upright() } },
      axes: [
        { ...axis, size: 26, label: "epoch", labelSize: 18, labelFont: font, space: 44, grid: { show: false }, incrs: this.wholeEpochs() ? STEPS : undefined },
        { ...axis, size: 52, space: 34, values: (_, at) => at.map((v) => tickText(v)) },
      ],
      series: [
        {},
        ...chart.series.map((s) => ({
          label: s.address,
          stroke: () => this.view.colours.get(s.address) ?? this.inks["text-soft"],
          width: many ? 1 : 1.75,
          points: { show: chart.epochs.length === 1, size: 6, fill: () => this.view.colours.get(s.address) ?? "" },
        })),
      ],
      hooks: {
        drawAxes: [(u) => drawUnder(u, this.view, this.inks, uPlot.pxRatio)],
        draw: [(u) => drawOver(u, this.view, this.inks, uPlot.pxRatio)],
        setCursor: [(u) => this.moved(u)],
      },
    } as uPlot.Options;
  }

  private wholeEpochs(): boolean {
    return this.view.chart.epochs.every(Number.isInteger);
  }

  private across(): [number, number] {
    const { epochs } = this.view.chart;
    const [first, last] = [epochs[0] ?? 0, epochs.at(-1) ?? 1];
    const air = last > first ? (last - first) * 0.015 : 0.5;
    return [first - air, last + air];
  }

  private upright(): [number, number] {
    const { low, high } = extent(this.view.chart);
    return padded(low, high);
  }

  private moved(u: uPlot): void {
    const { left = -1, top = -1, idx } = u.cursor;
    if (left < 0 || idx == null) return this.point("");
    const near = nearestLine(this.view, idx, (v) => Math.abs(u.valToPos(v, "y") - top));
    this.point(near ?? "");
    if (near === null) return;
    const value = this.view.chart.series.find((s) => s.address === near)?.value[idx] ?? 0;
    const over = u.over;
    const x = over.offsetLeft + u.valToPos(this.view.chart.epochs[idx] as number, "x");
    this.tip.show(this.view, near, idx, x, over.offsetTop + u.valToPos(value, "y"));
  }

  private point(address: string): void {
    if (address === "") this.tip.hide();
    if (this.view && this.view.state.hover !== address) this.dispatch({ type: "set", values: { hover: address } });
  }

  private click(event: MouseEvent): void {
    const { hover, choice } = this.view.state;
    if (hover) return this.dispatch({ type: "choose", choice: { address: hover === choice.address ? "" : hover } });
    if (!this.plot || !this.plot.over.contains(event.target as Node)) return;
    const left = event.clientX - this.plot.over.getBoundingClientRect().left;
    const epoch = this.view.chart.epochs[this.plot.posToIdx(left)];
    if (epoch !== undefined) this.dispatch({ type: "choose", choice: { epoch } });
  }
}

/** The layer whose line passes nearest to the pointer at an epoch, null when none is within reach. */
export function nearestLine(view: View, at: number, distance: (value: number) => number): string | null {
  let best: string | null = null;
  let least = REACH;
  for (const { address, value } of view.chart.series) {
    const x = value[at];
    if (x == null) continue;
    const away = distance(x);
    if (away < least) [best, least] = [address, away];
  }
  return best;
}

const names = (view: View): string => view.chart.series.map((s) => s.address).join("\n");

const tickText = (value: number): string => (value === 0 ? "0" : Number(value.toPrecision(6)).toString().replace("-", "−"));

function describe({ chart, title, at, focused }: View): string {
  if (chart.series.length === 0) return `${title}: no points yet`;
  const when = `${chart.series.length} layers over ${chart.epochs.length} epochs`;
  const one = focused ? `; ${focused.address} at this epoch: ${format.number(focused.value[at])}` : "";
  return `${title}: ${when}, from ${format.number(chart.low)} to ${format.number(chart.high)}${one}`;
}
