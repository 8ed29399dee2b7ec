// The small words on edges: which argument a tensor is, where order matters, and which passes an edge is of.
import { tensorsOf } from "./levels.ts";
import type { LevelEdge, Tree } from "./model.ts";

// Operations that give the same whichever way round their tensors stand; _ and i are their in-place forms.
const SYMMETRIC = /^_*i?(r?add|r?mul|eq|ne|maximum|minimum|logical_(and|or|xor)|bitwise_(and|or|xor)|r?and|r?or|r?xor|multiply|fmax|fmin|allclose|equal|dist|cdist|dot|inner|hypot)_*$/;

/** The arguments of a box that is an operation on several tensors whose order matters; else none. */
function namedArguments(tree: Tree, id: number): string[] {
  const { scene, nodes, several } = tree;
  const box = nodes[id];
  if (!box || box.children.length || !box.rows.length || SYMMETRIC.test(scene.types[scene.ops.type[box.rows[0]]])) return [];
  return [...(several.get(id) ?? [])].map((arg) => scene.args[arg]);
}

/** "0", "query": which arguments of such a box an edge brings. */
export function argumentsOf(tree: Tree, edge: LevelEdge): string {
  const { scene, boxOf } = tree;
  if (!namedArguments(tree, edge.to).length) return "";
  const names = edge.raw.filter((raw) => boxOf[scene.edges.dst[raw]] === edge.to).map((raw) => scene.args[scene.edges.arg[raw]]);
  const distinct = [...new Set(names)];
  return distinct.length > 3 ? `${distinct[0]} … ${distinct[distinct.length - 1]}` : distinct.join(", ");
}

/** "Out 1-2" and "In 3" of a rolled edge that is not of every pass, and whether a branch begins with it. */
export function passesOf(tree: Tree, edge: LevelEdge): { out: string; into: string; branch: boolean } {
  const { out, into } = tree.scene.edges;
  const one = (notes: string[] | undefined, ends: boolean): string => {
    if (!notes || !ends) return "";
    const distinct = [...new Set(edge.raw.map((raw) => notes[raw]))];
    return distinct.length === 1 ? distinct[0] : "";
  };
  const leaf = (end: number): boolean => tree.nodes[end]?.children.length === 0;
  return {
    out: one(out, leaf(edge.from)),
    into: one(into, leaf(edge.to)),
    branch: tree.decisions.starts.size > 0 && leaf(edge.to) && edge.raw.some((raw) => tree.decisions.starts.has(raw)),
  };
}

/** What stands beside an edge's arrow. */
export const wordsInto = (tree: Tree, edge: LevelEdge): string => [argumentsOf(tree, edge), passesOf(tree, edge).into].filter(Boolean).join(" · ");

/** What an edge bears: its tensor's shape, or how many tensors. */
export function shapeOf(tree: Tree, edge: LevelEdge, dimensions: (shape: number[]) => string): string {
  const tensors = tensorsOf(tree.scene, edge);
  return tensors.length > 1 ? `${tensors.length} tensors` : dimensions(tree.scene.metas[tree.scene.ops.meta[tensors[0]]][0]);
}

/** Boxes that take more than one tensor, or one in more than one place, with the arguments that bear them. */
export function takesSeveral({ scene, boxOf }: Pick<Tree, "scene" | "boxOf">): Map<number, Set<number>> {
  const found = new Map<number, Set<number>>();
  const { src, dst, arg } = scene.edges;
  for (let raw = 0; raw < src.length; raw++) {
    const box = boxOf[dst[raw]];
    if (boxOf[src[raw]] === box && !scene.edges.out) continue;
    const known = found.get(box);
    if (known) known.add(arg[raw]);
    else found.set(box, new Set([arg[raw]]));
  }
  for (const [box, args] of found) if (args.size < 2) found.delete(box);
  return found;
}
