// The labels of scores, kinds and layers, and the groups of scores in the picker. The server describes the registered
// scores; the page has no list of its own.
import { shown } from "../../ui/format.ts";
import type { Run, ScoreInfo } from "../server/api.ts";

/** The server's descriptions of scores and kinds. */
export interface Labels {
  /** In the order of the picker. */
  scores: ScoreInfo[];
  kinds: Record<string, string>;
}

export const NO_LABELS: Labels = { scores: [], kinds: {} };

export function scoreInfo({ scores }: Labels, score: string): ScoreInfo | undefined {
  return scores.find(({ name }) => name === score);
}

export function scoreLabel(labels: Labels, score: string): string {
  return shown(scoreInfo(labels, score)?.label || score);
}

export function kindLabel({ kinds }: Labels, kind: string): string {
  return shown(kinds[kind] ?? kind);
}

/** Return the scores that only units have, as `inspect` stores them. */
export function unitScores(run: Run): string[] {
  return [...new Set(run.units.map(({ score }) => score))].filter((score) => !run.scores.includes(score));
}

/** Return whether a score is one of units, so that the plot shows a curve for each unit. */
export function isOfUnits(run: Run, score: string): boolean {
  return unitScores(run).includes(score);
}

/** Return the targets of a score's results in a run; [""] for a score without a target. */
export function targetsOf(run: Run, score: string): string[] {
  return (isOfUnits(run, score) ? run.units : run.layers).filter((one) => one.score === score).map(({ target }) => target);
}

/** Return whether the results of a score have no target. The results decide, not the name of the score. */
export function isIntrinsic(run: Run, score: string): boolean {
  return targetsOf(run, score).includes("");
}

/** Return an address as shown; the address of the model itself is empty. */
export function addressLabel(address: string): string {
  return shown(address) || "(the model)";
}

export interface ScoreGroup {
  label: string;
  scores: string[];
}

/** Return the groups of the picker: scores of a target, their baselines, then scores without a target; without empty groups. */
export function groupScores(run: Run, labels: Labels): ScoreGroup[] {
  const rank = new Map(labels.scores.map(({ name }, place) => [name, place]));
  const place = (score: string): number => rank.get(score) ?? labels.scores.length;
  const sorted = [...run.scores].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
  const isBaseline = (score: string): boolean => Boolean(scoreInfo(labels, score)?.baseline_of);
  const groups = [
    { label: "What layers know of a target", scores: sorted.filter((s) => !isIntrinsic(run, s) && !isBaseline(s)) },
    { label: "Baselines", scores: sorted.filter((s) => !isIntrinsic(run, s) && isBaseline(s)) },
    { label: "What single units respond to", scores: unitScores(run) },
    { label: "What activations are like", scores: sorted.filter((s) => isIntrinsic(run, s)) },
  ];
  return groups.filter((group) => group.scores.length > 0);
}

/** Return the score to show first of a target. */
export function firstScore(run: Run, target: string, labels: Labels): string {
  const scores = groupScores(run, labels)[0]?.scores ?? [];
  const first = run.first.find((one) => one.target === target)?.score;
  return first ?? scores.find((score) => targetsOf(run, score).includes(target)) ?? scores[0] ?? "";
}
