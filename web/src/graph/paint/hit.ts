// What stands at a place of the picture: a box, a button in its head, or an edge.
import { HEADER, headSpan, PICKER } from "../layout/boxHeader.ts";
import { pieces } from "../layout/curve.ts";
import type { PlacedBox, VisibleLayout } from "../layout/visibleLayout.ts";
import type { Line } from "../layout/visibleLines.ts";
import { isFold } from "../model/captions.ts";
import type { Camera } from "./picture.ts";

export type BoxPart = "body" | "button" | "all" | "next" | "previous";

export interface Hit {
  box: PlacedBox;
  part: BoxPart;
}

/** The innermost box at a place; of an open one, only its header. */
export function boxAt(visible: VisibleLayout, camera: Camera, sight: number, x: number, y: number): Hit | undefined {
  const [wx, wy] = [camera.x + x / camera.scale, camera.y + y / camera.scale];
  let found: PlacedBox | undefined;
  for (const box of visible.boxesIn({ x: wx, y: wy, width: 0, height: 0 })) {
    const height = box.open ? HEADER : box.height;
    const hit = wx >= box.x && wx <= box.x + box.width && wy >= box.y && wy <= box.y + height;
    if (hit && (!found || box.node.depth > found.node.depth)) found = box;
  }
  return found && { box: found, part: partAt(found, found.open ? headSpan(found, camera, sight) : [found.x, found.x + found.width], wx) };
}

function partAt(box: PlacedBox, [left, right]: [number, number], x: number): BoxPart {
  if (!box.node.children.length) return "body";
  if (x >= left && x <= left + 30) return "button";
  if (!box.open || !isFold(box.node)) return "body";
  let from = right - PICKER.all;
  if (x > right) return "body";
  if (x >= from) return "all";
  if (box.pick === "all") return "body";
  if (x >= (from -= PICKER.next)) return "next";
  from -= PICKER.which;
  return x < from && x >= from - PICKER.previous ? "previous" : "body";
}

const NEAR = 6; // pixels from an edge that still mean it

/** The edge nearest to a place, if one is near. */
export function lineAt(visible: VisibleLayout, camera: Camera, x: number, y: number): Line | undefined {
  const far = NEAR / camera.scale;
  const [wx, wy] = [camera.x + x / camera.scale, camera.y + y / camera.scale];
  const around = { x: wx - far, y: wy - far, width: 2 * far, height: 2 * far };
  let best: Line | undefined;
  let least = far;
  for (const line of visible.linesIn(around)) {
    const away = distance(line, wx, wy, far);
    if (away < least) [best, least] = [line, away];
  }
  return best;
}

function distance(line: Line, x: number, y: number, far: number): number {
  const [dx, dy] = [x - line.x, y - line.y];
  let least = Infinity;
  for (const piece of pieces(line.route, 8, dy - far, dy + far)) least = Math.min(least, toSegment(dx, dy, ...piece));
  return least;
}

function toSegment(x: number, y: number, ax: number, ay: number, bx: number, by: number): number {
  const [dx, dy] = [bx - ax, by - ay];
  const length = dx * dx + dy * dy;
  const t = length ? Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / length)) : 0;
  return Math.hypot(x - ax - t * dx, y - ay - t * dy);
}
