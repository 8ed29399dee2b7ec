// The requests of the page and the types of their answers. NaN is transferred as null.

export interface Run {
  run: string;
  model: string;
  framework: string;
  started: number;
  updated: number;
  epochs: number[];
  addresses: string[];
  targets: string[];
  scores: string[];
  kinds: string[];
  has_graph: boolean;
  /** The name that runs have in common whose configurations differ in the seed only; "" if the run has none. */
  group: string;
  points: number;
  /** The scores of layers, each with its target; "" for a score without a target. */
  layers: ScoredTarget[];
  /** The score of a target to show first, where it is another than the first of all. */
  first: ScoredTarget[];
  units: ScoredTarget[];
}

export interface ScoredTarget {
  score: string;
  target: string;
}

/** The description of a score, as registered. Missing texts are empty. */
export interface ScoreInfo {
  name: string;
  label: string;
  about: string;
  /** A description of the baseline of its points. */
  baseline: string;
  /** A description of the interval of its points. */
  interval: string;
  /** The score whose baseline it is. */
  baseline_of: string;
  /** The value of a unit that does not respond, if values on both sides of it are responses. */
  center: number | null;
}

export interface Runs {
  runs: Run[];
  scores: ScoreInfo[];
  kinds: Record<string, string>;
}

export interface RunsReply extends Runs {
  /** The number of the last change that the list contains. */
  change: number;
}

/** The measurements at each point: the score, its 95 % interval, its baseline, the number of rows, a note, and how often it
 * changed. */
export interface Measured {
  value: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  baseline: (number | null)[];
  n: (number | null)[];
  note: (string | null)[];
  revision: (number | null)[];
}

/** Columns of equal length, one row per unit or layer and epoch. Score, target and kind of the request are not repeated in
 * every row; they would be half of the data. */
export interface Columns extends Measured {
  address: string[];
  unit: (number | null)[];
  epoch: (number | null)[];
  step: (number | null)[];
  target: (string | null)[];
  mode: (string | null)[];
}

/** Columns of which those of epochs that did not change after the change of the query may be left out. */
export interface PointsReply extends Columns {
  /** The number of the last change that is contained. */
  change: number;
  /** Whether nothing is left out. */
  whole: boolean;
}

const LAYER = ["address", "epoch", "step", "value", "low", "high", "baseline", "n", "note", "revision", "mode"];
const REQUESTED = { layer: LAYER, unit: [...LAYER, "unit", "target"] };

/** Which classes a classifier takes for which on held-out rows; all empty if there are no predictions. */
export interface Confusion {
  classes: string[];
  /** Counts by true and predicted class; empty for very many classes. */
  matrix: number[][];
  f1: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
}

/** The difference of a score to that of another layer or epoch, on the same held-out rows. */
export interface Gap {
  value: number | null;
  low: number | null;
  high: number | null;
  p: number | null;
  n: number;
  note: string;
}

/** A record, with the behavior of a unit over it. */
export interface UnitExample {
  kind: string;
  record: number;
  behavior: number | null;
  label: string;
  /** The symbols of a text around the chosen one, which is at `at`; `gap` separates them. */
  tokens: string[];
  gap: string;
  /** The behavior at each symbol relative to the largest, from -100 to 100; empty if the layer has no positions. */
  shades: number[];
  holds: boolean[];
  /** The label of each symbol if the hypothesis is not 0 or 1. */
  labels?: string[];
  at: number | null;
  /** Whether symbols before the first and after the last are left out. */
  cut: [boolean, boolean];
  /** An image, and the behavior over it, as URLs; "" for none. */
  picture: string;
  over: string;
}

export interface UnitExamples {
  examples: UnitExample[];
  /** The largest size of a behavior. */
  largest: number;
  /** What the colors and marks mean. */
  legend: string;
}

export interface VerifiedPart {
  title: string;
  measures: { name: string; value: number | null; low: number | null; high: number | null; n: number; verdict: string }[];
  sentence: string;
  /** The difference of other units of the layer. */
  others: number[];
}

/** What is stored of a unit besides its scores, and the units of which something is stored. */
export interface UnitFollowup {
  unit: string;
  epoch: number | null;
  units: { unit: string; epoch: number | null }[];
  examples: UnitExamples | null;
  verification: { parts: VerifiedPart[]; notes: string[] } | null;
}

/** The values that the user logged, ordered by name and step. */
export interface Log {
  name: string[];
  step: number[];
  epoch: (number | null)[];
  time: number[];
  value: (number | "nan" | "inf" | "-inf")[];
  /** When the training began, in seconds since 1970. */
  training: (number | null)[];
  /** "" for values of the newest training. */
  note: string[];
  /** The values of the newest training with any, by name. */
  total: Record<string, number>;
}

export interface Notice {
  id: number;
  time: number;
  level: string;
  run: string;
  model: string;
  code: string;
  text: string;
  count: number;
}

/** The outcome of the arrays of a run and a model. */
export interface Ledger {
  run: string;
  model: string;
  sent: number;
  under_way: number;
  unknown: number;
  refused: number;
  waiting: number;
  /** Layers that wait to be scored, and how long that will take; null if it is not known. */
  queued: number;
  /** Those of them that wait although a newer epoch has scores. */
  postponed: number;
  seconds_left: number | null;
  /** Why layers cannot be scored or stored now, though they are kept; "" if they can. */
  trouble: string;
  scored: number;
  failed: number;
  lost: number;
  dropped: number;
  incomplete: number;
}

export interface Status {
  /** Requests of any run that were refused or failed. */
  requests?: Record<string, number>;
  runs?: Ledger[];
}

export interface PointsQuery {
  run: string;
  model: string;
  score: string;
  target: string;
  kind: string;
  level: "layer" | "unit";
  /** "true" for the mean over the runs of the group. */
  group: string;
}

/** What browsers call "Failed to fetch", each in its own words. */
export const NO_ANSWER = "The server does not answer. The page goes on when it does.";

async function get(path: string, query: Record<string, string> = {}): Promise<Response> {
  const text = new URLSearchParams(query).toString();
  return fetch(text ? `${path}?${text}` : path, { headers: { accept: "application/json" } }).catch(() => {
    throw new Error(NO_ANSWER);
  });
}

async function json<T>(response: Response): Promise<T> {
  if (!response.ok) {
    const body = (await response.json().catch(() => ({}))) as { error?: string };
    throw new Error(body.error ?? `The server answered ${response.status} to ${new URL(response.url).pathname}.`);
  }
  return (await response.json()) as T;
}

export async function getRuns(): Promise<RunsReply> {
  return json<RunsReply>(await get("/api/runs"));
}

/** Return the rows of a score; an empty target or kind selects all. Those of epochs that did not change after the change `after` may
 * be left out. */
export async function getPoints(query: PointsQuery, after = 0): Promise<PointsReply> {
  const filters = Object.fromEntries(Object.entries({ ...query, after: String(after) }).filter(([, value]) => value !== ""));
  return json<PointsReply>(await get("/api/points", { ...filters, columns: REQUESTED[query.level].join(",") }));
}

/** Return the table of confused classes at a point. */
export async function getConfusion(point: Record<string, string>): Promise<Confusion> {
  return json<Confusion>(await get("/api/confusion", point));
}

/** Return the difference of a point to another one, which `other_address` or `other_epoch` of the query names. */
export async function getGap(query: Record<string, string>): Promise<Gap> {
  return json<Gap>(await get("/api/above", query));
}

/** Return what is stored of the `unit` of the query at its `epoch`. */
export async function getFollowup(query: Record<string, string>): Promise<UnitFollowup> {
  return json<UnitFollowup>(await get("/api/followup", query));
}

/** Return the scene of the model's graph; null if the run has none. */
export async function getGraph(run: string, model: string): Promise<unknown> {
  const response = await get("/api/graph", { run, model });
  return response.status === 404 ? null : json<unknown>(response);
}

export async function getLog(run: string, model: string): Promise<Log> {
  return json<Log>(await get("/api/log", { run, model, most: "1000" }));
}

export async function getNotices(): Promise<Notice[]> {
  return (await json<{ notices: Notice[] }>(await get("/api/notices"))).notices;
}

/** Return the counts, with the ledger of a run. */
export async function getStatus(run: string, model: string): Promise<Status> {
  return json<Status>(await get("/api/status", { run, model }));
}
