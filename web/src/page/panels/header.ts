// The top of the page: name, which run, is it live, what was lost, light or dark.

import { count } from "../../ui/format.ts";
import { h, icon, ICONS, Picker, setText } from "./elements.ts";
import { type Link, runKey, runLabel } from "../state/state.ts";
import { tally } from "../model/runCounts.ts";
import { toggleTheme } from "../state/savedTheme.ts";
import type { Dispatch, Part, View } from "../state/view.ts";

const LINKS: Record<Link, string> = { connecting: "Connecting", live: "Live", lost: "Reconnecting" };

export function header(dispatch: Dispatch): Part {
  const pick = (value: string): void => {
    const [run, model] = JSON.parse(value) as [string, string];
    dispatch({ type: "choose", choice: { run, model, address: null, epoch: null } });
  };
  const runs = new Picker("Run", "run", pick);
  const compare = comparer(dispatch);
  const counts = h("ul", { class: "counts", "aria-label": "What became of what was sent" });
  const link = h("span", { class: "link", role: "status" });
  const theme = h(
    "button",
    {
      class: "quiet",
      type: "button",
      "aria-label": "Switch between light and dark",
      title: "Switch between light and dark",
      click: toggleTheme,
    },
    icon(ICONS.theme),
  );
  const name = h("span", { class: "name" }, h("span", { class: "mark", "aria-hidden": "true" }), "intus");
  const root = h("header", {}, h("h1", {}, name), runs.root, compare.root, h("span", { class: "spring" }), counts, link, theme);

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
      updateCounts(counts, run ? tally(run, state.status, state.chart.missing) : []);
    },
  };
}

/** Which other runs are drawn beside the one on show. */
function comparer(dispatch: Dispatch): Part {
  let built = "";
  let chosen: string[] = [];
  const list = h("div", { class: "choices", role: "group", "aria-label": "Runs to compare with" });
  const label = h("summary", { class: "toggle" }, "Compare");
  const root = h("details", { class: "compare" }, label, list);
  const flip = (key: string, on: boolean): void => {
    const others = chosen.filter((k) => k !== key);
    dispatch({ type: "choose", choice: { against: on ? [...others, key] : others } });
  };
  const box = (key: string, name: string): HTMLElement => {
    const input = h("input", { type: "checkbox", value: key, change: () => flip(key, input.checked) });
    return h("label", {}, input, name);
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

function updateCounts(list: HTMLElement, entries: ReturnType<typeof tally>): void {
  if (list.children.length !== entries.length)
    list.replaceChildren(...entries.map(({ title }) => h("li", { title }, h("b", {}), h("span", {}))));
  entries.forEach(({ key, label, value, bad }, i) => {
    const item = list.children[i] as HTMLElement;
    item.dataset.key = key;
    item.classList.toggle("bad", bad && value > 0);
    item.classList.toggle("none", value === 0);
    setText(item.children[0] as Element, count(value));
    setText(item.children[1] as Element, label);
  });
}
