// Steps along what is visible: who feeds a box, who it feeds, who stands beside it, and all that lies up or
// down the stream. An edge that ends at the border of an open box goes on inside it.
import type { Tree } from "./model.ts";
import type { Frame, Part } from "./frame.ts";
import type { Line } from "./strokes.ts";

interface Ways {
  from: Map<number, Line[]>;
  to: Map<number, Line[]>;
}

const known = new WeakMap<Part, Ways>();

function waysOf(part: Part): Ways {
  let ways = known.get(part);
  if (ways) return ways;
  ways = { from: new Map(), to: new Map() };
  const add = (map: Map<number, Line[]>, end: number, line: Line): void => void (map.get(end)?.push(line) ?? map.set(end, [line]));
  for (const line of part.lines.items) {
    add(ways.from, line.edge.from, line);
    add(ways.to, line.edge.to, line);
    // A port is reached from outside by the edges that name it as where they go on.
    if (line.edge.outPort >= 0) add(ways.from, line.edge.outPort, line);
    if (line.edge.inPort >= 0) add(ways.to, line.edge.inPort, line);
  }
  known.set(part, ways);
  return ways;
}

/** The edges one step on from an end, down the stream or up, through the borders of open boxes. */
function stepFrom(frame: Frame, tree: Tree, end: number, down: boolean): { line: Line; next: number }[] {
  const isPort = end >= tree.firstPort;
  const inner = isPort ? tree.holders[end - tree.firstPort] : -1;
  const parts = [frame.part(tree.nodes[isPort ? inner : end].parent), isPort ? frame.part(inner) : undefined];
  const lines = parts.flatMap((part) => (part && (down ? waysOf(part).from : waysOf(part).to).get(end)) ?? []);
  return lines.map((line) => {
    const { edge } = line;
    const [far, port] = down ? [edge.to, edge.inPort] : [edge.from, edge.outPort];
    const goesOn = far < tree.firstPort && port >= 0 && frame.part(far) !== undefined;
    return { line, next: goesOn ? port : far };
  });
}

export interface Stream {
  boxes: Set<number>;
  lines: Set<Line>;
}

/** Everything visible that a box's tensors come from (`down` false) or go to. An open box begins inside. */
export function stream(tree: Tree, frame: Frame, id: number, down: boolean): Stream {
  const found: Stream = { boxes: new Set(), lines: new Set() };
  const seen = new Set<number>([id]);
  const waiting = [id];
  while (waiting.length) {
    for (const { line, next } of stepFrom(frame, tree, waiting.pop()!, down)) {
      found.lines.add(line);
      if (next < tree.firstPort && next !== id) found.boxes.add(next);
      if (seen.has(next)) continue;
      seen.add(next);
      waiting.push(next);
    }
  }
  return found;
}

/** Visible boxes joined to a box by an edge, through the ports of open containers. */
export function neighbours(tree: Tree, frame: Frame, id: number): { before: number[]; after: number[] } {
  const near = (down: boolean): number[] => {
    const found = new Set<number>();
    const waiting = [id];
    const seen = new Set<number>(waiting);
    while (waiting.length) {
      for (const { next } of stepFrom(frame, tree, waiting.pop()!, down)) {
        if (next < tree.firstPort) found.add(next);
        else if (!seen.has(next)) waiting.push(next);
        seen.add(next);
      }
    }
    found.delete(id);
    return [...found].sort((a, b) => tree.nodes[a].order - tree.nodes[b].order);
  };
  return { before: near(false), after: near(true) };
}

/** What the selected box's tensors come from and go to, and its neighbours. */
export interface Light {
  lit: Stream | null;
  related: Set<number>;
}

export function lightOf(tree: Tree | null, frame: Frame | null, id: number): Light {
  if (!tree || !frame?.box(id)) return { lit: null, related: new Set() };
  const [up, down] = [stream(tree, frame, id, false), stream(tree, frame, id, true)];
  const { before, after } = neighbours(tree, frame, id);
  return {
    lit: { boxes: new Set([...up.boxes, ...down.boxes]), lines: new Set([...up.lines, ...down.lines]) },
    related: new Set([...before, ...after]),
  };
}

/** Where an arrow key leads from a box: along an edge up or down, to its sibling left or right. */
export function step(tree: Tree, frame: Frame, id: number, key: string): number {
  const box = frame.box(id);
  if (!box) return -1;
  if (key === "ArrowUp" || key === "ArrowDown") {
    const { before, after } = neighbours(tree, frame, id);
    return key === "ArrowUp" ? (before.at(-1) ?? -1) : (after[0] ?? -1);
  }
  const middle = box.dy + box.height / 2;
  let best = -1;
  let least = Infinity;
  for (const other of frame.part(box.node.parent)!.boxes.items) {
    const dx = key === "ArrowLeft" ? box.dx - other.dx : other.dx - box.dx;
    if (dx <= 0) continue;
    const far = dx + 4 * Math.abs(other.dy + other.height / 2 - middle);
    if (far < least) [best, least] = [other.node.id, far];
  }
  return best;
}
