// The still picture of a graph: laid out as the page opens it, without selection or animation.
import type { Content } from "../file.ts";
import { LayoutView } from "../graph/layout/layoutView.ts";
import type { Measure } from "../graph/layout/sizes.ts";
import type { PlacedBox } from "../graph/layout/visibleLayout.ts";
import type { Line } from "../graph/layout/visibleLines.ts";
import type { CanvasTheme } from "../graph/paint/colour.ts";
import { builtInPaint, type Paint } from "../graph/paint/paint.ts";
import type { Picture } from "../graph/paint/picture.ts";
import { scaled } from "../graph/paint/scale.ts";
import { failedBox } from "../graph/panel/failure.ts";
import { type GraphModel, load } from "../graph/view/graphModel.ts";
import { RightwardLayout } from "./rightward.ts";

/** The input from Python (viewing/pictures/engine.py). */
export interface PictureTask {
  /** The input of a saved page. */
  content: Content;
  rightward: boolean;
  theme: CanvasTheme;
  title: string;
  /** A description in one or two sentences. */
  summary: string;
}

/** A laid out graph. */
export interface Still {
  graphModel: GraphModel;
  /** With the lines as they were laid out. */
  picture: Picture;
  /** With their positions in the file. */
  boxes: PlacedBox[];
  lines: Line[];
  width: number;
  height: number;
  /** Whether x and y of the layout are y and x of the file. */
  turned: boolean;
}

/** Lay out a graph for a still picture. */
export function still({ content, rightward: turned, theme }: PictureTask, measure: Measure): Still {
  const { scene, depth, rolled, details } = content;
  const graphModel = load(scene, rolled, depth, measure, details, turned ? RightwardLayout : LayoutView);
  graphModel.begin(depth);
  const { tree, figures, layoutView } = graphModel;
  const failed = failedBox(tree);
  if (failed) layoutView.reveal(failed.id);
  const visible = layoutView.visible();
  const paint = paintOf(content, graphModel);
  const picture: Picture = {
    ...{ visible, tree, figures, theme, paint, camera: { x: 0, y: 0, scale: 1 }, width: visible.width, height: visible.height },
    ...{ selected: -1, hovered: -1, edge: null, stream: null, related: new Set(), ratio: 1, progress: 1, before: new Map() },
  };
  const [width, height] = turned ? [visible.height, visible.width] : [visible.width, visible.height];
  return { graphModel, picture, boxes: turned ? visible.boxes.map(transposeBox) : visible.boxes, lines: visible.lines, width, height, turned };
}

function paintOf({ paint }: Content, { tree, figures }: GraphModel): Paint | null {
  if (!paint) return null;
  return scaled(typeof paint === "string" ? builtInPaint(paint, tree, figures) : { ...paint, values: new Map(Object.entries(paint.values)) });
}

const transposeBox = (box: PlacedBox): PlacedBox => ({ ...box, x: box.y, y: box.x, width: box.height, height: box.width });
