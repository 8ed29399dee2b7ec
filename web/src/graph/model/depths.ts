// How deep a graph stands open: what a depth opens, and which depth it is that stands open.
import { isFold } from "./captions.ts";
import { preorder, type Tree, type TreeNode } from "./tree.ts";

/** Whether a depth opens everything, the members of folds too. */
export const isAll = (depth: number): boolean => depth >= 1e6;

/** Down to a depth each module stands open, and of each fold one member; Infinity opens all of everything. */
export class Depths {
  /** The depths there are to choose from, the last one Infinity. */
  readonly steps: number[];
  /** For each container how many modules stand around it, itself included; a fold counts as none. */
  private readonly levels: Int32Array;
  private readonly containers: TreeNode[] = [];
  private readonly top: number;

  constructor(tree: Tree) {
    this.levels = new Int32Array(tree.nodes.length);
    this.top = tree.nodes[0].children.length;
    let [most, folds] = [0, false];
    preorder(tree.nodes, (node) => {
      if (node.parent < 0 || !node.children.length) return;
      this.containers.push(node);
      this.levels[node.id] = this.levels[node.parent] + (node.kind === "group" ? 0 : 1);
      most = Math.max(most, this.levels[node.id]);
      folds ||= node.kind === "group";
    });
    this.steps = [...Array.from({ length: folds ? most + 1 : most }, (_, depth) => depth), Infinity];
  }

  /** The containers that stand open down to a depth. */
  *opened(depth: number): Generator<TreeNode> {
    for (const node of this.containers) if (this.opens(node, depth)) yield node;
  }

  /** How many boxes there are down to a depth, folds' other members included. */
  count(depth: number): number {
    let count = this.top;
    for (const { children } of this.opened(depth)) count += children.length;
    return count;
  }

  /** The depth at which just these stand open and folds show these members; null where there is none. */
  of(open: ReadonlySet<number>, picks: ReadonlyMap<number, number | "all">): number | null {
    const isPicked = (node: TreeNode, pick: number | "all"): boolean => !isFold(node) || (picks.get(node.id) ?? 0) === pick;
    if (this.containers.every((node) => open.has(node.id) && isPicked(node, "all"))) return Infinity;
    const depth = this.reached(open);
    return this.containers.every((node) => open.has(node.id) === this.opens(node, depth) && isPicked(node, 0)) ? depth : null;
  }

  /** The next depth with more open, or with less, than stands open now. */
  next(open: ReadonlySet<number>, now: number | null, by: 1 | -1): number {
    const { steps } = this;
    const at = now === Infinity ? steps.length - 1 : Math.min(this.reached(open), steps.length - 2);
    return steps[Math.min(steps.length - 1, Math.max(0, at + by))];
  }

  private opens(node: TreeNode, depth: number): boolean {
    if (isAll(depth)) return true;
    return node.kind === "group" ? isFold(node) && this.levels[node.id] < depth : this.levels[node.id] <= depth;
  }

  private reached(open: ReadonlySet<number>): number {
    let most = 0;
    for (const id of open) most = Math.max(most, this.levels[id]);
    return most;
  }
}

/** What the page calls a depth. */
export const depthName = (depth: number): string => (isAll(depth) ? "all" : String(depth));
export const depthNamed = (name: string): number => (name === "all" ? Infinity : Math.max(0, Number.parseInt(name, 10) || 0));
