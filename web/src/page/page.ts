// The live page. Actions change the state; after a change the parts are updated in the next animation frame.
import "./page.css";
import { el } from "../ui/dom.ts";
import { shown } from "../ui/format.ts";
import { writeHash } from "../ui/hash.ts";
import { classTable } from "./panels/classTable.ts";
import { controls } from "./panels/controls.ts";
import { setText } from "./panels/elements.ts";
import { keepClicks } from "./panels/elements.ts";
import { firstSteps } from "./panels/firstSteps.ts";
import { followups } from "./panels/followups.ts";
import { graphPanel } from "./panels/graphPanel.ts";
import { ledgerOf } from "./model/headerCounts.ts";
import { header } from "./panels/header.ts";
import { heatMap } from "./panels/heatMap.ts";
import { logged } from "./panels/logged.ts";
import { layerList } from "./panels/layerList.ts";
import { notices, noticeStrip } from "./panels/notices.ts";
import { unitTable } from "./panels/unitTable.ts";
import { plotPanel } from "./plot/plotPanel.ts";
import { NO_ANSWER, type Run } from "./server/api.ts";
import { Loader } from "./server/loader.ts";
import { subscribe } from "./server/stream.ts";
import { choiceOfHash, hashOfChoice } from "./state/choiceHash.ts";
import { watchTheme } from "./state/savedTheme.ts";
import { type Action, initial, reduce, type State } from "./state/state.ts";
import { type Part, type View, viewOf } from "./state/view.ts";

/** Show the page of a running `intus serve` in `host`. */
export function mountPage(host: HTMLElement): void {
  let state = initial(choiceOfHash(location.hash));
  let view: View | undefined;
  let due = false;
  const dispatch = (action: Action): void => {
    const next = reduce(state, action);
    if (next === state) return;
    state = next;
    if (!due) requestAnimationFrame(draw);
    due = true;
    loader.follow();
  };
  const loader = new Loader(() => state, dispatch);
  const parts = assemble(host, dispatch);
  const draw = (): void => {
    due = false;
    view = viewOf(state, view);
    for (const part of parts) part.update(view);
    if (view.run) describe(view.state, view.run);
  };

  watchTheme((theme) => dispatch({ type: "set", values: { theme } }));
  window.addEventListener("hashchange", () => dispatch({ type: "choose", choice: choiceOfHash(location.hash) }));
  loader.runs(); // at once, because opening the connection takes a while
  subscribe("/api/stream", {
    onopen: () => {
      const first = state.link === "connecting" && !state.error;
      dispatch({ type: "set", values: { link: "live" } });
      if (first) loader.opened();
      else loader.all();
    },
    onchange: (change) => loader.changed(change),
    onlost: () => {
      dispatch({ type: "set", values: { link: "lost" } });
      if (!state.loaded) loader.all();
    },
  });
  draw();
}

/** Describe the view in the address bar and the title of the window. */
function describe({ choice }: State, run: Run): void {
  writeHash(hashOfChoice(choice));
  const title = `${shown(run.run || run.model)} · intus`;
  if (title !== document.title) document.title = title;
}

function assemble(host: HTMLElement, dispatch: (action: Action) => void): Part[] {
  keepClicks(host);
  const [top, bar, first] = [header(dispatch), controls(dispatch), firstSteps()];
  const [legend, plot] = [layerList(dispatch), plotPanel(dispatch)];
  const graph = graphPanel(dispatch, legend.root);
  const [map, messages, table, strip] = [heatMap(dispatch), notices(), unitTable(dispatch), noticeStrip()];
  const [classes, unit, values] = [classTable(dispatch), followups(dispatch), logged(dispatch)];
  plot.root.append(values.root);
  const error = el("p", { class: "trouble", role: "alert", hidden: true });
  const work = el("div", { class: "work" }, graph.root, plot.root, map.root, messages.root, classes.root, table.root, unit.root);
  host.replaceChildren(el("div", { class: "page" }, top.root, bar.root, error, strip.root, el("main", {}, first.root, work)));
  const frame: Part = {
    root: work,
    update({ state, run }: View): void {
      work.hidden = !run;
      const trouble = state.link === "lost" ? NO_ANSWER : state.error || (state.gone && `There is no run “${state.gone}”. Another is shown.`) || (run && ledgerOf(run, state.status)?.trouble) || "";
      setText(error, trouble);
      error.hidden = trouble === "";
      const bare = !run?.has_graph;
      if (!bare && legend.root.parentElement !== plot.body) plot.body.append(legend.root);
      plot.root.classList.toggle("bare", bare);
    },
  };
  return [top, bar, first, graph, frame, plot, legend, map, messages, classes, table, unit, values, strip];
}
