// Memory-saving lists, for millions of lists that are mostly empty or have one item: a growing array reserves more space.

/** The empty list, shared by all; add to it with `plus`. */
export const NONE: never[] = [];

/** Return a list with one more item. */
export function plus<T>(list: T[] | undefined, item: T): T[] {
  if (!list?.length) return [item];
  list.push(item);
  return list;
}
