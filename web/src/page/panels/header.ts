// The header: the run, the runs to compare with, counts, the state of the connection and the theme.
import { el } from "../../ui/dom.ts";
import { icon, THEME } from "../../ui/icons.ts";
import { runKey, runLabel, runOfKey } from "../model/comparedRuns.ts";
import { headerCounts } from "../model/headerCounts.ts";
import { switchTheme } from "../state/savedTheme.ts";
import type { Run } from "../server/api.ts";
import type { Link } from "../state/state.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { setText } from "./elements.ts";
import { FEW, type Group, type Option, Picker, SearchField } from "./picker.ts";

const LINKS: Record<Link, string> = { connecting: "Connecting", live: "Live", lost: "Reconnecting" };

export function header(dispatch: Dispatch): Part {
  const pick = (value: string): void => {
    dispatch({ type: "choose", choice: { ...runOfKey(value), address: null, epoch: null } });
  };
  const runs = new Picker("Run", "run", pick);
  const compare = comparisons(dispatch);
  const counts = el("ul", { class: "counts", "aria-label": "Counts of this run" });
  const link = el("span", { class: "link", role: "status" });
  const theme = el(
    "button",
    {
      class: "quiet",
      type: "button",
      title: "Switch between light and dark",
      click: switchTheme,
    },
    icon(THEME),
  );
  const name = el("span", { class: "name" }, el("span", { class: "mark", "aria-hidden": "true" }), "intus");
  const root = el("header", {}, el("h1", {}, name), runs.root, compare.root, el("span", { class: "spring" }), counts, link, theme);

  return {
    root,
    update(view: View): void {
      const { state, run } = view;
      runs.root.hidden = state.runs.length === 0;
      runs.update(run ? runKey(run) : "", [state.runs], () => [optionsOf(state.runs)]);
      compare.update(view);
      link.dataset.link = state.link;
      setText(link, LINKS[state.link]);
      updateCounts(counts, run ? headerCounts(run, state.status, state.chart.missing) : []);
    },
  };
}

function optionsOf(runs: Run[]): Group {
  return { label: "", options: runs.map((run) => ({ value: runKey(run), label: runLabel(run) })) };
}

/** The list of runs to compare with: check boxes, or a field that searches many runs. */
function comparisons(dispatch: Dispatch): Part {
  let [chosen, from, now]: [string[], Run[] | undefined, Run | undefined] = [[], undefined, undefined];
  const flip = (key: string): void => {
    const others = chosen.filter((k) => k !== key);
    chosen = others.length < chosen.length ? others : [...others, key]; // at once: the next key may come before the next update
    dispatch({ type: "choose", choice: { against: chosen } });
  };
  const list = el("div", { class: "choices", role: "group", "aria-label": "Runs to compare with" });
  const label = el("summary", { class: "toggle" }, "Compare");
  const boxes = el("details", { class: "compare" }, label, list);
  const search = new SearchField("Runs to compare with", "compare", flip, true);
  const root = el("div", {}, boxes, search.root);
  const box = ({ value, label }: Option): HTMLElement => el("label", { "data-key": value }, el("input", { type: "checkbox", value, change: () => flip(value) }), label);
  document.addEventListener("pointerdown", (event) => {
    if (!boxes.contains(event.target as Node)) boxes.open = false;
  });
  boxes.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    boxes.open = false;
    label.focus();
  });
  return {
    root,
    update({ state, run }: View): void {
      chosen = state.choice.against;
      if (from !== state.runs || now !== run) {
        const others = optionsOf(state.runs.filter((r) => r !== run));
        const { length } = others.options;
        root.hidden = length === 0;
        boxes.hidden = length > FEW;
        search.root.hidden = !boxes.hidden;
        if (boxes.hidden) search.options = [others];
        const shown = boxes.hidden ? [] : others.options;
        if (JSON.stringify(shown) !== list.dataset.built) list.replaceChildren(...shown.map(box));
        list.dataset.built = JSON.stringify(shown);
      }
      [from, now] = [state.runs, run];
      const text = chosen.length ? `Compare: ${chosen.length}` : "Compare";
      for (const input of list.querySelectorAll("input")) input.checked = chosen.includes(input.value);
      setText(label, text);
      search.field.placeholder = text;
      search.show(chosen, "");
    },
  };
}

function updateCounts(list: HTMLElement, entries: ReturnType<typeof headerCounts>): void {
  if (list.children.length !== entries.length)
    list.replaceChildren(...entries.map(() => el("li", {}, el("b", {}), el("span", {}))));
  entries.forEach(({ key, label, text, none, bad, title }, i) => {
    const item = list.children[i] as HTMLElement;
    item.dataset.key = key;
    item.title = title;
    item.classList.toggle("bad", bad);
    item.classList.toggle("none", none);
    setText(item.children[0] as Element, text);
    setText(item.children[1] as Element, label);
  });
}
