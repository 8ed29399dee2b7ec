// The counts in the header: what happened to the data of a run.
import type { Run, Status } from "../server/api.ts";

export interface HeaderCount {
  key: string;
  label: string;
  value: number;
  /** Whether the count is of lost data; it is shown in the color of a warning if it is not zero. */
  bad: boolean;
  title: string;
}

const SHOWN: [key: string, label: string, bad: boolean, title: string][] = [
  ["pending", "pending", false, "Data points of this run that are not complete yet"],
  ["dropped", "dropped", true, "Arrays that the training process dropped because its queue was full or there was no server"],
  ["incomplete", "incomplete", true, "Data points that were scored although some of their arrays were missing"],
  ["refused", "refused", true, "Arrays of this run that the server refused"],
  ["failed", "failed", true, "Data points that could not be scored"],
];

/** Return the counts of a run since the servers started, and its stored scores. `missing` is the number of points of the
 * plot without a value. Refused requests belong to no run; they come last, if there are any. */
export function headerCounts(run: Run, status: Status, missing: number): HeaderCount[] {
  const ofRun = (status.runs ?? []).filter((counts) => counts.run === run.run && counts.model === run.model);
  const sum = (key: string): number => ofRun.reduce((total, counts) => total + Number(counts[key] ?? 0), 0);
  const refused = status.requests?.refused ?? 0;
  return [
    { key: "scores", label: "scores", value: run.points, bad: false, title: "Stored scores of this run" },
    ...SHOWN.map(([key, label, bad, title]) => ({ key, label, bad, title, value: sum(key) })),
    { key: "empty", label: "without a value", value: missing, bad: true, title: "Points of the plot that have no value" },
    ...(refused ? [{ key: "requests", label: "requests refused", value: refused, bad: true, title: "Requests of any run that the server refused. Its log and the notices give the reasons." }] : []),
  ];
}
