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

/** The lines of one container, each made when it is first looked at: of a hundred thousand few are ever in sight. */
export class Lines {
  private readonly made: Line[];
  private readonly worded: Uint8Array; // which have all their words
  private readonly leaving = new Ends();
  private readonly arriving = new Ends();

  constructor(
    private readonly tree: Tree,
    private readonly level: Level,
    private readonly layout: Layout,
    private readonly container: number,
  ) {
    this.made = new Array<Line>(level.edges.length);
    this.worded = new Uint8Array(level.edges.length);
    level.edges.forEach(({ from, to }, place) => {
      this.leaving.add(from, place);
      this.arriving.add(to, place);
    });
  }

  /** The line of an edge, by its place. Its words depend on those it shares an end with. */
  of(place: number): Line {
    if (this.worded[place]) return this.made[place];
    this.worded[place] = 1;
    const { from, to } = this.level.edges[place];
    const [out, into] = [this.leaving.take(from), this.arriving.take(to)].map((places) => places.map((one) => this.line(one)));
    if (out.length) {
      label(this.tree, out);
      stagger(out, "out");
    }
    stagger(into, "into");
    return this.line(place);
  }

  private line(place: number): Line {
    return (this.made[place] ??= this.make(place));
  }

  private make(place: number): Line {
    const { tree, layout, container } = this;
    const edge = this.level.edges[place];
    const route = routeOf(layout, place);
    const words = { ...marksOf(tree, edge), label: "", labelAtEnd: false, intoRow: 0, outRow: 0 };
    return { edge, container, route, x: 0, y: 0, ...words, ...extent(route), arrow: edge.to < tree.firstPort };
  }
}

/** Places of edges by the box or port at one end of them; each list is taken once. */
class Ends {
  private readonly last = new Map<number, number>();
  private readonly previous: number[] = [];

  add(end: number, place: number): void {
    this.previous[place] = this.last.get(end) ?? -1;
    this.last.set(end, place);
  }

  take(end: number): number[] {
    const places: number[] = [];
    for (let place = this.last.get(end) ?? -1; place >= 0; place = this.previous[place]) places.push(place);
    this.last.delete(end);
    return places.reverse();
  }
}

/** Of the lines that leave one box with the same tensors, let the straightest say their shape. */
function label(tree: Tree, lines: Line[]): void {
  const labelled = new Map<string, Line>();
  for (const line of lines) {
    const { edge } = line;
    if (!line.arrow || edge.from >= tree.firstPort) continue;
    const key = tensorsOf(tree.scene, edge).join();
    const rival = labelled.get(key);
    if (!rival || bend(line.route) < bend(rival.route)) labelled.set(key, line);
  }
  for (const line of labelled.values()) {
    line.label = shapeOf(tree, line.edge, dimensions);
    line.labelAtEnd = labelled.size > 1 || line.out !== "";
  }
}

const ROWS = 3;
const LETTER = 5.4; // about as wide as a letter of these words

/** Give the words at one box's ends rows of their own where they are too many to stand side by side; a word for
 * which there is no room is left out, and told where its edge is clicked. */
function stagger(lines: Line[], at: "into" | "out"): void {
  const ends = lines.filter((line) => line[at]);
  if (ends.length < 2) return;
  const x = ({ route }: Line): number => (at === "into" ? route[route.length - 2] : route[0]);
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
