// Layouts of many containers in a few arrays, which go from one thread to another without being copied.
import type { Layout } from "./layers.ts";

export interface PackedLayouts {
  containers: Int32Array;
  /** For each container the number of its layout: those that are alike have one. */
  which: Int32Array;
  /** Of each layout: how many boxes, ports, edges and points. */
  counts: Int32Array;
  /** Of each layout: width and height, x, y, ports, points. */
  numbers: Float64Array;
  /** Of each layout: where its routes begin. */
  starts: Int32Array;
}

export function pack(layouts: Map<number, Layout>): PackedLayouts {
  const numbered = new Map<Layout, number>();
  for (const layout of layouts.values()) if (!numbered.has(layout)) numbered.set(layout, numbered.size);
  const all = [...numbered.keys()];
  const counts = Int32Array.from(all.flatMap(({ x, portX, starts, points }) => [x.length, portX.length, starts.length, points.length]));
  const numbers = new Float64Array(all.reduce((sum, { x, portX, points }) => sum + 2 + 2 * x.length + portX.length + points.length, 0));
  const starts = new Int32Array(all.reduce((sum, layout) => sum + layout.starts.length, 0));
  let [at, start] = [0, 0];
  for (const { width, height, x, y, portX, points, starts: own } of all) {
    for (const part of [[width, height], x, y, portX, points]) {
      numbers.set(part, at);
      at += part.length;
    }
    starts.set(own, start);
    start += own.length;
  }
  const which = Int32Array.from(layouts.values(), (layout) => numbered.get(layout)!);
  return { containers: Int32Array.from(layouts.keys()), which, counts, numbers, starts };
}

export function unpack({ containers, which, counts, numbers, starts }: PackedLayouts): Map<number, Layout> {
  const all: Layout[] = [];
  let [at, start] = [0, 0];
  const take = (length: number): Float64Array => numbers.subarray(at, (at += length));
  for (let i = 0; i < counts.length; i += 4) {
    const [boxes, ports, edges, points] = counts.subarray(i, i + 4);
    const [width, height] = take(2);
    const layout = { width, height, x: take(boxes), y: take(boxes), portX: take(ports), points: take(points) };
    all.push({ ...layout, starts: starts.subarray(start, (start += edges)) });
  }
  return new Map(Array.from(containers, (id, i) => [id, all[which[i]]]));
}
