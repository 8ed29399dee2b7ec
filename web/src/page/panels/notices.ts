// The notices of the servers: warnings and errors in full, which otherwise only appear in a log.
import { el } from "../../ui/dom.ts";
import { ago, grouped } from "../../ui/format.ts";
import type { Notice } from "../server/api.ts";
import type { Part, View } from "../state/view.ts";
import { line, setText } from "./elements.ts";

const SIGNS: Record<string, string> = { error: "!", warning: "!", info: "i" };

/** The newest warning or error, in a line at the top of the page. */
export function noticeStrip(): Part {
  const text = el("span", { class: "strip-text" });
  const show = (): void => document.querySelector(".panel.notices")?.scrollIntoView({ behavior: "smooth", block: "center" });
  const more = el("button", { type: "button", class: "toggle", click: show });
  const root = el("p", { class: "strip", hidden: true }, el("span", { class: "sign", "aria-hidden": "true" }, "!"), text, more);
  return {
    root,
    update({ state, run }: View): void {
      const [first, ...others] = run ? ofRun(state.notices, state.choice.run).filter(isProblem) : [];
      root.hidden = first === undefined;
      root.classList.toggle("error", first?.level === "error");
      root.classList.toggle("warning", first?.level === "warning");
      setText(text, first?.text ?? "");
      text.title = text.textContent;
      setText(more, others.length ? `and ${others.length} more` : "Notices");
    },
  };
}

/** Return the notices of a run, then those that belong to no run. */
function ofRun(notices: Notice[], run: string): Notice[] {
  return notices.filter((notice) => !notice.run || notice.run === run).sort((a, b) => +!a.run - +!b.run);
}

function isProblem({ level }: Notice): boolean {
  return level !== "info";
}

export function notices(): Part {
  let drawn: Notice[] | undefined;
  let drawnRun = "";
  const badge = el("span", { class: "badge" });
  const list = el("ul", { class: "notice-list", "aria-live": "polite" });
  const head = el("div", { class: "head" }, el("h2", {}, "Notices"), badge);
  const root = el("section", { class: "panel notices", "aria-label": "Notices" }, head, list);
  return {
    root,
    update({ state }: View): void {
      const run = `${state.choice.run}\n${state.choice.model}`;
      if (drawn === state.notices && drawnRun === run) return;
      drawn = state.notices;
      drawnRun = run;
      const shown = ofRun(drawn, state.choice.run);
      const problems = shown.filter(isProblem).length;
      setText(badge, problems ? String(problems) : "");
      badge.hidden = problems === 0;
      badge.title = `Warnings and errors: ${problems}`;
      const rows = shown.map((notice) => item(notice, Date.now() / 1000));
      const others = drawn.length - shown.length;
      if (!rows.length) rows.push(el("li", { class: "calm" }, "No notices."));
      if (others) rows.push(el("li", { class: "calm" }, `${others} more from other runs.`));
      list.replaceChildren(...rows);
    },
  };
}

function item(notice: Notice, now: number): HTMLElement {
  const about = [notice.model, notice.code, ago(now - notice.time), notice.count > 1 ? `${grouped(notice.count)} times` : ""];
  const level = SIGNS[notice.level] ? notice.level : "info";
  return el(
    "li",
    { class: level },
    el("span", { class: "sign", role: "img", "aria-label": level }, SIGNS[level] ?? "i"),
    el("div", {}, el("p", {}, line(notice.text)), el("p", { class: "soft" }, line(about.filter(Boolean).join(" · ")))),
  );
}
