// What the servers want a person to know: warnings stand here in full, not only in a log.

import type { Notice } from "../server/api.ts";
import * as format from "../../ui/format.ts";
import { h, setText } from "./elements.ts";
import type { Part, View } from "../state/view.ts";

const SIGNS: Record<string, string> = { error: "!", warning: "!", info: "i" };

/** The newest warning or error, in a line above everything: what was lost is as plain as what was scored. */
export function strip(): Part {
  const text = h("span", { class: "strip-text" });
  const show = (): void => document.querySelector(".panel.notices")?.scrollIntoView({ behavior: "smooth", block: "center" });
  const more = h("button", { type: "button", class: "toggle", click: show });
  const root = h("p", { class: "strip", hidden: true }, h("span", { class: "sign", "aria-hidden": "true" }, "!"), text, more);
  return {
    root,
    update({ state, run }: View): void {
      const [first, ...others] = run ? ofRun(state.notices, state.choice.run).filter(isTrouble) : [];
      root.hidden = first === undefined;
      root.classList.toggle("error", first?.level === "error");
      root.classList.toggle("warning", first?.level === "warning");
      setText(text, first?.text ?? "");
      text.title = first?.text ?? "";
      setText(more, others.length ? `and ${others.length} more` : "Notices");
    },
  };
}

/** What concerns a run: its own notices and those of none. */
function ofRun(notices: Notice[], run: string): Notice[] {
  return notices.filter((notice) => !notice.run || notice.run === run);
}

function isTrouble({ level }: Notice): boolean {
  return level !== "info";
}

export function notices(): Part {
  let drawn: Notice[] | undefined;
  let shownRun = "";
  const badge = h("span", { class: "badge" });
  const list = h("ul", { class: "notice-list", "aria-live": "polite" });
  const head = h("div", { class: "head" }, h("h2", {}, "Notices"), badge);
  const root = h("section", { class: "panel notices", "aria-label": "Notices" }, head, list);
  return {
    root,
    update({ state }: View): void {
      const run = `${state.choice.run}\n${state.choice.model}`;
      if (drawn === state.notices && shownRun === run) return;
      drawn = state.notices;
      shownRun = run;
      const ours = ofRun(drawn, state.choice.run);
      const troubles = ours.filter(isTrouble).length;
      setText(badge, troubles ? String(troubles) : "");
      badge.hidden = troubles === 0;
      badge.title = `${troubles} warnings or errors`;
      const rows = ours.map((notice) => item(notice, state.choice.run, Date.now() / 1000));
      const others = drawn.length - ours.length;
      if (!rows.length) rows.push(h("li", { class: "calm" }, "Nothing to report."));
      if (others) rows.push(h("li", { class: "calm" }, `${others} more of other runs.`));
      list.replaceChildren(...rows);
    },
  };
}

function item(notice: Notice, current: string, now: number): HTMLElement {
  const where = [notice.run === current ? "" : notice.run, notice.model].filter(Boolean).join(" · ");
  const about = [where, notice.code, format.ago(now - notice.time), notice.count > 1 ? `${format.count(notice.count)} times` : ""];
  const level = SIGNS[notice.level] ? notice.level : "info";
  return h(
    "li",
    { class: level },
    h("span", { class: "sign", role: "img", "aria-label": level }, SIGNS[level] ?? "i"),
    h("div", {}, h("p", {}, notice.text), h("p", { class: "soft" }, about.filter(Boolean).join(" · "))),
  );
}
