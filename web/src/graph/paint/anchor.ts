// Opening and closing in place: one box stays fixed on the screen, and the others move from their previous positions.
import { HEADER } from "../layout/boxHeader.ts";
import type { Rect, VisibleLayout } from "../layout/visibleLayout.ts";
import { type Picture, rectAt } from "./picture.ts";

const ANIMATE_UP_TO = 4000; // boxes; an animation of more would not be smooth

/** Record the positions of boxes before the layout changes. The function returned takes the new layout and returns how far
 * the camera must move to keep a box fixed, and the old positions of boxes. `anchor` is the box acted on, -1 for none. */
export function keepInPlace(picture: Picture, anchor: number): (now: VisibleLayout) => { dx: number; dy: number; before: Map<number, Rect> } {
  const { visible } = picture;
  const before = new Map<number, Rect>();
  if (visible.count <= ANIMATE_UP_TO) for (const box of visible.boxes) before.set(box.node.id, { ...rectAt(picture, box) });
  const fixed = fixedBox(picture, anchor);
  const box = visible.box(fixed);
  const from = before.get(fixed) ?? (box && { x: box.x, y: box.y });
  return (now) => {
    const to = now.box(fixed);
    const [dx, dy] = from && to ? [to.x - from.x, to.y - from.y] : [0, 0];
    for (const rect of before.values()) [rect.x, rect.y] = [rect.x + dx, rect.y + dy];
    if (to && !to.open) before.delete(fixed);
    return { dx, dy, before };
  };
}

/** Return the box to keep fixed: the one acted on if visible, else the nearest visible one around it, else the first on the screen. */
function fixedBox({ visible, tree, camera, width, height }: Picture, id: number): number {
  for (let n = id; n > 0; n = tree.nodes[n].parent) if (visible.box(n)) return n;
  const view = { x: camera.x, y: camera.y, width: width / camera.scale, height: height / camera.scale };
  return visible.boxesIn(view).find((box) => box.y + HEADER > camera.y)?.node.id ?? -1;
}
