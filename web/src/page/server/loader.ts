// Loads what the page shows: only what is chosen. Late answers to outdated requests are discarded.
import { runKey } from "../model/comparedRuns.ts";
import { type Chart, chart as toChart, EMPTY } from "../model/series.ts";
import { unitRows } from "../model/unitRows.ts";
import { currentRun, requestedTarget, type State } from "../state/state.ts";
import type { Dispatch } from "../state/view.ts";
import * as api from "./api.ts";

const GAP = 150; // milliseconds between an answer and the next request
const CATCH_UP = 1500; // milliseconds; see opened()
const RUNS_GAP = 600; // the list of runs is the most expensive request, and the plot should not wait for it

/** Return a function that runs a task, but never twice at once: calls during a run lead to one more run after it. */
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
  private shownChart = ""; // the key of the current chart
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

  /** Load everything again, after the connection was lost. */
  all(): void {
    this.keys = { ...NONE };
    this.runs();
    this.notices();
    this.status();
    this.follow();
  }

  /** Called when the connection is open for the first time. The runs were requested before that, so changes in between are
   * unknown; they are requested later, because the first plot has priority. */
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

  /** Load what was newly chosen, after a change of the state. */
  follow(): void {
    const { chart, compared, scene, units } = this.wanted();
    if (chart !== this.keys.chart) this.chart();
    if (compared !== this.keys.compared) this.compared();
    if (scene !== this.keys.scene) this.scene();
    if (units !== this.keys.units) this.units();
  }

  /** Load what changed, after the server reported it. */
  changed(what: string[], runs: [string, string][]): void {
    const { run, model } = this.state().choice;
    if (what.length === 0) return; // the first event of a connection
    const isCurrent = runs.length === 0 || runs.some(([r, m]) => r === run && m === model);
    this.status();
    if (what.includes("notices")) this.notices();
    if (what.includes("points") || what.includes("graph")) this.runs();
    if (isCurrent && what.includes("points")) {
      this.chart();
      this.units();
    }
    const { against } = this.state().choice;
    const isCompared = runs.length === 0 || runs.some(([r, m]) => against.includes(runKey({ run: r, model: m })));
    if (isCompared && against.length > 0 && what.includes("points")) this.compared();
    if (isCurrent && what.includes("graph")) this.scene();
  }

  private wanted(): typeof NONE {
    const { choice, hypothesis, runs } = this.state();
    const run = currentRun(this.state());
    const against = choice.against.filter((key) => runs.some((each) => runKey(each) === key)); // a link may name runs that are not loaded yet
    const which = [choice.run, choice.model];
    const what = [choice.score, requestedTarget(choice, run), choice.kind];
    return {
      chart: run ? keyOf(...which, ...what) : "",
      compared: against.length ? keyOf(against, ...what) : "",
      scene: run?.has_graph ? keyOf(...which) : keyOf(...which, null),
      units: run?.units.length ? keyOf(...which, hypothesis) : keyOf(...which, null),
    };
  }

  private async loadChart(): Promise<void> {
    const before = this.shownChart;
    const key = (this.keys.chart = this.wanted().chart);
    const { choice } = this.state();
    const run = currentRun(this.state());
    if (!run || !choice.score) return this.set({ chart: EMPTY, loading: false });
    if (key !== before) this.dispatch({ type: "set", values: { loading: true } });
    try {
      const chart = await this.chartOf(run);
      if (key !== this.wanted().chart) return;
      this.shownChart = key;
      this.set({ chart });
    } finally {
      if (key === this.wanted().chart) this.dispatch({ type: "set", values: { loading: false } });
    }
  }

  private async loadCompared(): Promise<void> {
    const key = (this.keys.compared = this.wanted().compared);
    const { choice, runs } = this.state();
    const others = choice.against.flatMap((key) => runs.find((run) => runKey(run) === key) ?? []);
    const compared = await Promise.all(others.map(async (run) => ({ key: runKey(run), chart: await this.chartOf(run) })));
    if (key === this.wanted().compared) this.set({ compared });
  }

  /** Load the chart of the chosen score of a run. */
  private async chartOf(run: api.Run): Promise<Chart> {
    const { choice } = this.state();
    const what = { score: choice.score, target: requestedTarget(choice, run), kind: choice.kind };
    return toChart(await api.getPoints({ run: run.run, model: run.model, ...what, level: "layer" }), run.addresses);
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
    const columns = await api.getPoints({ run: run.run, model: run.model, score, target, kind: "", level: "unit" });
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
