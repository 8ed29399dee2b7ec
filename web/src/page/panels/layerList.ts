// The list of layers: the legend of the plot; if the run has no graph, shown with bars in its place.
import { el } from "../../ui/dom.ts";
import { number } from "../../ui/format.ts";
import { isMany } from "../model/comparedRuns.ts";
import { addressLabel } from "../model/scoreLabels.ts";
import type { Series } from "../model/series.ts";
import { reach, strength } from "../model/strength.ts";
import { share } from "../plot/scales.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { bar, setText } from "./elements.ts";

export function layerList(dispatch: Dispatch): Part {
  let shown: HTMLElement[] = [];
  let drawn: View | undefined;
  const filter = el("input", {
    type: "search",
    placeholder: "Filter layers",
    "aria-label": "Filter layers by name",
    input: () => dispatch({ type: "choose", choice: { filter: filter.value } }),
  });
  const hint = el("p", { class: "hint", hidden: true }, "No layer matches the filter.");
  const list = el("ul", { class: "layers", role: "listbox", tabindex: 0, "aria-label": "Layers, from input to output" });
  const root = el("div", { class: "legend" }, filter, hint, list);
  const choose = (address: string | null): void => dispatch({ type: "choose", choice: { address } });
  const hover = (address: string | null): void => dispatch({ type: "set", values: { hover: address } });
  const rowOf = (event: Event): HTMLElement | null => (event.target as Element).closest<HTMLElement>("li");

  list.addEventListener("click", (event) => {
    const address = rowOf(event)?.dataset.address;
    if (address !== undefined) choose(drawn?.state.choice.address === address ? null : address);
  });
  list.addEventListener("pointerover", (event) => hover(rowOf(event)?.dataset.address ?? null));
  list.addEventListener("pointerleave", () => hover(null));
  list.addEventListener("keydown", (event) => {
    const at = shown.findIndex((row) => row.dataset.address === drawn?.state.choice.address);
    const moves: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at < 0 ? 0 : at - 1, Home: 0, End: shown.length - 1 };
    const to = moves[event.key];
    if (event.key === "Escape") choose(null);
    else if (to === undefined) return;
    else choose(shown[Math.min(shown.length - 1, Math.max(0, to))]?.dataset.address ?? null);
    event.preventDefault();
  });

  function rebuild(view: View): void {
    const { series } = view.chart;
    const all = view.state.chart.series.length;
    shown = series.map((s, i) => row(s, i, view.colours.get(s.address) ?? ""));
    list.replaceChildren(...shown);
    list.classList.toggle("many", isMany(view.state.chart));
    filter.hidden = all < 12 && view.state.choice.filter === "";
    hint.hidden = series.length > 0 || all === 0;
    refresh(view);
  }

  function refresh(view: View): void {
    const { chart, state, focus } = view;
    const byName = new Map(chart.series.map((series) => [series.address, series]));
    let active = "";
    for (const element of shown) {
      const address = element.dataset.address as string;
      const picked = address === state.choice.address;
      element.setAttribute("aria-selected", String(picked));
      element.classList.toggle("focus", address === focus);
      if (picked) active = element.id;
      updateValue(element, byName.get(address), view);
    }
    if (active) list.setAttribute("aria-activedescendant", active);
    else list.removeAttribute("aria-activedescendant");
  }

  return {
    root,
    update(view: View): void {
      const same = drawn && drawn.colours === view.colours;
      const moved = drawn?.state.choice.address !== view.state.choice.address;
      drawn = view;
      if (document.activeElement !== filter) filter.value = view.state.choice.filter;
      if (same) refresh(view);
      else rebuild(view);
      if (moved) reveal(list, shown.find((row) => row.dataset.address === view.state.choice.address));
    },
  };
}

function row(series: Series, i: number, colour: string): HTMLElement {
  const swatch = el("span", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = colour;
  const name = el("span", { class: "address", title: addressLabel(series.address) }, el("bdi", {}, addressLabel(series.address)));
  const attributes = { role: "option", id: `intus-layer-${i}`, "data-address": series.address };
  return el("li", attributes, swatch, name, bar(0, colour), el("span", { class: "value" }));
}

function updateValue(element: HTMLElement, series: Series | undefined, { at, chart, center }: View): void {
  const { low, high } = reach(chart, center);
  const x = series?.value[at] ?? null;
  const note = series?.note[at] ?? null;
  const [, , level, text] = element.children as unknown as [Element, Element, Element, HTMLElement];
  const width = x === null ? 0 : share(strength(x, center), Math.min(0, low), high);
  (level.firstChild as HTMLElement).style.inlineSize = `${100 * width}%`;
  element.classList.toggle("nan", x === null && note !== null);
  element.classList.toggle("partial", x !== null && series?.part[at] === true);
  text.title = [note ?? "", series?.revision[at] ? `revision ${series.revision[at]}` : ""].filter(Boolean).join("; ");
  setText(text, x === null && note === null ? "–" : number(x));
}

/** Scroll the list, but not the page, until the row is visible. */
function reveal(list: HTMLElement, row: HTMLElement | undefined): void {
  if (!row) return;
  const top = row.offsetTop - list.offsetTop;
  if (top < list.scrollTop) list.scrollTop = top;
  else if (top + row.offsetHeight > list.scrollTop + list.clientHeight)
    list.scrollTop = top + row.offsetHeight - list.clientHeight;
}
