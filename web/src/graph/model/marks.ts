// The small words on edges: which argument a tensor is, where order matters, and which passes an edge is of.
import { tensorsOf } from "./levels.ts";
import type { LevelEdge, Tree } from "./tree.ts";

// Operations that give the same whichever way round their tensors stand; _ and i are their in-place forms.
const SYMMETRIC = /^_*i?(r?add|r?mul|eq|ne|maximum|minimum|logical_(and|or|xor)|bitwise_(and|or|xor)|r?and|r?or|r?xor|multiply|fmax|fmin|equal|dist|dot|inner|hypot)_*$/;

/** The small words on an edge. */
export interface Marks {
  /** At its start: "Out 1-2" of a rolled edge that is not of every pass. */
  out: string;
  /** At its arrow: which argument it is, where the order matters, and "In 3". */
  into: string;
  /** At its arrow too: whether a branch begins with it. */
  branch: typeof IF | "";
}

/** What is written where a branch begins. */
export const IF = "IF";

const NONE: Marks = { out: "", into: "", branch: "" };

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

/** "0", "query": which arguments an edge brings to an operation on several tensors whose order matters. */
function argumentsOf({ scene, nodes, boxOf, several }: Tree, edge: LevelEdge): string {
  const box = nodes[edge.to];
  if (!several.has(edge.to) || box.children.length || !box.rows.length) return "";
  if (SYMMETRIC.test(scene.types[scene.ops.type[box.rows[0]]])) return "";
  const names = edge.raw.filter((raw) => boxOf[scene.edges.dst[raw]] === edge.to).map((raw) => scene.args[scene.edges.arg[raw]]);
  const distinct = [...new Set(names)];
  return distinct.length > 3 ? `${distinct[0]} … ${distinct[distinct.length - 1]}` : distinct.join(", ");
}

/** What an edge bears: its tensor's shape, or how many tensors. */
export function shapeOf(tree: Tree, edge: LevelEdge, dimensions: (shape: number[]) => string): string {
  const tensors = tensorsOf(tree.scene, edge);
  return tensors.length > 1 ? `${tensors.length} tensors` : dimensions(tree.scene.metas[tree.scene.ops.meta[tensors[0]]][0]);
}

/** Boxes that take more than one tensor, or one in more than one place. */
export function takesSeveral({ scene, boxOf }: Pick<Tree, "scene" | "boxOf">): Set<number> {
  const first = new Map<number, number>();
  const found = new Set<number>();
  const { src, dst, arg } = scene.edges;
  for (let raw = 0; raw < src.length; raw++) {
    const box = boxOf[dst[raw]];
    if (box < 0 || (boxOf[src[raw]] === box && !scene.edges.out)) continue;
    const known = first.get(box);
    if (known === undefined) first.set(box, arg[raw]);
    else if (known !== arg[raw]) found.add(box);
  }
  return found;
}
