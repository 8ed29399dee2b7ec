// Draws a picture as shapes: title and totals, the graph as the page draws it, and the legend.
import { HEADER } from "../graph/layout/boxHeader.ts";
import type { Measure } from "../graph/layout/sizes.ts";
import type { PlacedBox, Rect } from "../graph/layout/visibleLayout.ts";
import type { Line } from "../graph/layout/visibleLines.ts";
import { short } from "../graph/model/captions.ts";
import { totals } from "../graph/model/facts.ts";
import { drawBox, drawFrame, drawHeader } from "../graph/paint/boxes.ts";
import { drawLabels, drawLines } from "../graph/paint/lines.ts";
import type { Pen } from "../graph/paint/pen.ts";
import type { Picture } from "../graph/paint/picture.ts";
import { shown } from "../ui/format.ts";
import { factsOf } from "./facts.ts";
import { drawLegend } from "./legend.ts";
import { hex, Recorder, type ShapeGroup } from "./recorder.ts";
import { type PictureTask, still } from "./still.ts";

const MARGIN = 16;
const LONGEST_TITLE = 60;
const LONGEST_ERROR = 120;
const NARROWEST = 300; // the least width of a legend

/** A picture as shapes. */
export interface Drawing {
  width: number;
  height: number;
  ground: string;
  title: string;
  summary: string;
  /** The x of the middle of the first box of the model. */
  entry: number;
  /** In drawing order, background first. */
  groups: ShapeGroup[];
}

/** Draw a picture. */
export function draw(task: PictureTask, measure: Measure): Drawing {
  const { graphModel, picture, boxes, lines, width: across, height: down, turned } = still(task, measure);
  const pen = new Recorder(measure);
  pen.begin("", [MARGIN, MARGIN]);
  const head = drawHead(pen, task);
  const room = Math.max(across, NARROWEST);
  const legend = new Recorder(measure);
  legend.begin("", [MARGIN, MARGIN + head.height + down]);
  const key = drawLegend(legend, picture, boxes, room);
  const width = Math.max(across, head.width, key.width) + 2 * MARGIN;
  const origin = [(width - across) / 2, MARGIN + head.height] as const;
  for (const box of boxes) {
    if (!box.open) continue;
    pen.begin("", origin);
    drawFrame(pen, picture, box);
  }
  pen.begin("", origin, turned);
  drawLines(pen, picture, lines);
  for (const open of [false, true]) {
    for (const box of boxes) {
      if (box.open !== open) continue;
      pen.begin(shown(factsOf(picture, box.node)), origin);
      if (open) drawHeader(pen, { ...picture, width: across }, box, drawMemberNumber);
      else drawBox(pen, picture, box);
    }
  }
  pen.begin("", origin);
  drawLabels(pen, picture, turned ? lines.map(transposeWords) : lines);
  const entry = boxes.find(({ node }) => node.id === graphModel.entry);
  return {
    ...{ width, height: origin[1] + down + key.height + MARGIN, ground: hex(task.theme.bg) },
    ...{ title: shown(task.title), summary: shown(task.summary) },
    entry: origin[0] + (entry ? entry.x + entry.width / 2 : across / 2),
    groups: [...pen.groups, ...legend.groups],
  };
}

/** Draw the model's name, its totals, and the exception of a failed pass; return the size. */
function drawHead(pen: Recorder, { title, theme, content: { scene } }: PictureTask): { width: number; height: number } {
  const error = scene.error && `Raised ${scene.error.split("\n")[0]}`;
  const rows: [text: string, font: string, ink: string, y: number][] = [
    [title.length > LONGEST_TITLE ? short(title) : title, "600 15px", theme.text, 8],
    ...totals(scene).map((line, i): (typeof rows)[0] => [line, "11px", theme["text-soft"], 27 + 16 * i]),
  ];
  if (error) rows.push([error.length > LONGEST_ERROR ? `${error.slice(0, LONGEST_ERROR - 1)}…` : error, "11px", theme.error, 61]);
  let width = 0;
  for (const [text, font, ink, y] of rows) {
    [pen.font, pen.fillStyle, pen.textAlign] = [font, ink, "left"];
    pen.fillText(text, 0, y);
    width = Math.max(width, pen.measureText(text).width);
  }
  return { width, height: 18 * rows.length + 8 };
}

/** Draw the number of the member that an open fold shows, without the buttons of the page. */
function drawMemberNumber(pen: Pen, { theme }: Picture, { node, pick }: PlacedBox, { x, y, width }: Rect): void {
  if (pick === "all") return;
  [pen.font, pen.fillStyle, pen.textAlign] = ["11.5px", theme["text-soft"], "right"];
  pen.fillText(`${pick + 1} / ${node.children.length}`, x + width - 12, y + HEADER / 2);
}

const transposeWords = (line: Line): Line => ({ ...line, x: line.y, y: line.x, words: line.words.map((word) => ({ ...word, x: word.y, y: word.x })) });
