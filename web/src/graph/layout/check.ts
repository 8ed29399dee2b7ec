// Measures layouts for tests: overlapping boxes, edges that cross unrelated boxes, overlapping labels, labels nearer to
// another edge than to their own. Runs in node on the scenes of many models.
import type { Details } from "../model/details.ts";
import { figures } from "../model/facts.ts";
import { tensorsOf } from "../model/levels.ts";
import { isRecurrent, roll } from "../model/roll.ts";
import type { Scene } from "../model/scene.ts";
import { buildTree, type Tree } from "../model/tree.ts";
import { marksOf } from "../model/marks.ts";
import { bends, pieces, pointOf } from "./curve.ts";
import { drawn } from "../view/graphModel.ts";
import { RightwardLayout } from "../../pictures/rightward.ts";
import { LayoutView } from "./layoutView.ts";
import type { PlacedBox, VisibleLayout } from "./visibleLayout.ts";
import { FONT_SHAPE } from "./sizes.ts";
import { belongs, type Line } from "./visibleLines.ts";
import type { Area, Word } from "./words.ts";

export interface LayoutReport {
  boxes: number;
  lines: number;
  overlaps: string[];
  crossings: string[];
  /** Labels that an edge, a box or another label covers. */
  covered: string[];
  /** Labels that are not nearest to their own edge, or far from it. */
  astray: string[];
  /** The number of labels drawn, and of tensor shapes without room for a label. */
  labels: number;
  omitted: number;
  /** The number of arguments and passes without room for a label. */
  unmarked: number;
}

/** Estimate text width from the average width of a letter. */
const measure = (text: string, size: number, bold: boolean): number => text.length * size * (bold ? 0.6 : 0.55);

/** Lay out a scene with containers open to a depth, downwards or to the right (`turned`), and measure the layout. */
function measureScene(scene: Scene, depth: number, turned = false, details: Details = "names"): LayoutReport {
  const tree = buildTree(scene, details);
  const layoutView = new (turned ? RightwardLayout : LayoutView)(tree, figures(tree), measure);
  layoutView.openToDepth(depth);
  return measureLayout(tree, layoutView.visible(), turned);
}

function measureLayout(tree: Tree, visible: VisibleLayout, turned: boolean): LayoutReport {
  const byContainer = new Map<number, PlacedBox[]>();
  for (const box of visible.boxes) {
    const known = byContainer.get(box.node.parent);
    if (known) known.push(box);
    else byContainer.set(box.node.parent, [box]);
  }
  const overlaps: string[] = [];
  const inBands = new Map<number, BoxesByHeight>();
  for (const [container, boxes] of byContainer) {
    overlaps.push(...overlapping(boxes));
    inBands.set(container, bands(boxes));
  }
  const crossings = visible.lines.flatMap((line) => crossed(line, inBands.get(line.container) ?? new Map()));
  const { lines } = visible;
  const texts = lines.flatMap((line) => line.words.map((word) => ({ line, word, area: areaOf(line, word, turned) })));
  const labels = lines.reduce((sum, line) => sum + line.words.length, 0);
  const shapes = new Set(lines.filter(({ arrow, edge }) => arrow && edge.from < tree.firstPort).map(({ container, edge }) => `${container} ${edge.from} ${tensorsOf(tree.scene, edge).join()}`));
  const omitted = shapes.size - lines.filter((line) => line.label).length;
  return { boxes: visible.boxes.length, lines: lines.length, overlaps, crossings, covered: covered(texts, lines, visible.boxes), astray: astray(tree, texts, lines), labels, omitted, unmarked: unmarked(tree, lines) };
}

/** Return the labels that an edge, a box or another label covers. */
function covered(areas: Text[], lines: Line[], boxes: PlacedBox[]): string[] {
  const found: string[] = [];
  const closed = boxes.filter(({ open }) => !open).map((box) => ({ word: null, area: [box.x, box.y, box.x + box.width, box.y + box.height] as Area }));
  const all = [...areas, ...closed].sort((a, b) => a.area[1] - b.area[1]);
  all.forEach(({ word, area }, i) => {
    for (let j = i + 1; j < all.length && all[j].area[1] < area[3]; j++) {
      const other = all[j];
      const isText = word ?? other.word;
      if (isText && area[0] < other.area[2] && other.area[0] < area[2]) found.push(`${isText.text} by ${word && other.word ? other.word.text : "a box"}`);
    }
  });
  const points = lines.flatMap(sample).sort((a, b) => a[1] - b[1]);
  const heights = points.map(([, y]) => y);
  areas.forEach(({ word, area: [left, top, right, bottom] }) => {
    let at = 0;
    for (let high = heights.length; at < high; ) {
      const middle = (at + high) >> 1;
      if (heights[middle] < top) at = middle + 1;
      else high = middle;
    }
    for (; heights[at] < bottom; at++) if (points[at][0] > left && points[at][0] < right) break;
    if (heights[at] < bottom) found.push(`${word.text} by an edge`);
  });
  return found;
}

/** Return the labels that are farther from their own edge than from another of which they are not true, or too far from it. */
function astray(tree: Tree, texts: Text[], lines: Line[]): string[] {
  const found: string[] = [];
  const sorted = lines.slice().sort((a, b) => a.y + a.top - b.y - b.top);
  for (const { line, word, area } of texts) {
    const what = word.text === line.label && word.size === FONT_SHAPE ? "label" : word.text === line.into ? "into" : word.text === line.out ? "out" : "branch";
    const own = distance(line, area);
    const named = `${word.text} of ${line.edge.from} to ${line.edge.to}`;
    if (own > FAR) found.push(`${named} is ${own.toFixed(1)} away`);
    for (const other of sorted) {
      if (other.y + other.top > area[3] + own) break;
      if (other.y + other.bottom < area[1] - own || other.x + other.left > area[2] + own || other.x + other.right < area[0] - own) continue;
      if (other.container === line.container && belongs(tree, line, other, what)) continue;
      if ([line.edge.outPort, line.edge.inPort].some((port) => port >= 0 && (port === other.edge.to || port === other.edge.from))) continue; // it continues inside a box
      const away = distance(other, area);
      if (away <= own) found.push(`${named} is ${own.toFixed(1)} away, ${away.toFixed(1)} from ${other.edge.from} to ${other.edge.to}`);
    }
  }
  return found;
}

const FAR = 12; // the largest distance of a label from its edge

/** Return the distance of a line from an area. */
function distance({ route, x, y }: Line, [left, top, right, bottom]: Area): number {
  let least = Infinity;
  for (const [ax, ay, bx, by] of pieces(route, 2, top - y - 100, bottom - y + 100)) {
    // Of a piece as short as this, or vertical, the point nearest in height is nearest.
    const [low, high] = [Math.min(ay, by) + y, Math.max(ay, by) + y];
    const down = Math.max(0, low - bottom, top - high);
    const across = Math.max(0, Math.min(ax, bx) + x - right, left - Math.max(ax, bx) - x);
    least = Math.min(least, Math.hypot(across, down));
  }
  return least;
}

/** Count the boxes at which an argument or passes have no room for a label. */
function unmarked(tree: Tree, lines: Line[]): number {
  let count = 0;
  for (const line of lines) {
    for (const what of ["into", "out"] as const) {
      if (marksOf(tree, line.edge)[what] && !line[what] && !lines.some((other) => other[what] && belongs(tree, line, other, what))) count++;
    }
  }
  return count;
}

interface Text {
  line: Line;
  word: Word;
  area: Area;
}

function areaOf({ x, y }: Line, word: Word, turned: boolean): Area {
  const wide = measure(word.text, word.size, false);
  if (turned) {
    const top = y + word.y - (word.ends ? wide : 0);
    return [x + word.x - word.size / 2, top, x + word.x + word.size / 2, top + wide];
  }
  const left = x + word.x - (word.ends ? wide : 0);
  return [left, y + word.y - word.size / 2, left + wide, y + word.y + word.size / 2];
}

/** Return pairs of overlapping boxes; boxes are sorted by height, so that only near ones are compared. */
function overlapping(boxes: PlacedBox[]): string[] {
  const found: string[] = [];
  const sorted = boxes.slice().sort((a, b) => a.y - b.y);
  sorted.forEach((a, i) => {
    for (let j = i + 1; j < sorted.length && sorted[j].y < a.y + a.height - 0.01; j++) {
      const b = sorted[j];
      if (a.x + a.width > b.x + 0.01 && b.x + b.width > a.x + 0.01) found.push(`${name(a)} and ${name(b)}`);
    }
  });
  return found;
}

/** Return the boxes of its container that an edge crosses without starting or ending there. */
function crossed(line: Line, boxes: BoxesByHeight): string[] {
  const found = new Set<string>();
  for (const [x, y] of sample(line)) {
    for (const box of boxes.get(Math.floor(y / BAND)) ?? []) {
      if (box.node.id === line.edge.from || box.node.id === line.edge.to) continue;
      const inside = x > box.x + 1 && x < box.x + box.width - 1 && y > box.y + 1 && y < box.y + box.height - 1;
      if (inside) found.add(`${line.edge.from} to ${line.edge.to} through ${name(box)}`);
    }
  }
  return [...found];
}

const BAND = 100;
type BoxesByHeight = Map<number, PlacedBox[]>;

/** Group boxes by the bands of height that they reach into. */
function bands(boxes: PlacedBox[]): BoxesByHeight {
  const found: BoxesByHeight = new Map();
  for (const box of boxes) {
    for (let band = Math.floor(box.y / BAND); band <= (box.y + box.height) / BAND; band++) {
      const known = found.get(band);
      if (known) known.push(box);
      else found.set(band, [box]);
    }
  }
  return found;
}

const name = (box: PlacedBox): string => box.node.address || box.node.title;

/** Return points along a line. */
function sample(line: Line): [number, number][] {
  const points: [number, number][] = [];
  for (const bend of bends(line.route)) {
    for (let k = 0; k <= 24; k++) {
      const [x, y] = pointOf(bend, k / 24);
      points.push([line.x + x, line.y + y]);
    }
  }
  return points;
}

/** Measure every scene with depth 0, 1, 2 and all, to the right, with parameters in both directions, and also rolled if it is
 * recurrent. */
export const measureAll = (scenes: Record<string, Scene>): [string, string, LayoutReport][] =>
  Object.entries(scenes).flatMap(([name, scene]) => [
    ...[0, 1, 2, Infinity].map((depth): [string, string, LayoutReport] => [name, String(depth), measureScene(scene, depth)]),
    [name, "right", measureScene(scene, 2, true)],
    ...[false, true].map((turned): [string, string, LayoutReport] => [name, `parameters${turned ? " right" : ""}`, measureScene(drawn(scene, isRecurrent(scene), "parameters"), turned ? 2 : Infinity, turned, "parameters")]),
    ...(isRecurrent(scene) ? [[name, "rolled", measureScene(roll(scene), Infinity)] as [string, string, LayoutReport]] : []),
  ]);
