// Lists of which there are very many, most of them of one thing or none: an array that grows would be far too large.

/** The list of nothing, which all share: add to it with `plus`. */
export const NONE: never[] = [];

/** A list with one more. */
export function plus<T>(list: T[] | undefined, item: T): T[] {
  if (!list?.length) return [item];
  list.push(item);
  return list;
}
