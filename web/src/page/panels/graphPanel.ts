// The graph of the model, colored by the current score at the current epoch. Without a graph: the list of layers with bars.
import type { GraphView, Paint, Scene } from "../../graph/index.ts";
import { el } from "../../ui/dom.ts";
import { number } from "../../ui/format.ts";
import { layerOf } from "../model/series.ts";
import { reach, strength, strengthText } from "../model/strength.ts";
import type { Dispatch, Part, View } from "../state/view.ts";

type Program = typeof import("../../main.ts");

let program: Promise<Program> | undefined;

/** Load the program that draws graphs. It is loaded with the first graph, so that the plot is shown sooner. */
function loadProgram(): Promise<Program> {
  program ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.onload = () => resolve((window as unknown as { intus: Program }).intus);
    script.onerror = () => {
      program = undefined;
      reject(new Error("The program that draws the graph could not be loaded."));
    };
    script.src = "/static/intus.js";
    document.head.append(script);
  });
  return program;
}

/** Wait until the changes so far are on the screen. */
const painted = (): Promise<void> => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

export function graphPanel(dispatch: Dispatch, bars: HTMLElement): Part {
  const host = el("div", { class: "graph-host" });
  const note = el("p", { class: "hint" }, "This run has no graph. Its layers are shown as bars.");
  const root = el("section", { class: "panel graph", "aria-label": "Model" }, note, host);
  let graph: GraphView | null = null;
  let drawn: unknown = null;
  let latest: View | undefined;
  let paintedView: View | undefined;
  let selected: string | null = null;
  let selecting = false; // the graph reports selections by the page too, but only those by the user are dispatched
  const onSelect = (address: string | null): void => {
    if (selecting) return;
    selected = address;
    reveal();
    dispatch({ type: "choose", choice: { address: selected } });
  };

  function select(): void {
    selecting = true;
    graph?.select(selected);
    selecting = false;
  }

  /** Select again after two frames: the panel of the selected box has then made the graph smaller, which may hide the box. */
  function reveal(): void {
    if (selected !== null) requestAnimationFrame(() => requestAnimationFrame(select));
  }

  async function rebuild(scene: unknown): Promise<void> {
    graph?.destroy();
    graph = null;
    host.replaceChildren();
    drawn = scene;
    paintedView = undefined;
    selected = null;
    if (!scene) return;
    await painted();
    const { GraphView, program: own } = await loadProgram();
    if (drawn !== scene) return;
    graph = new GraphView(host, scene as Scene, { onSelect, program: own });
    if (!latest) return;
    const { chart } = latest.state;
    closeUnscored(graph, chart.series.map((series) => layerOf(chart, series.address)));
    draw(graph, latest);
  }

  function draw(graph: GraphView, view: View): void {
    const same = paintedView && paintedView.colours === view.colours && paintedView.at === view.at && paintedView.title === view.title;
    paintedView = view;
    if (!same) graph.paint(paintOf(view));
    const { chart, choice } = view.state;
    const address = choice.address === null ? null : layerOf(chart, choice.address);
    if (address === selected) return;
    selected = address;
    select();
    reveal();
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

/** Close modules that have a score but contain nothing with a score, because open they would show no color. */
function closeUnscored(graph: GraphView, scored: string[]): void {
  const known = new Set(scored);
  const around = new Set(scored.flatMap((address) => [...address.matchAll(/\./g)].map(({ index }) => address.slice(0, index))));
  const whole = graph.boxes().filter((box) => box.open && known.has(box.address) && !around.has(box.address));
  for (const { address } of whole) graph.close(address);
  if (whole.length > 0) graph.fit();
}

/** Return the paint of all layers, including those that the filter hides; of units that of the best of each layer. */
function paintOf({ state: { chart }, at, title, center }: View): Paint | null {
  if (at < 0) return null;
  const values = new Map<string, number | null>();
  for (const { address, value } of chart.series) {
    const [layer, x] = [layerOf(chart, address), value[at] ?? null];
    const best = values.get(layer) ?? null;
    values.set(layer, x === null || (best !== null && strength(best, center) > strength(x, center)) ? best : x);
  }
  const by = strengthText(center);
  const paint = { title: chart.units ? `${title}, best unit${by && ` by ${by}`}` : title, values, ...reach(chart, center), format: number, log: false };
  return center === null ? paint : { ...paint, strength: (value) => strength(value, center) };
}
