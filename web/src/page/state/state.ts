// The state of the page, and a pure function that applies actions to it.
import type { Theme } from "../../ui/theme.ts";
import { type Compared, runKey } from "../model/comparedRuns.ts";
import type { Axis } from "../model/curves.ts";
import { firstScore, isIntrinsic, isOfUnits, type Labels, NO_LABELS, targetsOf, unitScores } from "../model/scoreLabels.ts";
import { type Chart, EMPTY } from "../model/series.ts";
import type { Confusion, Gap, Log, Notice, Run, Runs, Status, UnitFollowup } from "../server/api.ts";

/** The choices of the user. An epoch of null follows the newest. */
export interface Choice {
  run: string;
  model: string;
  score: string;
  target: string;
  kind: string;
  /** The selected layer, null for none; "" is the model itself. */
  address: string | null;
  epoch: number | null;
  /** Words; a layer is shown if its name contains one of them. "" shows all. */
  filter: string;
  /** "true" to show the mean over the runs of the group, else "". */
  group: string;
  /** The runs to compare with, as returned by `runKey`. */
  against: string[];
}

export type Link = "connecting" | "live" | "lost";

export interface State {
  choice: Choice;
  runs: Run[];
  labels: Labels;
  /** Whether the list of runs has been received. Before that the page must not claim that there is none. */
  loaded: boolean;
  /** The layer under the pointer. */
  hover: string | null;
  playing: boolean;
  chart: Chart;
  /** Whether `chart` still shows the previous choice, because the points of the current one are being loaded. */
  loading: boolean;
  /** The same score of the compared runs, in the order of `choice.against`. */
  compared: Compared[];
  /** The units of the table. */
  units: Chart;
  /** The classes that the selected layer confuses; null if it is not loaded or no layer is selected. */
  confusion: Confusion | null;
  /** What the selected point is compared with, as `["layer", address]` or `["epoch", number]` in JSON; "" for nothing. */
  versus: string;
  gap: Gap | null;
  /** What is stored of the selected unit; null if it is not loaded. */
  followup: UnitFollowup | null;
  hypothesis: { score: string; target: string };
  /** The scene of this run; null if it is not loaded or there is none. */
  scene: unknown;
  /** The values that the user logged, and the axis they are drawn over. */
  log: Log | null;
  axis: Axis;
  notices: Notice[];
  status: Status;
  link: Link;
  theme: Theme;
  /** The chosen run if there is none of that name, so that another is shown; else "". */
  gone: string;
  error: string;
}

export type Action =
  | ({ type: "runs" } & Runs)
  | { type: "choose"; choice: Partial<Choice> }
  | { type: "hypothesis"; score: string; target: string }
  | { type: "set"; values: Partial<Omit<State, "choice" | "runs" | "labels" | "loaded" | "hypothesis">> };

const NOTHING: Choice = { run: "", model: "", score: "", target: "", kind: "", address: null, epoch: null, filter: "", group: "", against: [] };

export function initial(choice: Partial<Choice> = {}): State {
  return {
    choice: { ...NOTHING, ...choice },
    runs: [],
    labels: NO_LABELS,
    loaded: false,
    hover: null,
    playing: false,
    chart: EMPTY,
    loading: true,
    compared: [],
    units: EMPTY,
    confusion: null,
    versus: "",
    gap: null,
    followup: null,
    hypothesis: { score: "", target: "" },
    scene: null,
    log: null,
    axis: "step",
    notices: [],
    status: {},
    link: "connecting",
    theme: "light",
    gone: "",
    error: "",
  };
}

export function currentRun(state: State): Run | undefined {
  return state.runs.find((run) => run.run === state.choice.run && run.model === state.choice.model);
}

/** Return the runs of the group of a run; none without a group. */
export function groupOf({ runs }: State, run: Run | undefined): Run[] {
  return runs.filter(({ group, model }) => run?.group && group === run.group && model === run.model);
}

export function reduce(state: State, action: Action): State {
  switch (action.type) {
    case "runs":
      return settle({ ...state, runs: action.runs, labels: { scores: action.scores, kinds: action.kinds }, loaded: true });
    case "choose":
      return settle({ ...state, choice: { ...state.choice, ...action.choice }, gone: action.choice.run ? "" : state.gone });
    case "hypothesis":
      return settle(withHypothesis(state, action.score, action.target));
    case "set":
      return set(state, action.values);
  }
}

/** Select the units' score of the table; the plot follows if it shows units. */
function withHypothesis(state: State, score: string, target: string): State {
  const run = currentRun(state);
  const choice = run && isOfUnits(run, state.choice.score) ? { ...state.choice, score, target } : state.choice;
  const same = state.hypothesis.score === score && state.hypothesis.target === target;
  return { ...state, choice, hypothesis: { score, target }, units: same ? state.units : EMPTY };
}

/** Return the same object if no value differs, so that nothing is redrawn. */
function set(state: State, values: Partial<State>): State {
  const changed = (Object.keys(values) as (keyof State)[]).some((key) => state[key] !== values[key]);
  return changed ? { ...state, ...values } : state;
}

/** Replace choices that do not exist. If the run changes, the selected layer and epoch of the old one are dropped. */
function settle(state: State): State {
  const wanted = state.choice;
  const run = currentRun(state) ?? state.runs.find((r) => r.run === wanted.run) ?? state.runs[0];
  if (!run) return state;
  const choice = { ...wanted, run: run.run, model: run.model, ...settleScore(wanted, run, state.labels) };
  choice.kind = keep(wanted.kind, run.kinds, run.kinds.includes("output") ? "output" : (run.kinds[0] ?? ""));
  if (groupOf(state, run).length < 2) choice.group = "";
  const others = new Set(state.runs.filter((r) => r !== run).map(runKey));
  choice.against = wanted.against.filter((key) => others.has(key));
  const gone = wanted.run && run.run !== wanted.run ? wanted.run : state.gone;
  const moved = run.run !== wanted.run || run.model !== wanted.model;
  const wish = isOfUnits(run, choice.score) ? { score: choice.score, target: choice.target } : state.hypothesis;
  const known = run.units.some((u) => u.score === wish.score && u.target === wish.target);
  const found = known ? wish : (run.units[0] ?? { score: "", target: "" });
  const same = found.score === state.hypothesis.score && found.target === state.hypothesis.target;
  const hypothesis = same ? state.hypothesis : found;
  return { ...state, choice: moved ? { ...choice, address: null, epoch: null } : choice, hypothesis, gone };
}

function settleScore(wanted: Choice, run: Run, labels: Labels): { score: string; target: string } {
  const first = firstScore(run, keep(wanted.target, run.targets, run.targets[0] ?? ""), labels);
  const score = keep(wanted.score, [...run.scores, ...unitScores(run)], first);
  const targets = targetsOf(run, score).filter(Boolean);
  // A score without a target keeps the selected target for the next score that has one.
  const options = targets.length > 0 ? targets : run.targets;
  return { score, target: keep(wanted.target, options, options[0] ?? "") };
}

function keep(value: string, options: string[], otherwise: string): string {
  return options.includes(value) ? value : otherwise;
}

/** Return the target to request from the server: "" if the results of the score have no target. */
export function requestedTarget(choice: Choice, run: Run | undefined): string {
  return run && isIntrinsic(run, choice.score) ? "" : choice.target;
}
