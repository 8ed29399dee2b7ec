// The bar above the graph: what model it is, and the tools.
import { el, iconButton, toggleTheme } from "../dom.ts";
import { depthName, depthNamed } from "../model/depths.ts";
import { totals } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import { builtIns, type PaintName } from "../paint/paint.ts";

export interface ToolbarActions {
  toggleOutline(): void;
  openToDepth(depth: number): void;
  /** Open one level more, or one less. */
  deeper(by: 1 | -1): void;
  zoom(factor: number): void;
  fit(): void;
  /** Null where no layer ran more than once. */
  roll: ((rolled: boolean) => void) | null;
  paint(which: PaintName): void;
}

export interface Toolbar {
  element: HTMLElement;
  /** Show which paint is on, and the title of the one given from outside, "" for none. */
  setPaint(which: PaintName, given: string): void;
  setRolled(rolled: boolean): void;
  /** Show how deep it stands open, of which depths; null where some stand open deeper than others. */
  setDepth(depth: number | null, steps: number[]): void;
}

export function toolbar(scene: Scene, search: HTMLElement, actions: ToolbarActions, withTheme: boolean, rolled: boolean): Toolbar {
  const paint = el("select", { "aria-label": "Colour by", change: () => actions.paint(paint.value as PaintName) });
  const given = el("option", { value: "given" });
  const none = el("option", { value: "" }, "No colour");
  paint.append(none);
  for (const [value, title] of builtIns(scene)) paint.append(el("option", { value }, title));
  const depth = el("select", { "aria-label": "Depth", title: "Levels of modules that stand open (keys 1 to 9, * for all)", change: () => actions.openToDepth(depthNamed(depth.value)) });
  const mixed = el("option", { value: "", hidden: true }, "–");
  const { roll } = actions;
  const title = "Show the passes of a layer that ran more than once as one box";
  const press = (): void => roll?.(passes.getAttribute("aria-pressed") !== "true");
  const passes = el("button", { type: "button", class: "ig-toggle", title, click: press }, "Rolled");
  const setRolled = (now: boolean): void => passes.setAttribute("aria-pressed", String(now));
  setRolled(rolled);
  const element = el(
    "div",
    { class: "ig-toolbar", role: "toolbar", "aria-label": "Graph" },
    iconButton("outline", "Show or hide the outline", actions.toggleOutline),
    el("div", { class: "ig-title" }, el("h1", { title: scene.model }, scene.model), el("p", { title: totals(scene) }, totals(scene))),
    search,
    roll && passes,
    el("label", { class: "ig-paint" }, el("span", {}, "Colour"), paint),
    el(
      "div",
      { class: "ig-buttons" },
      iconButton("collapse", "Close one level (Shift: all)", (event) => (event.shiftKey ? actions.openToDepth(0) : actions.deeper(-1))),
      el("label", { class: "ig-paint" }, depth),
      iconButton("expand", "Open one level (Shift: all)", (event) => (event.shiftKey ? actions.openToDepth(Infinity) : actions.deeper(1))),
      el("i", { class: "ig-rule" }),
      iconButton("minus", "Zoom out", () => actions.zoom(1 / 1.25)),
      iconButton("plus", "Zoom in", () => actions.zoom(1.25)),
      iconButton("fit", "Fit the whole graph", actions.fit),
      withTheme && iconButton("theme", "Light or dark", toggleTheme),
    ),
  );
  const setPaint = (which: PaintName, title: string): void => {
    given.textContent = title;
    if (title) none.after(given);
    else given.remove(); // Safari lists what is hidden
    paint.value = which;
  };
  const setDepth = (now: number | null, steps: number[]): void => {
    mixed.remove();
    if (depth.length !== steps.length) depth.replaceChildren(...steps.map((step) => el("option", { value: depthName(step) }, depthName(step))));
    if (now === null) depth.prepend(mixed);
    depth.value = now === null ? "" : depthName(now);
  };
  return { element, setPaint, setRolled, setDepth };
}
