// Names of scores as people read them, and how they are grouped in the picker. Pure.

export const INTRINSIC: Record<string, string> = {
  mean: "Mean",
  mean_abs: "Mean magnitude",
  std: "Standard deviation",
  variance: "Variance",
  min: "Minimum",
  max: "Maximum",
  norm: "Norm",
  sparsity: "Sparsity (share of zeros)",
  dead: "Dead units",
  nonfinite: "NaN and infinite values",
  participation_ratio: "Participation ratio",
  effective_rank: "Effective rank",
  gradient_noise: "Gradient noise scale",
  cka_layer: "Alignment (CKA) with the layer before",
  cka_epoch: "Alignment (CKA) with itself an epoch before",
  update_ratio: "Update over weight (ratio of norms)",
};

const TARGETED: Record<string, string> = {
  linear_f1: "Linear probe, macro F1",
  linear_accuracy: "Linear probe, accuracy",
  linear_selectivity: "Linear probe, selectivity (accuracy above shuffled labels)",
  lda_f1: "Discriminant analysis, macro F1",
  lda_accuracy: "Discriminant analysis, accuracy",
  logistic_f1: "Logistic regression, macro F1",
  mdl_compression: "Compression (description length)",
  r2: "Linear regression, R²",
  kmeans_mi: "k-means, mutual information",
  kmeans_ami: "k-means, adjusted mutual information",
  kmeans_nmi: "k-means, normalized mutual information",
  "linear_f1.majority": "Baseline: majority class",
  "linear_f1.shuffled": "Baseline: shuffled labels",
  iou: "Intersection over union",
  iou_max: "Intersection over union, best threshold",
  correlation: "Correlation",
  mean_difference: "Difference of means",
};

const KINDS: Record<string, string> = {
  output: "output",
  input: "input",
  gradient_output: "gradient of the output",
  gradient_input: "gradient of the input",
  parameter: "parameter",
  update: "update of the parameter",
};

/** `output@train`: what was taken, and in which mode where a run has two. */
export function kindLabel(kind: string): string {
  const [what = "", mode] = kind.split("@");
  return (KINDS[what] ?? what) + (mode ? ` in mode ${mode}` : "");
}

/** `kmeans_ami` as a person would say it; a name nobody described stays as it is. */
export function scoreLabel(score: string): string {
  return INTRINSIC[score] ?? TARGETED[score] ?? score;
}

/** Does the score say something of the activations alone, with no target? */
export function isIntrinsic(score: string): boolean {
  return score in INTRINSIC;
}

/** An address as shown: the model itself has the empty one. */
export function addressLabel(address: string): string {
  return address || "(the model)";
}

/** A baseline bears its score's name before a dot: `linear_f1.shuffled`. */
export function isBaseline(score: string): boolean {
  return score.includes(".");
}

export interface ScoreGroup {
  label: string;
  scores: string[];
}

/** The picker's groups: what layers know, their baselines, then what they are like; empty ones left out. */
export function groupScores(scores: string[]): ScoreGroup[] {
  const order = [...Object.keys(TARGETED), ...Object.keys(INTRINSIC)];
  const rank = (score: string): number => (order.indexOf(score) + 1 || order.length + 1);
  const sorted = [...scores].sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));
  const groups = [
    { label: "What layers know of a target", scores: sorted.filter((s) => !isIntrinsic(s) && !isBaseline(s)) },
    { label: "Baselines", scores: sorted.filter(isBaseline) },
    { label: "What activations are like", scores: sorted.filter(isIntrinsic) },
  ];
  return groups.filter((group) => group.scores.length > 0);
}
