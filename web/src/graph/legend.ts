// What the colours mean: the scale of the paint, or the visual code when nothing is painted.
import { scaleGradient } from "./colour.ts";
import { el } from "./dom.ts";
import { isCreated, type Tree, type TreeNode } from "./model.ts";
import { formatValue, type Paint } from "./paint.ts";
import { shareOf, ticksOf } from "./scale.ts";

const KEYS: [key: string, word: string, isThere: (node: TreeNode) => boolean][] = [
  ["input", "input", (node) => node.kind === "input"],
  ["params", "with parameters", (node) => node.hasParams && !node.children.length],
  ["buffer", "buffer", (node) => node.kind === "buffer" || node.kind === "constant"],
  ["module", "opens", (node) => node.id > 0 && node.children.length > 0],
  ["op-only", "module of one operation", (node) => node.kind === "module" && !node.children.length && !node.hasParams],
  ["op", "operation", (node) => node.kind === "op"],
  ["created", "made from nothing", (node) => isCreated(node)],
  ["decision", "decides", (node) => node.decision !== ""],
  ["output", "output", (node) => node.kind === "output"],
];

export interface LegendActions {
  setLog(log: boolean): void;
  goTo(row: number): void;
}

/** The scale of a paint, with a switch where it can go by power; without a paint, the visual code as far as this
 * graph uses it. */
export function legend(paint: Paint | null, tree: Tree, { setLog, goTo }: LegendActions): HTMLElement {
  if (paint?.kinds) {
    const there = new Set(paint.values.values());
    const kinds = paint.kinds.filter(([, token], value) => token && there.has(value));
    const keys = kinds.flatMap(([word, token]) => [el("i", { class: `ig-key${paint.hatched?.[0] === word ? " ig-key-hatched" : ""}`, style: `background-color: var(--${token})` }), el("span", {}, word)]);
    return el("div", { class: "ig-legend ig-scale", role: "group", "aria-label": paint.title }, ...(keys.length ? keys : ["No difference"]));
  }
  if (paint) {
    const { log, least, first } = paint;
    const [low, high] = [log ? least! : paint.low, paint.high];
    const [under, beyond] = ends(paint, low);
    const title = "Colour by powers instead of amounts: for what spans several decades";
    const press = el("button", { type: "button", class: "ig-small", "aria-pressed": String(Boolean(log)), title, click: () => setLog(!log) }, "log");
    return el(
      "div",
      { class: "ig-legend ig-scale", role: "group", "aria-label": `Colour scale of ${paint.title}` },
      el("strong", {}, paint.title),
      el("span", { class: "ig-scale-ends" }, under + formatValue(paint, low), bar(paint), beyond + formatValue(paint, high)),
      el("span", { class: "ig-scale-ends" }, el("i", { class: "ig-key ig-key-missing" }), "no value"),
      least !== undefined && press,
      first !== undefined && el("button", { type: "button", class: "ig-small", click: () => goTo(first) }, "Go to the first"),
    );
  }
  const keys = KEYS.filter(([, , isThere]) => tree.nodes.some(isThere));
  return el("div", { class: "ig-legend", role: "group", "aria-label": "What the colours mean" }, ...keys.flatMap(([key, word]) => [el("i", { class: `ig-key ig-key-${key}` }), el("span", {}, word)]));
}

/** What stands before the words at the two ends, where some values lie beyond them. */
function ends(paint: Paint, low: number): [under: string, beyond: string] {
  const values = [...paint.values.values()].filter((value) => value !== null);
  return [values.some((value) => value < low) ? "≤ " : "", values.some((value) => value > paint.high) ? "≥ " : ""];
}

function bar(paint: Paint): HTMLElement {
  const ticks = ticksOf(paint).map((value) => {
    const tick = el("span", { class: "ig-tick" }, formatValue(paint, value));
    tick.style.left = `${100 * shareOf(paint, value)}%`;
    return tick;
  });
  const element = el("i", { class: `ig-bar-scale${ticks.length ? " ig-ticked" : ""}` }, ...ticks);
  element.style.background = scaleGradient();
  return element;
}
