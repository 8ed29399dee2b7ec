// The legend: the scale of the paint, or the visual code without a paint.
import { scaleGradient } from "../../ui/colour.ts";
import { el } from "../../ui/dom.ts";
import { isCreated, type Tree, type TreeNode } from "../model/tree.ts";
import { formatValue, type Paint } from "./paint.ts";
import { shareOf, ticksOf } from "./scale.ts";

/** The visual code: the class of each key, its label, and the boxes it applies to. */
export const KEYS: [key: string, word: string, isThere: (node: TreeNode) => boolean][] = [
  ["input", "input", (node) => node.kind === "input"],
  ["params", "with parameters", (node) => node.hasParams && !node.children.length],
  ["buffer", "buffer", (node) => node.kind === "buffer" || node.kind === "constant"],
  ["module", "can be opened", (node) => node.id > 0 && node.children.length > 0],
  ["op-only", "module of one operation", (node) => node.kind === "module" && !node.children.length && !node.hasParams],
  ["op", "operation", (node) => node.kind === "op"],
  ["created", "factory op", (node) => isCreated(node)],
  ["decision", "decision", (node) => node.decision !== ""],
  ["output", "output", (node) => node.kind === "output"],
];

export interface LegendActions {
  setLog(log: boolean): void;
  goTo(row: number): void;
  fold(): void;
}

type LegendPart = Node | string | false | undefined;

/** Return the legend: the scale of a paint, with a switch to a logarithmic one where possible, or the part of the visual
 * code that this graph uses. A folded legend is only its title. */
export function legend(paint: Paint | null, tree: Tree, folded: boolean, actions: LegendActions): HTMLElement {
  const title = paint ? paint.title : "Legend";
  const fold = el("button", { type: "button", class: "ig-fold", "aria-expanded": String(!folded), click: actions.fold }, el("i", { class: "ig-twist" }), title);
  const parts = folded ? [] : !paint ? code(tree) : paint.kinds ? kinds(paint) : scale(paint, actions);
  return el("div", { class: `ig-legend${paint ? " ig-scale" : ""}`, role: "group", "aria-label": `Legend: ${title}` }, fold, ...parts);
}

const key = (name: string, word: string, style = ""): LegendPart => el("span", { class: "ig-pair" }, el("i", { class: `ig-key ig-key-${name}`, style }), word);

const code = (tree: Tree): LegendPart[] => KEYS.filter(([, , isThere]) => tree.nodes.some(isThere)).map(([name, word]) => key(name, word));

function kinds(paint: Paint): LegendPart[] {
  const there = new Set(paint.values.values());
  const shown = paint.kinds!.filter(([, token], value) => token && there.has(value));
  const keys = shown.map(([word, token]) => key(paint.hatched?.[0] === word ? "hatched" : "", word, `background-color: var(--${token})`));
  return keys.length ? keys : ["No differences"];
}

function scale(paint: Paint, { setLog, goTo }: LegendActions): LegendPart[] {
  const { log, least, first } = paint;
  const [low, high] = scaleEnds(paint);
  const title = "Logarithmic color scale, for values that span several orders of magnitude";
  const press = el("button", { type: "button", class: "ig-small", "aria-pressed": String(Boolean(log)), title, click: () => setLog(!log) }, "log");
  return [
    el("span", { class: "ig-pair ig-scale-ends" }, low, bar(paint), high),
    key("missing", "no value"),
    paint.note && el("span", { class: "ig-soft" }, paint.note),
    least !== undefined && press,
    first !== undefined && el("button", { type: "button", class: "ig-small", click: () => goTo(first) }, "Go to the first"),
  ];
}

/** Return the text at the two ends of a scale, with ≤ or ≥ if values lie beyond. */
export function scaleEnds(paint: Paint): [low: string, high: string] {
  const { high } = paint;
  const low = paint.log ? paint.least! : paint.low;
  const values = paint.strength ? [] : [...paint.values.values()].filter((value) => value !== null && (value || !paint.hot)) as number[];
  const isBelow = values.some((value) => value < low);
  const isAbove = !paint.byBox && values.some((value) => value > high);
  return [(isBelow ? "≤ " : "") + formatValue(paint, low), (isAbove ? "≥ " : "") + formatValue(paint, high)];
}

function bar(paint: Paint): HTMLElement {
  const ticks = ticksOf(paint).map((value) => {
    const tick = el("span", { class: "ig-tick" }, formatValue(paint, value));
    tick.style.left = `${100 * shareOf(paint, value)}%`;
    return tick;
  });
  const element = el("i", { class: `ig-bar-scale${ticks.length ? " ig-ticked" : ""}` }, ...ticks);
  element.style.background = scaleGradient(paint.hot);
  return element;
}
