// What a layout works on: a cell for every box, port and dummy, and the links between neighbouring ranks.

import { NONE } from "./lists.ts";

export const SPACE = { x: 28, dummy: 16, rank: 34, lane: 12, side: 22, top: 20, bottom: 20, step: 16 };
export interface Cell {
  index: number; // into nodes; -1 for a dummy, -2 for a port
  id: number;
  rank: number;
  width: number;
  height: number;
  x: number; // centre
  y: number; // top
  up: Link[];
  down: Link[];
  /** Its neighbours in its rank, once they are ordered, and the run it belongs to (place.ts). */
  left: Cell | undefined;
  right: Cell | undefined;
  run: number;
}
export interface Link {
  cell: Cell;
  weight: number;
  /** x of the other end's attachment minus ours, were both centres equal. */
  shift: number;
}

export function newCell(index: number, id: number, rank: number, width: number, height: number): Cell {
  return { index, id, rank, width, height, x: 0, y: 0, up: NONE, down: NONE, left: undefined, right: undefined, run: -1 };
}

/** How far apart the centres of two neighbours must be. */
export function gap(a: Cell, b: Cell): number {
  const between = a.index === -1 || b.index === -1 ? SPACE.dummy : SPACE.x;
  return (a.width + b.width) / 2 + between;
}

export interface Chain {
  edge: number;
  cells: Cell[];
}

export function countBy<T>(items: T[], key: (item: T) => number): Map<number, number> {
  const counts = new Map<number, number>();
  for (const item of items) counts.set(key(item), (counts.get(key(item)) ?? 0) + 1);
  return counts;
}
