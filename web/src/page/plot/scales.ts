// Axes: padded ranges, round ticks, and positions of values.

/** Return the range of an axis: padded, but not beyond 0 or 1 if the data ends there. */
export function padded(low: number, high: number): [number, number] {
  const padding = (high - low || 1) * 0.06;
  const bottom = low >= 0 && low - padding < 0 ? 0 : low - padding;
  const top = high <= 1 && high > 0.5 && high + padding > 1 ? 1 : high + padding;
  return [bottom, top === high && high !== 1 ? high + padding : top];
}

/** Return about `count` round numbers within the range; the step is 1, 2 or 5 times a power of ten. */
export function ticks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= rough * 0.999) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Return the position of a value in a range, from 0 to 1. */
export function share(value: number, low: number, high: number): number {
  return (value - low) / (high - low || 1);
}

/** Format a tick. */
export function tickText(value: number): string {
  return Number(value.toPrecision(6)).toString().replace("-", "−");
}
