// The top of the page: name, which run, is it live, what was lost, light or dark.

import { count } from "./format.ts";
import { h, icon, ICONS, Picker, setText } from "./dom.ts";
import type { Link } from "./state.ts";
import { tally } from "./tally.ts";
import { toggleTheme } from "./theme.ts";
import type { Dispatch, Part, View } from "./view.ts";

const LINKS: Record<Link, string> = { connecting: "Connecting", live: "Live", lost: "Reconnecting" };

export function header(dispatch: Dispatch): Part {
  const pick = (value: string): void => {
    const [run, model] = JSON.parse(value) as [string, string];
    dispatch({ type: "choose", choice: { run, model, address: null, epoch: null } });
  };
  const runs = new Picker("Run", "run", pick);
  const counts = h("ul", { class: "counts", "aria-label": "What became of what was sent" });
  const link = h("span", { class: "link", role: "status" });
  const theme = h(
    "button",
    {
      class: "quiet",
      type: "button",
      "aria-label": "Switch between light and dark",
      title: "Switch between light and dark",
      onclick: toggleTheme,
    },
    icon(ICONS.theme),
  );
  const name = h("span", { class: "name" }, h("span", { class: "mark", "aria-hidden": "true" }), "intus");
  const root = h("header", {}, h("h1", {}, name), runs.root, h("span", { class: "spring" }), counts, link, theme);

  return {
    root,
    update({ state, run, chart }: View): void {
      const options = state.runs.map((r) => ({
        value: JSON.stringify([r.run, r.model]),
        label: r.model === r.run || !r.model ? r.run : `${r.run} · ${r.model}`,
      }));
      runs.root.hidden = options.length === 0;
      runs.update([{ label: "", options }], run ? JSON.stringify([run.run, run.model]) : "");
      link.dataset.link = state.link;
      setText(link, LINKS[state.link]);
      updateCounts(counts, tally(state.status, chart.missing));
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
