// Navigation among visible boxes: producers, consumers and siblings of a box. An edge that ends at the border of an open
// box continues inside it.
import type { OpenContainer, VisibleLayout } from "../layout/visibleLayout.ts";
import { plus } from "../model/lists.ts";
import type { LevelEdge, Tree } from "../model/tree.ts";

interface LinesByBox {
  from: Map<number, LevelEdge[]>;
  to: Map<number, LevelEdge[]>;
}

const cache = new WeakMap<OpenContainer, LinesByBox>();

/** Return the edges of a container by their ends, which are boxes or ports. */
function linesByBox(part: OpenContainer): LinesByBox {
  let lines = cache.get(part);
  if (lines) return lines;
  lines = { from: new Map(), to: new Map() };
  const add = (map: Map<number, LevelEdge[]>, end: number, edge: LevelEdge): void => void map.set(end, plus(map.get(end), edge));
  for (const edge of part.level.edges) {
    add(lines.from, edge.from, edge);
    add(lines.to, edge.to, edge);
    // An edge also ends at the port where it continues inside a box.
    if (edge.outPort >= 0) add(lines.from, edge.outPort, edge);
    if (edge.inPort >= 0) add(lines.to, edge.inPort, edge);
  }
  cache.set(part, lines);
  return lines;
}

type Visit = (edge: LevelEdge, next: number) => void;

/** Visit the edges one step downstream or upstream from an end, through the borders of open boxes. */
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
    const continues = far < tree.firstPort && port >= 0 && visible.part(far) !== undefined;
    visit(edge, continues ? port : far);
  }
}

/** Return the visible boxes connected to a box by an edge, through the ports of open containers. */
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

/** Return the box that an arrow key leads to: along an edge for up and down, to a sibling for left and right; -1 for none. */
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
