// How people call scores, kinds and layers, and how scores are grouped in the picker. Pure. What a score is comes
// from the server, where it is registered: there is no list of scores here.

import type { Run, ScoreInfo } from "../server/api.ts";

/** What the server says of scores and kinds. */
export interface Words {
  /** In the order to list them. */
  scores: ScoreInfo[];
  kinds: Record<string, string>;
}

export const NO_WORDS: Words = { scores: [], kinds: {} };

export function scoreInfo({ scores }: Words, score: string): ScoreInfo | undefined {
  return scores.find(({ name }) => name === score);
}

/** `kmeans_ami` as people call it. */
export function scoreLabel(words: Words, score: string): string {
  return scoreInfo(words, score)?.label || score;
}

/** `output@train` as people call it. */
export function kindLabel({ kinds }: Words, kind: string): string {
  return kinds[kind] ?? kind;
}

/** The targets that layers of the run have this score of; [""] for a score that needs no target. */
export function targetsOf(run: Run, score: string): string[] {
  return run.layers.filter((one) => one.score === score).map(({ target }) => target);
}

/** Whether the run's results of a score are of no target. They say so themselves, whatever the score is called. */
export function isIntrinsic(run: Run, score: string): boolean {
  return targetsOf(run, score).includes("");
}

/** An address as shown: the model itself has the empty one. */
export function addressLabel(address: string): string {
  return address || "(the model)";
}

export interface ScoreGroup {
  label: string;
  scores: string[];
}

/** The picker's groups: what layers know, their baselines, then what they are like; empty ones left out. */
export function groupScores(run: Run, words: Words): ScoreGroup[] {
  const rank = new Map(words.scores.map(({ name }, place) => [name, place]));
  const place = (score: string): number => rank.get(score) ?? words.scores.length;
  const sorted = [...run.scores].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
  const isBaseline = (score: string): boolean => Boolean(scoreInfo(words, score)?.baseline_of);
  const groups = [
    { label: "What layers know of a target", scores: sorted.filter((s) => !isIntrinsic(run, s) && !isBaseline(s)) },
    { label: "Baselines", scores: sorted.filter((s) => !isIntrinsic(run, s) && isBaseline(s)) },
    { label: "What activations are like", scores: sorted.filter((s) => isIntrinsic(run, s)) },
  ];
  return groups.filter((group) => group.scores.length > 0);
}
