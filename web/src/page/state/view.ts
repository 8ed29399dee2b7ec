// What the parts of the page need, worked out once per change of state. Pure.

import type { Run, ScoreInfo } from "../server/api.ts";
import { depthColours } from "../model/depthColours.ts";
import { type Chart, filtered, nearest, type Series } from "../model/series.ts";
import { type Action, askedTarget, type Compared, currentRun, type State } from "./state.ts";
import { scoreInfo, scoreLabel } from "../model/scoreLabels.ts";

export type Dispatch = (action: Action) => void;

/** A part of the page: made once, brought up to date at every change. */
export interface Part {
  root: HTMLElement;
  update(view: View): void;
}

export interface View {
  state: State;
  run: Run | undefined;
  /** The layers shown: those the filter lets through. */
  chart: Chart;
  /** The same layers of the runs compared. */
  compared: Compared[];
  colours: Map<string, string>;
  /** Index into `chart.epochs` of the epoch shown, -1 when there is none. */
  at: number;
  /** The layer pointed at, else the one picked, else null. */
  focus: string | null;
  focused: Series | undefined;
  /** "Linear probe, macro F1 of digit" */
  title: string;
  /** What the score shown is, if the server knows. */
  info: ScoreInfo | undefined;
}

const AFFECTS = ["chart", "compared", "theme"] as const;

function sift({ chart, compared, choice, theme }: State): Pick<View, "chart" | "compared" | "colours"> {
  return {
    chart: filtered(chart, choice.filter),
    compared: compared.map((other) => ({ ...other, chart: filtered(other.chart, choice.filter) })),
    colours: depthColours(chart.series.map((s) => s.address), theme),
  };
}

/** What is drawn is kept while nothing of it changed, so that parts can tell by reference that it did. */
export function viewOf(state: State, before?: View): View {
  const same = before && AFFECTS.every((name) => before.state[name] === state[name]) && before.state.choice.filter === state.choice.filter;
  const focus = state.hover ?? state.choice.address;
  const shown = same ? before : sift(state);
  const run = currentRun(state);
  const target = askedTarget(state.choice, run);
  return {
    state,
    run,
    chart: shown.chart,
    compared: shown.compared,
    colours: shown.colours,
    at: nearest(state.chart.epochs, state.choice.epoch),
    focus,
    focused: shown.chart.series.find((series) => series.address === focus),
    title: scoreLabel(state.words, state.choice.score) + (target ? ` of ${target}` : ""),
    info: scoreInfo(state.words, state.choice.score),
  };
}
