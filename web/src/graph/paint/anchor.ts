// Opening and closing in place: one box holds still on the screen, and the others move from where they were.
import { HEADER } from "../layout/boxHeader.ts";
import type { Rect, VisibleLayout } from "../layout/visibleLayout.ts";
import { type Picture, rectAt } from "./picture.ts";

const ANIMATE_UP_TO = 4000; // boxes; more would not move smoothly

/** Note where boxes stand, before what is open changes. Then tell of the new layout how far its camera has to follow,
 * and from where its boxes come. `anchor` is the box acted on, -1 for none. */
export function hold(picture: Picture, anchor: number): (now: VisibleLayout) => { dx: number; dy: number; before: Map<number, Rect> } {
  const { visible } = picture;
  const before = new Map<number, Rect>();
  if (visible.count <= ANIMATE_UP_TO) for (const box of visible.boxes) before.set(box.node.id, { ...rectAt(picture, box) });
  const fixed = fixedBox(picture, anchor);
  const held = visible.box(fixed);
  const was = before.get(fixed) ?? (held && { x: held.x, y: held.y });
  return (now) => {
    const is = now.box(fixed);
    const [dx, dy] = was && is ? [is.x - was.x, is.y - was.y] : [0, 0];
    for (const rect of before.values()) [rect.x, rect.y] = [rect.x + dx, rect.y + dy];
    if (is && !is.open) before.delete(fixed);
    return { dx, dy, before };
  };
}

/** The box to hold still: the one acted on if it was visible, else the nearest one around it, else the first in sight. */
function fixedBox({ visible, tree, camera, width, height }: Picture, id: number): number {
  for (let n = id; n > 0; n = tree.nodes[n].parent) if (visible.box(n)) return n;
  const sight = { x: camera.x, y: camera.y, width: width / camera.scale, height: height / camera.scale };
  return visible.boxesIn(sight).find((box) => box.y + HEADER > camera.y)?.node.id ?? -1;
}
