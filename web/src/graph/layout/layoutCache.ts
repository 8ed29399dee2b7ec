// Lays out equal containers once: a model with thousands of modules has few different ones.
import { type Layout, type LayoutInput, layoutLevel } from "./layers.ts";

const MOST = 256; // nodes and edges; larger containers are rarely equal, and comparing them would cost more

/** Lays out containers and reuses the layout of one for all that differ only in ids. */
export class LayoutCache {
  private readonly layouts = new Map<string, Layout>();

  of(input: LayoutInput): Layout {
    if (input.nodes.length + input.edges.length > MOST) return layoutLevel(input);
    const key = keyOf(input);
    let layout = this.layouts.get(key);
    if (!layout) this.layouts.set(key, (layout = layoutLevel(input)));
    return layout;
  }
}

/** Return everything that a layout depends on, with positions instead of ids. */
function keyOf({ nodes, ins, outs, edges, minWidth, gap }: LayoutInput): string {
  const place = new Map<number, number>();
  for (const { id } of nodes) place.set(id, place.size);
  for (const id of ins) place.set(id, place.size);
  for (const id of outs) place.set(id, place.size);
  let key = `${minWidth} ${gap} ${ins.length} ${outs.length}`;
  for (const { id, ...node } of nodes) key += `|${Object.values(node)}`;
  for (const { from, to, fromDx, toDx, ...marks } of edges) key += `;${place.get(from)} ${place.get(to)} ${fromDx} ${toDx} ${Object.values(marks)}`;
  return key;
}
