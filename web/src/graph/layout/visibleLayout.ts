// Everything visible, as a tree of containers. Each open container has boxes and lines in its own coordinates, which are
// created when they are first needed. Absolute positions are computed while descending the tree. So opening a box costs
// in proportion to what changes, and drawing in proportion to what is drawn, however large the graph is.
import { isFold } from "../model/captions.ts";
import type { Level, Tree, TreeNode } from "../model/tree.ts";
import { Bands } from "./bands.ts";
import { BELOW_HEADER } from "./boxHeader.ts";
import { TURN } from "./curve.ts";
import type { Layout } from "./layers.ts";
import { LANE_NUMBERS } from "./route.ts";
import { type Line, Lines, type Obstacles } from "./visibleLines.ts";
import { lettering, type Lettering } from "./words.ts";

const MOST = 1500; // boxes or lines drawn of one container; more would be smaller than a pixel

export interface PlacedBox {
  node: TreeNode;
  /** Its absolute position, set whenever the box is requested. */
  x: number;
  y: number;
  /** Its position in its container. */
  dx: number;
  dy: number;
  width: number;
  height: number;
  open: boolean;
  /** The position of the member that an open fold shows, or "all". */
  pick: number | "all";
}

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** What a visible layout is built from. */
export interface LayoutSource {
  tree: Tree;
  /** The offset of an open container's contents from its corner. */
  inset: readonly [x: number, y: number];
  /** Return the contents of an open container; undefined for any other box. */
  partOf(id: number): OpenContainer | undefined;
}

/** An open container: its boxes and the lines between them, created on request. */
export class OpenContainer {
  private ownLevel: Level | null = null;
  private readonly boxes: PlacedBox[] = [];
  private boxBands: Bands | null = null;
  private lines: Lines | null = null;
  private lineBands: Bands | null = null;
  private pieces: { bands: Bands; edges: number[] } | null = null;
  private before: Int32Array | null = null;

  constructor(
    private readonly tree: Tree,
    readonly id: number,
    /** The boxes that it shows. */
    readonly shown: number[],
    private readonly makeLevel: () => Level,
    private readonly layout: Layout,
    private readonly boxOf: (id: number, place: number, layout: Layout) => PlacedBox,
    private readonly heightOf: (id: number) => number,
    /** Return the number of boxes visible inside one of its boxes, at any depth. */
    private readonly inside: (id: number) => number,
    private readonly lettering: Lettering,
  ) {}

  /** The edges between the boxes that it shows, and its ports. */
  get level(): Level {
    return (this.ownLevel ??= this.makeLevel());
  }

  /** Return the box at a position in `shown`. */
  box(place: number): PlacedBox {
    return (this.boxes[place] ??= this.boxOf(this.shown[place], place, this.layout));
  }

  /** Return the boxes between two heights; a sample if there are more than `most`. */
  boxesWithin(top: number, bottom: number, most: number): PlacedBox[] {
    const bands = (this.boxBands ??= this.bandsOfBoxes());
    return bands.within(top, bottom, most).map((place) => this.box(place));
  }

  private bandsOfBoxes(): Bands {
    const tops = this.layout.y;
    return new Bands(tops, tops.map((top, place) => top + this.heightOf(this.shown[place])));
  }

  /** Return the lines between two heights; a sample if there are more than `most`. */
  linesWithin(top: number, bottom: number, most: number): Line[] {
    const bands = (this.lineBands ??= new Bands(...this.reachOfLines()));
    const obstacles: Obstacles = {
      edges: (top, bottom) => this.edgesWithin(top, bottom),
      boxes: (top, bottom) => this.boxesWithin(top, bottom, Infinity).map(({ dx, dy, width, height, node }) => [dx, dy, dx + width, dy + height + (isFold(node) ? 8 : 0)]),
    };
    const lines = (this.lines ??= new Lines(this.tree, this.level, this.layout, this.id, this.lettering));
    return bands.within(top, bottom, most).map((place) => lines.of(place, top, bottom, obstacles));
  }

  /** Return the edges between two heights; of edges that only pass in one lane, one. */
  private edgesWithin(top: number, bottom: number): number[] {
    const { bands, edges } = (this.pieces ??= this.makePieces());
    return [...new Set(bands.within(top, bottom).map((piece) => edges[piece]))];
  }

  /** Split edges into pieces for the index: an edge in a lane into its ends and, unless two other edges in the lane cover it,
   * the part between them: text beside the lane of one edge is not beside that of two. So few pieces pass each height even if the steps of a loop have a thousand edges in one lane. */
  private makePieces(): { bands: Bands; edges: number[] } {
    const { points, starts } = this.layout;
    const [tops, bottoms, edges]: number[][] = [[], [], []];
    const add = (edge: number, top: number, bottom: number): void => void (tops.push(top), bottoms.push(bottom), edges.push(edge));
    const long: number[] = [];
    const [reachTop, reachBottom] = this.reachOfLines();
    for (let edge = 0; edge + 1 < starts.length; edge++) {
      const at = starts[edge];
      if (starts[edge + 1] - at !== LANE_NUMBERS || points[at + 7] < points[at + 5] + 2 * TURN) {
        add(edge, reachTop[edge], reachBottom[edge]);
        continue;
      }
      add(edge, points[at + 1], points[at + 5] + TURN);
      add(edge, points[at + 7] - TURN, points[at + 11]);
      long.push(edge);
    }
    const [lane, begin, end] = [4, 5, 7].map((part) => (edge: number) => points[starts[edge] + part]);
    long.sort((a, b) => lane(a) - lane(b) || begin(a) - begin(b) || end(b) - end(a));
    let last = NaN;
    let reaches = [0, 0]; // of the two edges in the lane that reach farthest
    for (const edge of long) {
      if (lane(edge) !== last) [last, reaches] = [lane(edge), [-Infinity, -Infinity]];
      if (end(edge) <= reaches[0]) continue;
      add(edge, begin(edge), end(edge));
      reaches = [...reaches.slice(1), end(edge)].sort((a, b) => a - b);
    }
    return { bands: new Bands(Float64Array.from(tops), Float64Array.from(bottoms)), edges };
  }

  /** Return the heights at which each line begins and ends. */
  private reachOfLines(): [tops: Float64Array, bottoms: Float64Array] {
    const size = this.level.edges.length;
    const [tops, bottoms] = [new Float64Array(size).fill(Infinity), new Float64Array(size).fill(-Infinity)];
    const { points, starts } = this.layout;
    for (let edge = 0; edge < size; edge++) {
      for (let at = starts[edge] + 1; at < starts[edge + 1]; at += 2) {
        if (points[at] < tops[edge]) tops[edge] = points[at];
        if (points[at] > bottoms[edge]) bottoms[edge] = points[at];
      }
    }
    return [tops, bottoms];
  }

  /** For each of its boxes the number of outline rows before it, and at the end the total. */
  get rows(): Int32Array {
    if (this.before) return this.before;
    const before = (this.before = new Int32Array(this.shown.length + 1));
    this.shown.forEach((id, place) => (before[place + 1] = before[place] + 1 + this.inside(id)));
    return before;
  }
}

/** The boxes and lines that are visible, on the screen or off it. */
export class VisibleLayout implements Rect {
  readonly x = 0;
  readonly y = 0;

  constructor(
    private readonly source: LayoutSource,
    readonly width: number,
    readonly height: number,
    /** The number of visible boxes. */
    readonly count: number,
  ) {}

  /** Return the contents of an open, visible container. */
  part(id: number): OpenContainer | undefined {
    return this.source.partOf(id);
  }

  /** Return the box of an id, if it is visible. */
  box(id: number): PlacedBox | undefined {
    if (id <= 0) return undefined;
    const { parent } = this.source.tree.nodes[id];
    const place = this.placeOf(id);
    if (place < 0) return undefined;
    const around = parent === 0 ? null : this.box(parent);
    if (around === undefined) return undefined;
    const box = this.part(parent)!.box(place);
    const [x, y] = this.source.inset;
    return around ? put(box, around.x + x, around.y + y) : put(box, 0, 0);
  }

  /** Return the position of a box among those that its container shows; -1 if it is not shown. */
  placeOf(id: number): number {
    const { nodes, placeOf } = this.source.tree;
    const part = this.part(nodes[id].parent);
    if (!part) return -1;
    const place = part.shown.length === nodes[part.id].children.length ? placeOf[id] : 0;
    return part.shown[place] === id ? place : -1;
  }

  /** Every visible box, outer ones first. */
  get boxes(): PlacedBox[] {
    return this.boxesIn(this);
  }

  get lines(): Line[] {
    return this.linesIn(this);
  }

  /** Return the boxes that intersect an area, outer ones first. With `least`, the contents of open boxes less tall than
   * that are left out, and very many boxes of one container are sampled. */
  boxesIn(area: Rect, least = 0): PlacedBox[] {
    const found: PlacedBox[] = [];
    for (const { boxes } of this.containersIn(area, least)) for (const box of boxes) found.push(box);
    return found;
  }

  /** Return the lines that intersect an area; `least` as for `boxesIn`. */
  linesIn(area: Rect, least = 0): Line[] {
    const found: Line[] = [];
    for (const { part, x, y } of this.containersIn(area, least)) {
      for (const line of part.linesWithin(area.y - y, area.y + area.height - y, least ? MOST : Infinity)) {
        if (x + line.right < area.x || x + line.left > area.x + area.width) continue;
        [line.x, line.y] = [x, y];
        found.push(line);
      }
    }
    return found;
  }

  /** Yield the containers that intersect an area, with their positions and their boxes in the area. */
  private *containersIn(area: Rect, least: number): Generator<{ part: OpenContainer; x: number; y: number; boxes: PlacedBox[] }> {
    const [right, down] = this.source.inset;
    const stack: [id: number, x: number, y: number][] = [[0, 0, 0]];
    while (stack.length) {
      const [id, x, y] = stack.pop()!;
      const part = this.part(id)!;
      const boxes: PlacedBox[] = [];
      for (const box of part.boxesWithin(area.y - y, area.y + area.height - y, least ? MOST : Infinity)) {
        put(box, x, y);
        if (box.x > area.x + area.width || box.x + box.width < area.x) continue;
        boxes.push(box);
        if (box.open && box.height >= least) stack.push([box.node.id, box.x + right, box.y + down]);
      }
      yield { part, x, y, boxes };
    }
  }

  /** Return the box in a row of the outline, which lists all visible boxes, each before its contents. */
  atRow(row: number): number {
    for (let id = 0; ; ) {
      const { rows, shown } = this.part(id)!;
      let [low, high] = [0, shown.length];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (rows[middle] <= row) low = middle;
        else high = middle;
      }
      if (rows[low] === row) return shown[low];
      [row, id] = [row - rows[low] - 1, shown[low]];
    }
  }

  /** Return the row of a box in the outline; -1 if it is not visible. */
  rowOf(id: number): number {
    if (id <= 0) return -1;
    const place = this.placeOf(id);
    const { parent } = this.source.tree.nodes[id];
    const around = place < 0 ? -1 : parent === 0 ? -1 : this.rowOf(parent);
    if (place < 0 || (parent !== 0 && around < 0)) return -1;
    return around + 1 + this.part(parent)!.rows[place];
  }
}

function put(box: PlacedBox, x: number, y: number): PlacedBox {
  [box.x, box.y] = [x + box.dx, y + box.dy];
  return box;
}

/** Return a layout of nothing, for use until there is one. */
export function emptyLayout(tree: Tree): VisibleLayout {
  const [numbers, starts] = [new Float64Array(0), new Int32Array(1)];
  const layout = { width: 1, height: 1, x: numbers, y: numbers, portX: numbers, points: numbers, starts };
  const nothing = new OpenContainer(tree, 0, [], () => ({ edges: [], ins: [], outs: [] }), layout, () => null!, () => 0, () => 0, lettering(() => 0));
  return new VisibleLayout({ tree, inset: BELOW_HEADER, partOf: (id) => (id === 0 ? nothing : undefined) }, 1, 1, 0);
}
