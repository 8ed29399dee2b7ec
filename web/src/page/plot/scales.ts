// Axes: ranges with a little air, and round ticks. Pure.

/** A range for an axis: some air around the data, and no farther than 0 or 1 where the data ends there. */
export function padded(low: number, high: number): [number, number] {
  const air = (high - low || 1) * 0.06;
  const bottom = low >= 0 && low - air < 0 ? 0 : low - air;
  const top = high <= 1 && high > 0.5 && high + air > 1 ? 1 : high + air;
  return [bottom, top === high && high !== 1 ? high + air : top];
}

/** About `count` round numbers within the range: steps of 1, 2 or 5 times a power of ten. */
export function ticks(low: number, high: number, count: number): number[] {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0) || !Number.isFinite(rough)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= rough * 0.999) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  const last = Math.floor(high / step + 1e-9);
  return Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => Number(((first + i) * step).toPrecision(12)));
}

/** Where on `size` pixels a value lies. */
export function place(value: number, low: number, high: number, size: number): number {
  return ((value - low) / (high - low || 1)) * size;
}

/** A tick as short as its digits allow. */
export function tickText(value: number): string {
  return Number(value.toPrecision(6)).toString().replace("-", "−");
}
