// A graph as it stands in a file: laid out as the page opens it, nothing selected, nothing moving.
import type { Content } from "../file.ts";
import type { Theme } from "../graph/colour.ts";
import { failedBox } from "../graph/failure.ts";
import type { Box } from "../graph/frame.ts";
import { load, type Loaded } from "../graph/loaded.ts";
import { builtInPaint, type Paint } from "../graph/paint.ts";
import type { Picture } from "../graph/picture.ts";
import { scaled } from "../graph/scale.ts";
import type { Measure } from "../graph/sizes.ts";
import { Stage } from "../graph/stage.ts";
import type { Line } from "../graph/strokes.ts";
import { RightwardStage } from "./rightward.ts";

/** What Python asks for (viewing/pictures/engine.py). */
export interface Task {
  /** What a saved page would be given. */
  content: Content;
  rightward: boolean;
  theme: Theme;
  title: string;
  /** What it shows, in a sentence or two. */
  summary: string;
}

export interface Still {
  loaded: Loaded;
  /** In which lines stand as they were laid out. */
  picture: Picture;
  /** As they stand in the file. */
  boxes: Box[];
  lines: Line[];
  width: number;
  height: number;
  /** Whether x and y of what was laid out are y and x of the file. */
  turned: boolean;
}

export function still({ content, rightward: turned, theme }: Task, measure: Measure): Still {
  const { scene, depth, rolled } = content;
  const loaded = load(scene, rolled, depth, measure, turned ? RightwardStage : Stage);
  loaded.begin(depth);
  const { tree, figures, stage } = loaded;
  const failed = failedBox(tree);
  if (failed) stage.reveal(failed.id);
  const frame = stage.frame();
  const paint = paintOf(content, loaded);
  const picture: Picture = {
    ...{ frame, tree, figures, theme, paint, camera: { x: 0, y: 0, scale: 1 }, width: frame.width, height: frame.height },
    ...{ selected: -1, hovered: -1, edge: null, lit: null, related: new Set(), ratio: 1, progress: 1, before: new Map(), still: true },
  };
  const [width, height] = turned ? [frame.height, frame.width] : [frame.width, frame.height];
  return { loaded, picture, boxes: turned ? frame.boxes.map(turnedBox) : frame.boxes, lines: frame.lines, width, height, turned };
}

function paintOf({ paint }: Content, { tree, figures }: Loaded): Paint | null {
  if (!paint) return null;
  return scaled(typeof paint === "string" ? builtInPaint(paint, tree, figures) : { ...paint, values: new Map(Object.entries(paint.values)) });
}

const turnedBox = (box: Box): Box => ({ ...box, x: box.y, y: box.x, width: box.height, height: box.width });
