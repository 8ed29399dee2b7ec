// Creates DOM elements. Text is always inserted as a text node, so no name in a model can become markup.

export type Child = Node | string | null | undefined | false;

/** Create an element; function attributes become event listeners, true and false set or omit an attribute. */
export function el<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Record<string, string | boolean | number | ((event: never) => void)> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value as EventListener);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

const LONG = 20; // longer words may not fit on a line of the panel

/** Allow line breaks in long words of a text after `.`, `_` and `/`. */
export function inParts(text: string): Child[] {
  return text.split(/(?<=\s)/).flatMap((word) => (word.length > LONG ? word.split(/(?<=[._/])(?=[^._/])/).flatMap((part) => [part, el("wbr")]) : [word]));
}

const ICONS = {
  outline: "M4 5h12M4 10h12M4 15h7",
  expand: "M5 8l5-5 5 5M5 12l5 5 5-5",
  collapse: "M5 3l5 5 5-5M5 17l5-5 5 5",
  plus: "M10 4v12M4 10h12",
  minus: "M4 10h12",
  fit: "M3 7V3h4M13 3h4v4M17 13v4h-4M7 17H3v-4",
  theme: "M10 3a7 7 0 1 0 7 7 5.5 5.5 0 0 1-7-7z",
  close: "M5 5l10 10M15 5L5 15",
  search: "M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4zM13 13l4 4",
} as const;

/** Create an icon. */
export function icon(name: keyof typeof ICONS): SVGSVGElement {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 20 20");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Create a button with an icon and an accessible label. */
export function iconButton(name: keyof typeof ICONS, label: string, press: (event: MouseEvent) => void): HTMLButtonElement {
  return el("button", { type: "button", class: "ig-icon", title: label, "aria-label": label, click: press }, icon(name));
}

/** Switch the whole page between light and dark. */
export function toggleTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
}
