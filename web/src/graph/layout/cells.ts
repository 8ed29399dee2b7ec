// The data that a layout works on: cells for boxes, ports and dummies, and links between adjacent ranks.

import { NONE } from "../model/lists.ts";

export const SPACE = { x: 28, dummy: 16, rank: 34, lane: 12, side: 22, top: 20, bottom: 20, step: 16, aside: 16, corner: 12, mark: 3 };
export interface Cell {
  index: number; // into nodes; -1 for a dummy, -2 for a port
  rank: number;
  width: number;
  height: number;
  x: number; // center
  y: number; // top
  up: CellLink[];
  down: CellLink[];
  /** Ends of edges along its lower side and along its upper side (route.ts). */
  leaving: EdgeEnd[];
  arriving: EdgeEnd[];
  /** Its neighbors in its rank, once the rank is ordered, and the number of its run (place.ts). */
  left: Cell | undefined;
  right: Cell | undefined;
  run: number;
  /** Whether it was moved down to the rank above its first consumer. */
  late: boolean;
}
export interface CellLink {
  cell: Cell;
  weight: number;
  /** x of the other end's attachment minus x of this end's, if both centers were equal. */
  shift: number;
}

export function newCell(index: number, rank: number, width: number, height: number, late = false): Cell {
  return { index, rank, width, height, x: 0, y: 0, up: NONE, down: NONE, leaving: NONE, arriving: NONE, left: undefined, right: undefined, run: -1, late };
}

/** Return the least distance between the centers of two neighbors in a rank. */
export function gap(a: Cell, b: Cell): number {
  const between = a.index === -1 || b.index === -1 ? SPACE.dummy : SPACE.x;
  return (a.width + b.width) / 2 + between;
}

/** One end of an edge at a box: the x that the edge leads to, and the lane that it shares, if any. */
export interface EdgeEnd {
  edge: number;
  towards: number;
  lane: object | null;
}

/** The cells at both ends of every edge. */
export interface EdgeCells {
  from: Cell[];
  to: Cell[];
}

/** The cells that a short edge passes, with a dummy in every rank between its ends. */
export interface Chain {
  edge: number;
  cells: Cell[];
}

/** Count items by a key. */
export function countBy<T, K>(items: T[], key: (item: T) => K): Map<K, number> {
  const counts = new Map<K, number>();
  for (const item of items) counts.set(key(item), (counts.get(key(item)) ?? 0) + 1);
  return counts;
}
