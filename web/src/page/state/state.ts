// What the page knows and how it changes: one state, one pure reducer.

import type { Notice, Run, Runs, Status } from "../server/api.ts";
import { EMPTY, type Chart } from "../model/series.ts";
import type { Theme } from "./savedTheme.ts";
import type { UnitRow } from "../model/unitRows.ts";
import { groupScores, isIntrinsic, NO_WORDS, targetsOf, type Words } from "../model/scoreLabels.ts";

/** What the person picked. An epoch of null follows the newest. */
export interface Choice {
  run: string;
  model: string;
  score: string;
  target: string;
  kind: string;
  /** The layer picked, null for none; "" is the model itself. */
  address: string | null;
  epoch: number | null;
  /** Words, of which a layer's name must hold one to be shown; "" shows all. */
  filter: string;
  /** Other runs to draw beside this one, each as `runKey` has it. */
  against: string[];
}

export type Link = "connecting" | "live" | "lost";

export interface State {
  choice: Choice;
  runs: Run[];
  /** What the scores and kinds of the runs are. */
  words: Words;
  /** False until the first answer: the page must not claim there is no run before it knows. */
  loaded: boolean;
  /** The layer pointed at. */
  hover: string | null;
  playing: boolean;
  chart: Chart;
  /** What was chosen last is still on its way: the chart is that of the choice before. */
  loading: boolean;
  /** The same score of the runs compared, in the order of `choice.against`. */
  compared: Compared[];
  units: UnitRow[];
  hypothesis: { score: string; target: string };
  /** The scene for this run; null while unknown or when there is none. */
  scene: unknown;
  notices: Notice[];
  status: Status;
  link: Link;
  theme: Theme;
  error: string;
}

/** Another run's chart, drawn dashed. */
export interface Compared {
  key: string;
  chart: Chart;
}

export type Action =
  | ({ type: "runs" } & Runs)
  | { type: "choose"; choice: Partial<Choice> }
  | { type: "hypothesis"; score: string; target: string }
  | { type: "set"; values: Partial<Omit<State, "choice" | "runs" | "words" | "loaded" | "hypothesis">> };

const NOTHING: Choice = { run: "", model: "", score: "", target: "", kind: "", address: null, epoch: null, filter: "", against: [] };

/** A run and its model as one text, for a picker's value and the address bar. */
export function runKey({ run, model }: { run: string; model: string }): string {
  return JSON.stringify([run, model]);
}

export function runLabel({ run, model }: { run: string; model: string }): string {
  return model === run || !model ? run : `${run} · ${model}`;
}

export function initial(choice: Partial<Choice> = {}): State {
  return {
    choice: { ...NOTHING, ...choice },
    runs: [],
    words: NO_WORDS,
    loaded: false,
    hover: null,
    playing: false,
    chart: EMPTY,
    loading: true,
    compared: [],
    units: [],
    hypothesis: { score: "", target: "" },
    scene: null,
    notices: [],
    status: {},
    link: "connecting",
    theme: "light",
    error: "",
  };
}

export function currentRun(state: State): Run | undefined {
  return state.runs.find((run) => run.run === state.choice.run && run.model === state.choice.model);
}

export function reduce(state: State, action: Action): State {
  switch (action.type) {
    case "runs":
      return settle({ ...state, runs: action.runs, words: { scores: action.scores, kinds: action.kinds }, loaded: true });
    case "choose":
      return settle({ ...state, choice: { ...state.choice, ...action.choice } });
    case "hypothesis":
      return { ...state, hypothesis: { score: action.score, target: action.target }, units: [] };
    case "set":
      return set(state, action.values);
  }
}

/** The same state when nothing differs, so that a pointer at rest redraws nothing. */
function set(state: State, values: Partial<State>): State {
  const news = (Object.keys(values) as (keyof State)[]).some((key) => state[key] !== values[key]);
  return news ? { ...state, ...values } : state;
}

/** Make every choice one that exists, keeping what can be kept; what belongs to another run is dropped. */
function settle(state: State): State {
  const asked = state.choice;
  const run = currentRun(state) ?? state.runs[0];
  if (!run) return state;
  const choice = { ...asked, run: run.run, model: run.model, ...settleScore(asked, run, state.words) };
  choice.kind = keep(asked.kind, run.kinds, run.kinds.includes("output") ? "output" : (run.kinds[0] ?? ""));
  const others = new Set(state.runs.filter((r) => r !== run).map(runKey));
  choice.against = asked.against.filter((key) => others.has(key));
  const moved = run.run !== asked.run || run.model !== asked.model;
  const known = run.units.some((u) => u.score === state.hypothesis.score && u.target === state.hypothesis.target);
  const hypothesis = known ? state.hypothesis : (run.units[0] ?? { score: "", target: "" });
  return { ...state, choice: moved ? { ...choice, address: null, epoch: null } : choice, hypothesis };
}

function settleScore(asked: Choice, run: Run, words: Words): { score: string; target: string } {
  const first = groupScores(run, words)[0]?.scores[0] ?? "";
  const score = keep(asked.score, run.scores, first);
  const targets = targetsOf(run, score).filter(Boolean);
  // A score without a target leaves the target picked before, which comes back with the next score that has one.
  const options = targets.length > 0 ? targets : run.targets;
  return { score, target: keep(asked.target, options, options[0] ?? "") };
}

function keep(value: string, options: string[], otherwise: string): string {
  return options.includes(value) ? value : otherwise;
}

/** The target to ask the server for: none if the run's results of the score have none. */
export function askedTarget(choice: Choice, run: Run | undefined): string {
  return run && isIntrinsic(run, choice.score) ? "" : choice.target;
}
