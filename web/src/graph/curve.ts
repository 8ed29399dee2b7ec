// The way an edge bends between the points of its route: vertical at every point, and onwards as it came.

/** A part of a route: straight, or a Bézier curve whose control points stand above and below its ends. */
export interface Bend {
  ax: number;
  ay: number;
  bx: number;
  by: number;
  /** Heights of the control points; their x are those of the ends. */
  ca: number;
  cb: number;
  straight: boolean;
}

/** The parts of a route given as x, y, x, y, … A part beside one that runs upwards turns round into it. */
export function bends(route: Float64Array): Bend[] {
  const parts: Bend[] = [];
  const isUp = (i: number): boolean => route[i] === route[i + 2] && route[i + 3] < route[i + 1] - 0.5;
  for (let i = 0; i + 3 < route.length; i += 2) {
    const [ax, ay, bx, by] = [route[i], route[i + 1], route[i + 2], route[i + 3]];
    const across = Math.min(Math.abs(bx - ax) * 0.35, 26);
    const reach = Math.max((by - ay) / 2, across);
    const [fromUp, intoUp] = [i >= 2 && isUp(i - 2), i + 5 < route.length && isUp(i + 2)];
    const ca = fromUp ? ay - across : ay + (intoUp ? across : reach);
    const cb = intoUp ? by + across : by - (fromUp ? across : reach);
    parts.push({ ax, ay, bx, by, ca, cb, straight: Math.abs(ax - bx) < 0.5 });
  }
  return parts;
}

/** A point of a curve, at a share of its way from 0 to 1. */
export function pointOf({ ax, ay, bx, by, ca, cb, straight }: Bend, t: number): [x: number, y: number] {
  if (straight) return [ax + (bx - ax) * t, ay + (by - ay) * t];
  const s = 1 - t;
  const [a, b, c, d] = [s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t];
  return [(a + b) * ax + (c + d) * bx, a * ay + b * ca + c * cb + d * by];
}
