// The program of still pictures (SVG, PNG, PDF, DOT): the page's own layout and drawing without a browser. It runs in the
// QuickJS engine inside Python (viewing/pictures/engine.py), which knows JSON and one function: how wide words are.
import type { Measure } from "../graph/layout/sizes.ts";
import { diagram } from "./diagram.ts";
import { draw } from "./drawing.ts";
import { shown } from "./recorder.ts";
import type { PictureTask } from "./still.ts";

const programs = { draw, diagram };

/** Run a program on a task, both sides of it JSON. */
export function run(program: keyof typeof programs, task: string, width: Measure): string {
  const known = new Map<string, number>();
  const measure: Measure = (text, size, bold) => {
    const key = `${size}${bold}${text}`;
    let found = known.get(key);
    if (found === undefined) known.set(key, (found = width(shown(text), size, bold)));
    return found;
  };
  return JSON.stringify(programs[program](JSON.parse(task) as PictureTask, measure));
}
