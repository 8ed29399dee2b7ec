// How strongly units respond: of some scores, values on both sides of a center are responses, as of a correlation.
import { tickText } from "../plot/scales.ts";
import type { Chart } from "./series.ts";

/** The center of a score; null if only larger values are responses. */
export type Center = number | null;

export const strength = (value: number, center: Center): number => (center === null ? value : Math.abs(value - center));

/** Return the range of the strengths of a chart. */
export function reach({ low, high }: Pick<Chart, "low" | "high">, center: Center): { low: number; high: number } {
  return center === null ? { low, high } : { low: 0, high: Math.max(high - center, center - low) };
}

/** Return the levels at which a baseline is drawn: of a score with a center also its mirror image at the other side. */
export const bothSides = (baseline: number, center: Center): number[] => (center === null ? [baseline] : [baseline, 2 * center - baseline]);

/** Return what the strength is, such as "|value − 0.5|"; "" without a center. */
export function strengthText(center: Center): string {
  return center === null ? "" : `|value${center ? ` − ${tickText(center)}` : ""}|`;
}
