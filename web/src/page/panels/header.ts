// The header: the run, the runs to compare with, counts, the state of the connection and the theme.
import { el } from "../../ui/dom.ts";
import { icon, THEME } from "../../ui/icons.ts";
import { runKey, runLabel, runOfKey } from "../model/comparedRuns.ts";
import { headerCounts } from "../model/headerCounts.ts";
import { switchTheme } from "../state/savedTheme.ts";
import type { Link } from "../state/state.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { Picker, setText } from "./elements.ts";

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
      "aria-label": "Switch between light and dark",
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
      const options = state.runs.map((r) => ({ value: runKey(r), label: runLabel(r) }));
      runs.root.hidden = options.length === 0;
      runs.update([{ label: "", options }], run ? runKey(run) : "");
      compare.update(view);
      link.dataset.link = state.link;
      setText(link, LINKS[state.link]);
      updateCounts(counts, run ? headerCounts(run, state.status, state.chart.missing) : []);
    },
  };
}

/** The list of runs to compare with. */
function comparisons(dispatch: Dispatch): Part {
  let built = "";
  let chosen: string[] = [];
  const list = el("div", { class: "choices", role: "group", "aria-label": "Runs to compare with" });
  const label = el("summary", { class: "toggle" }, "Compare");
  const root = el("details", { class: "compare" }, label, list);
  const flip = (key: string, on: boolean): void => {
    const others = chosen.filter((k) => k !== key);
    dispatch({ type: "choose", choice: { against: on ? [...others, key] : others } });
  };
  const box = (key: string, name: string): HTMLElement => {
    const input = el("input", { type: "checkbox", value: key, change: () => flip(key, input.checked) });
    return el("label", {}, input, name);
  };
  document.addEventListener("pointerdown", (event) => {
    if (!root.contains(event.target as Node)) root.open = false;
  });
  root.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    root.open = false;
    label.focus();
  });
  return {
    root,
    update({ state, run }: View): void {
      const others = state.runs.filter((r) => r !== run);
      chosen = state.choice.against;
      root.hidden = others.length === 0;
      const signature = JSON.stringify(others.map(runKey));
      if (signature !== built) list.replaceChildren(...others.map((r) => box(runKey(r), runLabel(r))));
      built = signature;
      for (const input of list.querySelectorAll("input")) input.checked = chosen.includes(input.value);
      setText(label, chosen.length ? `Compare: ${chosen.length}` : "Compare");
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
