// The facts of the selected box: what it is, what goes in and out, what it holds, what it cost, where it is written.
import { el, iconButton } from "./dom.ts";
import { bytes, count, dimensions, duration, plural, product, type Figures } from "./facts.ts";
import { formatValue, isPaintable, valueOf, type Paint } from "./paint.ts";
import type { Tree, TreeNode } from "./model.ts";
import { CREATED, FAILED, INPLACE } from "./scene.ts";

export interface PanelActions {
  goTo(id: number): void;
  close(): void;
}

const SHOWN = 12; // links and parameters listed before "and n more"

export function panelFor(tree: Tree, figures: Figures, id: number, paint: Paint | null, actions: PanelActions): HTMLElement {
  const node = tree.nodes[id];
  const { scene } = tree;
  const title = node.address || node.title;
  const parts = [
    el("header", {}, el("h2", { title }, title), iconButton("close", "Close the facts", actions.close)),
    el("p", { class: "ig-kind" }, kindOf(tree, node)),
    flagsOf(node),
    paint && isPaintable(node) ? paintedValue(paint, node) : null,
    facts([
      ["Arguments", node.call >= 0 ? scene.modules[scene.calls.module[node.call]][2] : ""],
      ["Called with", calledWith(tree, node)],
      ["Also called", node.names.slice(1, 5).join(", ")],
      ["Operations", node.children.length ? count(figures.operations[id]) : ""],
      ["Time", figures.time[id] ? duration(figures.time[id]) : ""],
      ["FLOPs", figures.flops[id] ? count(figures.flops[id]) : ""],
      ["Tensors made", figures.memory[id] ? bytes(figures.memory[id]) : ""],
      ["Written at", sourceOf(tree, node)],
    ]),
    ...borders(tree, node, actions),
    parameters(tree, node, figures),
    buffers(tree, node),
  ];
  return el("aside", { class: "ig-panel", "aria-label": `Facts of ${title}` }, ...parts);
}

/** What an operation was given besides tensors; of a module, what its only operation was. */
function calledWith({ scene }: Tree, node: TreeNode): string {
  return node.rows.length ? scene.settings[scene.ops.setting[node.rows[0]]] ?? "" : "";
}

function kindOf({ scene }: Tree, node: TreeNode): string {
  if (node.kind === "module") {
    const call = scene.calls.passno[node.call];
    return `Module · ${node.subtitle}${call > 1 ? ` · call ${call}` : ""}`;
  }
  if (node.kind === "group") return `${plural(node.children.length, "member")} · ${node.subtitle}`;
  const names = { op: `Operation · ${node.title}`, input: "Input", output: "Output", buffer: "Buffer", root: "Model" };
  return names[node.kind];
}

function flagsOf(node: TreeNode): HTMLElement | null {
  const flags = [
    [FAILED, "failed here"],
    [INPLACE, "in place"],
    [CREATED, "made from nothing"],
  ] as const;
  const words = flags.filter(([bit]) => node.flags & bit).map(([bit, word]) => el("li", { class: bit === FAILED ? "ig-bad" : "" }, word));
  return words.length ? el("ul", { class: "ig-flags" }, ...words) : null;
}

function paintedValue(paint: Paint, node: TreeNode): HTMLElement {
  const value = valueOf(paint, node);
  return el(
    "p",
    { class: "ig-value" },
    el("span", {}, paint.title),
    el("strong", {}, value === null ? "no value" : formatValue(paint, value)),
  );
}

function facts(rows: [string, string][]): HTMLElement {
  const list = el("dl", {});
  for (const [name, value] of rows) if (value) list.append(el("dt", {}, name), el("dd", {}, value));
  return list;
}

function sourceOf({ scene }: Tree, node: TreeNode): string {
  const site = node.rows.length ? scene.ops.site[node.rows[0]] : -1;
  if (site < 0) return "";
  const [file, line, fn] = scene.sites[site];
  return line ? `${file}:${line}${fn ? ` in ${fn}` : ""}` : "";
}

interface End {
  row: number;
  box: number;
  arg: string;
}

/** The tensors that come into a box and that leave it, and who is at the other end. */
function borders(tree: Tree, node: TreeNode, actions: PanelActions): (HTMLElement | null)[] {
  const { scene, nodes, boxOf } = tree;
  const inside = (box: number): boolean => {
    let n = box;
    while (n >= 0 && nodes[n].depth > node.depth) n = nodes[n].parent;
    return n === node.id;
  };
  const into: End[] = [];
  const readers = new Map<number, number[]>();
  const { src, dst, arg } = scene.edges;
  for (let raw = 0; raw < src.length; raw++) {
    const [a, b] = [boxOf[src[raw]], boxOf[dst[raw]]];
    if (a < 0 || b < 0 || a === b) continue;
    const [from, to] = [inside(a), inside(b)];
    if (!from && to) into.push({ row: src[raw], box: a, arg: scene.args[arg[raw]] });
    else if (from && !to) readers.get(src[raw])?.push(b) ?? readers.set(src[raw], [b]);
  }
  const out = [...readers.keys()];
  for (const row of node.rows) if (!readers.has(row) && node.kind !== "output" && !(scene.ops.flags[row] & FAILED)) out.push(row);
  const uniqueInto = node.children.length ? [...new Map(into.map((end) => [end.row, { ...end, arg: "" }])).values()] : into;
  return [
    section("In", uniqueInto.map((end) => tensor(tree, end.row, end.arg, [end.box], actions))),
    section("Out", out.sort((a, b) => a - b).map((row) => tensor(tree, row, "", [...new Set(readers.get(row) ?? [])], actions))),
  ];
}

function tensor({ scene, nodes }: Tree, row: number, arg: string, boxes: number[], actions: PanelActions): HTMLElement {
  const [shape, dtype, device, nbytes] = scene.metas[scene.ops.meta[row]];
  const links = boxes.slice(0, 4).map((box) =>
    el("button", { type: "button", class: "ig-link", click: () => actions.goTo(box) }, nodes[box].address || nodes[box].title),
  );
  return el(
    "li",
    {},
    el("span", { class: "ig-shape" }, arg && el("i", {}, arg), dimensions(shape)),
    el("span", { class: "ig-soft" }, `${dtype} · ${bytes(nbytes)}${device && device !== "cpu" ? ` · ${device}` : ""}`),
    ...links,
    boxes.length > 4 && el("span", { class: "ig-soft" }, `and ${boxes.length - 4} more`),
  );
}

function parameters(tree: Tree, node: TreeNode, figures: Figures): HTMLElement | null {
  const { scene } = tree;
  const rows = new Set<number>();
  const stack = [node.id];
  while (stack.length) {
    const at = tree.nodes[stack.pop()!];
    at.rows.forEach((row) => rows.add(row));
    stack.push(...at.children);
  }
  const held = new Set<number>();
  scene.opParams.op.forEach((row, i) => rows.has(row) && held.add(scene.opParams.param[i]));
  const total = figures.parameters[node.id];
  const items = [...held].map((index) => {
    const [address, shape, dtype, nbytes, trainable] = scene.params[index];
    return el(
      "li",
      {},
      el("span", { class: "ig-shape" }, address),
      el("span", { class: "ig-soft" }, `${dimensions(shape)} · ${count(product(shape))} ${dtype} · ${bytes(nbytes)}${trainable ? "" : " · frozen"}`),
    );
  });
  return section(`Parameters${total ? ` · ${total.toLocaleString("en")}` : ""}`, items);
}

function buffers({ scene }: Tree, node: TreeNode): HTMLElement | null {
  return section(
    "Buffers",
    node.buffers.map((row) => {
      const [shape, dtype] = scene.metas[scene.ops.meta[row]];
      return el("li", {}, el("span", { class: "ig-shape" }, scene.ops.label[row]), el("span", { class: "ig-soft" }, `${dimensions(shape)} · ${dtype}`));
    }),
  );
}

function section(title: string, items: HTMLElement[]): HTMLElement | null {
  if (!items.length) return null;
  const more = items.length > SHOWN ? el("li", { class: "ig-soft" }, `and ${items.length - SHOWN} more`) : null;
  return el("section", {}, el("h3", {}, title), el("ul", { class: "ig-list" }, ...items.slice(0, SHOWN), more));
}
