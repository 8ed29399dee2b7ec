// What became of what a run sent: the servers' counts of it in the page's words. Pure.

import type { Run, Status } from "../server/api.ts";

export interface Tally {
  key: string;
  label: string;
  value: number;
  /** Something was lost: the count is shown in the colour of a warning once it is above nought. */
  bad: boolean;
  title: string;
}

const SHOWN: [key: string, label: string, bad: boolean, title: string][] = [
  ["pending", "pending", false, "Data points of this run still waiting to be complete"],
  ["dropped", "dropped", true, "Arrays that the training process dropped to stay within its bounds"],
  ["incomplete", "incomplete", true, "Data points scored though not all of their arrays came"],
  ["refused", "refused", true, "Arrays of this run that the server refused"],
  ["failed", "failed", true, "Data points that could not be scored"],
];

/** The header's counts, of the run on show since the servers began; its scores are all that are stored. `missing` is
 * how many points of the plot have no value. Requests that no run can be told of stand last, where there are any. */
export function tally(run: Run, status: Status, missing: number): Tally[] {
  const ours = (status.runs ?? []).filter((counts) => counts.run === run.run && counts.model === run.model);
  const sum = (key: string): number => ours.reduce((total, counts) => total + Number(counts[key] ?? 0), 0);
  const refused = status.requests?.refused ?? 0;
  return [
    { key: "scores", label: "scores", value: run.points, bad: false, title: "Scores of this run that are stored" },
    ...SHOWN.map(([key, label, bad, title]) => ({ key, label, bad, title, value: sum(key) })),
    { key: "empty", label: "without a value", value: missing, bad: true, title: "Points of the plot that have no value" },
    ...(refused ? [{ key: "requests", label: "requests refused", value: refused, bad: true, title: "Requests that the server refused, of whatever run: its log and the notices say why" }] : []),
  ];
}
