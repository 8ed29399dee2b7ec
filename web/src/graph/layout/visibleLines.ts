// Edges as they are drawn: their routes, and the words that stand beside them.
import { dimensions } from "../model/facts.ts";
import { tensorsOf } from "../model/levels.ts";
import { plus } from "../model/lists.ts";
import { type Marks, marksOf, shapeOf } from "../model/marks.ts";
import type { Level, LevelEdge, Tree } from "../model/tree.ts";
import { countBy } from "./cells.ts";
import { TURN } from "./curve.ts";
import { type Layout, routeOf } from "./layers.ts";
import { FONT_MARK, FONT_SHAPE } from "./sizes.ts";
import { type Area, type Lettering, type Spot, Taken, type Word } from "./words.ts";

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
  /** What of all that is written beside it, and where; what finds no room is told where the edge is clicked. */
  words: Word[];
}

const FAR = 60; // from where an edge begins or ends to the words there

/** What else stands in a container between two heights. */
export interface Around {
  /** Edges, by their places. */
  edges(top: number, bottom: number): number[];
  boxes(top: number, bottom: number): Area[];
}

/** The lines of one container, each made when it is first looked at: of a hundred thousand few are ever in sight. Words
 * are written for all edges that leave one rank and that arrive at the next, since they stand in one gap. */
export class Lines {
  private readonly made: Line[];
  /** Where the gaps begin, below each rank that something leaves. */
  private readonly gaps: Float64Array;
  /** Places of edges, and then lines, by the gap they leave into; places of edges by the gap they arrive from. */
  private readonly leaving: number[][] = [];
  private readonly arriving: number[][] = [];
  private readonly lines: Line[][] = [];
  private readonly written: boolean[] = [];

  constructor(
    private readonly tree: Tree,
    private readonly level: Level,
    private readonly layout: Layout,
    private readonly container: number,
    private readonly lettering: Lettering,
  ) {
    this.made = new Array<Line>(level.edges.length);
    const routes = level.edges.map((_, place) => routeOf(layout, place));
    this.gaps = Float64Array.from(new Set(routes.map((route) => route[3]))).sort();
    routes.forEach((route, place) => {
      const [first, last] = this.gapsOf(route);
      this.leaving[first] = plus(this.leaving[first], place);
      this.arriving[last] = plus(this.arriving[last], place);
    });
  }

  /** The line of an edge, by its place, with the words between two heights. */
  of(place: number, top: number, bottom: number, around: Around): Line {
    const line = this.line(place);
    const { route } = line;
    const isNear = (y: number): boolean => y > top - FAR && y < bottom + FAR;
    const [first, last] = this.gapsOf(route);
    if (isNear(route[3])) this.write(first, around);
    if (isNear(route[route.length - 1])) this.write(last, around);
    return line;
  }

  private line(place: number): Line {
    return (this.made[place] ??= this.make(place));
  }

  private make(place: number): Line {
    const { tree, layout, container } = this;
    const edge = this.level.edges[place];
    const route = routeOf(layout, place);
    const [across, down] = [0, 1].map((odd) => route.filter((_, i) => i % 2 === odd));
    const reach = { left: Math.min(...across), right: Math.max(...across), top: Math.min(...down), bottom: Math.max(...down) };
    return { edge, container, route, x: 0, y: 0, ...marksOf(tree, edge), label: "", labelAtEnd: false, words: [], ...reach, arrow: edge.to < tree.firstPort };
  }

  /** The gaps in which a route begins and ends. */
  private gapsOf(route: Float64Array): [number, number] {
    return [this.gapAbove(route[3] + 1), this.gapAbove(route[route.length - 3])];
  }

  private gapAbove(y: number): number {
    let [low, high] = [0, this.gaps.length];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.gaps[middle] < y) low = middle;
      else high = middle;
    }
    return low;
  }

  private linesFrom(gap: number): Line[] {
    if (!this.lines[gap]) label(this.tree, (this.lines[gap] = (this.leaving[gap] ?? []).map((place) => this.line(place))));
    return this.lines[gap];
  }

  private write(gap: number, around: Around): void {
    if (this.written[gap]) return;
    this.written[gap] = true;
    const leaving = this.linesFrom(gap);
    const arriving = (this.arriving[gap] ?? []).map((place) => this.line(place));
    for (const { route } of arriving) this.linesFrom(this.gapsOf(route)[0]); // which may bear their shape here
    bundle(leaving, "out");
    bundle(arriving, "into");
    const wishes: [line: Line, what: "branch" | "into" | "out" | "label", spots: Spot[]][] = [];
    const wish = (line: Line, what: (typeof wishes)[0][1], ...ways: (1 | -1)[]): void => {
      if (line[what]) wishes.push([line, what, ways.flatMap((way) => this.lettering.spots(line.route, way))]);
    };
    for (const line of arriving) {
      wish(line, "branch", -1);
      wish(line, "into", -1);
    }
    for (const line of leaving) wish(line, "out", 1);
    for (const line of new Set([...leaving, ...arriving])) {
      const [first, last] = this.gapsOf(line.route);
      const [way, there] = line.labelAtEnd ? [-1 as const, last] : [1 as const, first];
      if (there === gap) wish(line, "label", way, ...(first === last ? [-way as typeof way] : []));
    }
    if (!wishes.length) return;
    const heights = wishes.flatMap(([, , at]) => at.map(([, y]) => y)).sort((a, b) => a - b);
    const [top, bottom] = [heights[0] - 8, heights[heights.length - 1] + 8];
    const taken = new Taken(this.layout.width, this.layout.height);
    for (const area of around.boxes(top, bottom)) taken.add(area);
    for (const place of around.edges(top - TURN, bottom + TURN)) taken.edge(routeOf(this.layout, place), top, bottom);
    for (const [line, what, at] of wishes) {
      const word = taken.put(line[what], what === "label" ? FONT_SHAPE : FONT_MARK, this.lettering, at);
      if (word) line.words.push(word);
      else line[what] = "";
    }
  }
}

/** Of the lines that leave one box with the same tensors, let the straightest say their shape. */
function label(tree: Tree, lines: Line[]): void {
  const labelled = new Map<string, Line>();
  for (const line of lines) {
    const { edge } = line;
    if (!line.arrow || edge.from >= tree.firstPort) continue;
    const key = `${edge.from} ${tensorsOf(tree.scene, edge)}`;
    const rival = labelled.get(key);
    if (!rival || bend(line.route) < bend(rival.route)) labelled.set(key, line);
  }
  const which = [...labelled.values()];
  const count = countBy(which, ({ edge }) => edge.from);
  for (const line of which) {
    line.label = shapeOf(tree, line.edge, dimensions);
    line.labelAtEnd = count.get(line.edge.from)! > 1 || line.out !== "";
  }
}

/** Of edges that lie on each other at one end, one says the words of all. */
function bundle(lines: Line[], at: "into" | "out"): void {
  const known = new Map<string, Line>();
  for (const line of lines) {
    const { edge, route } = line;
    if (!line[at]) continue;
    const [box, x] = at === "into" ? [edge.to, route[route.length - 2]] : [edge.from, route[0]];
    const key = `${box} ${Math.round(x)}`;
    const first = known.get(key);
    if (!first) known.set(key, line);
    else {
      if (first[at] !== line[at]) first[at] = `${first[at].split(" … ")[0]} … ${line[at]}`;
      line[at] = "";
    }
  }
}

/** How far a route goes sideways. */
function bend(route: Float64Array): number {
  let sum = 0;
  for (let i = 2; i < route.length; i += 2) sum += Math.abs(route[i] - route[i - 2]);
  return sum;
}
