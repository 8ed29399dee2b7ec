// The model's graph painted with the chosen score at the chosen epoch; a list of layers as bars when there is none.

import type { GraphView, Paint, Scene } from "../graph/index.ts";
import { number } from "./format.ts";
import { h } from "./dom.ts";
import type { Dispatch, Part, View } from "./view.ts";

/** The graph's program, which the page loads before its own. */
declare const intus: typeof import("../main.ts");

export function graphPane(dispatch: Dispatch, bars: HTMLElement): Part & { readonly hasGraph: boolean } {
  const host = h("div", { class: "graph-host" });
  const note = h("p", { class: "hint" }, "This run sent no graph; its layers stand here as bars.");
  const root = h("section", { class: "panel graph", "aria-label": "Model" }, note, host);
  let graph: GraphView | null = null;
  let drawn: unknown = null;
  let painted: View | undefined;
  let selected: string | null = null;
  let telling = false;
  // The graph reports its selection also when the page made it; only what the person did goes on.
  const onSelect = (address: string | null): void => {
    if (telling) return;
    selected = address;
    reach();
    dispatch({ type: "choose", choice: { address: selected } });
  };

  function select(): void {
    telling = true;
    graph?.select(selected);
    telling = false;
  }

  /** The facts of what is selected take room from the graph; once they have it, bring the box back into sight. */
  function reach(): void {
    if (selected !== null) requestAnimationFrame(() => requestAnimationFrame(select));
  }

  function rebuild(scene: unknown): void {
    graph?.destroy();
    host.replaceChildren();
    graph = scene ? new intus.GraphView(host, scene as Scene, { onSelect }) : null;
    drawn = scene;
    painted = undefined;
    selected = null;
  }

  return {
    root,
    get hasGraph(): boolean {
      return graph !== null;
    },
    update(view: View): void {
      if (view.state.scene !== drawn) rebuild(view.state.scene);
      host.hidden = graph === null;
      note.hidden = graph !== null || view.state.chart.series.length === 0;
      if (!graph) {
        if (bars.parentElement !== root) root.append(bars);
        return;
      }
      const same = painted && painted.colours === view.colours && painted.at === view.at && painted.title === view.title;
      painted = view;
      if (!same) graph.paint(paintOf(view));
      if (view.state.choice.address === selected) return;
      selected = view.state.choice.address;
      select();
      reach();
    },
  };
}

/** The whole network, whatever the legend is filtered by. */
function paintOf({ state: { chart }, at, title }: View): Paint | null {
  if (at < 0) return null;
  const values = new Map(chart.series.map((series) => [series.address, series.value[at] ?? null]));
  return { title, values, low: chart.low, high: chart.high, format: number, log: false };
}
