// Steps along the graph: who feeds a visible box, who it feeds, who stands beside it.
import type { Tree } from "./model.ts";
import type { Frame } from "./stage.ts";

/** Visible boxes joined to a box by an edge, through the ports of open containers. */
export function neighbours(tree: Tree, frame: Frame, id: number): { before: number[]; after: number[] } {
  const { src, dst } = tree.scene.edges;
  const node = tree.nodes[id];
  const inside = (box: number): boolean => {
    let n = box;
    while (n >= 0 && tree.nodes[n].depth > node.depth) n = tree.nodes[n].parent;
    return n === id;
  };
  const shown = (box: number): number => {
    let seen = box;
    for (let n = box; n > 0; n = tree.nodes[n].parent) {
      const there = frame.byId.get(n);
      if (there && !there.open) seen = n;
    }
    return seen;
  };
  const level = tree.levels.get(node.parent);
  const before = new Set<number>();
  const after = new Set<number>();
  for (const edge of level?.edges ?? []) {
    if (edge.to === id) for (const raw of edge.raw) before.add(shown(tree.boxOf[src[raw]]));
    if (edge.from === id) for (const raw of edge.raw) after.add(shown(tree.boxOf[dst[raw]]));
  }
  const order = (set: Set<number>): number[] => [...set].filter((box) => !inside(box)).sort((a, b) => tree.nodes[a].order - tree.nodes[b].order);
  return { before: order(before), after: order(after) };
}

/** Where an arrow key leads from a box: along an edge up or down, to its sibling left or right. */
export function step(tree: Tree, frame: Frame, id: number, key: string): number {
  const box = frame.byId.get(id);
  if (!box) return -1;
  if (key === "ArrowUp" || key === "ArrowDown") {
    const { before, after } = neighbours(tree, frame, id);
    return key === "ArrowUp" ? (before.at(-1) ?? -1) : (after[0] ?? -1);
  }
  const middle = box.y + box.height / 2;
  let best = -1;
  let least = Infinity;
  for (const sibling of tree.nodes[box.node.parent].children) {
    const other = frame.byId.get(sibling)!;
    const dx = key === "ArrowLeft" ? box.x - other.x : other.x - box.x;
    if (sibling === id || dx <= 0) continue;
    const far = dx + 4 * Math.abs(other.y + other.height / 2 - middle);
    if (far < least) [best, least] = [sibling, far];
  }
  return best;
}
