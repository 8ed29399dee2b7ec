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
  /** Whether the route ends with it. */
  last: boolean;
}

/** Where a route that runs against the flow does so, and on which side of its box. */
export const laneOf = (route: Float64Array): { x: number; side: 1 | -1 } | null =>
  route[7] < route[5] ? { x: route[4], side: route[4] < route[0] ? -1 : 1 } : null;

/** The farthest a part reaches above or below its ends. */
export const TURN = 26;

/** The parts of a route given as x, y, x, y, …; or those of them that may be seen between two heights. */
export function bends(route: Float64Array, top = -Infinity, bottom = Infinity): Bend[] {
  const parts: Bend[] = [];
  for (let at = 0; at + 3 < route.length; at += 2) {
    const [ay, by] = [route[at + 1], route[at + 3]];
    if ((ay > top - TURN || by > top - TURN) && (ay < bottom + TURN || by < bottom + TURN)) parts.push(bendAt(route, at));
  }
  return parts;
}

/** The part of a route that begins at a place of it. Beside one that runs upwards it turns round into that. */
function bendAt(route: Float64Array, at: number): Bend {
  const [ax, ay, bx, by] = [route[at], route[at + 1], route[at + 2], route[at + 3]];
  const across = Math.min(Math.abs(bx - ax) * 0.35, TURN);
  const reach = Math.max((by - ay) / 2, across);
  const [fromUp, intoUp] = [at >= 2 && isUp(route, at - 2), at + 5 < route.length && isUp(route, at + 2)];
  const ca = fromUp ? ay - across : ay + (intoUp ? across : reach);
  const cb = intoUp ? by + across : by - (fromUp ? across : reach);
  return { ax, ay, bx, by, ca, cb, straight: Math.abs(ax - bx) < 0.5, last: at + 4 === route.length };
}

const isUp = (route: Float64Array, at: number): boolean => route[at] === route[at + 2] && route[at + 3] < route[at + 1] - 0.5;

/** A point of a curve, at a share of its way from 0 to 1. */
export function pointOf({ ax, ay, bx, by, ca, cb, straight }: Bend, t: number): [x: number, y: number] {
  if (straight) return [ax + (bx - ax) * t, ay + (by - ay) * t];
  const s = 1 - t;
  const [a, b, c, d] = [s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t];
  return [(a + b) * ax + (c + d) * bx, a * ay + b * ca + c * cb + d * by];
}

/** The parts of a route that may be seen between two heights, in straight pieces about as long as asked for. */
export function* pieces(route: Float64Array, length: number, top: number, bottom: number): Generator<[ax: number, ay: number, bx: number, by: number]> {
  for (const bend of bends(route, top, bottom)) {
    const steps = bend.straight ? 1 : Math.min(64, Math.ceil(Math.hypot(bend.bx - bend.ax, bend.by - bend.ay) / length));
    let [px, py] = [bend.ax, bend.ay];
    for (let k = 1; k <= steps; k++) {
      const [x, y] = pointOf(bend, k / steps);
      yield [px, py, x, y];
      [px, py] = [x, y];
    }
  }
}

/** One number for several: the same for parts that lie on each other, and as good as never for others. */
export const numberOf = (...numbers: number[]): number => numbers.reduce((sum, number) => sum * Math.PI + number, 0);
