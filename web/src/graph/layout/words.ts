// The placement of text beside edges, so that it covers no edge, no box and no other text.
import { plus } from "../model/lists.ts";
import { laneOf, numberOf, pieces } from "./curve.ts";
import type { Measure } from "./sizes.ts";

/** A text that begins at (x, y), or ends there. */
export interface Word {
  text: string;
  size: number;
  x: number;
  y: number;
  ends: boolean;
}

export type Area = [left: number, top: number, right: number, bottom: number];
/** A position for text, to the right of it (`side` 1) or to the left (-1). */
export type Spot = [x: number, y: number, side: number];

const ROWS = [10, 22, 34]; // distances of text from a box

/** How text beside edges is placed. */
export interface Lettering {
  measure: Measure;
  /** Return the positions for text at an edge's start (`end` 1) or arrow (-1), best first: opposite to its curve. */
  spots(route: Float64Array, end: 1 | -1): Spot[];
  /** Return the area that text of a width takes at a spot. */
  area(spot: Spot, width: number, size: number): Area;
}

/** Place text beside edges that run downwards. */
export const lettering = (measure: Measure): Lettering => ({ measure, spots, area });

function area([x, y, side]: Spot, width: number, size: number): Area {
  const left = side < 0 ? x - width : x;
  return [left, y - size / 2, left + width, y + size / 2];
}

function spots(route: Float64Array, end: 1 | -1): Spot[] {
  const at = end > 0 ? 0 : route.length - 2;
  const [x, y] = [route[at], end > 0 ? route[3] : route[at + 1]];
  const side = route[at + 4 * end] > x + 0.5 ? -1 : 1;
  const lane = laneOf(route);
  const outside: Spot[] = lane ? [[lane.x + 6 * lane.side, y - end * 8, lane.side]] : [];
  const beyond: Spot = [x - 12 * side, y + end * ROWS[0], -side]; // farther away from its curve
  return [...ROWS.flatMap((far) => [side, -side].map((side): Spot => [x + 6 * side, y + end * far, side])), beyond, ...outside];
}

const WIDE = 64;

/** The areas that are occupied, indexed by columns. */
export class Occupied {
  private readonly hashes = new Set<number>();
  private readonly columns = new Map<number, Area[]>();

  constructor(
    private readonly width: number,
    private readonly height: number,
  ) {}

  add(area: Area): void {
    const hash = numberOf(...area);
    if (this.hashes.has(hash)) return; // a thousand edges may share a lane
    this.hashes.add(hash);
    for (let at = Math.floor(area[0] / WIDE); at <= area[2] / WIDE; at++) this.columns.set(at, plus(this.columns.get(at), area));
  }

  /** Add an edge's part between two heights, and its arrow. */
  addEdge(route: Float64Array, top: number, bottom: number): void {
    for (const [px, py, x, y] of pieces(route, 8, top, bottom)) {
      if (Math.max(y, py) > top && Math.min(y, py) < bottom) this.add([Math.min(x, px) - 2, Math.min(y, py) - 1, Math.max(x, px) + 2, Math.max(y, py) + 1]);
    }
    const [x, y] = route.slice(-2);
    this.add([x - 4, y - 7, x + 4, y]);
  }

  /** Place text at the first free spot; return null if there is none. */
  place(text: string, size: number, { measure, area }: Lettering, spots: Spot[]): Word | null {
    const width = measure(text, size, false);
    for (const spot of spots) {
      const needed = area(spot, width, size);
      if (!this.isFree(needed)) continue;
      this.add(needed);
      const [x, y, side] = spot;
      return { text, size, x, y, ends: side < 0 };
    }
    return null;
  }

  private isFree([left, top, right, bottom]: Area): boolean {
    if (left < 2 || right > this.width - 2 || top < 0 || bottom > this.height) return false;
    for (let at = Math.floor(left / WIDE); at <= right / WIDE; at++) {
      for (const area of this.columns.get(at) ?? []) if (left < area[2] && area[0] < right && top < area[3] && area[1] < bottom) return false;
    }
    return true;
  }
}
