// The plot with its heading, downloads, legend and the list of compared runs.
import { el, svg } from "../../ui/dom.ts";
import { epoch as epochText, grouped, plural } from "../../ui/format.ts";
import { DOWNLOAD, icon } from "../../ui/icons.ts";
import { download, type Format } from "../download/download.ts";
import { dash, keyLabel, otherLines, runLabel } from "../model/comparedRuns.ts";
import { crowdText } from "../model/crowd.ts";
import { kindLabel } from "../model/scoreLabels.ts";
import { type Chart, hasBaseline, isMixed, notesOf } from "../model/series.ts";
import { setText } from "../panels/elements.ts";
import type { ScoreInfo } from "../server/api.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { Plot } from "./plot.ts";

const NOTES = 3; // different notes that are shown; the tooltips show all
const CHANGING = "Rows recorded while the weights changed; the model at the end of the epoch may know more.";
const FORMATS: Format[] = ["csv", "svg", "png"];

export function plotPanel(dispatch: Dispatch): Part & { body: HTMLElement } {
  let view: View | undefined;
  let compared: string[] | undefined;
  let notesOfChart: Chart | undefined;
  const title = el("h2");
  const meaning = el("p", { class: "soft" });
  const about = el("p", { class: "soft" });
  const bounds = el("p", { class: "soft" });
  const crowd = el("p", { class: "soft" });
  const changing = el("p", { class: "soft" });
  const doubts = el("p", { class: "doubts" });
  const notes = el("p", { class: "soft" });
  const runs = el("ul", { class: "key", "aria-label": "Runs drawn" });
  const buttons = FORMATS.map((format) =>
    el(
      "button",
      {
        class: "toggle",
        type: "button",
        "aria-label": `Download the plot as ${format.toUpperCase()}`,
        click: () => {
          if (view) download(view, format).catch((error: Error) => dispatch({ type: "set", values: { error: error.message } }));
        },
      },
      ...(format === "csv" ? [icon(DOWNLOAD)] : []),
      format.toUpperCase(),
    ),
  );
  const plot = new Plot(dispatch);
  const body = el("div", { class: "plot-body" }, plot.root);
  const waiting = el("p", { class: "hint waiting", hidden: true }, "");
  plot.root.append(waiting);
  const head = el("div", { class: "head" }, el("div", { class: "heading" }, title, meaning, about, crowd, bounds, changing, doubts, notes), el("div", { class: "saves" }, ...buttons));
  const root = el("section", { class: "panel plot", "aria-label": "Score over epochs" }, head, runs, body);
  return {
    root,
    body,
    update(next: View): void {
      view = next;
      const { chart, at, state } = next;
      const empty = chart.series.length === 0;
      setText(title, next.title || "Layers");
      setText(meaning, next.info?.about ?? "");
      meaning.hidden = !meaning.textContent;
      setText(bounds, state.choice.group ? "" : boundsText(next.info));
      bounds.hidden = empty || !bounds.textContent;
      setText(waiting, whyEmpty(next));
      setText(about, empty ? "" : [layersText(next), `epoch ${epochText(chart.epochs[at])}`, hasBaseline(chart) ? "gray dashes: baseline" : "", hiddenText(next)].filter(Boolean).join(" · "));
      setText(crowd, empty ? "" : crowdText(next.crowd, chart.series.length, state.chart.series.length));
      crowd.hidden = !crowd.textContent;
      setText(changing, next.changing ? CHANGING : "");
      changing.hidden = !changing.textContent;
      setText(doubts, doubtsText(chart));
      doubts.hidden = !doubts.textContent;
      if (notesOfChart !== chart) setText(notes, notesText(chart));
      notesOfChart = chart;
      notes.hidden = !notes.textContent;
      if (compared !== state.choice.against) runs.replaceChildren(...keyRows(next, dispatch));
      compared = state.choice.against;
      runs.hidden = compared.length === 0;
      waiting.hidden = !empty;
      root.setAttribute("aria-busy", String(state.loading));
      buttons.forEach((button) => (button.disabled = empty));
      plot.update(next);
    },
  };
}

/** Return what the interval and the baseline of a score are, as the server describes them. */
export function boundsText(info: ScoreInfo | undefined): string {
  const parts = [info?.interval && `Interval: ${info.interval}`, info?.baseline && `Baseline: ${info.baseline}`].filter(Boolean);
  return parts.length ? `${parts.join(". ")}.` : "";
}

function whyEmpty({ state }: View): string {
  if (state.chart.series.length > 0) return "No layer matches the filter.";
  if (state.loading) return "Loading …";
  return "No points of this score yet.";
}

function layersText({ chart, state }: View): string {
  const [shown, all] = [chart.series.length, state.chart.series.length];
  const kind = state.choice.kind === "output" ? "" : ` (${kindLabel(state.labels, state.choice.kind)})`;
  if (state.chart.units) return `${shown < all ? `the strongest ${grouped(shown)} of ` : ""}${plural(all, "unit")}`;
  return `${shown < all ? `${grouped(shown)} of ` : ""}${plural(all, "layer")}${kind}`;
}

/** Return how to see the lines of the compared runs if none is drawn because there are too many. */
function hiddenText({ chart, compared, focus }: View): string {
  return compared.length > 0 && focus === null && otherLines(chart, compared, focus).length === 0 ? "select a layer to see it in the other runs" : "";
}

/** Return a sentence about points that are not based on all rows, with their marks. */
export function doubtsText({ missing, partial }: Chart): string {
  const parts = [
    partial ? `${grouped(partial)} from part of the rows (ring)` : "",
    missing ? `${grouped(missing)} without a value (cross)` : "",
  ];
  const text = parts.filter(Boolean).join(", ");
  return text && `Incomplete points: ${text}.`;
}

/** Return how many points changed after they were first scored, by whatever: the server counts changes alone; and the most frequent notes of the servers. */
export function notesText(chart: Chart): string {
  const notes = notesOf(chart);
  const shown = notes.slice(0, NOTES).map(({ parts, points }) => `“${parts.join("").slice(0, 160)}” on ${plural(points, "point")}`);
  if (notes.length > NOTES) shown.push(`and ${notes.length - NOTES} more`);
  const revised = chart.revised ? `${plural(chart.revised, "point")} changed after the first scoring, as by late rows or another training under its name (diamond). ` : "";
  const mixed = isMixed(chart)
    ? "Lines are broken where the rows change from items to positions (batches of several lengths) or back: values on both sides do not compare. "
    : "";
  return revised + mixed + (shown.length ? `Notes: ${shown.join("; ")}.` : "");
}

/** Return the current run and the compared ones, each with its kind of line and a button to remove it. */
function keyRows({ run, state }: View, dispatch: Dispatch): HTMLElement[] {
  const { against } = state.choice;
  const without = (key: string): void => dispatch({ type: "choose", choice: { against: against.filter((k) => k !== key) } });
  const others = against.map((key, i) => {
    const label = keyLabel(key);
    const remove = el("button", { type: "button", class: "away", "aria-label": `Stop comparing with ${label}`, click: () => without(key) }, "×");
    return el("li", {}, stroke(dash(i)), el("span", {}, label), remove);
  });
  return [el("li", {}, stroke([]), el("span", {}, run ? runLabel(run) : "")), ...others];
}

function stroke(dash: number[]): SVGElement {
  const line = svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": dash.join(" ") });
  return svg("svg", { width: 34, height: 10, "aria-hidden": "true" }, line);
}
