// The details of boxes, as in Figure 2B of the TorchLens paper (Taylor and Kriegeskorte 2023): labels, shape and size of values,
// parameters and buffers, and the address. Labels and addresses are what `save=` takes, so they are not shortened.
import { bytes } from "../../ui/format.ts";
import { dimensions } from "./facts.ts";
import { NONE, plus } from "./lists.ts";
import type { Tree, TreeNode } from "./tree.ts";

const MOST = 3; // labels, tensors, parameters or buffers listed

/** The parameters of every box that runs operations, by tree. */
const paramsByTree = new WeakMap<Tree, Map<number, number[]>>();

/** Return the lines with the details of a closed box; none unless the tree shows details. */
export function details(tree: Tree, node: TreeNode): string[] {
  if (!tree.full) return NONE;
  const { scene, nodes } = tree;
  const { ops, metas } = scene;
  const around = node.kind === "module" ? node : moduleAround(tree, node);
  const address = around?.address.replace(/:\d+$/, "") ?? "";
  const own = (name: string): string => (name.startsWith(`${address}.`) ? name.slice(address.length + 1) : name);
  const labels = node.rows.map((row) => ops.label[row]);
  const sizes = node.rows.map((row) => metas[ops.meta[row]]).map(([shape, dtype, , nbytes]) => `${dimensions(shape)} ${dtype} · ${bytes(nbytes)}`);
  const params = (node.kind === "parameter" ? NONE : paramsOf(tree, node.id)).map((index) => `${own(scene.params[index][0])} ${dimensions(scene.params[index][1])}`);
  const buffers = node.buffers.map((row) => `${own(scene.types[ops.type[row]])} ${dimensions(metas[ops.meta[row]][0])}`);
  const ends = node.kind === "group" ? [node.children[0], node.children[node.children.length - 1]].map((id) => `@${nodes[id].address}`).join(" … ") : "";
  return [...(labels[0] === node.title ? [] : listed(labels)), ...listed(sizes), listed(params).join(", "), listed(buffers).join(", "), ends || (around && node.kind !== "buffer" && node.kind !== "parameter" ? `@${around.address}` : "")].filter(Boolean);
}

/** Return a few of the items, with the last. */
const listed = (items: string[]): string[] => (items.length > MOST ? [...items.slice(0, MOST - 1), `… ${items[items.length - 1]}`] : items);

/** Return the module that a box is in; undefined if that is the model. */
function moduleAround({ nodes }: Tree, { parent }: TreeNode): TreeNode | undefined {
  for (let n = parent; n > 0; n = nodes[n].parent) if (nodes[n].kind === "module") return nodes[n];
  return undefined;
}

function paramsOf(tree: Tree, id: number): number[] {
  let found = paramsByTree.get(tree);
  if (!found) {
    paramsByTree.set(tree, (found = new Map()));
    const { op, param } = tree.scene.opParams;
    op.forEach((row, i) => {
      const known = found!.get(tree.boxOf[row]);
      if (!known?.includes(param[i])) found!.set(tree.boxOf[row], plus(known, param[i]));
    });
  }
  return found.get(id) ?? NONE;
}

/** Return the text in the header of an open box after its title: its type and, with details, its address. */
export const headerText = ({ full }: Tree, { address }: TreeNode, subtitle: string): string => (full && address ? `${subtitle}  @${address}` : subtitle);
