// A picture as shapes: its title and totals, the graph as the page draws it, and what the colours mean.
import { drawBox, drawFrame, drawHeader } from "../graph/boxes.ts";
import { short } from "../graph/captions.ts";
import { totals } from "../graph/facts.ts";
import { drawLabels, drawLines } from "../graph/lines.ts";
import type { Measure } from "../graph/sizes.ts";
import type { Line } from "../graph/strokes.ts";
import { factsOf } from "./facts.ts";
import { drawLegend } from "./legend.ts";
import { hex, Recorder, shown, type Group } from "./recorder.ts";
import { still, type Task } from "./still.ts";

const MARGIN = 16;
const LONGEST_TITLE = 60;
const LONGEST_ERROR = 120;
const NARROWEST = 300; // room that a legend has at least

export interface Drawing {
  width: number;
  height: number;
  ground: string;
  title: string;
  summary: string;
  /** The middle of the box to look at first, across. */
  entry: number;
  /** What lies below first. */
  groups: Group[];
}

export function draw(task: Task, measure: Measure): Drawing {
  const { loaded, picture, boxes, lines, width: across, height: down, turned } = still(task, measure);
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
      (open ? drawHeader : drawBox)(pen, { ...picture, width: across }, box);
    }
  }
  pen.begin("", origin);
  drawLabels(pen, picture, turned ? lines.map(turnedWords) : lines);
  const entry = boxes.find(({ node }) => node.id === loaded.entry);
  return {
    ...{ width, height: origin[1] + down + key.height + MARGIN, ground: hex(task.theme.bg) },
    ...{ title: shown(task.title), summary: shown(task.summary) },
    entry: origin[0] + (entry ? entry.x + entry.width / 2 : across / 2),
    groups: [...pen.groups, ...legend.groups],
  };
}

/** The model's name, its totals, and what ended the pass. */
function drawHead(pen: Recorder, { title, theme, content: { scene } }: Task): { width: number; height: number } {
  const error = scene.error && `Raised ${scene.error.split("\n")[0]}`;
  const rows: [words: string, font: string, ink: string, y: number][] = [
    [title.length > LONGEST_TITLE ? short(title) : title, "600 15px", theme.text, 8],
    [totals(scene), "11px", theme["text-soft"], 27],
  ];
  if (error) rows.push([error.length > LONGEST_ERROR ? `${error.slice(0, LONGEST_ERROR - 1)}…` : error, "11px", theme.error, 45]);
  let width = 0;
  for (const [words, font, ink, y] of rows) {
    [pen.font, pen.fillStyle, pen.textAlign] = [font, ink, "left"];
    pen.fillText(words, 0, y);
    width = Math.max(width, pen.measureText(words).width);
  }
  return { width, height: 18 * rows.length + 8 };
}

const turnedWords = (line: Line): Line => ({ ...line, x: line.y, y: line.x, words: line.words.map((word) => ({ ...word, x: word.y, y: word.x })) });
