// Edges as they are drawn: their routes and the text beside them.
import { dimensions } from "../model/facts.ts";
import { tensorsOf } from "../model/levels.ts";
import { plus } from "../model/lists.ts";
import { type Marks, marksOf, shapeOf } from "../model/marks.ts";
import type { Level, LevelEdge, Tree } from "../model/tree.ts";
import { countBy } from "./cells.ts";
import { TURN } from "./curve.ts";
import { type Layout, routeOf } from "./layers.ts";
import { FONT_MARK, FONT_SHAPE } from "./sizes.ts";
import { type Area, type Lettering, Occupied, type Spot, spots, type Word } from "./words.ts";

/** An edge as drawn: its route in its container's coordinates, and the position of the container. */
export interface Line extends Marks {
  edge: LevelEdge;
  /** The position of the edge in its level. */
  place: number;
  container: number;
  route: Float64Array;
  x: number;
  y: number;
  /** The bounding box of the route. */
  left: number;
  right: number;
  top: number;
  bottom: number;
  /** The shape of the tensor, on only one of the edges that carry it. */
  label: string;
  /** Whether the shape is beside the arrow rather than the start: if several different tensors leave one box. */
  labelAtEnd: boolean;
  arrow: boolean;
  /** The text written beside it, with positions. Text without room is shown when the edge is clicked. */
  words: Word[];
}

const FAR = 80; // the largest distance from an end of an edge to the text there

/** What text must not cover: the contents of a container between two heights. */
export interface Obstacles {
  /** Indices of edges. */
  edges(top: number, bottom: number): number[];
  boxes(top: number, bottom: number): Area[];
}

/** The lines of one container, each created when first requested, because few of a hundred thousand are ever visible.
 * Text is placed at once for all edges in the gap between two ranks. */
export class Lines {
  private readonly made: Line[];
  /** The heights at which the gaps begin, below each rank that an edge leaves. */
  private readonly gaps: Float64Array;
  /** Indices of edges by the gap where they begin and by the gap where they end; lines by the gap where they begin. */
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

  /** Return the line of an edge, with the text between two heights. */
  of(place: number, top: number, bottom: number, obstacles: Obstacles): Line {
    const line = this.line(place);
    const { route } = line;
    const isNear = (y: number): boolean => y > top - FAR && y < bottom + FAR;
    const [first, last] = this.gapsOf(route);
    if (isNear(route[3])) this.write(first, obstacles);
    if (isNear(route[route.length - 1])) this.write(last, obstacles);
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
    return { edge, place, container, route, x: 0, y: 0, ...marksOf(tree, edge), label: "", labelAtEnd: false, words: [], ...reach, arrow: edge.to < tree.firstPort };
  }

  /** Return the gaps in which a route begins and ends. */
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

  /** Place the text in a gap. */
  private write(gap: number, obstacles: Obstacles): void {
    if (this.written[gap]) return;
    this.written[gap] = true;
    const leaving = this.linesFrom(gap);
    const arriving = (this.arriving[gap] ?? []).map((place) => this.line(place));
    for (const { route } of arriving) this.linesFrom(this.gapsOf(route)[0]); // their shape may belong here
    bundle(leaving, "out");
    bundle(arriving, "into");
    const requests: { line: Line; what: Mark; text: string; size: number; hosts: [Line, Spot[]][]; own: number[] }[] = [];
    const request = (line: Line, what: Mark, group: Line[], ...ends: (1 | -1)[]): void => {
      const text = line[what];
      if (!text) return;
      const size = what === "label" ? FONT_SHAPE : FONT_MARK;
      const width = this.lettering.measure(text, size, false);
      const own = group.filter((other) => belongs(this.tree, line, other, what));
      const spotsAt = (host: Line): Spot[] => ends.flatMap((end) => spots(this.lettering, host.route, end, width, size, what !== "label"));
      // Without room beside it, a shape may stand beside another edge of the same tensors.
      const others = what === "label" ? own.filter((other) => other !== line && this.gapsOf(other.route).every((one) => one === gap)) : [];
      requests.push({ line, what, text, size, hosts: [line, ...others].map((host) => [host, spotsAt(host)]), own: own.map(({ place }) => place) });
    };
    for (const line of arriving) {
      request(line, "branch", arriving, -1);
      request(line, "into", arriving, -1);
    }
    for (const line of leaving) request(line, "out", leaving, 1);
    for (const line of new Set([...leaving, ...arriving])) {
      const [first, last] = this.gapsOf(line.route);
      const [end, there] = line.labelAtEnd ? [-1 as const, last] : [1 as const, first];
      if (there === gap) request(line, "label", this.linesFrom(first), end, ...(first === last ? [-end as typeof end] : []));
    }
    if (!requests.length) return;
    const areas = requests.flatMap(({ hosts }) => hosts.flatMap(([, spots]) => spots.map(({ area }) => area)));
    const top = areas.reduce((least, area) => Math.min(least, area[1]), Infinity) - 8;
    const bottom = areas.reduce((most, area) => Math.max(most, area[3]), -Infinity) + 8;
    const occupied = new Occupied(this.layout.width, this.layout.height, this.lettering.turned);
    for (const area of obstacles.boxes(top, bottom)) occupied.add(area);
    for (const place of obstacles.edges(top - TURN, bottom + TURN)) occupied.addEdge(place, routeOf(this.layout, place), top, bottom);
    for (const { line, what, text, size, hosts, own } of requests) {
      line[what] = "" as never;
      for (const [host, spots] of hosts) {
        const word = occupied.place(text, size, spots, own, this.lettering.away[what === "label" ? 0 : 1]);
        if (!word) continue;
        host[what] = text as never;
        host.words.push(word);
        break;
      }
    }
  }
}

/** The kinds of text beside a line. */
type Mark = "branch" | "into" | "out" | "label";

/** Return whether text of one line is as true of another: a shape of all lines with the same tensors, other text of lines that
 * coincide at that end, whose texts are merged. */
export function belongs(tree: Tree, line: Line, other: Line, what: Mark): boolean {
  const [a, b] = [line.edge, other.edge];
  if (line === other) return true;
  if (what === "label") return a.from === b.from && tensorsOf(tree.scene, a).join() === tensorsOf(tree.scene, b).join();
  return what === "out" ? a.from === b.from && endOf(line, "out") === endOf(other, "out") : a.to === b.to && endOf(line, "into") === endOf(other, "into");
}

/** Return the rounded x of an end of a line. */
const endOf = ({ route }: Line, at: "into" | "out"): number => Math.round(at === "into" ? route[route.length - 2] : route[0]);

/** Label the straightest of the lines that leave one box with the same tensors. */
function label(tree: Tree, lines: Line[]): void {
  const labelled = new Map<string, Line>();
  for (const line of lines) {
    const { edge } = line;
    if (!line.arrow || edge.from >= tree.firstPort) continue;
    const key = `${edge.from} ${tensorsOf(tree.scene, edge)}`;
    const other = labelled.get(key);
    if (!other || sideways(line.route) < sideways(other.route)) labelled.set(key, line);
  }
  const chosen = [...labelled.values()];
  const count = countBy(chosen, ({ edge }) => edge.from);
  for (const line of chosen) {
    line.label = shapeOf(tree, line.edge, dimensions);
    line.labelAtEnd = count.get(line.edge.from)! > 1 || line.out !== "";
  }
}

/** Merge the text of edges that coincide at one end onto one of them. */
function bundle(lines: Line[], at: "into" | "out"): void {
  const firsts = new Map<string, Line>();
  for (const line of lines) {
    if (!line[at]) continue;
    const key = `${at === "into" ? line.edge.to : line.edge.from} ${endOf(line, at)}`;
    const first = firsts.get(key);
    if (!first) firsts.set(key, line);
    else {
      if (first[at] !== line[at]) first[at] = `${first[at].split(" … ")[0]} … ${line[at]}`;
      line[at] = "";
    }
  }
}

/** Return how far a route goes sideways. */
function sideways(route: Float64Array): number {
  let sum = 0;
  for (let i = 2; i < route.length; i += 2) sum += Math.abs(route[i] - route[i - 2]);
  return sum;
}
