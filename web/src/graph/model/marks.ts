// The small labels of edges: the argument that a tensor is passed as, if the order matters, and the passes of an edge.
import { tensorsOf } from "./levels.ts";
import type { LevelEdge, Tree } from "./tree.ts";

// Commutative operations; _ and i mark their in-place forms.
const SYMMETRIC = /^_*i?(r?add|r?mul|eq|ne|maximum|minimum|logical_(and|or|xor)|bitwise_(and|or|xor)|r?and|r?or|r?xor|multiply|fmax|fmin|equal|dist|dot|inner|hypot)_*$/;

/** The small labels of an edge. */
export interface Marks {
  /** At its start: "Out 1-2" for a rolled edge that does not exist in every pass. */
  out: string;
  /** At its arrow: the argument, if the order matters, and "In 3". */
  into: string;
  /** Also at its arrow: whether it begins the computation of a condition. */
  branch: typeof IF | "";
}

/** The label where the computation of a condition begins. */
export const IF = "IF";

const NONE: Marks = { out: "", into: "", branch: "" };

/** Return the small labels of an edge. */
export function marksOf(tree: Tree, edge: LevelEdge): Marks {
  const { scene, several, decisions } = tree;
  if (!scene.edges.out && !several.has(edge.to) && !decisions.starts.size) return NONE;
  return (edge.marks ??= {
    out: passes(tree, edge, edge.from, scene.edges.out),
    into: [argumentsOf(tree, edge), passes(tree, edge, edge.to, scene.edges.into)].filter(Boolean).join(" · "),
    branch: isLeaf(tree, edge.to) && edge.raw.some((raw) => decisions.starts.has(raw)) ? IF : "",
  });
}

const isLeaf = ({ nodes }: Tree, end: number): boolean => nodes[end]?.children.length === 0;

function passes(tree: Tree, edge: LevelEdge, end: number, notes: string[] | undefined): string {
  if (!notes || !isLeaf(tree, end)) return "";
  const distinct = [...new Set(edge.raw.map((raw) => notes[raw]))];
  return distinct.length === 1 ? distinct[0] : "";
}

/** Return the arguments ("0", "query") of an edge into an operation on several tensors whose order matters, else "". */
function argumentsOf({ scene, nodes, boxOf, several }: Tree, edge: LevelEdge): string {
  const box = nodes[edge.to];
  if (!several.has(edge.to) || box.children.length || !box.rows.length) return "";
  if (SYMMETRIC.test(scene.types[scene.ops.type[box.rows[0]]])) return "";
  const names = edge.raw.filter((raw) => boxOf[scene.edges.dst[raw]] === edge.to).map((raw) => scene.args[scene.edges.arg[raw]]);
  const distinct = [...new Set(names)];
  return distinct.length > 3 ? `${distinct[0]} … ${distinct[distinct.length - 1]}` : distinct.join(", ");
}

/** Return the shape of an edge's tensor, or the number of its tensors. */
export function shapeOf(tree: Tree, edge: LevelEdge, dimensions: (shape: number[]) => string): string {
  const tensors = tensorsOf(tree.scene, edge);
  return tensors.length > 1 ? `${tensors.length} tensors` : dimensions(tree.scene.metas[tree.scene.ops.meta[tensors[0]]][0]);
}

/** Return the boxes that take more than one tensor, or one tensor as several arguments. */
export function takesSeveral({ scene, boxOf }: Pick<Tree, "scene" | "boxOf">): Set<number> {
  const first = new Map<number, number>();
  const found = new Set<number>();
  const { src, dst, arg } = scene.edges;
  for (let raw = 0; raw < src.length; raw++) {
    const box = boxOf[dst[raw]];
    if (box < 0 || arg[raw] < 0 || (boxOf[src[raw]] === box && !scene.edges.out)) continue;
    const known = first.get(box);
    if (known === undefined) first.set(box, arg[raw]);
    else if (known !== arg[raw]) found.add(box);
  }
  return found;
}
