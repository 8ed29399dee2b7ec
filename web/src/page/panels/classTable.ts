// The classes that a classifier confuses: the table of the selected layer at the current epoch, the F1 of each class, and a paired
// comparison with another layer or epoch on the same held-out rows.
import { el } from "../../ui/dom.ts";
import { epoch as epochText, grouped, interval, number, plural, shown } from "../../ui/format.ts";
import { addressLabel } from "../model/scoreLabels.ts";
import type { Confusion, Gap } from "../server/api.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { bar, setText } from "./elements.ts";
import { type Group, Picker } from "./picker.ts";

const MOST = 25; // classes shown: those with the most rows

export function classTable(dispatch: Dispatch): Part {
  const title = el("h2");
  const about = el("span", { class: "soft" });
  const gap = el("p", { role: "status", class: "soft" });
  const versus = new Picker("Compare with", "versus", (value) => dispatch({ type: "set", values: { versus: value, gap: null } }));
  const scroll = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "True and predicted classes" });
  const root = el("section", { class: "panel classes", hidden: true }, el("div", { class: "head" }, title, about, versus.root), gap, scroll);
  let drawn: Confusion | null = null;
  return {
    root,
    update(view: View): void {
      const { confusion, choice } = view.state;
      root.hidden = !confusion || confusion.classes.length === 0;
      if (root.hidden || !confusion) return;
      setText(title, `Classes of ${choice.target} at ${addressLabel(choice.address ?? "")}`);
      versus.update(view.state.versus, [view.state.chart, choice.address, view.at], () => options(view));
      setText(gap, gapText(view.state.gap, view.state.versus));
      gap.hidden = !gap.textContent;
      if (drawn === confusion) return;
      drawn = confusion;
      const most = mostFrequent(confusion, MOST);
      const rows = confusion.matrix.flat().reduce((sum, n) => sum + n, 0);
      const part = most.length < confusion.classes.length ? `${most.length} of ${plural(confusion.classes.length, "class").replace("classs", "classes")} · ` : "";
      setText(about, `${part}epoch ${epochText(view.chart.epochs[view.at])} · rows are true, columns predicted${rows ? `, ${grouped(rows)} held-out rows` : ""}`);
      scroll.replaceChildren(table({ ...confusion, classes: confusion.classes.map(shown) }, most));
    },
  };
}

/** Return the places of the classes with the most rows, in their order. */
export function mostFrequent({ classes, matrix }: Confusion, most: number): number[] {
  const sizes = classes.map((_, i) => (matrix[i] ?? []).reduce((sum, n) => sum + n, 0));
  const places = classes.map((_, i) => i).sort((a, b) => (sizes[b] as number) - (sizes[a] as number) || a - b);
  return places.slice(0, most).sort((a, b) => a - b);
}

/** Return the sentence of a comparison; "" for none. */
export function gapText(gap: Gap | null, versus: string): string {
  if (!gap || !versus) return "";
  if (gap.value === null) return `No comparison: ${gap.note}.`;
  const size = gap.value === 0 ? "Equal to" : `${number(Math.abs(gap.value))} ${gap.value > 0 ? "above" : "below"}`;
  const p = gap.p === null ? "" : gap.p < 1e-4 ? ", p < 0.0001" : `, p = ${number(gap.p)}`;
  const range = interval(gap.low, gap.high);
  return `${size} ${versusLabel(versus)}${range && ` (95 % interval ${range})`}${p}, on the same ${grouped(gap.n)} held-out rows.${gap.note && ` Note: ${gap.note}.`}`;
}

function versusLabel(versus: string): string {
  const [what, which] = JSON.parse(versus) as [string, string | number];
  return what === "epoch" ? `epoch ${epochText(which as number)}` : addressLabel(which as string);
}

function options({ state, chart, at }: View): Group[] {
  const option = (what: string, which: string | number) => ({ value: JSON.stringify([what, which]), label: versusLabel(JSON.stringify([what, which])) });
  const layers = state.chart.series.filter((s) => s.address !== state.choice.address);
  return [
    { label: "", options: [{ value: "", label: "nothing" }] },
    { label: "Layers of this epoch", options: layers.map((s) => option("layer", s.address)) },
    { label: "Epochs of this layer", options: chart.epochs.filter((_, i) => i !== at).map((e) => option("epoch", e)) },
  ].filter((group) => group.options.length > 0);
}

function table({ classes, matrix, f1, low, high }: Confusion, most: number[]): HTMLElement {
  const head = el("tr", {}, el("td"), ...(matrix.length ? most.map((i) => el("th", { scope: "col" }, classes[i])) : []), el("th", { scope: "col" }, "F1"), el("th", { scope: "col" }, "95 % interval"));
  const rows = most.map((i) => {
    const counts = matrix[i] ?? [];
    const all = Math.max(1, counts.reduce((sum, n) => sum + n, 0));
    const cells = (matrix.length ? most : []).map((j) => {
      const n = counts[j] ?? 0;
      const cell = el("td", { class: i === j ? "count right" : "count", title: `true ${classes[i]}, predicted ${classes[j]}: ${n}` }, n ? grouped(n) : "·");
      cell.style.setProperty("--share", String(n / all));
      return cell;
    });
    const value = f1[i] === null ? "–" : number(f1[i]);
    return el("tr", {}, el("th", { scope: "row" }, classes[i]), ...cells, el("td", { class: "figure" }, bar(f1[i] ?? 0), value), el("td", { class: "figure soft" }, interval(low[i], high[i]) || "–"));
  });
  return el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows));
}
