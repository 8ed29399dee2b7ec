// The values that the user logged, as curves over steps, epochs or minutes.
import type { Log } from "../server/api.ts";

export const AXES = ["step", "epoch", "minutes"] as const;
export type Axis = (typeof AXES)[number];

export interface Curve {
  name: string;
  x: number[];
  /** NaN and infinities as they were logged. */
  y: number[];
}

/** Return a curve for each name. Minutes are counted from the first value. */
export function curvesOf(log: Log, axis: Axis): Curve[] {
  const found = new Map<string, Curve>();
  const start = Math.min(...log.time);
  log.name.forEach((name, i) => {
    const curve = found.get(name) ?? { name, x: [], y: [] };
    found.set(name, curve);
    curve.x.push(axis === "minutes" ? ((log.time[i] as number) - start) / 60 : (log[axis][i] ?? 0));
    curve.y.push(Number(String(log.value[i]).replace("inf", "Infinity")));
  });
  return [...found.values()];
}
