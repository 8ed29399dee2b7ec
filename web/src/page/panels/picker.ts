// Choices from lists: the browser's own list of a few options, and a field that searches many.
import { el } from "../../ui/dom.ts";
import { grouped } from "../../ui/format.ts";
import { partOf, setActive, setText } from "./elements.ts";
import { Rows } from "./rows.ts";

export interface Option {
  value: string;
  label: string;
}

/** Options under a heading; those of a group without a label are at the top level. */
export interface Group {
  label: string;
  options: Option[];
}

export const FEW = 20; // options; up to so many, there is no field to search
const PAGE = 10; // options that Page Up and Page Down pass over

let lists = 0; // for the ids of lists

/** Return whether all words are in a text. */
export function matches(text: string, words: string): boolean {
  const plain = text.toLowerCase();
  return words.toLowerCase().split(/\s+/).every((word) => plain.includes(word));
}

/** Return the options whose label matches the words, without empty groups. A word may also be in the heading. */
export function found(groups: Group[], words: string): Group[] {
  const kept = groups.map(({ label, options }) => ({ label, options: options.filter((one) => matches(`${label} ${one.label}`, words)) }));
  return kept.filter(({ options }) => options.length > 0);
}

/** One option of a list, with a label. The options are made only when what they depend on changes. */
export class Picker {
  readonly root = el("label", { class: "picker" });
  private readonly select: HTMLSelectElement;
  private readonly search: SearchField;
  private control: HTMLSelectElement | SearchField | undefined;
  private from: unknown[] | undefined;
  private built = "";

  constructor(label: string, name: string, onpick: (value: string) => void) {
    this.select = el("select", { name, "aria-label": label, change: () => onpick(this.select.value) });
    this.search = new SearchField(label, name, onpick);
    this.root.append(el("span", {}, label));
  }

  set disabled(disabled: boolean) {
    this.select.disabled = this.search.field.disabled = disabled;
  }

  /** Show a value. `groups` returns the options; it is called again if an object of `from` is another one. */
  update(value: string, from: unknown[], groups: () => Group[]): void {
    const { select, search } = this;
    if (!this.from || from.some((each, i) => each !== this.from?.[i])) {
      const all = groups();
      const signature = JSON.stringify(all);
      if (signature !== this.built) this.build(all);
      this.built = signature;
    }
    this.from = from;
    if (this.control === search) search.show([value]);
    else select.value = value;
  }

  private build(groups: Group[]): void {
    const many = groups.reduce((sum, { options }) => sum + options.length, 0) > FEW;
    const control = many ? this.search : this.select;
    if (many) this.search.options = groups;
    else
      this.select.replaceChildren(...groups.flatMap(({ label, options }) => {
        const items = options.map((option) => el("option", { value: option.value }, option.label));
        return label ? [el("optgroup", { label }, ...items)] : items;
      }));
    if (control === this.control) return;
    this.control = control;
    this.root.replaceChildren(this.root.firstElementChild as Element, many ? this.search.root : this.select);
  }
}

/** A field that searches a list of options, which is open while the field is used: a combobox of WAI-ARIA. With `several`, options
 * are switched on and off, and the list stays open. */
export class SearchField {
  readonly field: HTMLInputElement;
  readonly root: HTMLElement;
  private readonly list: HTMLElement;
  private readonly status = el("p", { class: "soft", role: "status" });
  private readonly popup: HTMLElement;
  private readonly rows: Rows;
  private groups: Group[] = [];
  private labels = new Map<string, string>();
  private lines: (Option | string)[] = []; // the options that are listed, and headings
  private chosen: string[] = [];
  private active = -1;
  private text = ""; // of the field when it is closed

  constructor(label: string, name: string, private readonly onpick: (value: string) => void, private readonly several = false) {
    const id = `intus-options-${++lists}`;
    this.list = el("ul", { id, role: "listbox", "aria-label": `${label}: options`, "aria-multiselectable": several && "true" });
    this.popup = el("div", { class: "choices", hidden: true }, this.status, this.list);
    const combobox = { type: "text", role: "combobox", name, autocomplete: "off", spellcheck: "false", "aria-label": label };
    this.field = el("input", { ...combobox, "aria-expanded": "false", "aria-controls": id, "aria-autocomplete": "list", class: "search" });
    this.root = el("span", { class: "searched" }, this.field, this.popup);
    this.rows = new Rows(this.list, (i) => this.row(i));
    this.field.addEventListener("click", () => this.popup.hidden && this.open(""));
    this.field.addEventListener("focus", () => this.field.select());
    this.field.addEventListener("input", () => this.open(this.field.value));
    this.field.addEventListener("keydown", (event) => this.pressed(event));
    this.field.addEventListener("blur", () => this.close());
    this.popup.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
    this.popup.addEventListener("click", (event) => {
      event.preventDefault(); // of the label around, which would open the list again
      const key = partOf(event)?.dataset.key;
      this.pick(this.lines.findIndex((line) => (line as Option).value === key));
    });
  }

  set options(groups: Group[]) {
    this.groups = groups;
    this.labels = new Map(groups.flatMap(({ options }) => options.map(({ value, label }) => [value, label])));
    this.field.size = this.several ? 12 : Math.min(32, Math.max(10, ...[...this.labels.values()].map(({ length }) => length)));
    if (!this.popup.hidden) this.fill();
  }

  /** Show the chosen values, and what the field says when it is closed; the label of the value by default. */
  show(chosen: string[], text?: string): void {
    const { field, rows } = this;
    const same = chosen.length === this.chosen.length && chosen.every((value, i) => value === this.chosen[i]);
    this.chosen = chosen;
    this.text = text ?? this.labels.get(chosen[0] ?? "") ?? "";
    if (this.popup.hidden && field.value !== this.text) field.value = field.title = this.text;
    if (!same) rows.each((row, i) => this.mark(row, i));
  }

  private open(words: string): void {
    const { field, list, popup } = this;
    const opened = popup.hidden;
    popup.hidden = false;
    field.setAttribute("aria-expanded", "true");
    if (opened) list.scrollTop = 0;
    this.fill(words);
    if (!opened) return;
    popup.style.marginInlineStart = "";
    const { right } = popup.getBoundingClientRect(); // with its options, which make it wide
    popup.style.marginInlineStart = `${Math.min(0, window.innerWidth - 12 - right)}px`;
  }

  private close(): void {
    const { field, popup } = this;
    popup.hidden = true;
    field.value = field.title = this.text;
    field.setAttribute("aria-expanded", "false");
    setActive(field, "");
    this.lines = [];
    this.rows.reset(0);
  }

  private fill(words = this.field.value === this.text ? "" : this.field.value): void {
    const { groups, status } = this;
    const wanted = words.trim().toLowerCase();
    const size = (some: Group[]): string => grouped(some.reduce((sum, { options }) => sum + options.length, 0));
    const shown = found(groups, wanted);
    setText(status, wanted ? `${size(shown)} of ${size(groups)} match` : `${size(groups)} in all; type to search`);
    this.lines = shown.flatMap(({ label, options }) => (label ? [label, ...options] : options));
    const first = (fits: (option: Option) => boolean): number => this.lines.findIndex((line) => typeof line !== "string" && fits(line));
    const best = wanted
      ? [first(({ label }) => label.toLowerCase() === wanted), first(({ label }) => label.toLowerCase().startsWith(wanted))]
      : [first(({ value }) => this.chosen.includes(value))];
    this.rows.reset(this.lines.length);
    this.move(best.find((at) => at >= 0) ?? 0, 1);
  }

  private row(i: number): HTMLElement {
    const line = this.lines[i] as Option | string;
    if (typeof line === "string") return el("li", { role: "presentation", class: "group" }, line);
    const row = el("li", { role: "option", id: `${this.list.id}-${i}`, "data-key": line.value, title: line.label }, line.label);
    this.mark(row, i);
    return row;
  }

  private mark(row: HTMLElement, i: number): void {
    const line = this.lines[i];
    if (line === undefined || typeof line === "string") return;
    row.setAttribute("aria-selected", String(this.chosen.includes(line.value)));
    row.classList.toggle("active", i === this.active);
  }

  /** Make the option at a line active, or the next one if there is a heading. */
  private move(to: number, by: number): void {
    const last = this.lines.length - 1;
    let at = Math.min(last, Math.max(0, to));
    if (typeof this.lines[at] === "string") at += by < 0 && at > 0 ? -1 : 1;
    this.active = this.lines[at] === undefined ? -1 : at;
    this.rows.reveal(this.active);
    this.rows.each((row, i) => this.mark(row, i));
    setActive(this.field, this.rows.row(this.active)?.id);
  }

  private pick(i: number): void {
    const line = this.lines[i];
    if (line === undefined || typeof line === "string") return;
    if (this.several) this.move(i, 1);
    else {
      this.text = line.label;
      this.close();
    }
    this.onpick(line.value);
  }

  private pressed(event: KeyboardEvent): void {
    const closed = this.popup.hidden;
    const steps: Record<string, number> = { ArrowDown: 1, ArrowUp: -1, PageDown: PAGE, PageUp: -PAGE };
    const by = steps[event.key];
    if (by !== undefined) closed ? this.open("") : this.move(this.active + by, by);
    else if (closed || !["Enter", "Escape"].includes(event.key)) return;
    else if (event.key === "Enter") this.pick(this.active);
    else this.close();
    event.preventDefault();
    event.stopPropagation();
  }
}
