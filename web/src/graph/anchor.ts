// Opening and closing in place: one box holds still on the screen, and the others move from where they were.
import type { Frame } from "./frame.ts";
import { HEADER } from "./heads.ts";
import { rectAt, type Picture, type Rect } from "./picture.ts";

const ANIMATE_UP_TO = 4000; // boxes; more would not move smoothly

/** Note where boxes stand, before what is open changes. Then tell of the new frame how far its camera has to follow,
 * and from where its boxes come. `anchor` is the box acted on, -1 for none. */
export function hold(picture: Picture, anchor: number): (now: Frame) => { dx: number; dy: number; before: Map<number, Rect> } {
  const { frame } = picture;
  const before = new Map<number, Rect>();
  if (frame.count <= ANIMATE_UP_TO) for (const box of frame.boxes) before.set(box.node.id, { ...rectAt(picture, box) });
  const fixed = fixedBox(picture, anchor);
  const held = frame.box(fixed);
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
function fixedBox({ frame, tree, camera, width, height }: Picture, id: number): number {
  for (let n = id; n > 0; n = tree.nodes[n].parent) if (frame.box(n)) return n;
  const sight = { x: camera.x, y: camera.y, width: width / camera.scale, height: height / camera.scale };
  return frame.boxesIn(sight).find((box) => box.y + HEADER > camera.y)?.node.id ?? -1;
}
