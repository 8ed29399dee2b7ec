// The values that the user logged, below the plot: a small curve for each name.
import { el, svg } from "../../ui/dom.ts";
import { epoch as plain, grouped, number, shown } from "../../ui/format.ts";
import { AXES, type Axis, type Curve, type Points, curvesOf } from "../model/curves.ts";
import { share } from "../plot/scales.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { Picker } from "./picker.ts";

export function logged(dispatch: Dispatch): Part {
  let drawn: unknown;
  let by = "";
  const axes = new Picker("Over", "axis", (axis) => dispatch({ type: "set", values: { axis: axis as Axis } }));
  axes.update("step", [], () => [{ label: "", options: AXES.map((value) => ({ value, label: value })) }]);
  const list = el("ul");
  const root = el("div", { class: "logged" }, axes.root, list);
  return {
    root,
    update({ state: { log, axis } }: View): void {
      root.hidden = !log?.name.length;
      if (!log || (drawn === log && by === axis)) return;
      [drawn, by] = [log, axis];
      list.replaceChildren(...curvesOf(log, axis).map((curve) => item(curve, axis, log.total[curve.name] ?? 0)));
    },
  };
}

/** `total` is the number of values of the training; of many, the server sends the lowest and highest of each stretch. */
function item({ name, note, x, y, before }: Curve, axis: Axis, total: number): HTMLElement {
  const finite = [...before.y, ...y].filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const [first, last] = [Math.min(...before.x, ...x), Math.max(...x)];
  const at = (place: number): number => 100 * share(place, first, last);
  const line = (of: Points): string =>
    of.y.map((value, i) => (Number.isFinite(value) ? `${Number.isFinite(of.y[i - 1]) ? "L" : "M"}${at(of.x[i] as number)} ${48 - 46 * share(value, low, high)}h.1` : "")).join("");
  const marks = y.map((value, i) => (Number.isFinite(value) ? "" : `M${at(x[i] as number)} 0v50`)).join("");
  const bad = y.filter((value) => !Number.isFinite(value)).length;
  const about = [
    finite.length ? `${number(low)} – ${number(high)}` : "",
    `${axis} ${plain(first)} – ${plain(last)}`,
    total > y.length ? `extremes of ${grouped(total)}` : "",
    bad ? `${grouped(bad)} NaN or infinite` : "",
    before.x.length ? `before ${axis} ${plain(Math.min(...x))} of an earlier training` : "",
    note,
  ];
  const chart = svg(
    "svg",
    { viewBox: "0 0 100 50", preserveAspectRatio: "none" },
    svg("path", { d: marks, stroke: "red" }),
    svg("path", { d: line({ x, y }) }),
    before.x.length ? svg("path", { d: line(before), opacity: "0.4" }) : "",
  );
  return el("li", {}, el("b", {}, shown(name)), ` ${number(y.at(-1))}`, chart, el("p", { class: "soft" }, about.filter(Boolean).join(" · ")));
}
