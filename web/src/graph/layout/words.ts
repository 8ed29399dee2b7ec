// The placement of text beside edges: it covers no edge, no box and no other text, and it is nearest to its own edge.
import { NONE, plus } from "../model/lists.ts";
import { SPACE } from "./cells.ts";
import { numberOf, pieces } from "./curve.ts";
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

/** A position for text. */
export interface Spot {
  area: Area;
  word: Pick<Word, "x" | "y" | "ends">;
}

const ROWS = [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 42, 48, 54, 60]; // distances of text from its first position
const ASIDE = 4; // the distance between two words of one line

/** How text beside edges is placed. */
export interface Lettering {
  measure: Measure;
  /** Whether text runs along the edges, because x and y of the layout are y and x of the picture (pictures/rightward.ts). */
  turned: boolean;
  /** The distance of a shape from its edge, and of a mark, which may be beside an arrow; other edges are farther away. */
  away: [shape: number, mark: number];
}

/** Place text beside edges that run downwards. */
export const lettering = (measure: Measure): Lettering => ({ measure, turned: false, away: [4, 5] });

/** Return the positions for text of a width at an edge's start (`end` 1) or arrow (-1), best first: near the box, with the
 * curve of the edge. A mark is where edges run straight (SPACE.mark), always on the same side; a shape is where they curve,
 * first on the side opposite to the curve. */
export function spots({ turned, away: distances }: Lettering, route: Float64Array, end: 1 | -1, width: number, size: number, isMark: boolean): Spot[] {
  const part = end > 0 ? route.subarray(0, 8) : route.subarray(-8);
  const at = end > 0 ? 0 : part.length - 2;
  const [along, across] = turned ? [width, size] : [size, width];
  const away = distances[Number(isMark)];
  const near = isMark ? SPACE.mark : 3;
  const from = end < 0 ? part[at + 1] - near : Math.max(part[1], isMark ? part[3] - along - SPACE.mark - 2 : part[3]) + near;
  const bend = [...pieces(part, PIECE, -Infinity, Infinity)];
  const side = isMark ? (turned ? -1 : 1) : part[at + 4 * end] > part[at] + 0.5 ? -1 : 1;
  return ROWS.flatMap((far) => {
    const top = end > 0 ? from + far : from - far - along;
    let [low, high] = [Infinity, -Infinity];
    for (const [ax, ay, bx, by] of bend) {
      if (Math.max(ay, by) < top || Math.min(ay, by) > top + along) continue;
      low = Math.min(low, ax, bx);
      high = Math.max(high, ax, bx);
    }
    if (low > high) return [];
    return [side, -side].map((side): Spot => {
      const left = side > 0 ? high + away : low - away - across;
      const ends = turned ? end < 0 : side < 0;
      const word = turned ? { x: left + across / 2, y: ends ? top + along : top, ends } : { x: ends ? left + across : left, y: top + along / 2, ends };
      return { area: [left, top, left + across, top + along], word };
    });
  });
}

const WIDE = 64;
const PIECE = 8; // the length of the pieces of an edge

const SLACK = 0.2; // text may be this much farther from its own edge, whose pieces are not exact
const MOST_OWNERS = 12; // a piece that more edges share is of none of them

interface Piece {
  area: Area;
  /** The edges that it is part of; none for what is no edge. */
  owners: number[];
}

/** The areas that are occupied, indexed by columns. */
export class Occupied {
  private readonly pieces = new Map<number, Piece>();
  private readonly columns = new Map<number, Piece[]>();

  constructor(
    private readonly width: number,
    private readonly height: number,
    private readonly turned: boolean,
  ) {}

  /** Add an area, of an edge or not. */
  add(area: Area, edge = -1): void {
    const hash = numberOf(...area);
    const known = this.pieces.get(hash); // a thousand edges may share a lane
    if (known) {
      if (known.owners.length <= MOST_OWNERS) known.owners.push(known.owners.length < MOST_OWNERS ? edge : -1);
      return;
    }
    const piece = { area, owners: edge < 0 ? NONE : [edge] };
    this.pieces.set(hash, piece);
    for (let at = Math.floor(area[0] / WIDE); at <= area[2] / WIDE; at++) this.columns.set(at, plus(this.columns.get(at), piece));
  }

  /** Add an edge's part between two heights, and its arrow. */
  addEdge(edge: number, route: Float64Array, top: number, bottom: number): void {
    for (const [px, py, x, y] of pieces(route, PIECE, top, bottom)) {
      if (Math.max(y, py) > top && Math.min(y, py) < bottom) this.add([Math.min(x, px) - 2, Math.min(y, py) - 1, Math.max(x, px) + 2, Math.max(y, py) + 1], edge);
    }
    const [x, y] = route.slice(-2);
    this.add([x - 4, y - 7, x + 4, y], edge);
  }

  /** Place text of the edges `own` at the first spot that is free and at least `away` from all other edges; return null if
   * there is none. */
  place(text: string, size: number, spots: Spot[], own: number[], away: number): Word | null {
    for (const { area, word } of spots) {
      if (!this.isFree(area, own, away)) continue;
      const [x, y] = this.turned ? [0, ASIDE] : [ASIDE, 0];
      this.add([area[0] - x, area[1] - y, area[2] + x, area[3] + y]);
      return { text, size, ...word };
    }
    return null;
  }

  private isFree([left, top, right, bottom]: Area, own: number[], away: number): boolean {
    if (left < 2 || right > this.width - 2 || top < 0 || bottom > this.height) return false;
    for (let at = Math.floor((left - away) / WIDE); at <= (right + away) / WIDE; at++) {
      for (const { area, owners } of this.columns.get(at) ?? []) {
        const far = owners.every((edge) => own.includes(edge)) ? 0 : away + SLACK;
        if (left - far < area[2] && area[0] < right + far && top - far < area[3] && area[1] < bottom + far) return false;
      }
    }
    return true;
  }
}
