// Steps along what is visible: who feeds a box, who it feeds, who stands beside it. An edge that ends at the border of
// an open box goes on inside it.
import type { OpenContainer, VisibleLayout } from "../layout/visibleLayout.ts";
import { plus } from "../model/lists.ts";
import type { LevelEdge, Tree } from "../model/tree.ts";

interface LinesByBox {
  from: Map<number, LevelEdge[]>;
  to: Map<number, LevelEdge[]>;
}

const known = new WeakMap<OpenContainer, LinesByBox>();

/** The edges of a container by where they begin and end. */
function linesByBox(part: OpenContainer): LinesByBox {
  let ways = known.get(part);
  if (ways) return ways;
  ways = { from: new Map(), to: new Map() };
  const add = (map: Map<number, LevelEdge[]>, end: number, edge: LevelEdge): void => void map.set(end, plus(map.get(end), edge));
  for (const edge of part.level.edges) {
    add(ways.from, edge.from, edge);
    add(ways.to, edge.to, edge);
    // A port is reached from outside by the edges that name it as where they go on.
    if (edge.outPort >= 0) add(ways.from, edge.outPort, edge);
    if (edge.inPort >= 0) add(ways.to, edge.inPort, edge);
  }
  known.set(part, ways);
  return ways;
}

type Visit = (edge: LevelEdge, next: number) => void;

/** The edges one step on from an end, down the stream or up, through the borders of open boxes. */
function stepFrom(visible: VisibleLayout, tree: Tree, end: number, down: boolean, visit: Visit): void {
  if (end < tree.firstPort) return stepIn(visible, tree, tree.nodes[end].parent, end, down, visit);
  const holder = tree.holders[end - tree.firstPort];
  stepIn(visible, tree, tree.nodes[holder].parent, end, down, visit);
  stepIn(visible, tree, holder, end, down, visit);
}

function stepIn(visible: VisibleLayout, tree: Tree, container: number, end: number, down: boolean, visit: Visit): void {
  const part = visible.part(container);
  if (!part) return;
  const { from, to } = linesByBox(part);
  for (const edge of (down ? from : to).get(end) ?? []) {
    const [far, port] = down ? [edge.to, edge.inPort] : [edge.from, edge.outPort];
    const goesOn = far < tree.firstPort && port >= 0 && visible.part(far) !== undefined;
    visit(edge, goesOn ? port : far);
  }
}

/** Visible boxes joined to a box by an edge, through the ports of open containers. */
export function neighbours(tree: Tree, visible: VisibleLayout, id: number): { before: number[]; after: number[] } {
  if (!visible.box(id)) return { before: [], after: [] };
  const near = (down: boolean): number[] => {
    const found = new Set<number>();
    const waiting = [id];
    const seen = new Set<number>(waiting);
    while (waiting.length) {
      stepFrom(visible, tree, waiting.pop()!, down, (_, next) => {
        if (next < tree.firstPort) found.add(next);
        else if (!seen.has(next)) waiting.push(next);
        seen.add(next);
      });
    }
    found.delete(id);
    return [...found].sort((a, b) => tree.nodes[a].order - tree.nodes[b].order);
  };
  return { before: near(false), after: near(true) };
}

/** Where an arrow key leads from a box: along an edge up or down, to its sibling left or right. */
export function step(tree: Tree, visible: VisibleLayout, id: number, key: string): number {
  const box = visible.box(id);
  if (!box) return -1;
  if (key === "ArrowUp" || key === "ArrowDown") {
    const { before, after } = neighbours(tree, visible, id);
    return key === "ArrowUp" ? (before.at(-1) ?? -1) : (after[0] ?? -1);
  }
  const middle = box.dy + box.height / 2;
  let best = -1;
  let least = Infinity;
  const part = visible.part(box.node.parent)!;
  for (let place = 0; place < part.shown.length; place++) {
    const other = part.box(place);
    const dx = key === "ArrowLeft" ? box.dx - other.dx : other.dx - box.dx;
    if (dx <= 0) continue;
    const far = dx + 4 * Math.abs(other.dy + other.height / 2 - middle);
    if (far < least) [best, least] = [other.node.id, far];
  }
  return best;
}
