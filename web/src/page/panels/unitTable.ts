// The results of `inspect`: the scores of units for a hypothesis, with a small curve over checkpoints.
import { el, svg } from "../../ui/dom.ts";
import { epoch as epochText, grouped, interval, number, plural, shown } from "../../ui/format.ts";
import { addressLabel, isOfUnits, scoreInfo, scoreLabel } from "../model/scoreLabels.ts";
import { nearest } from "../model/series.ts";
import { bothSides, type Center, reach, strength, strengthText } from "../model/strength.ts";
import { gain, type SortKey, sortUnits, type UnitRow, unitRows } from "../model/unitRows.ts";
import { share } from "../plot/scales.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { bar, setText } from "./elements.ts";
import { Picker } from "./picker.ts";

const [TOP, MORE] = [10, 200]; // units that are shown at first, and that a click adds
const COLUMNS: { key: SortKey | null; label: string; title?: string }[] = [
  { key: "unit", label: "Unit" },
  { key: null, label: "Over checkpoints" },
  { key: "value", label: "Value" },
  { key: null, label: "95 % interval" },
  { key: "baseline", label: "Baseline", title: "The value that the score reaches without any information about the hypothesis" },
  { key: "gain", label: "Above baseline" },
  { key: "n", label: "n", title: "Number of rows" },
];

const DRAWN = ["units", "chart", "labels", "followup"] as const;

/** What the rows have in common. */
interface Shared {
  /** The checkpoints, and the index of the shown one. */
  epochs: number[];
  at: number;
  center: Center;
  /** The strength of a full bar. */
  scale: number;
  /** The units that have examples or a verification. */
  stored: string[];
}

interface Sorting {
  key: SortKey;
  down: boolean;
  /** The units that are shown. */
  most: number;
}

export function unitTable(dispatch: Dispatch): Part {
  const sorting: Sorting = { key: "value", down: true, most: TOP };
  let view: View | undefined;
  let next = TOP; // units after a click on `more`
  const scores = new Picker("Score", "unit-score", (score) => pick(score, ""));
  const hypotheses = new Picker("Hypothesis", "hypothesis", (target) => pick(view?.state.hypothesis.score ?? "", target));
  const sorts = COLUMNS.map(({ key, label, title }) => {
    const button = el("button", { type: "button", class: "sort", click: () => key && sort(key) }, label);
    return el("th", { scope: "col", title: title ?? "" }, key ? button : label);
  });
  const body = el("tbody");
  const table = el("table", {}, el("thead", {}, el("tr", {}, ...sorts)), body);
  const more = el("button", { type: "button", class: "toggle", click: () => { sorting.most = next; draw(); } });
  const summary = el("span", { class: "soft" });
  const note = el("p", { class: "soft" });
  const head = el("div", { class: "head" }, el("h2", {}, "Unit scores"), summary, scores.root, hypotheses.root);
  const scroll = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Units and their scores" }, table);
  const root = el("section", { class: "panel units", hidden: true }, head, scroll, note, more);

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
    const { run, state: { choice, chart, followup, hypothesis, labels, units } } = view;
    const { epochs } = units;
    const asked = chart.epochs[view.at] ?? choice.epoch;
    const at = nearest(epochs, asked);
    const center = scoreInfo(labels, hypothesis.score)?.center ?? null;
    const sorted = sortUnits(unitRows(units, at), sorting.key, sorting.down, center);
    const rows = sorted.slice(0, sorting.most);
    const chosen = sorted.find(({ address }) => address === choice.address);
    setText(note, chosen?.note ? `${chosen.address}: ${chosen.note}` : "");
    const scale = Math.max(1e-12, reach(units, center ?? 0).high);
    const curves = Boolean(run && isOfUnits(run, hypothesis.score));
    const stored = (followup?.units ?? []).filter((one) => one.epoch === null || one.epoch === epochs[at]).map(({ unit }) => unit);
    body.replaceChildren(...rows.map((unit) => {
      const { address, layer } = unit;
      const show = (part: string): void => {
        dispatch({ type: "choose", choice: curves || part !== "plot" ? { ...hypothesis, address } : { address: layer } });
        root.parentElement?.querySelector(`.${part}`)?.scrollIntoView({ block: part === "plot" ? "center" : "start" });
      };
      return row(unit, { at, epochs, center, scale, stored }, choice.address === address || choice.address === layer, show);
    }));
    COLUMNS.forEach(({ key }, i) => {
      const order = key === sorting.key ? (sorting.down ? "descending" : "ascending") : "none";
      if (key) (sorts[i] as Element).setAttribute("aria-sort", order);
    });
    more.hidden = sorted.length <= TOP;
    const all = plural(sorted.length, "unit");
    next = rows.length === sorted.length ? TOP : rows.length === TOP ? MORE : rows.length + MORE;
    setText(more, next === TOP ? `Show the top ${TOP}` : next < sorted.length ? `Show ${grouped(next)} of ${all}` : `Show all ${all}`);
    const when = `epoch ${epochText(epochs[at])}${asked === null || epochs[at] === asked ? "" : `, the nearest to ${epochText(asked)}`}`;
    const by = strengthText(center);
    setText(summary, sorted.length ? [all, when, by && `strength: ${by}`].filter(Boolean).join(" · ") : "");
  }

  return {
    root,
    update(next: View): void {
      const { run, state } = next;
      const same = view && DRAWN.every((name) => view?.state[name] === state[name]) && view.at === next.at && view.state.choice.address === state.choice.address;
      view = next;
      root.hidden = !run || run.units.length === 0;
      if (root.hidden || !run) return;
      const { score, target } = state.hypothesis;
      const names = () => [...new Set(run.units.map((u) => u.score))].map((value) => ({ value, label: scoreLabel(state.labels, value) }));
      const fitting = () => run.units.filter((u) => u.score === score).map((u) => ({ value: u.target, label: shown(u.target) || "(none)" }));
      scores.update(score, [run, state.labels], () => [{ label: "", options: names() }]);
      hypotheses.update(target, [run, score], () => [{ label: "", options: fitting() }]);
      if (!same) draw();
    },
  };
}

function row(unit: UnitRow, shared: Shared, on: boolean, show: (part: string) => void): HTMLElement {
  const { center, scale, stored } = shared;
  const text = (x: number | null): string => (x === null ? "–" : number(x));
  const name = el("button", { type: "button", class: "address", "data-key": unit.address, title: "Show its curve in the plot", click: () => show("plot") }, addressLabel(unit.address));
  const more = stored.includes(unit.address) && el("button", { type: "button", class: "more", "data-key": `${unit.address} `, click: () => show("followups") }, "details");
  const filled = unit.value === null ? 0 : strength(unit.value, center ?? 0) / scale;
  const nan = unit.value === null && unit.note !== null;
  const value = el("td", { class: nan ? "figure nan" : "figure" }, bar(filled), nan ? "NaN" : text(unit.value));
  const above = gain(unit, center);
  return el(
    "tr",
    { class: on ? "on" : "", title: unit.note !== null && shown(unit.note) },
    el("th", { scope: "row" }, name, more),
    el("td", {}, sparkline(unit, shared)),
    value,
    el("td", { class: "figure soft" }, interval(unit.low, unit.high) || "–"),
    el("td", { class: "figure soft" }, text(unit.baseline)),
    el("td", { class: "figure" }, `${above && above > 0 ? "+" : ""}${text(above)}`),
    el("td", { class: "figure soft" }, unit.n === null ? "–" : grouped(unit.n)),
  );
}

/** Draw the curve of a unit, with the baseline of the shown checkpoint, which has a mirror image at the other side of a center. */
function sparkline({ curve, baseline }: UnitRow, { epochs, at, center }: Shared): SVGElement {
  const [width, height, margin] = [120, 30, 4];
  const bases = baseline === null ? [] : bothSides(baseline, center);
  const values = [...curve, ...bases].filter((v) => v !== null);
  const [low, high] = [Math.min(0, ...values), Math.max(1e-12, ...values)];
  const step = curve.length > 1 ? (width - 2 * margin) / (curve.length - 1) : 0;
  const y = (v: number): number => height - margin - share(v, low, high) * (height - 2 * margin);
  const points = curve.flatMap((v, i) => (v === null ? [] : [{ i, cx: margin + i * step, cy: y(v) }]));
  const line = svg("polyline", { points: points.map(({ cx, cy }) => `${cx},${cy}`).join(" "), class: "curve" });
  const lines = bases.map((v) => svg("line", { x1: 0, x2: width, y1: y(v), y2: y(v), class: "base" }));
  const dots = points.filter(({ i }) => i === at || curve.length <= 12);
  const marks = dots.map(({ i, cx, cy }) => svg("circle", { cx, cy, r: i === at ? 3 : 2, class: "dot" }));
  const text = curve.map((v, i) => `epoch ${epochText(epochs[i])}: ${v === null ? "no value" : number(v)}`).join(", ");
  const attributes = { class: "spark", width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": text };
  return svg("svg", attributes, svg("title", {}, text), ...lines, line, ...marks);
}
