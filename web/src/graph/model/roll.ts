// Rolling: merge the passes of a recurrent layer into one row, as in Figure 3 of the TorchLens paper (Taylor and
// Kriegeskorte 2023).
import type { Scene } from "./scene.ts";

/** Return whether any layer ran more than once. */
export const isRecurrent = ({ ops }: Scene): boolean => ops.passno?.some((pass) => pass > 1) ?? false;

/** Return the scene with one row for every layer; edges that do not exist in every pass are labeled with their passes. */
export function roll(scene: Scene): Scene {
  const { ops } = scene;
  if (!ops.layer || !ops.passno) return scene;
  const rows = passesOf(ops.layer);
  const firsts = [...rows.values()].map((passes) => passes[0]).sort((a, b) => a - b);
  const place = new Int32Array(ops.kind.length);
  firsts.forEach((row, at) => {
    for (const pass of rows.get(ops.layer![row])!) place[pass] = at;
  });
  const all = firsts.map((row) => rows.get(ops.layer![row])!);
  const merged = (name: string, column: unknown[]): unknown[] => {
    const method = scene.rolled[name];
    return method ? all.map((passes) => combine[method](passes.map((row) => column[row] as number | null))) : firsts.map((row) => column[row]);
  };
  const short = (label: string, passes: number): string => (passes > 1 ? label.replace(/:\d+$/, "") : label);
  return {
    ...scene,
    ops: {
      ...(Object.fromEntries(Object.entries(ops).map(([name, column]) => [name, merged(name, column as unknown[])])) as unknown as Scene["ops"]),
      label: firsts.map((row, i) => short(ops.label[row], all[i].length)),
      passes: all.map((passes) => passes.length),
      also: all.map((passes) => passes.map((row) => ops.label[row])),
    },
    values: rollValues(scene.values, firsts),
    branches: scene.branches?.map(([row, ...rest]) => [place[row], ...rest]),
    edges: rollEdges(scene, place, all),
    calls: rollCalls(scene, place, firsts),
    opParams: { op: scene.opParams.op.map((row) => place[row]), param: scene.opParams.param },
  };
}

/** How the values of a layer's passes are combined, for columns in which not the first pass counts (intus.core.graph.OP_COLUMNS). */
const combine = {
  sum: (parts: (number | null)[]): number | null => (parts.includes(null) ? null : parts.reduce((sum: number, part) => sum + part!, 0)),
  any: (parts: (number | null)[]): number => parts.reduce((bits: number, part) => bits | part!, 0),
};

/** Keep the summary of the value of each layer's first pass. */
function rollValues(values: Scene["values"], firsts: number[]): Scene["values"] {
  if (!values) return values;
  const place = new Map(firsts.map((row, at) => [row, at]));
  const kept = values.row.flatMap((row, i) => (place.has(row) ? [i] : []));
  const { params, ...all } = values;
  const columns = Object.entries(all).map(([name, column]) => [name, kept.map((i) => column[i])]);
  return { ...(Object.fromEntries(columns) as NonNullable<Scene["values"]>), params, row: kept.map((i) => place.get(values.row[i])!) };
}

/** Group rows by layer. */
function passesOf(layer: number[]): Map<number, number[]> {
  const rows = new Map<number, number[]>();
  layer.forEach((number, row) => rows.get(number)?.push(row) ?? rows.set(number, [row]));
  return rows;
}

function rollEdges(scene: Scene, place: Int32Array, all: number[][]): Scene["edges"] {
  const { src, dst, arg } = scene.edges;
  const passno = scene.ops.passno!;
  const found = new Map<string, { src: number; dst: number; arg: number; out: Set<number>; into: Set<number> }>();
  for (let raw = 0; raw < src.length; raw++) {
    const [a, b] = [place[src[raw]], place[dst[raw]]];
    const key = `${a} ${b} ${arg[raw]}`;
    const edge = found.get(key) ?? { src: a, dst: b, arg: arg[raw], out: new Set<number>(), into: new Set<number>() };
    found.set(key, edge);
    edge.out.add(passno[src[raw]]);
    edge.into.add(passno[dst[raw]]);
  }
  const edges = [...found.values()].sort((a, b) => a.dst - b.dst);
  const note = (word: string, passes: Set<number>, of: number): string => (passes.size < of ? `${word} ${ranges([...passes])}` : "");
  return {
    src: edges.map((edge) => edge.src),
    dst: edges.map((edge) => edge.dst),
    arg: edges.map((edge) => edge.arg),
    out: edges.map((edge) => note("Out", edge.out, all[edge.src].length)),
    into: edges.map((edge) => note("In", edge.into, all[edge.dst].length)),
  };
}

/** Merge calls: a call whose rows were all merged into those of another call of its module is a further pass of that call. */
function rollCalls(scene: Scene, place: Int32Array, firsts: number[]): Scene["calls"] {
  const { calls, ops } = scene;
  const into = calls.module.map((module, call) => {
    if (calls.start[call] >= calls.stop[call]) return call;
    let at = ops.call[firsts[place[calls.start[call]]]];
    while (at >= 0 && calls.module[at] !== module) at = calls.parent[at];
    return at < 0 ? call : at;
  });
  const also = calls.module.map((): string[] => []);
  into.forEach((call, pass) => also[call].push(calls.address[pass]));
  const ofModule = new Map<number, number>();
  for (const module of calls.module) ofModule.set(module, (ofModule.get(module) ?? 0) + 1);
  const isWhole = (call: number): boolean => also[call].length === ofModule.get(calls.module[call]);
  const firstRow = (row: number): number => {
    let [low, high] = [0, firsts.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (firsts[middle] < row) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return {
    ...calls,
    address: calls.address.map((address, call) => (isWhole(call) ? address.replace(/:\d+$/, "") : address)),
    start: calls.start.map(firstRow),
    stop: calls.stop.map(firstRow),
    passes: also.map((names) => names.length),
    also,
  };
}

/** Format numbers as ranges: 1-3, 5. */
export function ranges(numbers: number[]): string {
  const sorted = numbers.slice().sort((a, b) => a - b);
  const parts: string[] = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (sorted[j + 1] === sorted[j] + 1) j++;
    parts.push(i === j ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(", ");
}
