// What is visible, as a tree of containers: each open one holds its boxes and lines in its own coordinates, made when
// they are first looked at. Where they stand in the whole is told on the way down to them, so that an opening costs
// what it changes and a picture what it shows, however large the rest.
import { isFold } from "../model/captions.ts";
import type { Level, Tree, TreeNode } from "../model/tree.ts";
import { Bands } from "./bands.ts";
import { BELOW_HEAD } from "./boxHeader.ts";
import { TURN } from "./curve.ts";
import type { Layout } from "./layers.ts";
import { OF_LANE } from "./route.ts";
import { type Around, type Line, Lines } from "./visibleLines.ts";
import { lettering, type Lettering } from "./words.ts";

const MOST = 1500; // drawn of one container: more are smaller than a pixel

export interface PlacedBox {
  node: TreeNode;
  /** Its place in the whole, told whenever it is asked for. */
  x: number;
  y: number;
  /** Its place in its container. */
  dx: number;
  dy: number;
  width: number;
  height: number;
  open: boolean;
  /** Of an open fold: the place of the member it shows. */
  pick: number | "all";
}

export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** What a visible layout is made of. */
export interface LayoutSource {
  tree: Tree;
  /** How far to the right and below an open container's corner its inside begins. */
  inset: readonly [x: number, y: number];
  /** What an open container holds; undefined for any other box. */
  partOf(id: number): OpenContainer | undefined;
}

/** An open container: the boxes it shows and the lines between them, made when they are asked for. */
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
    /** What it shows, and what stands between. */
    readonly shown: number[],
    private readonly levelNow: () => Level,
    private readonly layout: Layout,
    private readonly boxOf: (id: number, place: number, layout: Layout) => PlacedBox,
    private readonly heightOf: (id: number) => number,
    /** Boxes in sight inside a box of it, at any depth. */
    private readonly inside: (id: number) => number,
    private readonly lettering: Lettering,
  ) {}

  /** The edges between what it shows, and its ports. */
  get level(): Level {
    return (this.ownLevel ??= this.levelNow());
  }

  /** The box at a place of what it shows. */
  box(place: number): PlacedBox {
    return (this.boxes[place] ??= this.boxOf(this.shown[place], place, this.layout));
  }

  /** The boxes between two heights; of more than `most`, some. */
  boxesWithin(top: number, bottom: number, most: number): PlacedBox[] {
    const bands = (this.boxBands ??= this.bandsOfBoxes());
    return bands.within(top, bottom, most).map((place) => this.box(place));
  }

  private bandsOfBoxes(): Bands {
    const tops = this.layout.y;
    return new Bands(tops, tops.map((top, place) => top + this.heightOf(this.shown[place])));
  }

  linesWithin(top: number, bottom: number, most: number): Line[] {
    const bands = (this.lineBands ??= new Bands(...this.reachOfLines()));
    const around: Around = {
      edges: (top, bottom) => this.edgesWithin(top, bottom),
      boxes: (top, bottom) => this.boxesWithin(top, bottom, Infinity).map(({ dx, dy, width, height, node }) => [dx, dy, dx + width, dy + height + (isFold(node) ? 8 : 0)]),
    };
    const lines = (this.lines ??= new Lines(this.tree, this.level, this.layout, this.id, this.lettering));
    return bands.within(top, bottom, most).map((place) => lines.of(place, top, bottom, around));
  }

  /** The edges between two heights; of those that pass in one lane, one. */
  private edgesWithin(top: number, bottom: number): number[] {
    const { bands, edges } = (this.pieces ??= this.makePieces());
    return [...new Set(bands.within(top, bottom).map((piece) => edges[piece]))];
  }

  /** Edges in pieces: of one in a lane its ends, and the way between them unless another's holds it. So what passes a
   * height is few, where the steps of a loop have a thousand edges in one lane. */
  private makePieces(): { bands: Bands; edges: number[] } {
    const { points, starts } = this.layout;
    const [tops, bottoms, edges]: number[][] = [[], [], []];
    const add = (edge: number, top: number, bottom: number): void => void (tops.push(top), bottoms.push(bottom), edges.push(edge));
    const long: number[] = [];
    const [reachTop, reachBottom] = this.reachOfLines();
    for (let edge = 0; edge + 1 < starts.length; edge++) {
      const at = starts[edge];
      if (starts[edge + 1] - at !== OF_LANE || points[at + 7] < points[at + 5] + 2 * TURN) {
        add(edge, reachTop[edge], reachBottom[edge]);
        continue;
      }
      add(edge, points[at + 1], points[at + 5] + TURN);
      add(edge, points[at + 7] - TURN, points[at + 11]);
      long.push(edge);
    }
    const [lane, begin, end] = [4, 5, 7].map((part) => (edge: number) => points[starts[edge] + part]);
    long.sort((a, b) => lane(a) - lane(b) || begin(a) - begin(b) || end(b) - end(a));
    let [last, reach] = [NaN, 0];
    for (const edge of long) {
      if (lane(edge) === last && end(edge) <= reach) continue;
      add(edge, begin(edge), end(edge));
      [last, reach] = [lane(edge), end(edge)];
    }
    return { bands: new Bands(Float64Array.from(tops), Float64Array.from(bottoms)), edges };
  }

  /** The heights at which each line begins and ends. */
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

  /** How many rows of an outline stand before each of its boxes, and at last how many it has. */
  get rows(): Int32Array {
    if (this.before) return this.before;
    const before = (this.before = new Int32Array(this.shown.length + 1));
    this.shown.forEach((id, place) => (before[place + 1] = before[place] + 1 + this.inside(id)));
    return before;
  }
}

export class VisibleLayout implements Rect {
  readonly x = 0;
  readonly y = 0;

  constructor(
    private readonly source: LayoutSource,
    readonly width: number,
    readonly height: number,
    /** How many boxes are visible, on the screen or off it. */
    readonly count: number,
  ) {}

  part(id: number): OpenContainer | undefined {
    return this.source.partOf(id);
  }

  /** The visible box of an id. */
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

  /** The place of a box among those its container shows; -1 where it shows it not, or stands closed. */
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

  /** The boxes that meet an area, outer ones first. Open boxes less tall than `least` keep to themselves what they
   * hold, and of very many in one container only some are found. */
  boxesIn(area: Rect, least = 0): PlacedBox[] {
    const found: PlacedBox[] = [];
    for (const { boxes } of this.look(area, least)) for (const box of boxes) found.push(box);
    return found;
  }

  linesIn(area: Rect, least = 0): Line[] {
    const found: Line[] = [];
    for (const { part, x, y } of this.look(area, least)) {
      for (const line of part.linesWithin(area.y - y, area.y + area.height - y, least ? MOST : Infinity)) {
        if (x + line.right < area.x || x + line.left > area.x + area.width) continue;
        [line.x, line.y] = [x, y];
        found.push(line);
      }
    }
    return found;
  }

  /** The containers that meet an area, with where they begin and the boxes in it. */
  private *look(area: Rect, least: number): Generator<{ part: OpenContainer; x: number; y: number; boxes: PlacedBox[] }> {
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

  /** The box in a row of the outline: all that are visible, each before what it holds. */
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

  /** The row of a box in the outline, -1 where it is not visible. */
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

/** Nothing visible, while there is no layout yet. */
export function emptyLayout(tree: Tree): VisibleLayout {
  const [numbers, starts] = [new Float64Array(0), new Int32Array(1)];
  const layout = { width: 1, height: 1, x: numbers, y: numbers, portX: numbers, points: numbers, starts };
  const nothing = new OpenContainer(tree, 0, [], () => ({ edges: [], ins: [], outs: [] }), layout, () => null!, () => 0, () => 0, lettering(() => 0));
  return new VisibleLayout({ tree, inset: BELOW_HEAD, partOf: (id) => (id === 0 ? nothing : undefined) }, 1, 1, 0);
}
