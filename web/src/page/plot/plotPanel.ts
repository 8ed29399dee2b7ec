// The plot with its heading, downloads and legend.

import { epoch as epochText } from "../../ui/format.ts";
import { dash, keyLabel } from "../model/comparedRuns.ts";
import { h, icon, ICONS, setText, svg } from "../panels/elements.ts";
import { Plot } from "./plot.ts";
import { hasBaseline, notesOf } from "../model/series.ts";
import { type Format, save } from "../download/download.ts";
import type { Chart } from "../model/series.ts";
import { runLabel } from "../state/state.ts";
import { kindLabel } from "../model/scoreLabels.ts";
import type { Dispatch, Part, View } from "../state/view.ts";

const NOTES = 3; // kinds of notes that are told in full; the pointer shows the others
const FORMATS: Format[] = ["csv", "svg", "png"];

export function plotPane(dispatch: Dispatch): Part & { body: HTMLElement } {
  let view: View | undefined;
  let compared: string[] | undefined;
  let noted: Chart | undefined;
  const title = h("h2");
  const meaning = h("p", { class: "soft" });
  const about = h("p", { class: "soft" });
  const doubts = h("p", { class: "doubts" });
  const notes = h("p", { class: "soft" });
  const runs = h("ul", { class: "key", "aria-label": "Runs drawn" });
  const buttons = FORMATS.map((format) =>
    h(
      "button",
      {
        class: "toggle",
        type: "button",
        "aria-label": `Download the plot as ${format.toUpperCase()}`,
        click: () => {
          if (view) save(view, format).catch((error: Error) => dispatch({ type: "set", values: { error: error.message } }));
        },
      },
      ...(format === "csv" ? [icon(ICONS.download)] : []),
      format.toUpperCase(),
    ),
  );
  const plot = new Plot(dispatch);
  const body = h("div", { class: "plot-body" }, plot.root);
  const waiting = h("p", { class: "hint waiting", hidden: true }, "");
  plot.root.append(waiting);
  const head = h("div", { class: "head" }, h("div", { class: "heading" }, title, meaning, about, doubts, notes), h("div", { class: "saves" }, ...buttons));
  const root = h("section", { class: "panel plot", "aria-label": "Score over epochs" }, head, runs, body);
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
      about.title = next.info?.baseline ? `Baseline: ${next.info.baseline}` : "";
      setText(waiting, whyEmpty(next));
      setText(about, empty ? "" : [layersText(next), `epoch ${epochText(chart.epochs[at])}`, hasBaseline(chart) ? "grey dashes: baseline" : ""].filter(Boolean).join(" · "));
      setText(doubts, doubtsText(chart));
      doubts.hidden = !doubts.textContent;
      if (noted !== chart) setText(notes, notesText(chart));
      noted = chart;
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

function whyEmpty({ run, state }: View): string {
  if (state.chart.series.length > 0) return "The filter lets no layer through.";
  if (state.loading) return "Loading …";
  return run?.scores.length ? "No points of this score yet." : "No layer was scored in this run; its units stand below.";
}

function layersText({ chart, state }: View): string {
  const [shown, all] = [chart.series.length, state.chart.series.length];
  const kind = state.choice.kind === "output" ? "" : ` (${kindLabel(state.words, state.choice.kind)})`;
  return `${shown < all ? `${shown} of ` : ""}${all} ${all === 1 ? "layer" : "layers"}${kind}`;
}

/** What of the plot is not to be taken at its face: said beside it, with the marks it bears. Pure. */
export function doubtsText({ missing, partial }: Chart): string {
  const parts = [
    partial ? `${partial} from part of the rows (ringed)` : "",
    missing ? `${missing} without a value (crossed)` : "",
  ];
  const text = parts.filter(Boolean).join(", ");
  return text && `Points to doubt: ${text}.`;
}

/** What else the servers say of the points: which were scored again, and their notes, the most frequent first. Pure. */
export function notesText(chart: Chart): string {
  const notes = notesOf(chart);
  const shown = notes.slice(0, NOTES).map(({ text, points }) => `“${text.slice(0, 160)}” on ${points} ${points === 1 ? "point" : "points"}`);
  if (notes.length > NOTES) shown.push(`and ${notes.length - NOTES} more`);
  const again = chart.revised ? `${chart.revised} scored again when more came (in a diamond). ` : "";
  return again + (shown.length ? `Noted: ${shown.join("; ")}.` : "");
}

/** The run on show and those compared, each with its kind of line; a button takes one away. */
function keyRows({ run, state }: View, dispatch: Dispatch): HTMLElement[] {
  const { against } = state.choice;
  const without = (key: string): void => dispatch({ type: "choose", choice: { against: against.filter((k) => k !== key) } });
  const others = against.map((key, i) => {
    const label = keyLabel(key);
    const away = h("button", { type: "button", class: "away", "aria-label": `Do not compare with ${label}`, click: () => without(key) }, "×");
    return h("li", {}, stroke(dash(i)), h("span", {}, label), away);
  });
  return [h("li", {}, stroke([]), h("span", {}, run ? runLabel(run) : "")), ...others];
}

function stroke(dash: number[]): SVGElement {
  const line = svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, stroke: "currentColor", "stroke-width": 2, "stroke-dasharray": dash.join(" ") });
  return svg("svg", { width: 34, height: 10, "aria-hidden": "true" }, line);
}
