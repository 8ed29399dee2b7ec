// The plot with its heading, downloads and legend.

import { epoch as epochText } from "./format.ts";
import { h, icon, ICONS, setText } from "./dom.ts";
import { Plot } from "./plot.ts";
import { hasBaseline } from "./series.ts";
import { type Format, save } from "./save.ts";
import { KINDS } from "./words.ts";
import type { Dispatch, Part, View } from "./view.ts";

const FORMATS: Format[] = ["csv", "svg", "png"];

export function plotPane(dispatch: Dispatch): Part & { body: HTMLElement } {
  let view: View | undefined;
  const title = h("h2");
  const about = h("p", { class: "soft" });
  const buttons = FORMATS.map((format) =>
    h(
      "button",
      {
        class: "toggle",
        type: "button",
        "aria-label": `Download the plot as ${format.toUpperCase()}`,
        onclick: () => {
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
  const head = h("div", { class: "head" }, h("div", { class: "heading" }, title, about), h("div", { class: "saves" }, ...buttons));
  const root = h("section", { class: "panel plot", "aria-label": "Score over epochs" }, head, body);
  return {
    root,
    body,
    update(next: View): void {
      view = next;
      const { chart, at, state } = next;
      const empty = chart.series.length === 0;
      setText(title, next.title || "Layers");
      const kind = state.choice.kind === "output" ? "" : ` of the ${KINDS[state.choice.kind] ?? state.choice.kind}`;
      const against = hasBaseline(chart) ? " · dashed: baseline" : "";
      setText(waiting, next.run?.scores.length ? "No points of this score yet." : "No layer was scored in this run; its units stand below.");
      setText(about, empty ? "" : `${chart.series.length} layers${kind} · epoch ${epochText(chart.epochs[at])}${against}`);
      waiting.hidden = !empty;
      buttons.forEach((button) => (button.disabled = empty));
      plot.update(next);
    },
  };
}
