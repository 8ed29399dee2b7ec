// A part of the panel: a title and a list, not too long.
import { type Child, el } from "../dom.ts";

const SHOWN = 12; // listed before "and n more"

/** A line of a list: what it is called, more softly what it is, and ways on. */
export const item = (name: Child[], what: string, ...more: Child[]): HTMLElement => el("li", {}, el("span", { class: "ig-shape" }, ...name), soft(what), ...more);

export const soft = (text: string): HTMLElement => el("span", { class: "ig-soft" }, text);

export function section(title: string, items: HTMLElement[]): HTMLElement | null {
  if (!items.length) return null;
  const more = items.length > SHOWN ? el("li", { class: "ig-soft" }, `and ${items.length - SHOWN} more`) : null;
  return el("section", {}, el("h3", {}, title), el("ul", { class: "ig-list" }, ...items.slice(0, SHOWN), more));
}
