// Everything a drawing depends on, and where boxes are while they move.
import type { PlacedBox, Rect, VisibleLayout } from "../layout/visibleLayout.ts";
import type { Figures } from "../model/facts.ts";
import type { Stream } from "../model/stream.ts";
import type { LevelEdge, Tree } from "../model/tree.ts";
import type { CanvasTheme } from "./colour.ts";
import type { Paint } from "./paint.ts";

export interface Camera {
  x: number;
  y: number;
  scale: number;
}

export interface Picture {
  visible: VisibleLayout;
  tree: Tree;
  figures: Figures;
  theme: CanvasTheme;
  camera: Camera;
  paint: Paint | null;
  selected: number;
  hovered: number;
  /** The selected edge. */
  edge: LevelEdge | null;
  /** What the selected box's tensors come from and go to; everything else steps back. */
  lit: Stream | null;
  /** Neighbours of the selected box. */
  related: Set<number>;
  width: number;
  height: number;
  ratio: number;
  /** Share of an opening or closing that has passed, and where boxes came from. */
  progress: number;
  before: Map<number, Rect>;
}

/** Where a box is now: on its way from where it was, or in its place. */
export function rectAt(picture: Picture, box: PlacedBox): Rect {
  const from = picture.progress < 1 ? picture.before.get(box.node.id) : undefined;
  if (!from) return box;
  const t = picture.progress;
  return {
    x: from.x + (box.x - from.x) * t,
    y: from.y + (box.y - from.y) * t,
    width: from.width + (box.width - from.width) * t,
    height: from.height + (box.height - from.height) * t,
  };
}

/** Whether a box steps back: another is selected, and no tensor runs between the two. */
export const isBack = (picture: Picture, id: number): boolean =>
  picture.lit !== null && !picture.paint && !picture.lit.has(id) && !isInside(picture, id);

/** Whether a box is the selected one or stands inside it. */
export function isInside({ selected, tree }: Picture, id: number): boolean {
  for (let n = id; n > 0; n = tree.nodes[n].parent) if (n === selected) return true;
  return false;
}

export const isNew = (picture: Picture, box: PlacedBox): boolean => picture.progress < 1 && !picture.before.has(box.node.id);
