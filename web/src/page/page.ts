// The live page: one state, one loop. Parts draw what the state says and say what the person did.

import "./page.css";
import { controls } from "./panels/controls.ts";
import { h, setText } from "./panels/elements.ts";
import { empty } from "./panels/firstSteps.ts";
import { graphPane } from "./panels/graphPanel.ts";
import { fromHash, toHash } from "./state/choiceHash.ts";
import { header } from "./panels/header.ts";
import { heat } from "./panels/heatMap.ts";
import { layers } from "./panels/layerList.ts";
import { Loader } from "./server/loader.ts";
import { notices, strip } from "./panels/notices.ts";
import { plotPane } from "./plot/plotPanel.ts";
import { type Action, initial, reduce } from "./state/state.ts";
import { listen } from "./server/stream.ts";
import { watchTheme } from "./state/savedTheme.ts";
import { units } from "./panels/unitTable.ts";
import { type Part, type View, viewOf } from "./state/view.ts";

/** Fill `host` with the page of a running `intus serve`. */
export function mountPage(host: HTMLElement): void {
  let state = initial(fromHash(location.hash));
  let view: View | undefined;
  let due = false;
  let noted = 0;
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
    window.clearTimeout(noted);
    noted = remember(view);
  };

  watchTheme((theme) => dispatch({ type: "set", values: { theme } }));
  window.addEventListener("hashchange", () => dispatch({ type: "choose", choice: fromHash(location.hash) }));
  loader.runs(); // at once, though it may be asked again: a line takes a while to stand
  listen("/api/stream", {
    // What changed before the line stood is made up for, so that no change falls between the two.
    onopen: () => {
      const first = state.link === "connecting";
      dispatch({ type: "set", values: { link: "live" } });
      if (first) loader.opened();
      else loader.all();
    },
    onchange: ({ what, runs }) => loader.changed(what, runs),
    onlost: () => {
      dispatch({ type: "set", values: { link: "lost" } });
      if (!state.loaded) loader.all();
    },
  });
  draw();
}

/** The address bar follows without filling the history, and at rest only: browsers refuse hundreds of changes. */
function remember({ state, run }: View): number {
  return window.setTimeout(() => {
    if (!run) return;
    const hash = toHash(state.choice);
    if (hash !== location.hash) history.replaceState(null, "", hash);
    document.title = `${run.run || run.model} · intus`;
  }, 150);
}

function assemble(host: HTMLElement, dispatch: (action: Action) => void): Part[] {
  const [top, bar, nothing] = [header(dispatch), controls(dispatch), empty()];
  const [legend, plot] = [layers(dispatch), plotPane(dispatch)];
  const graph = graphPane(dispatch, legend.root);
  const [map, news, table, loss] = [heat(dispatch), notices(), units(dispatch), strip()];
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const work = h("div", { class: "work" }, graph.root, plot.root, map.root, news.root, table.root);
  host.replaceChildren(h("div", { class: "page" }, top.root, bar.root, trouble, loss.root, h("main", {}, nothing.root, work)));
  const frame: Part = {
    root: work,
    update({ state, run }: View): void {
      work.hidden = !run;
      setText(trouble, state.error);
      trouble.hidden = state.error === "" || state.link === "lost";
      const bare = !run?.has_graph;
      if (!bare && legend.root.parentElement !== plot.body) plot.body.append(legend.root);
      plot.root.classList.toggle("bare", bare);
    },
  };
  return [top, bar, nothing, graph, frame, plot, legend, map, news, table, loss];
}
