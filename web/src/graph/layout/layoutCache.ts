// Containers that are alike are laid out once: a model of thousands of modules has few different ones.
import { type Layout, type LayoutInput, layoutLevel } from "./layers.ts";

const MOST = 256; // members and edges; bigger containers are seldom alike, and telling so would cost more

/** Lays containers out, and keeps what came of each for those that differ in nothing but their ids. */
export class LayoutCache {
  private readonly known = new Map<string, Layout>();

  of(input: LayoutInput): Layout {
    if (input.nodes.length + input.edges.length > MOST) return layoutLevel(input);
    const key = keyOf(input);
    let layout = this.known.get(key);
    if (!layout) this.known.set(key, (layout = layoutLevel(input)));
    return layout;
  }
}

/** Everything a layout depends on, with places instead of ids. */
function keyOf({ nodes, ins, outs, edges, minWidth, gap }: LayoutInput): string {
  const place = new Map<number, number>();
  for (const { id } of nodes) place.set(id, place.size);
  for (const id of ins) place.set(id, place.size);
  for (const id of outs) place.set(id, place.size);
  let key = `${minWidth} ${gap} ${ins.length} ${outs.length}`;
  for (const { width, height, tail, pinned } of nodes) key += `|${width} ${height} ${tail} ${pinned}`;
  for (const { from, to, fromDx, toDx, mark, outMark } of edges) key += `;${place.get(from)} ${place.get(to)} ${fromDx} ${toDx} ${mark} ${outMark}`;
  return key;
}
