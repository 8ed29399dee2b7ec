// The outline: the visible boxes as a tree in the DOM, for keyboards and screen readers. It opens and closes with the
// picture. Only rows on the screen are in the DOM, so that a hundred thousand rows cost nothing.
import { el } from "../../ui/dom.ts";
import type { LayoutView } from "../layout/layoutView.ts";
import type { VisibleLayout } from "../layout/visibleLayout.ts";
import { captions } from "../model/captions.ts";
import type { TreeNode } from "../model/tree.ts";

const ROW = 26;

export interface OutlineActions {
  select(id: number): void;
  toggle(id: number): void;
}

/** The outline. */
export class Outline {
  readonly element: HTMLElement;
  private readonly list: HTMLElement;
  private readonly spacer: HTMLElement;
  private active = 0;
  private rows = new Map<string, HTMLElement>();
  private readonly prefix = `ig${Math.random().toString(36).slice(2, 8)}`;

  constructor(
    private readonly now: () => { layoutView: LayoutView; visible: VisibleLayout },
    private readonly actions: OutlineActions,
  ) {
    this.spacer = el("div", { class: "ig-rows", role: "presentation" });
    this.list = el(
      "div",
      { class: "ig-tree", role: "tree", tabindex: 0, "aria-label": "Outline of the model", keydown: (e: KeyboardEvent) => this.key(e) },
      this.spacer,
    );
    this.list.addEventListener("scroll", () => this.render());
    this.element = el("nav", { class: "ig-outline", "aria-label": "Outline" }, this.list);
    new ResizeObserver(() => this.list.clientHeight !== this.height && this.render()).observe(this.list);
  }

  private get layoutView(): LayoutView {
    return this.now().layoutView;
  }

  private get visible(): VisibleLayout {
    return this.now().visible;
  }

  /** Whether it is shown. Until the reader toggles it, the style sheet decides by the available width. */
  get shown(): boolean {
    return this.element.getClientRects().length > 0;
  }

  /** Update the rows after boxes were opened or closed, and scroll to the selected one. */
  update(selected: number): void {
    const at = this.visible.rowOf(selected);
    if (at >= 0) this.active = at;
    this.active = Math.min(this.active, Math.max(0, this.visible.count - 1));
    this.spacer.style.height = `${this.visible.count * ROW}px`;
    if (at >= 0) this.scrollTo(at);
    this.render(selected);
  }

  private selected = -1;
  private height = 0; // at the last rendering

  private render(selected = this.selected): void {
    this.selected = selected;
    const { scrollTop, clientHeight } = this.list;
    this.height = clientHeight;
    const first = Math.max(0, Math.floor(scrollTop / ROW) - 4);
    const last = Math.min(this.visible.count, Math.ceil((scrollTop + clientHeight) / ROW) + 4);
    const rows = new Map<string, HTMLElement>();
    for (let i = first; i < last; i++) {
      const row = this.row(i);
      const html = row.outerHTML;
      rows.set(html, this.rows.get(html) ?? row);
    }
    this.put(rows);
    if (this.visible.count && this.active >= first && this.active < last)
      this.list.setAttribute("aria-activedescendant", `${this.prefix}-${this.visible.atRow(this.active)}`);
    else this.list.removeAttribute("aria-activedescendant");
  }

  /** Put rows, by their HTML, into the DOM. Unchanged rows keep their elements, because the browser sends no click if the
   * element is replaced between pressing and releasing the button. */
  private put(rows: Map<string, HTMLElement>): void {
    for (const [key, row] of this.rows) if (!rows.has(key)) row.remove();
    let next = this.spacer.firstChild;
    for (const row of rows.values()) {
      if (row === next) next = next.nextSibling;
      else this.spacer.insertBefore(row, next);
    }
    this.rows = rows;
  }

  private node(index: number): TreeNode {
    return this.layoutView.tree.nodes[this.visible.atRow(index)];
  }

  private row(index: number): HTMLElement {
    const node = this.node(index);
    const siblings = this.layoutView.shown(node.parent);
    const container = node.children.length > 0;
    const open = this.layoutView.open.has(node.id);
    const [title, subtitle] = captions(node, this.layoutView.figures);
    const item = el(
      "div",
      {
        id: `${this.prefix}-${node.id}`,
        role: "treeitem",
        class: `ig-row${index === this.active ? " ig-active" : ""} ig-${node.kind}${node.hasParams ? " ig-params" : ""}`,
        "aria-level": node.depth,
        "aria-posinset": this.visible.placeOf(node.id) + 1,
        "aria-setsize": siblings.length,
        "aria-selected": String(node.id === this.selected),
        "data-address": node.address,
        click: () => {
          this.active = index;
          this.actions.select(node.id);
        },
        dblclick: () => this.actions.toggle(node.id),
      },
      el("span", {
        class: container ? "ig-twist" : "ig-dot",
        "aria-hidden": "true",
        click: (event: MouseEvent) => {
          if (!container) return;
          event.stopPropagation();
          this.actions.toggle(node.id);
        },
      }),
      el("span", { class: "ig-name" }, title),
      subtitle && el("span", { class: "ig-what" }, subtitle),
    );
    if (container) item.setAttribute("aria-expanded", String(open));
    item.style.top = `${index * ROW}px`;
    item.style.paddingLeft = `${8 + (node.depth - 1) * 14}px`;
    return item;
  }

  private scrollTo(index: number): void {
    const top = index * ROW;
    const { scrollTop, clientHeight } = this.list;
    if (clientHeight === 0) return;
    if (top < scrollTop) this.list.scrollTop = top;
    else if (top + ROW > scrollTop + clientHeight) this.list.scrollTop = top + ROW - clientHeight;
  }

  private key(event: KeyboardEvent): void {
    if (!this.visible.count) return;
    const node = this.node(this.active);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const container = node.children.length > 0;
    const open = this.layoutView.open.has(node.id);
    const page = Math.max(1, Math.floor(this.list.clientHeight / ROW) - 1);
    const to = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }[event.key];
    if (to !== undefined) this.go(this.active + to);
    else if (event.key === "Enter" || event.key === " ") container ? this.actions.toggle(node.id) : this.actions.select(node.id);
    else if (event.key === "ArrowRight" && container) open ? this.go(this.active + 1) : this.actions.toggle(node.id);
    else if (event.key === "ArrowLeft" && container && open) this.actions.toggle(node.id);
    else if (event.key === "ArrowLeft" && node.depth > 1) this.go(this.visible.rowOf(node.parent));
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private go(index: number): void {
    this.active = Math.min(this.visible.count - 1, Math.max(0, index));
    this.scrollTo(this.active);
    this.actions.select(this.visible.atRow(this.active));
  }
}
