// Edges as they are drawn: their routes, and the words that stand beside them.
import { dimensions } from "./facts.ts";
import { routeOf, type Layout } from "./layout.ts";
import { tensorsOf } from "./levels.ts";
import { marksOf, shapeOf, type Marks } from "./marks.ts";
import type { Level, LevelEdge, Tree } from "./model.ts";

/** An edge as drawn: its route in its container's coordinates, and where those begin. */
export interface Line extends Marks {
  edge: LevelEdge;
  container: number;
  route: Float64Array;
  x: number;
  y: number;
  /** The rectangle that holds the route. */
  left: number;
  right: number;
  top: number;
  bottom: number;
  /** The shape of the tensor, on one of the edges that bear it. */
  label: string;
  /** Beside the arrow rather than the start: where several different tensors leave one box. */
  labelAtEnd: boolean;
  arrow: boolean;
  /** How many words high the words at either end stand away from it, so as not to lie on their neighbours'. */
  intoRow: number;
  outRow: number;
}

/** The lines of one container; of edges that bear the same tensor from one box, the straightest says its shape. */
export function linesOf(tree: Tree, level: Level, layout: Layout, container: number): Line[] {
  const labelled = new Map<string | number, Line>(); // source and tensors -> line that bears the shape
  const lines = level.edges.map((edge, i) => {
    const route = routeOf(layout, i);
    const toPort = edge.to >= tree.firstPort;
    const { out, into, branch } = marksOf(tree, edge);
    const words = { out, into, branch, label: "", labelAtEnd: false, intoRow: 0, outRow: 0 };
    const line: Line = { edge, container, route, x: 0, y: 0, ...words, ...extent(route), arrow: !toPort };
    if (toPort || edge.from >= tree.firstPort) return line;
    const one = edge.raw.length === 1;
    const key = one ? edge.from * 2 ** 26 + tree.scene.edges.src[edge.raw[0]] : `${edge.from}|${tensorsOf(tree.scene, edge).join()}`;
    const rival = labelled.get(key);
    if (rival && bend(rival.route) <= bend(route)) return line;
    if (rival) rival.label = "";
    labelled.set(key, line);
    line.label = shapeOf(tree, edge, dimensions);
    return line;
  });
  const leaving = new Map<number, number>();
  for (const { edge } of labelled.values()) leaving.set(edge.from, (leaving.get(edge.from) ?? 0) + 1);
  for (const line of labelled.values()) line.labelAtEnd = leaving.get(line.edge.from)! > 1 || line.out !== "";
  stagger(lines, "into");
  stagger(lines, "out");
  return lines;
}

const ROWS = 3;
const LETTER = 5.4; // about as wide as a letter of these words

/** Give the words at one box's ends rows of their own where they are too many to stand side by side; a word for
 * which there is no room is left out, and told where its edge is clicked. */
function stagger(lines: Line[], at: "into" | "out"): void {
  const byBox = new Map<number, Line[]>();
  for (const line of lines) {
    const box = at === "into" ? line.edge.to : line.edge.from;
    if (line[at]) byBox.get(box)?.push(line) ?? byBox.set(box, [line]);
  }
  const x = ({ route }: Line): number => (at === "into" ? route[route.length - 2] : route[0]);
  for (const ends of byBox.values()) {
    if (ends.length === 1) continue;
    const until = new Array<number>(ROWS).fill(-Infinity);
    ends.sort((a, b) => x(a) - x(b));
    for (let i = 0, next = 0; i < ends.length; i = next) {
      const line = ends[i];
      for (next = i + 1; next < ends.length && x(ends[next]) - x(line) < 2; next++); // these lie on each other
      const bundle = ends.slice(i, next);
      const words = [...new Set(bundle.map((one) => one[at]))];
      for (const one of bundle) one[at] = "";
      line[at] = words.length > 1 ? `${words[0]} … ${words[words.length - 1]}` : words[0];
      const wide = line[at].length * LETTER + 3;
      const left = at === "into" ? x(line) : x(line) - wide;
      const row = until.findIndex((end) => end <= left);
      if (row < 0) line[at] = "";
      else until[(line[`${at}Row`] = row)] = left + wide;
    }
  }
}

function extent(route: Float64Array): Pick<Line, "left" | "right" | "top" | "bottom"> {
  let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
  for (let i = 0; i + 1 < route.length; i += 2) {
    left = Math.min(left, route[i]);
    right = Math.max(right, route[i]);
    top = Math.min(top, route[i + 1]);
    bottom = Math.max(bottom, route[i + 1]);
  }
  return { left, right, top, bottom };
}

/** How far a route goes sideways. */
function bend(route: Float64Array): number {
  let sum = 0;
  for (let i = 2; i < route.length; i += 2) sum += Math.abs(route[i] - route[i - 2]);
  return sum;
}
