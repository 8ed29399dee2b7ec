// The program of still pictures (SVG, PNG, PDF, DOT): the page's own layout and drawing without a browser. Python runs it in
// QuickJS (viewing/pictures/engine.py), exchanges JSON with it and provides one function, which measures text.
import type { Measure } from "../graph/layout/sizes.ts";
import { shown } from "../ui/format.ts";
import { diagram } from "./diagram.ts";
import { draw } from "./drawing.ts";
import type { PictureTask } from "./still.ts";

const programs = { draw, diagram };

/** Run a program on a task in JSON and return its result in JSON. */
export function run(program: keyof typeof programs, task: string, width: Measure): string {
  const widths = new Map<string, number>();
  const measure: Measure = (text, size, bold) => {
    const key = `${size}${bold}${text}`;
    let known = widths.get(key);
    if (known === undefined) widths.set(key, (known = width(shown(text), size, bold)));
    return known;
  };
  return JSON.stringify(programs[program](JSON.parse(task) as PictureTask, measure));
}
