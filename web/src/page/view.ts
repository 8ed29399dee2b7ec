// What the parts of the page need, worked out once per change of state. Pure.

import type { Run } from "./api.ts";
import { depthColours } from "./colour.ts";
import { type Chart, nearest, type Series } from "./series.ts";
import { type Action, askedTarget, currentRun, type State } from "./state.ts";
import { scoreLabel } from "./words.ts";

export type Dispatch = (action: Action) => void;

/** A part of the page: made once, brought up to date at every change. */
export interface Part {
  root: HTMLElement;
  update(view: View): void;
}

export interface View {
  state: State;
  run: Run | undefined;
  chart: Chart;
  colours: Map<string, string>;
  /** Index into `chart.epochs` of the epoch shown, -1 when there is none. */
  at: number;
  /** The layer pointed at, else the one picked, else null. */
  focus: string | null;
  focused: Series | undefined;
  /** "Linear probe, macro F1 of digit" */
  title: string;
}

/** Colours are kept while the layers stay the same, so that parts can tell by reference what changed. */
export function viewOf(state: State, before?: View): View {
  const same = before && before.chart === state.chart && before.state.theme === state.theme;
  const focus = state.hover ?? state.choice.address;
  const target = askedTarget(state.choice);
  return {
    state,
    run: currentRun(state),
    chart: state.chart,
    colours: same ? before.colours : depthColours(state.chart.series.map((s) => s.address), state.theme),
    at: nearest(state.chart.epochs, state.choice.epoch),
    focus,
    focused: state.chart.series.find((series) => series.address === focus),
    title: scoreLabel(state.choice.score) + (target ? ` of ${target}` : ""),
  };
}
