// The way an edge bends between two points of its route: vertical at both ends.

/** Heights of the two control points of the Bézier curve from a to b; their x are those of the ends. */
export function curve(ax: number, ay: number, bx: number, by: number): { ay: number; by: number } {
  const reach = Math.max((by - ay) / 2, Math.min(Math.abs(bx - ax) * 0.35, 26));
  return { ay: ay + reach, by: by - reach };
}
