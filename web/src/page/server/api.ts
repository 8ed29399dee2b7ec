// What the server says, as types, and the few requests the page makes. NaN arrives as null.

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
  points: number;
  /** The scores that layers have, and of which target; "" for a score that needs none. */
  layers: ScoredTarget[];
  units: ScoredTarget[];
}

export interface ScoredTarget {
  score: string;
  target: string;
}

/** What a score is, as stated where it is registered. Texts that nobody wrote are empty. */
export interface ScoreInfo {
  name: string;
  label: string;
  about: string;
  /** What the baseline of its points is. */
  baseline: string;
  /** The score whose baseline it is. */
  baseline_of: string;
}

export interface Runs {
  runs: Run[];
  scores: ScoreInfo[];
  kinds: Record<string, string>;
}

/** What was measured at each point: the score, its 95 % interval, its baseline, rows seen, what to know of it, and
 * how often it was found anew to be something else, because rows came late. */
export interface Measured {
  value: (number | null)[];
  low: (number | null)[];
  high: (number | null)[];
  baseline: (number | null)[];
  n: (number | null)[];
  note: (string | null)[];
  revision: (number | null)[];
}

/** Columns of equal length, one row per unit or layer at one epoch. What the page asked by (score, target, kind) is
 * not sent again with every row: it would be half of what is read. */
export interface Columns extends Measured {
  address: string[];
  unit: (number | null)[];
  epoch: (number | null)[];
  step: (number | null)[];
  target: (string | null)[];
}

const LAYER = ["address", "epoch", "step", "value", "low", "high", "baseline", "n", "note", "revision"];
const ASKED = { layer: LAYER, unit: [...LAYER, "unit", "target"] };

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

/** What one role counts of a (run, model). */
export type RunCounts = { run: string; model: string } & Record<string, unknown>;

export interface Status {
  /** Requests of the server that were refused or failed, of whatever run. */
  requests?: Record<string, number>;
  runs?: RunCounts[];
}

export interface PointsQuery {
  run: string;
  model: string;
  score: string;
  target: string;
  kind: string;
  level: "layer" | "unit";
}

async function get(path: string, query: Record<string, string> = {}): Promise<Response> {
  const text = new URLSearchParams(query).toString();
  return fetch(text ? `${path}?${text}` : path, { headers: { accept: "application/json" } });
}

async function json<T>(response: Response): Promise<T> {
  if (!response.ok) {
    const body = (await response.json().catch(() => ({}))) as { error?: string };
    throw new Error(body.error ?? `The server answered ${response.status} to ${new URL(response.url).pathname}.`);
  }
  return (await response.json()) as T;
}

export async function getRuns(): Promise<Runs> {
  return json<Runs>(await get("/api/runs"));
}

/** The rows of one score; an empty target or kind asks for every one. */
export async function getPoints(query: PointsQuery): Promise<Columns> {
  const asked = Object.fromEntries(Object.entries(query).filter(([, value]) => value !== ""));
  return json<Columns>(await get("/api/points", { ...asked, columns: ASKED[query.level].join(",") }));
}

/** The scene of the model's graph as the server sent it; null when the run has none. */
export async function getGraph(run: string, model: string): Promise<unknown> {
  const response = await get("/api/graph", { run, model });
  return response.status === 404 ? null : json<unknown>(response);
}

export async function getNotices(): Promise<Notice[]> {
  return (await json<{ notices: Notice[] }>(await get("/api/notices"))).notices;
}

export async function getStatus(): Promise<Status> {
  return json<Status>(await get("/api/status"));
}
