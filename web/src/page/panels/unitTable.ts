// What `inspect` found: the units that answer to an idea, with a small curve over checkpoints.

import * as format from "../../ui/format.ts";
import { h, Picker, setText, svg } from "./elements.ts";
import { place } from "../plot/scales.ts";
import { gain, sortUnits, type SortKey, unitAddress, type UnitRow } from "../model/unitRows.ts";
import { scoreLabel } from "../model/scoreLabels.ts";
import type { Dispatch, Part, View } from "../state/view.ts";

const TOP = 10;
const COLUMNS: { key: SortKey | null; label: string; title?: string }[] = [
  { key: "unit", label: "Unit" },
  { key: null, label: "Over checkpoints" },
  { key: "value", label: "Value" },
  { key: null, label: "95 % interval" },
  { key: "baseline", label: "Baseline", title: "What the same score gives without knowledge" },
  { key: "gain", label: "Above baseline" },
  { key: "n", label: "n", title: "How many rows were seen" },
];

interface Shown {
  key: SortKey;
  down: boolean;
  all: boolean;
}

export function units(dispatch: Dispatch): Part {
  const shown: Shown = { key: "value", down: true, all: false };
  let view: View | undefined;
  const scores = new Picker("Score", "unit-score", (score) => pick(score, ""));
  const ideas = new Picker("Hypothesis", "hypothesis", (target) => pick(view?.state.hypothesis.score ?? "", target));
  const sorts = COLUMNS.map(({ key, label, title }) => {
    const button = h("button", { type: "button", class: "sort", click: () => key && sort(key) }, label);
    return h("th", { scope: "col", title: title ?? "" }, key ? button : label);
  });
  const body = h("tbody");
  const table = h("table", {}, h("thead", {}, h("tr", {}, ...sorts)), body);
  const more = h("button", { type: "button", class: "toggle", click: () => { shown.all = !shown.all; draw(); } });
  const summary = h("span", { class: "soft" });
  const head = h("div", { class: "head" }, h("h2", {}, "Units that answer"), summary, scores.root, ideas.root);
  const scroll = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Units and their scores" }, table);
  const root = h("section", { class: "panel units", hidden: true }, head, scroll, more);

  function pick(score: string, target: string): void {
    const options = view?.run?.units ?? [];
    const found = options.find((u) => u.score === score && u.target === target) ?? options.find((u) => u.score === score);
    if (found) dispatch({ type: "hypothesis", ...found });
  }

  function sort(key: SortKey): void {
    shown.down = shown.key === key ? !shown.down : key !== "unit";
    shown.key = key;
    draw();
  }

  function draw(): void {
    if (!view) return;
    const { units: found, choice } = view.state;
    const sorted = sortUnits(found, shown.key, shown.down);
    const scale = Math.max(1e-12, ...found.flatMap((u) => (u.value === null ? [] : [Math.abs(u.value)])));
    const rows = shown.all ? sorted : sorted.slice(0, TOP);
    body.replaceChildren(...rows.map((unit) => row(unit, scale, unit.address === choice.address, dispatch)));
    COLUMNS.forEach(({ key }, i) => {
      const way = key === shown.key ? (shown.down ? "descending" : "ascending") : "none";
      if (key) (sorts[i] as Element).setAttribute("aria-sort", way);
    });
    more.hidden = found.length <= TOP;
    setText(more, shown.all ? `Show the top ${TOP}` : `Show all ${format.count(found.length)} units`);
    setText(summary, found.length ? `${format.count(found.length)} units asked` : "");
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
      const names = [...new Set(run.units.map((u) => u.score))].map((value) => ({ value, label: scoreLabel(state.words, value) }));
      const fitting = run.units.filter((u) => u.score === score).map((u) => ({ value: u.target, label: u.target || "(none)" }));
      scores.update([{ label: "", options: names }], score);
      ideas.update([{ label: "", options: fitting }], target);
      if (!same) draw();
    },
  };
}

function row(unit: UnitRow, scale: number, on: boolean, dispatch: Dispatch): HTMLElement {
  const address = unitAddress(unit);
  const select = (): void => dispatch({ type: "choose", choice: { address: unit.address } });
  const name = h("button", { type: "button", class: "address", title: `Show ${unit.address}`, click: select }, address);
  const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("span"));
  (bar.firstChild as HTMLElement).style.inlineSize = `${(100 * Math.abs(unit.value ?? 0)) / scale}%`;
  const value = h("td", { class: unit.value === null ? "figure nan" : "figure", title: unit.note ?? "" }, bar, format.number(unit.value));
  const above = gain(unit);
  return h(
    "tr",
    { class: on ? "on" : "" },
    h("th", { scope: "row" }, name),
    h("td", {}, sparkline(unit)),
    value,
    h("td", { class: "figure soft" }, format.interval(unit.low, unit.high) || "–"),
    h("td", { class: "figure soft" }, unit.baseline === null ? "–" : format.number(unit.baseline)),
    h("td", { class: "figure" }, above === null ? "–" : `${above > 0 ? "+" : ""}${format.number(above)}`),
    h("td", { class: "figure soft" }, format.count(unit.n)),
  );
}

function sparkline({ curve, epochs, baseline }: UnitRow): SVGElement {
  const [width, height, room] = [120, 30, 4];
  const known = [...curve, baseline].filter((v) => v !== null);
  const [low, high] = [Math.min(0, ...known), Math.max(1e-12, ...known)];
  const step = curve.length > 1 ? (width - 2 * room) / (curve.length - 1) : 0;
  const y = (v: number): number => height - room - place(v, low, high, height - 2 * room);
  const points = curve.flatMap((v, i) => (v === null ? [] : [[room + i * step, y(v)] as const]));
  const line = svg("polyline", { points: points.map((p) => p.join(",")).join(" "), class: "curve" });
  const at = baseline === null ? -room : y(baseline);
  const base = svg("line", { x1: 0, x2: width, y1: at, y2: at, class: "base" });
  const dots = curve.length <= 12 ? points : points.slice(-1);
  const marks = dots.map(([cx, cy], i) => svg("circle", { cx, cy, r: i === dots.length - 1 ? 3 : 2, class: "dot" }));
  const words = curve.map((v, i) => `epoch ${format.epoch(epochs[i])}: ${format.number(v)}`).join(", ");
  const attributes = { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words };
  return svg("svg", attributes, svg("title", {}, words), base, line, ...marks);
}
