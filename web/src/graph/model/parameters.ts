// Parameters on request: a row for every parameter that an operation reads, as Figure 2 of the TorchLens paper draws buffers.
import { type Meta, PARAMETER, type Scene } from "./scene.ts";

/** Return the scene with a row for every parameter, with an edge into each operation that reads it; its argument is unknown,
 * -1. The row of a parameter that a module returned is kept, with the edges that it has. */
export function withParameters(scene: Scene): Scene {
  const { types, metas, params, ops, edges, opParams } = scene;
  const { length } = ops.kind;
  const [rows, paramOf] = [new Map<number, number>(), new Map<number, number>()];
  opParams.op.forEach((row, i) => {
    if (ops.kind[row] !== PARAMETER) return;
    paramOf.set(row, opParams.param[i]);
    rows.set(opParams.param[i], row);
  });
  const known = new Set(edges.src.map((row, edge) => `${paramOf.get(row)} ${edges.dst[edge]}`));
  const added: number[] = [];
  const [src, dst] = [edges.src.slice(), edges.dst.slice()];
  opParams.op.forEach((row, i) => {
    const param = opParams.param[i];
    if (ops.kind[row] === PARAMETER || known.has(`${param} ${row}`)) return;
    if (!rows.has(param)) rows.set(param, length + added.push(param) - 1);
    src.push(rows.get(param)!);
    dst.push(row);
  });
  const sizes = added.map((param) => JSON.stringify([params[param][1], params[param][2], "", params[param][3]]));
  const distinct = [...new Set(sizes)]; // equal modules have equal metas
  const meta = new Map(distinct.map((size, i) => [size, metas.length + i]));
  const cell = (column: string, param: number, i: number): unknown =>
    ({ label: params[param][0], kind: PARAMETER, type: types.length + i, meta: meta.get(sizes[i]), layer: length + i, passno: 1, time: 0, flags: 0 })[column] ?? -1;
  return {
    ...scene,
    types: [...types, ...added.map((param) => params[param][0])],
    metas: [...metas, ...distinct.map((size) => JSON.parse(size) as Meta)],
    ops: Object.fromEntries(Object.entries(ops).map(([name, column]) => [name, [...(column as unknown[]), ...added.map((param, i) => cell(name, param, i))]])) as unknown as Scene["ops"],
    edges: { src, dst, arg: src.map((_, edge) => edges.arg[edge] ?? -1) },
    opParams: { op: [...opParams.op, ...added.map((_, i) => length + i)], param: [...opParams.param, ...added] },
  };
}
