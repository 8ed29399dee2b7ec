// The plot of a score over epochs with one line per layer, and its reactions to the pointer.
import { el } from "../../ui/dom.ts";
import { number } from "../../ui/format.ts";
import { otherLines } from "../model/comparedRuns.ts";
import { type Inks, readInks } from "../model/inks.ts";
import { addressLabel } from "../model/scoreLabels.ts";
import { nearest } from "../model/series.ts";
import { canvasContext } from "../panels/elements.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { type Frame, frameOf } from "./frame.ts";
import { drawAxes, drawOver, drawSeries, drawUnder } from "./marks.ts";
import { tooltip } from "./tooltip.ts";

const REACH = 28; // CSS pixels; the line nearest to the pointer is focused within this distance
const MARGIN = { left: 52, right: 14, top: 10, bottom: 44 }; // for the axes, in CSS pixels

export class Plot implements Part {
  // Two canvases: lines are many and change seldom; the marker of the current epoch moves with the slider.
  private readonly lines = el("canvas", { role: "img" });
  private readonly over = el("canvas", { class: "over", "aria-hidden": "true" });
  private readonly tip = tooltip();
  readonly root = el("div", { class: "canvas" }, this.lines, this.over, ...this.tip.parts);
  private view: View | undefined;
  private frame: Frame | undefined;
  private framed: unknown[] = []; // what the frame was made for
  private inks: Inks | undefined;

  constructor(private readonly dispatch: Dispatch) {
    new ResizeObserver(() => this.draw()).observe(this.root);
    this.over.addEventListener("pointermove", (event) => this.moved(event));
    this.over.addEventListener("pointerleave", () => this.point(null));
    this.over.addEventListener("click", (event) => this.clicked(event));
  }

  update(view: View): void {
    const before = this.view;
    this.view = view;
    const same = before && before.colours === view.colours && before.focus === view.focus;
    if (same && before.at === view.at) return;
    if (before?.state.theme !== view.state.theme) this.inks = undefined;
    this.lines.setAttribute("aria-label", describe(view));
    if (same) this.drawOver();
    else this.draw();
  }

  private draw(): void {
    const { view, root } = this;
    if (!view) return;
    const { clientWidth: width, clientHeight: height } = root;
    const ctx = canvasContext(this.lines, width, height);
    const wanted = [view.colours, width, height];
    if (wanted.some((each, i) => each !== this.framed[i])) {
      const [across, up] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
      const room = view.chart.series.length > 0 && width >= 120 && height >= 100;
      this.frame = room ? frameOf([view.chart, ...view.compared.map((other) => other.chart)], { left: MARGIN.left, top: MARGIN.top, width: across, height: up }, view.center) : undefined;
    }
    this.framed = wanted;
    if (this.frame) {
      this.inks ??= readInks(root);
      drawAxes(ctx, this.frame, this.inks, getComputedStyle(root).fontFamily);
      drawUnder(ctx, this.frame, view, this.inks);
      drawSeries(ctx, this.frame, view);
    }
    this.drawOver();
  }

  private drawOver(): void {
    const ctx = canvasContext(this.over, this.root.clientWidth, this.root.clientHeight);
    if (this.view && this.frame && this.inks) drawOver(ctx, this.frame, this.view, this.inks);
  }

  private moved(event: MouseEvent): void {
    const { view, frame } = this;
    if (!view || !frame || view.chart.epochs.length === 0) return;
    const at = nearest(view.chart.epochs, frame.epochAt(event.offsetX));
    const near = nearestLine(view, at, (value) => Math.abs(frame.y(value) - event.offsetY));
    this.point(near);
    const value = view.chart.series.find((s) => s.address === near)?.value[at];
    if (near !== null && value != null) this.tip.show(view, near, at, frame.x(view.chart.epochs[at] as number), frame.y(value));
  }

  private point(address: string | null): void {
    if (address === null) this.tip.hide();
    this.dispatch({ type: "set", values: { hover: address } });
  }

  /** Select the layer of the line at the pointer, or clear the selection; without a line, go to the epoch. */
  private clicked(event: MouseEvent): void {
    const { view, frame } = this;
    if (!view || !frame) return;
    const { hover, choice } = view.state;
    if (hover !== null) return this.dispatch({ type: "choose", choice: { address: hover === choice.address ? null : hover } });
    const epoch = view.chart.epochs[nearest(view.chart.epochs, frame.epochAt(event.offsetX))];
    if (epoch !== undefined) this.dispatch({ type: "choose", choice: { epoch } });
  }
}

/** Return the layer whose line is nearest to the pointer at an epoch, null if none is within REACH. */
function nearestLine(view: View, at: number, distance: (value: number) => number): string | null {
  let best: string | null = null;
  let least = REACH;
  const consider = (address: string, value: number | null | undefined): void => {
    const away = value == null ? Infinity : distance(value);
    if (away < least) [best, least] = [address, away];
  };
  for (const { address, value } of view.chart.series) consider(address, value[at]);
  for (const { epochs, series } of otherLines(view.chart, view.compared, view.state.choice.address))
    consider(series.address, series.value[epochs.indexOf(view.chart.epochs[at] as number)]);
  return best;
}

function describe({ chart, title, at, focused }: View): string {
  if (chart.series.length === 0) return `${title}: no points yet`;
  const size = `${chart.series.length} layers over ${chart.epochs.length} epochs`;
  const selected = focused ? `; ${addressLabel(focused.address)} at this epoch: ${number(focused.value[at])}` : "";
  return `${title}: ${size}, from ${number(chart.low)} to ${number(chart.high)}${selected}`;
}
