// Where the words beside edges stand: each beside its own, on no edge, no box and no other word.
import { plus } from "../model/lists.ts";
import { laneOf, numberOf, pieces } from "./curve.ts";
import type { Measure } from "./sizes.ts";

/** Words that begin at their place, or end there. */
export interface Word {
  text: string;
  size: number;
  x: number;
  y: number;
  ends: boolean;
}

export type Area = [left: number, top: number, right: number, bottom: number];
/** A place for words, to the right of it (`side` 1) or to the left (-1). */
export type Spot = [x: number, y: number, side: number];

const ROWS = [10, 22, 34]; // how far from a box words may stand

/** How the words beside edges are set. */
export interface Lettering {
  measure: Measure;
  /** Where words may stand beside an edge's start (`way` 1) or its arrow (-1): first where it does not bend to. */
  spots(route: Float64Array, way: 1 | -1): Spot[];
  /** The ground that words of a width take at a spot. */
  area(spot: Spot, width: number, size: number): Area;
}

/** Beside edges that run downwards. */
export const lettering = (measure: Measure): Lettering => ({ measure, spots, area });

function area([x, y, side]: Spot, width: number, size: number): Area {
  const left = side < 0 ? x - width : x;
  return [left, y - size / 2, left + width, y + size / 2];
}

function spots(route: Float64Array, way: 1 | -1): Spot[] {
  const at = way > 0 ? 0 : route.length - 2;
  const [x, y] = [route[at], way > 0 ? route[3] : route[at + 1]];
  const side = route[at + 4 * way] > x + 0.5 ? -1 : 1;
  const lane = laneOf(route);
  const outside: Spot[] = lane ? [[lane.x + 6 * lane.side, y - way * 8, lane.side]] : [];
  const beyond: Spot = [x - 12 * side, y + way * ROWS[0], -side]; // farther from where it bends to
  return [...ROWS.flatMap((far) => [side, -side].map((side): Spot => [x + 6 * side, y + way * far, side])), beyond, ...outside];
}

const WIDE = 64;

/** Where something stands already, by columns. */
export class Taken {
  private readonly known = new Set<number>();
  private readonly columns = new Map<number, Area[]>();

  constructor(
    private readonly width: number,
    private readonly height: number,
  ) {}

  add(area: Area): void {
    const number = numberOf(...area);
    if (this.known.has(number)) return; // a thousand edges may share a lane
    this.known.add(number);
    for (let at = Math.floor(area[0] / WIDE); at <= area[2] / WIDE; at++) this.columns.set(at, plus(this.columns.get(at), area));
  }

  /** An edge, as far as it runs between two heights, and its arrow. */
  edge(route: Float64Array, top: number, bottom: number): void {
    for (const [px, py, x, y] of pieces(route, 8, top, bottom)) {
      if (Math.max(y, py) > top && Math.min(y, py) < bottom) this.add([Math.min(x, px) - 2, Math.min(y, py) - 1, Math.max(x, px) + 2, Math.max(y, py) + 1]);
    }
    const [x, y] = route.slice(-2);
    this.add([x - 4, y - 7, x + 4, y]);
  }

  /** Put words at the first spot that is free; null where there is none. */
  put(text: string, size: number, { measure, area }: Lettering, spots: Spot[]): Word | null {
    const width = measure(text, size, false);
    for (const spot of spots) {
      const ground = area(spot, width, size);
      if (!this.isFree(ground)) continue;
      this.add(ground);
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
