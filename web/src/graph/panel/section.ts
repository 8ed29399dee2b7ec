// A section of the panel: a title and a list of limited length.
import { type Child, el } from "../../ui/dom.ts";

const SHOWN = 12; // items listed before "and n more"

/** Return a list item: a name, a description in a softer color, and links. */
export const item = (name: Child[], what: string, ...more: Child[]): HTMLElement => el("li", {}, el("span", { class: "ig-shape" }, ...name), soft(what), ...more);

/** Return text in a softer color. */
export const soft = (text: string): HTMLElement => el("span", { class: "ig-soft" }, text);

/** Return a section; null without items. */
export function section(title: string, items: HTMLElement[]): HTMLElement | null {
  if (!items.length) return null;
  const more = items.length > SHOWN ? el("li", { class: "ig-soft" }, `and ${items.length - SHOWN} more`) : null;
  return el("section", {}, el("h3", {}, title), el("ul", { class: "ig-list" }, ...items.slice(0, SHOWN), more));
}
