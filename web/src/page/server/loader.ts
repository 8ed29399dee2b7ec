// Loads what the page shows: only what is chosen. Late answers to outdated requests are discarded.
import { runKey } from "../model/comparedRuns.ts";
import { type Chart, chart as toChart, EMPTY, nearest } from "../model/series.ts";
import { isOfUnits } from "../model/scoreLabels.ts";
import { unitChart } from "../model/unitRows.ts";
import { currentRun, requestedTarget, type State } from "../state/state.ts";
import type { Dispatch } from "../state/view.ts";
import * as api from "./api.ts";
import { KnownPoints } from "./knownPoints.ts";
import type { Change } from "./stream.ts";

const GAP = 150; // milliseconds between an answer and the next request
const STATUS_GAP = 3000; // while something waits to be scored, though nothing in the database changes
const LOG_GAP = 3000; // hundreds of thousands of values take the server a second to thin
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

const NONE = { status: "", chart: "", compared: "", scene: "", log: "", units: "", confusion: "", gap: "", followup: "" };

const keyOf = (...parts: unknown[]): string => JSON.stringify(parts);

export class Loader {
  private keys = { ...NONE };
  private readonly points = new KnownPoints();
  private again = 0; // the timer of the next request for the status
  private shownChart = ""; // the key of the current chart
  private listed = -1; // the last change that the list of runs contains
  private opening = 0; // the last change when the connection was opened
  readonly runs = this.task(() => this.loadRuns(), RUNS_GAP);
  readonly notices = this.task(async () => this.set({ notices: await api.getNotices() }));
  readonly status = this.task(() => this.loadStatus());
  readonly chart = this.task(() => this.loadChart());
  readonly compared = this.task(() => this.loadCompared());
  readonly scene = this.task(() => this.loadScene());
  readonly log = this.task(() => this.loadLog(), LOG_GAP);
  readonly units = this.task(() => this.loadUnits());
  readonly confusion = this.task(() => this.loadConfusion());
  readonly gap = this.task(() => this.loadGap());
  readonly followup = this.task(() => this.loadFollowup());

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

  /** Called when the connection is open for the first time. */
  opened(): void {
    this.notices();
    this.status();
  }

  /** Load everything again if something changed between the list of runs, which was requested first, and the connection. */
  private catchUp(): void {
    if (this.listed < 0 || this.listed >= this.opening) return;
    this.opening = 0;
    this.all();
  }

  private async loadRuns(): Promise<void> {
    const { change, ...runs } = await api.getRuns();
    this.listed = change;
    this.dispatch({ type: "runs", ...runs });
    this.catchUp();
  }

  /** Load what was newly chosen, after a change of the state. */
  follow(): void {
    const { status, chart, compared, scene, log, units, confusion, gap, followup } = this.wanted();
    if (status !== this.keys.status) this.status();
    if (chart !== this.keys.chart) this.chart();
    if (compared !== this.keys.compared) this.compared();
    if (scene !== this.keys.scene) this.scene();
    if (log !== this.keys.log) this.log();
    if (units !== this.keys.units) this.units();
    if (confusion !== this.keys.confusion) this.confusion();
    if (gap !== this.keys.gap) this.gap();
    if (followup !== this.keys.followup) this.followup();
  }

  /** Load what changed, after the server reported it. */
  changed({ change, what, runs }: Change): void {
    const { run, model } = this.state().choice;
    if (what.length === 0) {
      this.opening = change; // the first event of a connection
      return this.catchUp();
    }
    const isCurrent = runs.length === 0 || runs.some(([r, m]) => r === run && m === model);
    this.status();
    if (what.includes("notices")) this.notices();
    if (what.includes("points") || what.includes("graph")) this.runs();
    if (isCurrent && what.includes("points")) {
      this.chart();
      this.units();
      this.confusion();
      this.gap();
      this.followup();
    }
    const { against } = this.state().choice;
    const isCompared = runs.length === 0 || runs.some(([r, m]) => against.includes(runKey({ run: r, model: m })));
    if (isCompared && against.length > 0 && what.includes("points")) this.compared();
    if (isCurrent && what.includes("graph")) this.scene();
    if (isCurrent && what.includes("log")) this.log();
  }

  private wanted(): typeof NONE {
    const { choice, hypothesis, runs } = this.state();
    const run = currentRun(this.state());
    const against = choice.against.filter((key) => runs.some((each) => runKey(each) === key)); // a link may name runs that are not loaded yet
    const which = [choice.run, choice.model];
    const what = [choice.score, requestedTarget(choice, run), choice.kind, choice.group];
    return {
      status: run ? keyOf(...which) : "",
      chart: run ? keyOf(...which, ...what) : "",
      compared: against.length ? keyOf(against, ...what) : "",
      scene: run?.has_graph ? keyOf(...which) : keyOf(...which, null),
      log: run ? keyOf(...which) : "",
      units: run?.units.length ? keyOf(...which, hypothesis) : keyOf(...which, null),
      confusion: keyOf(this.point()),
      gap: keyOf(this.gapQuery()),
      followup: keyOf(this.followupQuery()),
    };
  }

  private async loadStatus(): Promise<void> {
    const key = (this.keys.status = this.wanted().status);
    const { run, model } = this.state().choice;
    window.clearTimeout(this.again);
    const status = await api.getStatus(run, model);
    if (key !== this.wanted().status) return;
    this.set({ status });
    if (status.runs?.some(({ waiting }) => waiting)) this.again = window.setTimeout(this.status, STATUS_GAP);
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
    const ofUnits = isOfUnits(run, choice.score);
    const what = { score: choice.score, target: requestedTarget(choice, run), kind: ofUnits ? "" : choice.kind, group: run.group && choice.group };
    const level = ofUnits ? "unit" : "layer";
    return toChart(await this.points.of({ run: run.run, model: run.model, ...what, level }), run.addresses);
  }

  /** Return the query for the predictions of the selected layer; null if no layer is selected, or its score has no target. */
  private point(): Record<string, string> | null {
    const { choice, chart } = this.state();
    const run = currentRun(this.state());
    const target = requestedTarget(choice, run);
    if (!run || choice.address === null || !target || chart.units) return null;
    return { run: run.run, model: run.model, address: choice.address, target, score: choice.score, kind: choice.kind, ...this.when(chart) };
  }

  /** Return the epoch of a chart that is shown, as a part of a query; empty without epochs. */
  private when({ epochs }: Chart): Record<string, string> {
    const { choice, chart } = this.state();
    const epoch = epochs[nearest(epochs, chart.epochs[nearest(chart.epochs, choice.epoch)] ?? choice.epoch)];
    return epoch !== undefined && currentRun(this.state())?.epochs.includes(epoch) ? { epoch: String(epoch) } : {};
  }

  private followupQuery(): Record<string, string> | null {
    const { choice: { run, model, address }, hypothesis: { target }, units } = this.state();
    return currentRun(this.state())?.units.length ? { run, model, target, unit: address ?? "", ...this.when(units) } : null;
  }

  private gapQuery(): Record<string, string> | null {
    const point = this.point();
    const { versus } = this.state();
    if (!point || !versus) return null;
    const [what, which] = JSON.parse(versus) as [string, string | number];
    return { ...point, [what === "epoch" ? "other_epoch" : "other_address"]: String(which) };
  }

  private async loadConfusion(): Promise<void> {
    const key = (this.keys.confusion = this.wanted().confusion);
    const point = this.point();
    const confusion = point && (await api.getConfusion(point));
    if (key === this.wanted().confusion) this.set({ confusion });
  }

  private async loadGap(): Promise<void> {
    const key = (this.keys.gap = this.wanted().gap);
    const query = this.gapQuery();
    const gap = query && (await api.getGap(query));
    if (key === this.wanted().gap) this.set({ gap });
  }

  private async loadFollowup(): Promise<void> {
    const key = (this.keys.followup = this.wanted().followup);
    const query = this.followupQuery();
    const followup = query && (await api.getFollowup(query));
    if (key === this.wanted().followup) this.set({ followup });
  }

  private async loadScene(): Promise<void> {
    const key = (this.keys.scene = this.wanted().scene);
    const run = currentRun(this.state());
    const scene = run?.has_graph ? await api.getGraph(run.run, run.model) : null;
    if (key === this.wanted().scene) this.set({ scene });
  }

  private async loadLog(): Promise<void> {
    const key = (this.keys.log = this.wanted().log);
    const run = currentRun(this.state());
    const log = run ? await api.getLog(run.run, run.model) : null;
    if (key === this.wanted().log) this.set({ log });
  }

  private async loadUnits(): Promise<void> {
    const key = (this.keys.units = this.wanted().units);
    const { hypothesis } = this.state();
    const run = currentRun(this.state());
    if (!run || run.units.length === 0) return this.set({ units: EMPTY });
    const { score, target } = hypothesis;
    const columns = await this.points.of({ run: run.run, model: run.model, score, target, kind: "", level: "unit", group: "" });
    if (key === this.wanted().units) this.set({ units: unitChart(columns, target) });
  }

  private set(values: Partial<State>): void {
    this.dispatch({ type: "set", values: { error: "", ...values } });
  }

  private task(work: () => Promise<void>, gap = GAP): () => void {
    const again = coalesce(async () => {
      try {
        await work();
      } catch (error) {
        const { message } = error as Error;
        this.dispatch({ type: "set", values: { error: message } });
        // A lost connection loads everything when it is back; if it was not lost, nothing else would.
        if (message === api.NO_ANSWER && this.state().link === "live") window.setTimeout(again, STATUS_GAP);
      }
    }, gap);
    return again;
  }
}
