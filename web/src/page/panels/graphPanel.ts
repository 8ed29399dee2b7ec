// The model's graph painted with the chosen score at the chosen epoch; a list of layers as bars when there is none.

import type { GraphView, Paint, Scene } from "../../graph/index.ts";
import { number } from "../../ui/format.ts";
import { h } from "./elements.ts";
import type { Dispatch, Part, View } from "../state/view.ts";

type Program = typeof import("../../main.ts");

let program: Promise<Program> | undefined;

/** The graph's program, fetched when there is first a graph to draw: the plot stands sooner without. */
function fetchProgram(): Promise<Program> {
  program ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.onload = () => resolve((window as unknown as { intus: Program }).intus);
    script.onerror = () => {
      program = undefined;
      reject(new Error("The program that draws the graph could not be fetched."));
    };
    script.src = "/static/intus.js";
    document.head.append(script);
  });
  return program;
}

/** Once what has changed by now stands on the screen. */
const shown = (): Promise<void> => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

export function graphPane(dispatch: Dispatch, bars: HTMLElement): Part {
  const host = h("div", { class: "graph-host" });
  const note = h("p", { class: "hint" }, "This run sent no graph; its layers stand here as bars.");
  const root = h("section", { class: "panel graph", "aria-label": "Model" }, note, host);
  let graph: GraphView | null = null;
  let drawn: unknown = null;
  let latest: View | undefined;
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

  async function rebuild(scene: unknown): Promise<void> {
    graph?.destroy();
    graph = null;
    host.replaceChildren();
    drawn = scene;
    painted = undefined;
    selected = null;
    if (!scene) return;
    await shown();
    const { GraphView, program: own } = await fetchProgram();
    if (drawn !== scene) return;
    graph = new GraphView(host, scene as Scene, { onSelect, program: own });
    if (!latest) return;
    closeWhole(graph, latest.state.chart.series.map((series) => series.address));
    draw(graph, latest);
  }

  function draw(graph: GraphView, view: View): void {
    const same = painted && painted.colours === view.colours && painted.at === view.at && painted.title === view.title;
    painted = view;
    if (!same) graph.paint(paintOf(view));
    if (view.state.choice.address === selected) return;
    selected = view.state.choice.address;
    select();
    reach();
  }

  return {
    root,
    update(view: View): void {
      latest = view;
      const { scene, chart, loading } = view.state;
      const bare = !view.run?.has_graph;
      host.hidden = bare;
      note.hidden = !bare || chart.series.length === 0;
      if (bare && bars.parentElement !== root) root.append(bars);
      if (scene !== drawn && !(loading && drawn === null))
        rebuild(scene).catch((error: Error) => dispatch({ type: "set", values: { error: error.message } }));
      else if (graph) draw(graph, view);
    },
  };
}

/** Close the modules that have a score of their own and nothing scored inside: open they would show blanks. */
function closeWhole(graph: GraphView, scored: string[]): void {
  const known = new Set(scored);
  const whole = graph.boxes().filter((box) => box.open && known.has(box.address) && !scored.some((other) => other.startsWith(`${box.address}.`)));
  for (const { address } of whole) graph.close(address);
  if (whole.length > 0) graph.fit();
}

/** The whole network, whatever the legend is filtered by. */
function paintOf({ state: { chart }, at, title }: View): Paint | null {
  if (at < 0) return null;
  const values = new Map(chart.series.map((series) => [series.address, series.value[at] ?? null]));
  return { title, values, low: chart.low, high: chart.high, format: number, log: false };
}
