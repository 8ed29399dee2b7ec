// Everything that a drawing depends on, and the positions of boxes during an animation.
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
  /** The stream of the selected box; everything else is dimmed. */
  stream: Stream | null;
  /** Neighbors of the selected box. */
  related: Set<number>;
  width: number;
  height: number;
  ratio: number;
  /** The progress of the animation from 0 to 1, and the previous positions of boxes. */
  progress: number;
  before: Map<number, Rect>;
}

/** Return the current rectangle of a box, which an animation may be moving. */
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

/** Return whether a box is dimmed: another box is selected, and no data flows between the two. */
export const isDimmed = (picture: Picture, id: number): boolean =>
  picture.stream !== null && !picture.paint && !picture.stream.has(id) && !isInside(picture, id);

/** Return whether a box is the selected one or inside it. */
export function isInside({ selected, tree }: Picture, id: number): boolean {
  for (let n = id; n > 0; n = tree.nodes[n].parent) if (n === selected) return true;
  return false;
}

/** Return whether a box appears in the current animation. */
export const isNew = (picture: Picture, box: PlacedBox): boolean => picture.progress < 1 && !picture.before.has(box.node.id);
