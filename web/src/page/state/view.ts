// The view: what the parts of the page need, computed once per change of the state.
import { shown } from "../../ui/format.ts";
import type { Compared } from "../model/comparedRuns.ts";
import { type Crowd, crowdOf } from "../model/crowd.ts";
import { depthColours } from "../model/depthColours.ts";
import { scoreInfo, scoreLabel } from "../model/scoreLabels.ts";
import { type Chart, filtered, nearest, type Series, strongest } from "../model/series.ts";
import type { Center } from "../model/strength.ts";
import type { Run, ScoreInfo } from "../server/api.ts";
import { type Action, currentRun, groupOf, requestedTarget, type State } from "./state.ts";

export type Dispatch = (action: Action) => void;

/** A part of the page: created once, updated after every change. */
export interface Part {
  root: HTMLElement;
  update(view: View): void;
}

export interface View {
  state: State;
  run: Run | undefined;
  /** The layers, or the strongest units, that match the filter. */
  chart: Chart;
  /** The same layers of the compared runs. */
  compared: Compared[];
  /** What the plot draws of the layers. */
  crowd: Crowd;
  colours: Map<string, string>;
  /** The index of the current epoch in `chart.epochs`, -1 without epochs. */
  at: number;
  /** The layer under the pointer, else the selected one, else null. */
  focus: string | null;
  focused: Series | undefined;
  selected: Series | undefined;
  /** For example "Linear probe, macro F1 of digit". */
  title: string;
  /** Whether a target is shown, by points whose rows were recorded while the weights changed. */
  changing: boolean;
  /** The description of the score, if the server has one. */
  info: ScoreInfo | undefined;
  /** The center of the score, if the chart is of units. */
  center: Center;
}

const UNITS = 60; // units that are drawn at once
const DRAWN = ["chart", "compared", "theme"] as const;

function filteredCharts({ chart, compared, choice, theme }: State, center: Center): Pick<View, "chart" | "crowd" | "compared" | "colours"> {
  const shown = strongest(filtered(chart, choice.filter), UNITS, center);
  return {
    chart: shown,
    crowd: crowdOf(shown, chart),
    compared: compared.map((other) => ({ ...other, chart: filtered(other.chart, choice.filter) })),
    colours: depthColours(chart.series.map((s) => s.address), theme),
  };
}

/** Return the view of a state. Charts and colors that did not change are the same objects as before, so that parts can compare
 * references. */
export function viewOf(state: State, before?: View): View {
  const same = before && DRAWN.every((name) => before.state[name] === state[name]) && before.state.choice.filter === state.choice.filter;
  const focus = state.hover ?? state.choice.address;
  const info = scoreInfo(state.labels, state.choice.score);
  const center = state.chart.units ? (info?.center ?? null) : null;
  const drawn = same ? before : filteredCharts(state, center);
  const run = currentRun(state);
  const target = requestedTarget(state.choice, run);
  const named = (address: string | null): Series | undefined => drawn.chart.series.find((series) => series.address === address);
  return {
    ...drawn,
    state,
    run,
    at: nearest(state.chart.epochs, state.choice.epoch),
    focus,
    focused: named(focus),
    selected: named(state.choice.address),
    title: scoreLabel(state.labels, state.choice.score) + (target ? ` of ${shown(target)}` : "") + (state.choice.group && `, mean of ${groupOf(state, run).length} runs and 95 % interval`),
    changing: Boolean(target) && state.chart.changing,
    info,
    center,
  };
}
