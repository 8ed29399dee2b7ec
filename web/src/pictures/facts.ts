// The description of a box in one line, for screen readers and tooltips.
import { dimensions } from "../graph/model/facts.ts";
import type { TreeNode } from "../graph/model/tree.ts";
import { formatValue, isPaintable, TITLES, valueOf } from "../graph/paint/paint.ts";
import { badParams, badText } from "../graph/panel/values.ts";
import type { Picture } from "../graph/paint/picture.ts";
import { bytes, count, duration } from "../ui/format.ts";

const MOST_TENSORS = 3;
const INCLUDED = [TITLES.parameters, TITLES.time, TITLES.memory]; // paints whose value every description has

/** Return the description of a box. */
export function factsOf({ tree, figures, paint }: Picture, node: TreeNode): string {
  const { id, kind, rows } = node;
  const { metas, ops } = tree.scene;
  const parts = [node.address || node.title];
  if (node.subtitle && kind === "module") parts.push(node.subtitle);
  if (rows.length) {
    const tensors = rows.slice(0, MOST_TENSORS).map((row) => metas[ops.meta[row]]).map(([shape, dtype]) => `${dimensions(shape)} ${dtype}`);
    parts.push(tensors.join(", ") + (rows.length > MOST_TENSORS ? ", …" : ""));
  }
  if (figures.parameters[id]) parts.push(`${count(figures.parameters[id])} parameters`);
  const bad = badParams(tree.scene);
  const { op, param: read } = tree.scene.opParams;
  for (const param of new Set(bad.size ? read.filter((one, i) => bad.has(one) && rows.includes(op[i])) : [])) parts.push(`${tree.scene.params[param][0]}: ${badText(...bad.get(param)!)}`);
  if (figures.time[id]) parts.push(duration(figures.time[id]));
  if (figures.memory[id]) parts.push(bytes(figures.memory[id]));
  const value = paint && isPaintable(node, paint) ? valueOf(paint, node) : null;
  if (paint && value !== null && !INCLUDED.includes(paint.title)) parts.push(`${paint.title} ${formatValue(paint, value)}`);
  return parts.join(" · ");
}
