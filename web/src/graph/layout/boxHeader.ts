// The header of an open box: its height, its buttons, and the part of the box's width that it covers.
export const HEADER = 30;
/** The offset of an open box's contents from its corner. */
export const BELOW_HEADER = [0, HEADER] as const;
const MIN_WIDTH = 420; // of a header that stays in view
/** Widths of the parts in the header of an open fold, from its right end: all, next, which, previous. */
export const PICKER = { all: 34, next: 22, which: 52, previous: 22 };

/** Return the left and right end of an open box's header, which stays in view as long as the box does. */
export function headerSpan(box: { x: number; width: number }, camera: { x: number; scale: number }, viewWidth: number): [left: number, right: number] {
  const width = Math.min(MIN_WIDTH, box.width);
  const left = Math.min(Math.max(box.x, camera.x + 4 / camera.scale), box.x + box.width - width);
  const right = Math.max(Math.min(box.x + box.width, camera.x + (viewWidth - 4) / camera.scale), left + width);
  return [left, right];
}
