// The results of `inspect`: the scores of units for a hypothesis, with a small curve over checkpoints.
import { el, svg } from "../../ui/dom.ts";
import { epoch as epochText, grouped, interval, number, plural } from "../../ui/format.ts";
import { isOfUnits, scoreLabel } from "../model/scoreLabels.ts";
import { gain, type SortKey, sortUnits, unitAddress, type UnitRow } from "../model/unitRows.ts";
import { share } from "../plot/scales.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { Picker, setText } from "./elements.ts";

const TOP = 10;
const COLUMNS: { key: SortKey | null; label: string; title?: string }[] = [
  { key: "unit", label: "Unit" },
  { key: null, label: "Over checkpoints" },
  { key: "value", label: "Value" },
  { key: null, label: "95 % interval" },
  { key: "baseline", label: "Baseline", title: "The value that the score reaches without any information about the hypothesis" },
  { key: "gain", label: "Above baseline" },
  { key: "n", label: "n", title: "Number of rows" },
];

interface Sorting {
  key: SortKey;
  down: boolean;
  all: boolean;
}

export function unitTable(dispatch: Dispatch): Part {
  const sorting: Sorting = { key: "value", down: true, all: false };
  let view: View | undefined;
  const scores = new Picker("Score", "unit-score", (score) => pick(score, ""));
  const hypotheses = new Picker("Hypothesis", "hypothesis", (target) => pick(view?.state.hypothesis.score ?? "", target));
  const sorts = COLUMNS.map(({ key, label, title }) => {
    const button = el("button", { type: "button", class: "sort", click: () => key && sort(key) }, label);
    return el("th", { scope: "col", title: title ?? "" }, key ? button : label);
  });
  const body = el("tbody");
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...sorts)), body);
  const more = el("button", { type: "button", class: "toggle", click: () => { sorting.all = !sorting.all; draw(); } });
  const summary = el("span", { class: "soft" });
  const head = el("div", { class: "head" }, el("h2", {}, "Unit scores"), summary, scores.root, hypotheses.root);
  const scroll = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Units and their scores" }, table);
  const root = el("section", { class: "panel units", hidden: true }, head, scroll, more);

  function pick(score: string, target: string): void {
    const options = view?.run?.units ?? [];
    const found = options.find((u) => u.score === score && u.target === target) ?? options.find((u) => u.score === score);
    if (found) dispatch({ type: "hypothesis", ...found });
  }

  function sort(key: SortKey): void {
    sorting.down = sorting.key === key ? !sorting.down : key !== "unit";
    sorting.key = key;
    draw();
  }

  function draw(): void {
    if (!view) return;
    const { units, choice } = view.state;
    const sorted = sortUnits(units, sorting.key, sorting.down);
    const scale = Math.max(1e-12, ...units.flatMap((u) => (u.value === null ? [] : [Math.abs(u.value)])));
    const rows = sorting.all ? sorted : sorted.slice(0, TOP);
    const { run, state: { hypothesis } } = view;
    const curves = Boolean(run && isOfUnits(run, hypothesis.score));
    body.replaceChildren(...rows.map((unit) => {
      const address = unitAddress(unit);
      const show = (): void => {
        dispatch({ type: "choose", choice: curves ? { ...hypothesis, address } : { address: unit.address } });
        root.parentElement?.querySelector(".plot")?.scrollIntoView({ block: "center" });
      };
      return row(unit, scale, choice.address === address || choice.address === unit.address, show);
    }));
    COLUMNS.forEach(({ key }, i) => {
      const order = key === sorting.key ? (sorting.down ? "descending" : "ascending") : "none";
      if (key) (sorts[i] as Element).setAttribute("aria-sort", order);
    });
    more.hidden = units.length <= TOP;
    setText(more, sorting.all ? `Show the top ${TOP}` : `Show all ${plural(units.length, "unit")}`);
    setText(summary, units.length ? plural(units.length, "unit") : "");
  }

  return {
    root,
    update(next: View): void {
      const { run, state } = next;
      const same = view && view.state.units === state.units && view.state.choice.address === state.choice.address;
      view = next;
      root.hidden = !run || run.units.length === 0;
      if (root.hidden || !run) return;
      const { score, target } = state.hypothesis;
      const names = [...new Set(run.units.map((u) => u.score))].map((value) => ({ value, label: scoreLabel(state.labels, value) }));
      const fitting = run.units.filter((u) => u.score === score).map((u) => ({ value: u.target, label: u.target || "(none)" }));
      scores.update([{ label: "", options: names }], score);
      hypotheses.update([{ label: "", options: fitting }], target);
      if (!same) draw();
    },
  };
}

function row(unit: UnitRow, scale: number, on: boolean, show: () => void): HTMLElement {
  const name = el("button", { type: "button", class: "address", title: "Show its curve in the plot", click: show }, unitAddress(unit));
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span"));
  (bar.firstChild as HTMLElement).style.inlineSize = `${(100 * Math.abs(unit.value ?? 0)) / scale}%`;
  const value = el("td", { class: unit.value === null ? "figure nan" : "figure", title: unit.note ?? "" }, bar, number(unit.value));
  const above = gain(unit);
  return el(
    "tr",
    { class: on ? "on" : "" },
    el("th", { scope: "row" }, name),
    el("td", {}, sparkline(unit)),
    value,
    el("td", { class: "figure soft" }, interval(unit.low, unit.high) || "–"),
    el("td", { class: "figure soft" }, unit.baseline === null ? "–" : number(unit.baseline)),
    el("td", { class: "figure" }, above === null ? "–" : `${above > 0 ? "+" : ""}${number(above)}`),
    el("td", { class: "figure soft" }, unit.n === null ? "–" : grouped(unit.n)),
  );
}

function sparkline({ curve, epochs, baseline }: UnitRow): SVGElement {
  const [width, height, margin] = [120, 30, 4];
  const values = [...curve, baseline].filter((v) => v !== null);
  const [low, high] = [Math.min(0, ...values), Math.max(1e-12, ...values)];
  const step = curve.length > 1 ? (width - 2 * margin) / (curve.length - 1) : 0;
  const y = (v: number): number => height - margin - share(v, low, high) * (height - 2 * margin);
  const points = curve.flatMap((v, i) => (v === null ? [] : [[margin + i * step, y(v)] as const]));
  const line = svg("polyline", { points: points.map((p) => p.join(",")).join(" "), class: "curve" });
  const at = baseline === null ? -margin : y(baseline);
  const base = svg("line", { x1: 0, x2: width, y1: at, y2: at, class: "base" });
  const dots = curve.length <= 12 ? points : points.slice(-1);
  const marks = dots.map(([cx, cy], i) => svg("circle", { cx, cy, r: i === dots.length - 1 ? 3 : 2, class: "dot" }));
  const text = curve.map((v, i) => `epoch ${epochText(epochs[i])}: ${number(v)}`).join(", ");
  const attributes = { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text };
  return svg("svg", attributes, svg("title", {}, text), base, line, ...marks);
}
