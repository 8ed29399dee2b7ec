// The head of an open box: how tall it is, what stands in it, and from where to where.
export const HEADER = 30;
/** Where what is in an open box begins. */
export const BELOW_HEAD = [0, HEADER] as const;
const ROOM = 420; // of a head that moves with the sight
/** The buttons in the head of an open fold, from its right end: all, next, which, previous. */
export const PICKER = { all: 34, next: 22, which: 52, previous: 22 };

/** From where to where the head of an open box is drawn: its words stay in sight while the box is. */
export function headSpan(box: { x: number; width: number }, camera: { x: number; scale: number }, sight: number): [left: number, right: number] {
  const room = Math.min(ROOM, box.width);
  const left = Math.min(Math.max(box.x, camera.x + 4 / camera.scale), box.x + box.width - room);
  const right = Math.max(Math.min(box.x + box.width, camera.x + (sight - 4) / camera.scale), left + room);
  return [left, right];
}
