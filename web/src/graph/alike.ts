// Containers that are alike are laid out once: a model of thousands of modules has few different ones.
import { layoutLevel, type Layout, type LayoutInput } from "./layout.ts";

const MOST = 256; // members and edges; bigger containers are seldom alike, and telling so would cost more

/** Lays containers out, and keeps what came of each for those that differ in nothing but their ids. */
export class Layouts {
  private readonly known = new Map<string, { input: LayoutInput; layout: Layout }>();

  of(input: LayoutInput): Layout {
    if (input.nodes.length + input.edges.length > MOST) return layoutLevel(input);
    const key = keyOf(input);
    const twin = this.known.get(key);
    if (twin) return renamed(twin.layout, twin.input, input);
    const layout = layoutLevel(input);
    this.known.set(key, { input, layout });
    return layout;
  }
}

/** Everything a layout depends on, with places instead of ids. */
function keyOf({ nodes, ins, outs, edges, minWidth }: LayoutInput): string {
  const place = new Map<number, number>();
  for (const { id } of nodes) place.set(id, place.size);
  for (const id of ins) place.set(id, place.size);
  for (const id of outs) place.set(id, place.size);
  let key = `${minWidth} ${ins.length} ${outs.length}`;
  for (const { width, height, tail, pinned } of nodes) key += `|${width} ${height} ${tail} ${pinned}`;
  for (const { from, to, fromDx, toDx, mark, outMark } of edges) key += `;${place.get(from)} ${place.get(to)} ${fromDx} ${toDx} ${mark} ${outMark}`;
  return key;
}

/** The layout of a container, for another that is alike; routes are shared, as nobody changes them. */
function renamed(layout: Layout, of: LayoutInput, to: LayoutInput): Layout {
  const [x, y, portX] = [new Map<number, number>(), new Map<number, number>(), new Map<number, number>()];
  to.nodes.forEach(({ id }, i) => {
    x.set(id, layout.x.get(of.nodes[i].id)!);
    y.set(id, layout.y.get(of.nodes[i].id)!);
  });
  for (const side of ["ins", "outs"] as const) to[side].forEach((id, i) => portX.set(id, layout.portX.get(of[side][i])!));
  return { ...layout, x, y, portX };
}
