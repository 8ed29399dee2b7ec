// Numbers, times and counts as short text. Pure.

/** Three or four significant digits, never an exponent for everyday sizes; "NaN" where there is no number. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e").replace("-", "−");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return value.toFixed(digits).replace("-", "−");
}

/** Thousands parted by a thin space: 1 797. */
export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return Math.round(value).toString().replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** An epoch as it is counted: 3, or 2.5 for one taken in the middle. */
export function epoch(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  return Number.isInteger(value) ? String(value) : value.toFixed(2).replace(/0$/, "");
}

/** "0.912 – 0.934", or "" when there is none. */
export function interval(low: number | null | undefined, high: number | null | undefined): string {
  return low == null || high == null ? "" : `${number(low)} – ${number(high)}`;
}

/** How long ago, in the largest unit that fits. */
export function ago(seconds: number): string {
  const steps: [number, string][] = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
  ];
  for (const [size, unit] of steps) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return "just now";
}
