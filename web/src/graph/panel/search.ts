// Search for a box by name, type, shape or address.
import { el } from "../../ui/dom.ts";
import { icon, SEARCH } from "../../ui/icons.ts";
import type { Tree, TreeNode } from "../model/tree.ts";

const MOST = 40;

/** Finds boxes that match every word, best first: an address equal to the first word, one that starts with it, one that contains it. */
export class SearchIndex {
  private tree: Tree | null = null;
  private text: string[] | null = null;

  /** Set the tree to search. */
  of(tree: Tree): void {
    this.tree = tree;
    this.text = null;
  }

  find(query: string, most = MOST): TreeNode[] {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    const { tree } = this;
    if (!words.length || !tree) return [];
    this.text ??= tree.nodes.map((node) => `${node.names.join(" ")} ${node.title} ${node.subtitle} ${tree.nodes[node.parent]?.address ?? ""} ${shapes(tree, node)}`.toLowerCase());
    const ranked: { node: TreeNode; rank: number }[] = [];
    for (const node of tree.nodes) {
      if (node.id === 0 || !words.every((word) => this.text![node.id].includes(word))) continue;
      const address = node.address.toLowerCase();
      const rank = address === words[0] ? 0 : address.startsWith(words[0]) ? 1 : address.includes(words[0]) ? 2 : 3;
      ranked.push({ node, rank });
    }
    ranked.sort((a, b) => a.rank - b.rank || a.node.depth - b.node.depth || a.node.order - b.node.order);
    return ranked.slice(0, most).map(({ node }) => node);
  }
}

/** Return the shapes of a box's tensors in common notations. */
function shapes({ scene }: Tree, { rows }: TreeNode): string {
  return rows.map((row) => scene.metas[scene.ops.meta[row]][0]).map((shape) => `${shape.join("×")} ${shape.join("x")} ${shape.join(",")} [${shape.join(",")}]`).join(" ");
}

export interface SearchField {
  element: HTMLElement;
  /** Set the text. Results appear when the field gets the focus. */
  write(text: string): void;
}

/** Return the search field with its list of results (ARIA combobox); `onText` is called with what is typed. */
export function searchField(index: SearchIndex, goTo: (id: number) => void, onText: (text: string) => void): SearchField {
  const listId = `igs${Math.random().toString(36).slice(2, 8)}`;
  const list = el("ul", { class: "ig-found", role: "listbox", id: listId, "aria-label": "Search results", hidden: true });
  const input = el("input", {
    ...{ type: "search", placeholder: "Find name, type, shape", "aria-label": "Find in the graph", spellcheck: "false" },
    ...{ role: "combobox", "aria-expanded": "false", "aria-controls": listId, "aria-autocomplete": "list", autocomplete: "off" },
  });
  let found: TreeNode[] = [];
  let active = 0;
  const mark = (): void => {
    [...list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === active)));
    if (found.length) {
      input.setAttribute("aria-activedescendant", `${listId}-${active}`);
      list.children[active]?.scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  };
  const show = (): void => {
    found = index.find(input.value);
    active = 0;
    const items = found.map((node, i) =>
      el(
        "li",
        { id: `${listId}-${i}`, role: "option", pointerdown: (e: Event) => (e.preventDefault(), choose(i)) },
        el("span", { class: "ig-name" }, node.address || node.title),
        el("span", { class: "ig-what" }, node.subtitle || node.title),
      ),
    );
    const none = input.value.trim() && !items.length ? el("li", { class: "ig-none", role: "option", "aria-disabled": "true" }, "Nothing found") : null;
    list.replaceChildren(...items, ...(none ? [none] : []));
    list.hidden = list.children.length === 0;
    input.setAttribute("aria-expanded", String(!list.hidden));
    mark();
  };
  const hide = (): void => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const write = (text: string): void => {
    input.value = text;
    hide();
  };
  const choose = (i: number): void => {
    if (found[i]) goTo(found[i].id);
    hide();
  };
  input.addEventListener("input", () => {
    show();
    onText(input.value);
  });
  input.addEventListener("focus", () => input.value && show());
  input.addEventListener("blur", hide);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      active = (active + (event.key === "ArrowDown" ? 1 : -1) + found.length) % Math.max(1, found.length);
      mark();
    } else if (event.key === "Enter") choose(active);
    else if (event.key === "Escape") {
      write("");
      onText("");
      input.blur();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return { element: el("div", { class: "ig-search" }, icon(SEARCH), input, list), write };
}
