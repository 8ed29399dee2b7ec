// The toolbar above the graph: the model's name and totals, and controls.
import { el } from "../../ui/dom.ts";
import { COLLAPSE, EXPAND, FIT, MINUS, OUTLINE, PLUS, THEME } from "../../ui/icons.ts";
import { toggleTheme } from "../../ui/theme.ts";
import { depthName, depthNamed } from "../model/depths.ts";
import type { Details } from "../model/details.ts";
import { totals } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import { builtIns, type PaintName } from "../paint/paint.ts";
import { iconButton } from "./elements.ts";

export interface ToolbarActions {
  toggleOutline(): void;
  openToDepth(depth: number): void;
  /** Open one more level, or close one. */
  deeper(by: 1 | -1): void;
  zoom(factor: number): void;
  fit(): void;
  /** Null if no layer ran more than once. */
  roll: ((rolled: boolean) => void) | null;
  detail(details: Details): void;
  paint(which: PaintName): void;
}

export interface Toolbar {
  element: HTMLElement;
  /** Show the name of the current paint, and the title of the one given from outside ("" for none). */
  setPaint(which: PaintName, given: string): void;
  setShown(rolled: boolean, details: Details): void;
  /** Show the current depth among all depths; null if the open boxes match no depth. */
  setDepth(depth: number | null, steps: number[]): void;
}

const DETAILS: [details: Details, word: string][] = [["names", "Names"], ["full", "Details"], ["parameters", "Parameters"]];

/** Return the toolbar. */
export function toolbar(scene: Scene, search: HTMLElement, actions: ToolbarActions, withTheme: boolean): Toolbar {
  const option = ([value, word]: [string, string]): HTMLOptionElement => el("option", { value }, word);
  const given = option(["given", ""]);
  const none = option(["", "No color"]);
  const paint = el("select", { "aria-label": "Color by", change: () => actions.paint(paint.value as PaintName) }, none, ...builtIns(scene).map(option));
  const depth = el("select", { "aria-label": "Depth", title: "Levels of modules to open (keys 1 to 9, * for all)", change: () => actions.openToDepth(depthNamed(depth.value)) });
  const mixed = el("option", { value: "", hidden: true }, "–");
  const { roll } = actions;
  const line = totals(scene).join(" · ");
  const title = "Show the passes of a layer that ran more than once as one box";
  const rolledButton = el("button", { type: "button", class: "ig-toggle", title, click: () => roll?.(rolledButton.getAttribute("aria-pressed") !== "true") }, "Rolled");
  const detail = el(
    "select",
    { "aria-label": "Details", title: "What boxes show", change: () => actions.detail(detail.value as Details) },
    ...DETAILS.map(option),
  );
  const setShown = (rolled: boolean, details: Details): void => {
    rolledButton.setAttribute("aria-pressed", String(rolled));
    detail.value = details;
  };
  const element = el(
    "div",
    { class: "ig-toolbar", role: "toolbar", "aria-label": "Graph" },
    iconButton(OUTLINE, "Show or hide the outline", actions.toggleOutline),
    el("div", { class: "ig-title" }, el("h1", { title: scene.model }, scene.model), el("p", { title: line }, line)),
    search,
    roll && rolledButton,
    el("label", { class: "ig-paint" }, detail),
    el("label", { class: "ig-paint" }, el("span", {}, "Color"), paint),
    el(
      "div",
      { class: "ig-buttons" },
      iconButton(COLLAPSE, "Close one level (Shift: all)", (event) => (event.shiftKey ? actions.openToDepth(0) : actions.deeper(-1))),
      el("label", { class: "ig-paint" }, depth),
      iconButton(EXPAND, "Open one level (Shift: all)", (event) => (event.shiftKey ? actions.openToDepth(Infinity) : actions.deeper(1))),
      el("i", { class: "ig-rule" }),
      iconButton(MINUS, "Zoom out", () => actions.zoom(1 / 1.25)),
      iconButton(PLUS, "Zoom in", () => actions.zoom(1.25)),
      iconButton(FIT, "Fit the whole graph", actions.fit),
      withTheme && iconButton(THEME, "Light or dark", toggleTheme),
    ),
  );
  const setPaint = (which: PaintName, title: string): void => {
    given.textContent = title;
    if (title) none.after(given);
    else given.remove(); // Safari lists hidden options
    paint.value = which;
  };
  const setDepth = (now: number | null, steps: number[]): void => {
    mixed.remove();
    if (depth.length !== steps.length) depth.replaceChildren(...steps.map(depthName).map((name) => option([name, name])));
    if (now === null) depth.prepend(mixed);
    depth.value = now === null ? "" : depthName(now);
  };
  return { element, setPaint, setShown, setDepth };
}
