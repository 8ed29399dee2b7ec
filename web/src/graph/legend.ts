// What the colours mean: the scale of the paint, or the visual code when nothing is painted.
import { scaleGradient } from "./colour.ts";
import { el } from "./dom.ts";
import { formatValue, type Paint } from "./paint.ts";

export function legend(paint: Paint | null): HTMLElement {
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
  const keys = [
    ["input", "input"],
    ["params", "with parameters"],
    ["module", "opens"],
    ["op", "function"],
    ["created", "made from nothing"],
    ["output", "output"],
  ];
  return el("div", { class: "ig-legend", role: "group", "aria-label": "What the colours mean" }, ...keys.flatMap(([key, word]) => [el("i", { class: `ig-key ig-key-${key}` }), el("span", {}, word)]));
}

function bar(): HTMLElement {
  const element = el("i", { class: "ig-bar-scale", "aria-hidden": "true" });
  element.style.background = scaleGradient();
  return element;
}
