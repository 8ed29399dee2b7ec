// The counts in the header: what happened to the data of a run.
import { grouped } from "../../ui/format.ts";
import type { Ledger, Run, Status } from "../server/api.ts";

export interface HeaderCount {
  key: string;
  label: string;
  text: string;
  /** Whether nothing is counted, which is shown softly. */
  none: boolean;
  /** Whether data are lost; shown in the color of a warning. */
  bad: boolean;
  title: string;
}

type Name = "sent" | "scored" | "waiting" | "postponed" | "under_way" | "unknown" | "dropped" | "lost" | "refused" | "failed" | "incomplete";

const SHOWN: [key: Name, label: string, bad: boolean, always: boolean, title: string][] = [
  ["sent", "sent", false, true, "Arrays that were sent, by the training's own count"],
  ["scored", "scored", false, true, "Arrays of layers that have scores"],
  ["waiting", "waiting", false, true, "Arrays that wait to be scored, with the time left at the measured rate"],
  ["postponed", "layers of older epochs wait", false, false, "Scoring is behind and takes newer epochs first. These are scored when there is time"],
  ["under_way", "under way", false, false, "Arrays that were sent and did not arrive yet"],
  ["unknown", "not known", true, false, "Arrays that were sent and of which this server knows nothing"],
  ["dropped", "dropped", true, true, "Arrays that the training dropped: its queue was full or there was no server"],
  ["lost", "lost", true, false, "Arrays that the server dropped from its memory before they were scored"],
  ["incomplete", "incomplete", true, true, "Layers that were scored without some of their arrays"],
  ["refused", "refused", true, true, "Arrays that the server refused"],
  ["failed", "failed", true, true, "Arrays that could not be scored"],
];
const NOT_KNOWN = "This server did not take the arrays of this run, or was restarted without the journal that counts them";

/** Format seconds as a time that is left. */
export function timeLeft(seconds: number | null): string {
  if (seconds === null) return "time not known";
  const [size, unit] = seconds < 100 ? [1, "s"] : seconds < 6000 ? [60, "min"] : [3600, "h"];
  return `${grouped(Math.ceil(seconds / (size as number)))} ${unit} left`;
}

function label(name: Name, plain: string, ledger: Ledger): string {
  if (name !== "waiting" || !ledger.waiting) return plain;
  if (ledger.trouble) return "waiting, not scored now";
  return ledger.queued ? `waiting, ${timeLeft(ledger.seconds_left)}` : "waiting for their epoch to end";
}

/** Return the ledger of a run, if the server has one. */
export function ledgerOf(run: Run, status: Status): Ledger | undefined {
  return (status.runs ?? []).find((counts) => counts.run === run.run && counts.model === run.model);
}

/** Return what became of the arrays of a run, and its stored scores. `missing` is the number of points of the plot without a
 * value. Refused requests belong to no run; they come last, if there are any. */
export function headerCounts(run: Run, status: Status, missing: number): HeaderCount[] {
  const ledger = ledgerOf(run, status);
  const refused = status.requests?.refused ?? 0;
  const number = (key: string, label: string, value: number, bad: boolean, title: string): HeaderCount => ({ key, label, text: grouped(value), none: value === 0, bad: bad && value > 0, title });
  const counts = ledger
    ? SHOWN.filter(([key, , , always]) => always || ledger[key] > 0).map(([key, plain, bad, , title]) => number(key, label(key, plain, ledger), ledger[key], bad, title))
    : status.runs
      ? [{ key: "sent", label: "what was sent", text: "not known:", none: true, bad: false, title: NOT_KNOWN }]
      : [];
  return [
    number("scores", "scores", run.points, false, "Stored scores of this run"),
    ...counts,
    number("empty", "without a value", missing, true, "Points of the plot without a value"),
    ...(refused ? [number("requests", refused === 1 ? "request refused" : "requests refused", refused, true, "Requests of any run that the server refused; see the notices")] : []),
  ];
}
