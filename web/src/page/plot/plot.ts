// The plot of one score over epochs, a line per layer: a canvas, what the pointer means on it, and a card beside it.

import * as format from "../../ui/format.ts";
import { otherLines } from "../model/comparedRuns.ts";
import { canvasContext, h } from "../panels/elements.ts";
import { type Frame, frameOf } from "./frame.ts";
import { drawAxes, drawLines, drawOver, drawUnder, type Inks } from "./marks.ts";
import { nearest } from "../model/series.ts";
import { tokens } from "../state/savedTheme.ts";
import { tooltip } from "./tooltip.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { addressLabel } from "../model/scoreLabels.ts";

const REACH = 28; // how near, in CSS pixels, the pointer must be to a line to mean it
const ROOM = { left: 52, right: 14, top: 10, bottom: 44 }; // for the axes, in CSS pixels

export class Plot implements Part {
  // Two sheets: lines are many and change seldom, the epoch on show moves at every step of the slider.
  private readonly lines = h("canvas", { role: "img" });
  private readonly over = h("canvas", { class: "over", "aria-hidden": "true" });
  private readonly tip = tooltip();
  readonly root = h("div", { class: "canvas" }, this.lines, this.over, ...this.tip.parts);
  private view: View | undefined;
  private frame: Frame | undefined;
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
    this.frame = undefined;
    if (view.chart.series.length > 0 && width >= 120 && height >= 100) {
      this.inks ??= tokens(root, ["text-soft", "line", "surface", "warning", "accent"]);
      const [across, up] = [width - ROOM.left - ROOM.right, height - ROOM.top - ROOM.bottom];
      this.frame = frameOf([view.chart, ...view.compared.map((other) => other.chart)], { left: ROOM.left, top: ROOM.top, width: across, height: up });
      drawAxes(ctx, this.frame, this.inks, getComputedStyle(root).fontFamily);
      drawUnder(ctx, this.frame, view, this.inks);
      drawLines(ctx, this.frame, view);
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

  /** On a line: pick its layer, or let it go; beside one: go to that epoch. */
  private clicked(event: MouseEvent): void {
    const { view, frame } = this;
    if (!view || !frame) return;
    const { hover, choice } = view.state;
    if (hover !== null) return this.dispatch({ type: "choose", choice: { address: hover === choice.address ? null : hover } });
    const epoch = view.chart.epochs[nearest(view.chart.epochs, frame.epochAt(event.offsetX))];
    if (epoch !== undefined) this.dispatch({ type: "choose", choice: { epoch } });
  }
}

/** The layer whose line passes nearest at an epoch, null when none is within reach. */
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
  const when = `${chart.series.length} layers over ${chart.epochs.length} epochs`;
  const one = focused ? `; ${addressLabel(focused.address)} at this epoch: ${format.number(focused.value[at])}` : "";
  return `${title}: ${when}, from ${format.number(chart.low)} to ${format.number(chart.high)}${one}`;
}
