// How much came, and what became of it: the servers' counts in the page's words. Pure.

import type { Status } from "./api.ts";

export interface Tally {
  key: string;
  label: string;
  value: number;
  /** Something was lost: the count is shown in the colour of a warning once it is above nought. */
  bad: boolean;
  title: string;
}

const SHOWN: [key: string, label: string, bad: boolean, title: string][] = [
  ["scored", "scored", false, "Data points that were scored"],
  ["pending", "pending", false, "Data points still waiting to be complete or to be scored"],
  ["dropped", "dropped", true, "Records the training process dropped to stay within its budget"],
  ["incomplete", "incomplete", true, "Data points scored though not all of their records came"],
  ["refused", "refused", true, "Records a server refused"],
  ["failed", "failed", true, "Scores that could not be computed"],
];

/** Sum of one count over the roles; a client's drops may come as one number per client. */
function sum(status: Status, key: string): number {
  return Object.values(status).reduce((total, counts) => total + amount(counts?.[key]), 0);
}

function amount(value: unknown): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  if (value && typeof value === "object") return Object.values(value).reduce<number>((t, v) => t + amount(v), 0);
  return 0;
}

/** The header's counts; `missing` is how many points of the plot on show are not a number. */
export function tally(status: Status, missing: number): Tally[] {
  const counts = SHOWN.map(([key, label, bad, title]) => ({ key, label, bad, title, value: sum(status, key) }));
  const nan = "Points of the chosen score that are not a number";
  return [...counts, { key: "nan", label: "NaN", value: missing, bad: true, title: nan }];
}
