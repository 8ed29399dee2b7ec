// Brings what the page shows, asks only for what is chosen, and lets a late answer to an old question fall.

import * as api from "./api.ts";
import { type Chart, chart, EMPTY } from "../model/series.ts";
import { askedTarget, currentRun, runKey, type State } from "../state/state.ts";
import { unitRows } from "../model/unitRows.ts";
import type { Dispatch } from "../state/view.ts";

const GAP = 150; // milliseconds of rest after each answer
const CATCH_UP = 1500;
const RUNS_GAP = 600; // the list of runs costs the server most, and the plot should not wait behind it

/** Runs never overlap themselves and many calls while one runs become one more. */
export function coalesce(task: () => Promise<void>, gap: number): () => void {
  let busy = false;
  let again = false;
  const run = async (): Promise<void> => {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    await task();
    await new Promise((resolve) => setTimeout(resolve, gap));
    busy = false;
    if (again) {
      again = false;
      void run();
    }
  };
  return () => void run();
}

const NONE = { chart: "", compared: "", scene: "", units: "" };

const keyOf = (...parts: unknown[]): string => JSON.stringify(parts);

export class Loader {
  private keys = { ...NONE };
  private drawn = ""; // the key of the chart on show
  readonly runs = this.task(async () => this.dispatch({ type: "runs", ...(await api.getRuns()) }), RUNS_GAP);
  readonly notices = this.task(async () => this.set({ notices: await api.getNotices() }));
  readonly status = this.task(async () => this.set({ status: await api.getStatus() }));
  readonly chart = this.task(() => this.loadChart());
  readonly compared = this.task(() => this.loadCompared());
  readonly scene = this.task(() => this.loadScene());
  readonly units = this.task(() => this.loadUnits());

  constructor(
    private readonly state: () => State,
    private readonly dispatch: Dispatch,
  ) {}

  /** Everything anew: after the line was lost. */
  all(): void {
    this.keys = { ...NONE };
    this.runs();
    this.notices();
    this.status();
    this.follow();
  }

  /** The line stands for the first time: what changed since the runs were asked for is looked for once the plot,
   * which comes first, has had time to stand. */
  opened(): void {
    this.notices();
    this.status();
    window.setTimeout(() => void this.catchUp().catch(() => this.all()), CATCH_UP);
  }

  private async catchUp(): Promise<void> {
    const before = currentRun(this.state())?.updated;
    this.dispatch({ type: "runs", ...(await api.getRuns()) });
    if (before !== undefined && currentRun(this.state())?.updated !== before) this.all();
  }

  /** After a change of state: fetch what is now chosen and was not before. */
  follow(): void {
    const { chart, compared, scene, units } = this.wanted();
    if (chart !== this.keys.chart) this.chart();
    if (compared !== this.keys.compared) this.compared();
    if (scene !== this.keys.scene) this.scene();
    if (units !== this.keys.units) this.units();
  }

  /** After the server reported a change. */
  changed(what: string[], runs: [string, string][]): void {
    const { run, model } = this.state().choice;
    if (what.length === 0) return; // the greeting of a line just opened
    const ours = runs.length === 0 || runs.some(([r, m]) => r === run && m === model);
    this.status();
    if (what.includes("notices")) this.notices();
    if (what.includes("points") || what.includes("graph")) this.runs();
    if (ours && what.includes("points")) {
      this.chart();
      this.units();
    }
    const { against } = this.state().choice;
    const theirs = runs.length === 0 || runs.some(([r, m]) => against.includes(runKey({ run: r, model: m })));
    if (theirs && against.length > 0 && what.includes("points")) this.compared();
    if (ours && what.includes("graph")) this.scene();
  }

  private wanted(): typeof NONE {
    const { choice, hypothesis, runs } = this.state();
    const run = currentRun(this.state());
    const against = choice.against.filter((name) => runs.some((each) => runKey(each) === name)); // a link may name runs before they are known
    const of = [choice.run, choice.model];
    const what = [choice.score, askedTarget(choice, run), choice.kind];
    return {
      chart: run ? keyOf(...of, ...what) : "",
      compared: against.length ? keyOf(against, ...what) : "",
      scene: run?.has_graph ? keyOf(...of) : keyOf(...of, null),
      units: run?.units.length ? keyOf(...of, hypothesis) : keyOf(...of, null),
    };
  }

  private async loadChart(): Promise<void> {
    const before = this.drawn;
    const key = (this.keys.chart = this.wanted().chart);
    const { choice } = this.state();
    const run = currentRun(this.state());
    if (!run || !choice.score) return this.set({ chart: EMPTY, loading: false });
    if (key !== before) this.dispatch({ type: "set", values: { loading: true } });
    try {
      const made = await this.chartOf(run);
      if (key !== this.wanted().chart) return;
      this.drawn = key;
      this.set({ chart: made });
    } finally {
      if (key === this.wanted().chart) this.dispatch({ type: "set", values: { loading: false } });
    }
  }

  private async loadCompared(): Promise<void> {
    const key = (this.keys.compared = this.wanted().compared);
    const { choice, runs } = this.state();
    const others = choice.against.flatMap((name) => runs.find((run) => runKey(run) === name) ?? []);
    const made = await Promise.all(others.map(async (run) => ({ key: runKey(run), chart: await this.chartOf(run) })));
    if (key === this.wanted().compared) this.set({ compared: made });
  }

  /** The chosen score of a run. */
  private async chartOf(run: api.Run): Promise<Chart> {
    const { choice } = this.state();
    const what = { score: choice.score, target: askedTarget(choice, run), kind: choice.kind };
    return chart(await api.getPoints({ run: run.run, model: run.model, ...what, level: "layer" }), run.addresses);
  }

  private async loadScene(): Promise<void> {
    const key = (this.keys.scene = this.wanted().scene);
    const run = currentRun(this.state());
    const scene = run?.has_graph ? await api.getGraph(run.run, run.model) : null;
    if (key === this.wanted().scene) this.set({ scene });
  }

  private async loadUnits(): Promise<void> {
    const key = (this.keys.units = this.wanted().units);
    const { hypothesis } = this.state();
    const run = currentRun(this.state());
    if (!run || run.units.length === 0) return this.set({ units: [] });
    const { score, target } = hypothesis;
    const ask = { run: run.run, model: run.model, score, target, kind: "" };
    const columns = await api.getPoints({ ...ask, level: "unit" });
    if (key === this.wanted().units) this.set({ units: unitRows(columns, target) });
  }

  private set(values: Partial<State>): void {
    this.dispatch({ type: "set", values: { error: "", ...values } });
  }

  private task(work: () => Promise<void>, gap = GAP): () => void {
    return coalesce(async () => {
      try {
        await work();
      } catch (error) {
        this.dispatch({ type: "set", values: { error: error instanceof Error ? error.message : String(error) } });
      }
    }, gap);
  }
}
