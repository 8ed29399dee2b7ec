// Measures drawn layouts, for tests: what overlaps, which edge crosses a box it does not belong to, which
// text lies on another. Pure, run in node on the scenes of many models.
import { figures } from "../model/facts.ts";
import { tensorsOf } from "../model/levels.ts";
import { isRecurrent, roll } from "../model/roll.ts";
import type { Scene } from "../model/scene.ts";
import { buildTree, type Tree } from "../model/tree.ts";
import { bends, pointOf } from "./curve.ts";
import { LayoutView } from "./layoutView.ts";
import type { PlacedBox, VisibleLayout } from "./visibleLayout.ts";
import type { Line } from "./visibleLines.ts";
import type { Area, Word } from "./words.ts";

export interface LayoutReport {
  boxes: number;
  lines: number;
  overlaps: string[];
  crossings: string[];
  /** Words on which an edge, a box or other words lie, words written, and shapes that found no room. */
  struck: string[];
  words: number;
  unsaid: number;
}

/** Every letter as wide as an average one: close enough to lay out by. */
const measure = (text: string, size: number, bold: boolean): number => text.length * size * (bold ? 0.6 : 0.55);

/** Lay a scene out with containers open to a depth, and measure what stands where. */
export function measureScene(scene: Scene, depth: number): LayoutReport {
  const tree = buildTree(scene);
  const layoutView = new LayoutView(tree, figures(tree), measure);
  layoutView.openToDepth(depth);
  return measureLayout(tree, layoutView.visible());
}

function measureLayout(tree: Tree, visible: VisibleLayout): LayoutReport {
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
  const words = lines.reduce((sum, line) => sum + line.words.length, 0);
  const shapes = new Set(lines.filter(({ arrow, edge }) => arrow && edge.from < tree.firstPort).map(({ container, edge }) => `${container} ${edge.from} ${tensorsOf(tree.scene, edge).join()}`));
  const unsaid = shapes.size - lines.filter((line) => line.label).length;
  return { boxes: visible.boxes.length, lines: lines.length, overlaps, crossings, struck: struck(lines, visible.boxes), words, unsaid };
}

/** Words on which an edge, a box or other words lie. */
function struck(lines: Line[], boxes: PlacedBox[]): string[] {
  const found: string[] = [];
  const areas = lines.flatMap((line) => line.words.map((word) => ({ line, word, area: areaOf(line, word) })));
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
  const heads = points.map(([, y]) => y);
  areas.forEach(({ word, area: [left, top, right, bottom] }) => {
    let at = 0;
    for (let high = heads.length; at < high; ) {
      const middle = (at + high) >> 1;
      if (heads[middle] < top) at = middle + 1;
      else high = middle;
    }
    for (; heads[at] < bottom; at++) if (points[at][0] > left && points[at][0] < right) break;
    if (heads[at] < bottom) found.push(`${word.text} by an edge`);
  });
  return found;
}

function areaOf({ x, y }: Line, word: Word): Area {
  const wide = measure(word.text, word.size, false);
  const left = x + word.x - (word.ends ? wide : 0);
  return [left, y + word.y - word.size / 2, left + wide, y + word.y + word.size / 2];
}

/** Pairs of boxes that share ground: sorted by height, so that only near ones are compared. */
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

/** Boxes of its own container that an edge runs through without starting or ending there. */
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

/** Boxes by the bands of height they reach into. */
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

/** The result for every scene of a list, with everything closed, half open and open, and rolled where it is recurrent. */
export const measureAll = (scenes: Record<string, Scene>): [string, string, LayoutReport][] =>
  Object.entries(scenes).flatMap(([name, scene]) => [
    ...[0, 1, 2, Infinity].map((depth): [string, string, LayoutReport] => [name, String(depth), measureScene(scene, depth)]),
    ...(isRecurrent(scene) ? [[name, "rolled", measureScene(roll(scene), Infinity)] as [string, string, LayoutReport]] : []),
  ]);
