// A part of the panel: a title and a list, not too long.
import { el } from "./dom.ts";

const SHOWN = 12; // listed before "and n more"

export function section(title: string, items: HTMLElement[]): HTMLElement | null {
  if (!items.length) return null;
  const more = items.length > SHOWN ? el("li", { class: "ig-soft" }, `and ${items.length - SHOWN} more`) : null;
  return el("section", {}, el("h3", {}, title), el("ul", { class: "ig-list" }, ...items.slice(0, SHOWN), more));
}
