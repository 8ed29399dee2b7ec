// Elements that the toolbar and the panel share.
import { type Child, el } from "../../ui/dom.ts";
import { icon } from "../../ui/icons.ts";

const LONG = 20; // longer words may not fit on a line of the panel

/** Allow line breaks in long words of a text after `.`, `_` and `/`. */
export function inParts(text: string): Child[] {
  return text.split(/(?<=\s)/).flatMap((word) => (word.length > LONG ? word.split(/(?<=[._/])(?=[^._/])/).flatMap((part) => [part, el("wbr")]) : [word]));
}

/** Create a button with an icon and an accessible label. */
export function iconButton(path: string, label: string, press: (event: MouseEvent) => void): HTMLButtonElement {
  return el("button", { type: "button", class: "ig-icon", title: label, "aria-label": label, click: press }, icon(path));
}
