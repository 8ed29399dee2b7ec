// The values that the user logged, as curves over steps, epochs or minutes.
import type { Log } from "../server/api.ts";

export const AXES = ["step", "epoch", "minutes"] as const;
export type Axis = (typeof AXES)[number];

export interface Points {
  x: number[];
  /** NaN and infinities as they were logged. */
  y: number[];
}

export interface Curve extends Points {
  name: string;
  /** What is said of the newest training that logged the name; "" if it is that of the run. */
  note: string;
  /** What earlier trainings logged before the place where it begins. */
  before: Points;
}

/** Return a curve of the newest training of each name. Its minutes are counted from its first value. */
export function curvesOf(log: Log, axis: Axis): Curve[] {
  const rows = new Map<string, number[]>();
  log.name.forEach((name, i) => (rows.get(name) ?? rows.set(name, []).get(name))?.push(i));
  const began = (i: number): number => log.training[i] ?? -Infinity;
  const starts = new Map<number, number>();
  log.time.forEach((time, i) => starts.set(began(i), Math.min(time, starts.get(began(i)) ?? Infinity)));
  const at = (i: number): number => (axis === "minutes" ? ((log.time[i] as number) - (starts.get(began(i)) as number)) / 60 : (log[axis][i] ?? 0));
  const points = (of: number[]): Points => ({
    x: of.map(at),
    y: of.map((i) => Number(String(log.value[i]).replace("inf", "Infinity"))),
  });
  return [...rows].map(([name, all]) => {
    const newest = Math.max(...all.map(began));
    const own = all.filter((i) => began(i) === newest);
    const first = Math.min(...own.map(at));
    const earlier = axis === "minutes" ? [] : all.filter((i) => began(i) < newest && at(i) < first).sort((a, b) => at(a) - at(b));
    return { name, note: log.note[own[0] as number] ?? "", ...points(own), before: points(earlier) };
  });
}
