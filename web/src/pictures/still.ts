// A graph as it stands in a file: laid out as the page opens it, nothing selected, nothing moving.
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

/** What Python asks for (viewing/pictures/engine.py). */
export interface PictureTask {
  /** What a saved page would be given. */
  content: Content;
  rightward: boolean;
  theme: CanvasTheme;
  title: string;
  /** What it shows, in a sentence or two. */
  summary: string;
}

export interface Still {
  graphModel: GraphModel;
  /** In which lines stand as they were laid out. */
  picture: Picture;
  /** As they stand in the file. */
  boxes: PlacedBox[];
  lines: Line[];
  width: number;
  height: number;
  /** Whether x and y of what was laid out are y and x of the file. */
  turned: boolean;
}

export function still({ content, rightward: turned, theme }: PictureTask, measure: Measure): Still {
  const { scene, depth, rolled } = content;
  const graphModel = load(scene, rolled, depth, measure, turned ? RightwardLayout : LayoutView);
  graphModel.begin(depth);
  const { tree, figures, layoutView } = graphModel;
  const failed = failedBox(tree);
  if (failed) layoutView.reveal(failed.id);
  const visible = layoutView.visible();
  const paint = paintOf(content, graphModel);
  const picture: Picture = {
    ...{ visible, tree, figures, theme, paint, camera: { x: 0, y: 0, scale: 1 }, width: visible.width, height: visible.height },
    ...{ selected: -1, hovered: -1, edge: null, lit: null, related: new Set(), ratio: 1, progress: 1, before: new Map() },
  };
  const [width, height] = turned ? [visible.height, visible.width] : [visible.width, visible.height];
  return { graphModel, picture, boxes: turned ? visible.boxes.map(turnedBox) : visible.boxes, lines: visible.lines, width, height, turned };
}

function paintOf({ paint }: Content, { tree, figures }: GraphModel): Paint | null {
  if (!paint) return null;
  return scaled(typeof paint === "string" ? builtInPaint(paint, tree, figures) : { ...paint, values: new Map(Object.entries(paint.values)) });
}

const turnedBox = (box: PlacedBox): PlacedBox => ({ ...box, x: box.y, y: box.x, width: box.height, height: box.width });
