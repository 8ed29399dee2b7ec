// Parameters on request: a row for every parameter that an operation reads, with an edge into each operation.
import { type Meta, PARAMETER, type Scene } from "./scene.ts";

/** Return the scene with a row for every parameter and an edge from it into each operation that reads it, as an unknown
 * argument, -1. The rows of parameters that modules returned are kept, with the edges that they have. */
export function withParameters(scene: Scene): Scene {
  const { types, metas, params, ops, edges, opParams } = scene;
  const { length } = ops.kind;
  const isReturned = (row: number): boolean => ops.kind[row] === PARAMETER;
  const pairs = opParams.op.map((row, i) => [row, opParams.param[i]]);
  const returned = new Map(pairs.filter(([row]) => isReturned(row)) as [number, number][]);
  const known = new Set(edges.src.map((row, edge) => `${returned.get(row)} ${edges.dst[edge]}`));
  const rows = new Map([...returned].map(([row, param]) => [param, row]));
  const added: number[] = [];
  const [src, dst] = [edges.src.slice(), edges.dst.slice()];
  for (const [row, param] of pairs) {
    if (isReturned(row) || known.has(`${param} ${row}`)) continue;
    if (!rows.has(param)) rows.set(param, length + added.push(param) - 1);
    src.push(rows.get(param)!);
    dst.push(row);
  }
  const sizes = added.map((param) => JSON.stringify([params[param][1], params[param][2], "", params[param][3]]));
  const distinct = [...new Set(sizes)]; // equal modules have equal metas
  const place = new Map(distinct.map((size, i) => [size, metas.length + i]));
  const cell = (column: string, param: number, i: number): unknown =>
    ({ label: params[param][0], kind: PARAMETER, type: types.length + i, meta: place.get(sizes[i]), layer: length + i, passno: 1, time: 0, flags: 0 })[column] ?? -1;
  return {
    ...scene,
    types: [...types, ...added.map((param) => params[param][0])],
    metas: [...metas, ...distinct.map((size) => JSON.parse(size) as Meta)],
    ops: Object.fromEntries(Object.entries(ops).map(([name, column]) => [name, [...(column as unknown[]), ...added.map((param, i) => cell(name, param, i))]])) as unknown as Scene["ops"],
    edges: { src, dst, arg: src.map((_, edge) => edges.arg[edge] ?? -1) },
    opParams: { op: [...opParams.op, ...added.map((_, i) => length + i)], param: [...opParams.param, ...added] },
  };
}
