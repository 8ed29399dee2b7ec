// The linear or logarithmic scale of a paint, and the ticks of the latter.
import { bytes } from "../../ui/format.ts";
import type { Paint } from "./paint.ts";

const WIDE = 100; // with a larger ratio nearly all boxes would look alike on a linear scale
const MOST_TICKS = 3;

/** Return a paint with its least positive value, if no value is negative. By default its scale is logarithmic if the
 * positive values span more than two orders of magnitude. */
export function scaled(paint: Paint): Paint {
  let least = Infinity;
  for (const value of paint.values.values()) if (value !== null && value > 0 && value < least) least = value;
  if (paint.kinds || paint.strength || paint.low < 0 || least >= paint.high) return { ...paint, log: false, least: undefined };
  return { ...paint, least, log: paint.log ?? paint.high / least > WIDE };
}

/** Return the position of a value: 0 at the low end, 1 at the high end; on a logarithmic scale zero is at the low end. */
export function shareOf({ log, least, low, high }: Paint, value: number): number {
  if (log && least) return value > 0 ? Math.log(value / least) / Math.log(high / least) : 0;
  return high > low ? (value - low) / (high - low) : 0.5;
}

/** Return the powers of ten (for bytes, of two) that are marked on a logarithmic scale. */
export function ticksOf({ log, least, high, format }: Paint): number[] {
  if (!log || !least) return [];
  const binary = format === bytes;
  const power = binary ? Math.log2 : Math.log10;
  const [first, last] = [Math.floor(power(least) + 1e-9) + 1, Math.ceil(power(high) - 1e-9) - 1]; // the ends have their own labels
  for (const step of binary ? [1, 2, 5, 10, 20, 40] : [1, 2, 3, 6, 12, 24, 48]) {
    const [from, to] = [Math.ceil(first / step), Math.floor(last / step)];
    if (to - from >= MOST_TICKS) continue;
    return Array.from({ length: Math.max(0, to - from + 1) }, (_, i) => (binary ? 2 ** ((from + i) * step) : Number(`1e${(from + i) * step}`)));
  }
  return [];
}
