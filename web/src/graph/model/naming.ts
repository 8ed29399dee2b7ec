// The names of boxes: their titles and addresses.
import { plus } from "./lists.ts";
import { INPUT, OP, OUTPUT, type Scene } from "./scene.ts";
import type { Builder, TreeNode } from "./tree.ts";

/** Set the address, names, title and passes of every box; `callBox` is the box of each call. */
export function nameBoxes({ scene, nodes }: Builder, callBox: Int32Array): void {
  const { ops, calls } = scene;
  const ends = endNames(scene);
  nodes[0].title = scene.model;
  const rootCall = callBox.indexOf(0);
  nodes[0].call = rootCall;
  nodes[0].subtitle = rootCall >= 0 ? scene.modules[calls.module[rootCall]][1] : "";
  for (const node of nodes) {
    const labels = ops.also ? node.rows.flatMap((row) => [ops.label[row], ...ops.also![row]]) : node.rows.map((row) => ops.label[row]);
    node.passes = node.kind === "module" ? (calls.passes?.[node.call] ?? 1) : node.rows.reduce((most, row) => Math.max(most, ops.passes?.[row] ?? 1), 1);
    if (node.kind === "module") {
      node.address = calls.address[node.call];
      node.names = [...new Set([node.address, ...(calls.also?.[node.call] ?? [])])];
      node.subtitle = scene.modules[calls.module[node.call]][1];
      node.title = below(node.address, addressAround(nodes, node));
      for (let call = calls.parent[node.call]; call >= 0 && callBox[call] === node.id; call = calls.parent[call])
        node.names.push(calls.address[call]);
      node.names.push(...labels);
    } else if (labels.length) {
      node.address = labels[0];
      node.names = labels.length > 1 ? [...new Set(labels)] : labels;
      const type = scene.types[ops.type[node.rows[0]]];
      node.title = node.kind === "op" ? type : node.kind === "buffer" || node.kind === "parameter" ? below(type, addressAround(nodes, node)) : ends.get(node.rows[0]) || labels[0];
    }
    for (const row of node.buffers) node.names = plus(node.names, ops.label[row]);
    if (node.passes > 1) node.title += ` (x${node.passes})`;
  }
  for (const node of nodes) {
    if (node.kind !== "group" || node.title) continue;
    const members = node.children.map((id) => nodes[id]);
    node.title = `${members[0].title} … ${members[members.length - 1].title}`;
    node.subtitle = members[0].subtitle;
  }
}

function addressAround(nodes: TreeNode[], node: TreeNode): string {
  let parent = nodes[node.parent];
  while (parent.kind === "group") parent = nodes[parent.parent];
  return parent.kind === "module" ? parent.address.replace(/:\d+$/, "") : "";
}

/** Return an address relative to a container's: `h.0` for `transformer.h.0` in `transformer`. A bare number would say too
 * little, so `features.0` is unchanged in `features`. */
function below(address: string, around: string): string {
  const rest = around && address.startsWith(around + ".") ? address.slice(around.length + 1) : address;
  return /^\d+(:\d+)?$/.test(rest) && around ? `${around.slice(around.lastIndexOf(".") + 1)}.${rest}` : rest;
}

/** Return the names of inputs and outputs in the model's code, by row. */
function endNames({ ops, facts = {} }: Scene): Map<number, string> {
  const names = new Map<number, string>();
  for (const [kind, called] of [[INPUT, facts.inputs], [OUTPUT, facts.outputs]] as [number, string[] | undefined][]) {
    let place = 0;
    if (called) ops.kind.forEach((one, row) => one === kind && names.set(row, called[place++]));
  }
  return names;
}

/** Return the box of each name, the first if several boxes share it. */
export function namesOf(scene: Scene, nodes: TreeNode[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const node of nodes) for (const name of node.names) if (!found.has(name)) found.set(name, node.id);
  for (const node of nodes) for (const name of shortNames(scene, node)) if (!found.has(name)) found.set(name, node.id);
  return found;
}

/** Return the short labels of a box's operations: `conv2d_3` for `conv2d_3_7`, and `conv2d_3:2` for its second pass. */
const shortNames = ({ ops }: Scene, { rows }: TreeNode): string[] =>
  rows.filter((row) => ops.kind[row] === OP).map((row) => ops.label[row].replace(/_\d+(:\d+)?$/, "$1"));
