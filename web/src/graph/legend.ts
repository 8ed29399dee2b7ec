// What the colours mean: the scale of the paint, or the visual code when nothing is painted.
import { scaleGradient } from "./colour.ts";
import { el } from "./dom.ts";
import { isCreated, type Tree, type TreeNode } from "./model.ts";
import { formatValue, type Paint } from "./paint.ts";

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

/** The scale of a paint; without one, the visual code as far as this graph uses it. */
export function legend(paint: Paint | null, tree: Tree): HTMLElement {
  if (paint?.kinds) {
    const there = new Set(paint.values.values());
    const kinds = paint.kinds.filter(([, token], value) => token && there.has(value));
    const keys = kinds.flatMap(([word, token]) => [el("i", { class: "ig-key", style: `background: var(--${token})` }), el("span", {}, word)]);
    return el("div", { class: "ig-legend ig-scale", role: "group", "aria-label": paint.title }, ...(keys.length ? keys : ["No difference"]));
  }
  if (paint) {
    const beyond = [...paint.values.values()].some((value) => value !== null && value > paint.high);
    return el(
      "div",
      { class: "ig-legend ig-scale", role: "group", "aria-label": `Colour scale of ${paint.title}` },
      el("strong", {}, paint.title),
      el("span", { class: "ig-scale-ends" }, formatValue(paint, paint.low), bar(), (beyond ? "≥ " : "") + formatValue(paint, paint.high)),
      el("span", { class: "ig-scale-ends" }, el("i", { class: "ig-key ig-key-missing" }), "no value"),
    );
  }
  const keys = KEYS.filter(([, , isThere]) => tree.nodes.some(isThere));
  return el("div", { class: "ig-legend", role: "group", "aria-label": "What the colours mean" }, ...keys.flatMap(([key, word]) => [el("i", { class: `ig-key ig-key-${key}` }), el("span", {}, word)]));
}

function bar(): HTMLElement {
  const element = el("i", { class: "ig-bar-scale", "aria-hidden": "true" });
  element.style.background = scaleGradient();
  return element;
}
