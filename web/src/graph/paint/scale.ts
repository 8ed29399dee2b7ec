// Where a value stands on the scale of its paint: by amount or by power, and the ticks of the latter.
import { bytes } from "../model/facts.ts";
import type { Paint } from "./paint.ts";

const WIDE = 100; // from this ratio on, by amount nearly all boxes would look alike
const MOST_TICKS = 3;

/** A paint that knows its least amount above zero, where it has nothing below zero; unless it says otherwise, it
 * goes by power where its amounts span more than two decades. */
export function scaled(paint: Paint): Paint {
  let least = Infinity;
  for (const value of paint.values.values()) if (value !== null && value > 0 && value < least) least = value;
  if (paint.kinds || paint.low < 0 || least >= paint.high) return { ...paint, log: false, least: undefined };
  return { ...paint, least, log: paint.log ?? paint.high / least > WIDE };
}

/** 0 at the low end and 1 at the high end; by power, zero stands with the least. */
export function shareOf({ log, least, low, high }: Paint, value: number): number {
  if (log && least) return value > 0 ? Math.log(value / least) / Math.log(high / least) : 0;
  return high > low ? (value - low) / (high - low) : 0.5;
}

/** The powers of ten (of two for bytes) that are marked on a scale by power. */
export function ticksOf({ log, least, high, format }: Paint): number[] {
  if (!log || !least) return [];
  const binary = format === bytes;
  const power = binary ? Math.log2 : Math.log10;
  const [first, last] = [Math.floor(power(least) + 1e-9) + 1, Math.ceil(power(high) - 1e-9) - 1]; // the ends have words of their own
  for (const step of binary ? [1, 2, 5, 10, 20, 40] : [1, 2, 3, 6, 12, 24, 48]) {
    const [from, to] = [Math.ceil(first / step), Math.floor(last / step)];
    if (to - from >= MOST_TICKS) continue;
    return Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => (binary ? 2 ** ((from + i) * step) : Number(`1e${(from + i) * step}`)));
  }
  return [];
}
