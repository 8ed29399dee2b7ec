// The list of layers: the legend of the plot; if the run has no graph, shown with bars in its place.
import { el } from "../../ui/dom.ts";
import { number, shown } from "../../ui/format.ts";
import { isMany } from "../model/comparedRuns.ts";
import { addressLabel } from "../model/scoreLabels.ts";
import type { Series } from "../model/series.ts";
import { reach, strength } from "../model/strength.ts";
import { share } from "../plot/scales.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { bar, partOf, setActive, setText } from "./elements.ts";
import { Rows } from "./rows.ts";

export function layerList(dispatch: Dispatch): Part {
  let drawn: View | undefined;
  const filter = el("input", {
    type: "search",
    placeholder: "Filter layers",
    "aria-label": "Filter layers by name",
    "aria-controls": "intus-layers",
    input: () => dispatch({ type: "choose", choice: { filter: filter.value } }),
  });
  const hint = el("p", { class: "hint", hidden: true }, "No layer matches the filter.");
  const list = el("ul", { id: "intus-layers", class: "layers", role: "listbox", tabindex: 0, "aria-label": "Layers, from input to output" });
  const root = el("div", { class: "legend" }, filter, hint, list);
  const choose = (address: string | null): void => dispatch({ type: "choose", choice: { address } });
  const hover = (address: string | null): void => dispatch({ type: "set", values: { hover: address } });

  list.addEventListener("click", (event) => {
    const address = partOf(event)?.dataset.key;
    if (address !== undefined) choose(drawn?.state.choice.address === address ? null : address);
  });
  list.addEventListener("pointerover", (event) => hover(partOf(event)?.dataset.key ?? null));
  list.addEventListener("pointerleave", () => hover(null));
  const rows = new Rows(list, (i) => {
    const series = drawn?.chart.series[i] as Series;
    const made = row(series, i, drawn?.colours.get(series.address) ?? "");
    refresh(made, i);
    return made;
  });
  const moved = (event: KeyboardEvent): void => {
    const series = drawn?.chart.series ?? [];
    const at = placeOf(drawn);
    const moves: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, PageDown: at + 10, PageUp: at - 10, Home: 0, End: series.length - 1 };
    const to = moves[event.key];
    if (event.key === "Escape") choose(null);
    else if (to === undefined) return;
    else choose(series[Math.min(series.length - 1, Math.max(0, to))]?.address ?? null);
    event.preventDefault();
  };
  list.addEventListener("keydown", moved);
  filter.addEventListener("keydown", (event) => {
    if (event.key.startsWith("Arrow") && !/Left|Right/.test(event.key)) moved(event);
  });

  function rebuild({ chart, state }: View): void {
    const all = state.chart.series.length;
    list.classList.toggle("many", isMany(state.chart));
    rows.reset(chart.series.length);
    filter.hidden = all < 12 && state.choice.filter === "";
    hint.hidden = chart.series.length > 0 || all === 0;
  }

  function refresh(element: HTMLElement, i: number): void {
    const { chart, state, focus } = drawn as View;
    const series = chart.series[i] as Series;
    element.setAttribute("aria-selected", String(series.address === state.choice.address));
    element.classList.toggle("focus", series.address === focus);
    updateValue(element, series, drawn as View);
  }

  return {
    root,
    update(view: View): void {
      const same = drawn && drawn.colours === view.colours;
      const moved = drawn?.state.choice.address !== view.state.choice.address || placeOf(drawn) < 0;
      drawn = view;
      if (document.activeElement !== filter) filter.value = view.state.choice.filter;
      if (same) rows.each(refresh);
      else rebuild(view);
      const at = placeOf(view);
      if (moved) rows.reveal(at);
      setActive(list, rows.row(at)?.id);
    },
  };
}

function row(series: Series, i: number, colour: string): HTMLElement {
  const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = colour;
  const name = el("span", { class: "address", title: addressLabel(series.address) }, el("bdi", {}, addressLabel(series.address)));
  const attributes = { role: "option", id: `intus-layer-${i}`, "data-key": series.address };
  return el("li", attributes, swatch, name, bar(0, colour), el("span", { class: "value" }));
}

function updateValue(element: HTMLElement, series: Series, { at, chart, center }: View): void {
  const { low, high } = reach(chart, center);
  const x = series.value[at] ?? null;
  const note = series.note[at] ?? null;
  const [, , level, text] = element.children as unknown as [Element, Element, Element, HTMLElement];
  const width = x === null ? 0 : share(strength(x, center), Math.min(0, low), high);
  (level.firstChild as HTMLElement).style.inlineSize = `${100 * width}%`;
  element.classList.toggle("nan", x === null && note !== null);
  element.classList.toggle("partial", x !== null && series.part[at] === true);
  text.title = shown([note ?? "", series.revision[at] ? `revision ${series.revision[at]}` : ""].filter(Boolean).join("; "));
  setText(text, x === null && note === null ? "–" : number(x));
}

/** Return the place of the selected layer in the list, -1 if it is not there. */
function placeOf(view: View | undefined): number {
  return view?.chart.series.findIndex((series) => series.address === view.state.choice.address) ?? -1;
}
