// The panel with the details of the selected box: inputs, outputs, contents, costs, source code.
import { el } from "../../ui/dom.ts";
import { bytes, count, duration, grouped, plural } from "../../ui/format.ts";
import { CLOSE } from "../../ui/icons.ts";
import type { LayoutView } from "../layout/layoutView.ts";
import { isFold } from "../model/captions.ts";
import { dimensions, product } from "../model/facts.ts";
import { CREATED, FAILED, INPLACE, type Source } from "../model/scene.ts";
import { rowsInside } from "../model/stream.ts";
import { isFailed, type Tree, type TreeNode } from "../model/tree.ts";
import { formatValue, isPaintable, type Paint, valueOf } from "../paint/paint.ts";
import { iconButton, inParts } from "./elements.ts";
import { item, section } from "./section.ts";
import { borders } from "./tensors.ts";
import { badParams, badText, figure, valueOfRow } from "./values.ts";

export interface PanelActions {
  goTo(id: number): void;
  close(): void;
  /** Show one member of a fold, or all. */
  pick(id: number, which: number | "all"): void;
}

/** Return the panel of a box. */
export function panelFor(layoutView: LayoutView, id: number, paint: Paint | null, actions: PanelActions): HTMLElement {
  const { tree, figures } = layoutView;
  const node = tree.nodes[id];
  const { scene } = tree;
  const title = node.address || node.title;
  const rows = rowsInside(tree, id);
  const { out, sections } = borders(tree, node, rows, actions);
  const parts = [
    el("header", {}, el("h2", { title }, ...inParts(title)), iconButton(CLOSE, "Close details", actions.close)),
    el("p", { class: "ig-kind" }, kindOf(tree, node)),
    flagsOf(tree, node),
    node.kind === "group" ? picker(layoutView, node, actions) : null,
    paint?.facts ? facts(paint.facts(node)) : paint && isPaintable(node, paint) ? paintedValue(paint, node) : null,
    facts([
      ["Failed with", isFailed(node) ? scene.error : ""],
      ["Decision", node.decision],
      ["Arguments", node.call >= 0 ? scene.modules[scene.calls.module[node.call]][2] : ""],
      ["Called with", calledWith(tree, node)],
      ["Other names", node.names.slice(1, 5).join(", ")],
      ["Operations", node.children.length ? count(figures.operations[id]) : ""],
      ["Time", figures.time[id] ? duration(figures.time[id]) : ""],
      ["FLOPs", figures.flops[id] ? count(figures.flops[id]) : ""],
      ["Activations", figures.memory[id] ? bytes(figures.memory[id]) : ""],
      ["Called at", place(siteOf(tree, node))],
      ["Defined at", place(forwardOf(tree, node))],
    ]),
    code(siteOf(tree, node)),
    ...(node.rows.length ? node.rows : out).slice(0, 3).map((row) => valueOfRow(scene, row)),
    ...sections,
    parameters(tree, rows, figures.parameters[id]),
    buffers(tree, node),
  ];
  return el("aside", { class: "ig-panel", "aria-label": `Details of ${title}` }, ...parts);
}

/** Return the non-tensor arguments of an operation, or of a module's only operation. */
function calledWith({ scene }: Tree, node: TreeNode): string {
  return node.rows.length ? scene.settings[scene.ops.setting[node.rows[0]]] ?? "" : "";
}

function kindOf({ scene }: Tree, node: TreeNode): string {
  if (node.kind === "module") {
    const call = scene.calls.passno[node.call];
    return `Module · ${node.subtitle}${call > 1 ? ` · call ${call}` : ""}${node.passes > 1 ? ` · ${node.passes} calls` : ""}`;
  }
  if (node.kind === "group") return `${plural(node.children.length, "member")} · ${node.subtitle}`;
  const title = node.title === node.address ? "" : ` · ${node.title}`;
  const names = { op: `Operation · ${node.title}`, input: `Input${title}`, output: `Output${title}`, buffer: "Buffer", parameter: "Parameter", constant: "Constant: a tensor from outside the model", root: "Model" };
  return names[node.kind];
}

function flagsOf({ scene }: Tree, node: TreeNode): HTMLElement | null {
  const raised = node.rows.some((row) => scene.ops.flags[row] & FAILED);
  const flags = [
    [FAILED, node.kind !== "module" ? "failed here" : `failed here, in its ${raised ? "operation" : "own code"}`],
    [INPLACE, "in place"],
    [CREATED, "factory op"],
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

function facts(rows: [string, string][]): HTMLElement | null {
  const list = el("dl", {});
  for (const [name, value] of rows) if (value) list.append(el("dt", {}, name), el("dd", {}, ...inParts(value)));
  return list.children.length ? list : null;
}

function siteOf({ scene }: Tree, node: TreeNode): Source | undefined {
  return node.rows.length ? scene.sites[scene.ops.site[node.rows[0]]] : undefined;
}

function forwardOf({ scene }: Tree, node: TreeNode): Source | undefined {
  return node.call >= 0 && node.children.length ? scene.sites[scene.modules[scene.calls.module[node.call]][4]] : undefined;
}

/** Return the last two parts of a path. */
export const shortPath = (path: string): string => (path.split(/[\\/]/).length > 3 ? `…/${path.split(/[\\/]/).slice(-2).join("/")}` : path);

const place = (site: Source | undefined): string => (site?.[1] ? `${shortPath(site[0])}:${site[1]}${site[2] ? ` in ${site[2]}` : ""}` : "");

const code = (site: Source | undefined): HTMLElement | null => (site?.[3] ? el("pre", { class: "ig-code" }, site[3]) : null);

/** Return a select element for the member that a fold shows. */
function picker(layoutView: LayoutView, node: TreeNode, actions: PanelActions): HTMLElement | null {
  if (!isFold(node)) return null;
  const choose = el("select", { "aria-label": "Member to show", change: () => actions.pick(node.id, choose.value === "all" ? "all" : Number(choose.value)) });
  choose.append(...node.children.map((id, i) => el("option", { value: i }, layoutView.tree.nodes[id].address)), el("option", { value: "all" }, "All"));
  choose.value = String(layoutView.pickOf(node.id));
  return el("label", { class: "ig-pick" }, "Show", choose);
}

function parameters({ scene }: Tree, rows: number[], total: number): HTMLElement | null {
  const inside = new Set(rows);
  const held = new Set<number>();
  scene.opParams.op.forEach((row, i) => inside.has(row) && held.add(scene.opParams.param[i]));
  const figures = scene.values?.params;
  const bad = badParams(scene);
  const items = [...held].sort((a, b) => Number(bad.has(b)) - Number(bad.has(a)) || a - b).map((index) => {
    const [address, shape, dtype, nbytes, trainable] = scene.params[index];
    const i = figures?.param.indexOf(index) ?? -1;
    const values = i < 0 ? "" : ` · ${figure(figures!.mean[i])} ± ${figure(figures!.std[i])}, ${figure(figures!.low[i])} … ${figure(figures!.high[i])}`;
    const text = `${dimensions(shape)} · ${count(product(shape))} ${dtype} · ${bytes(nbytes)}${trainable ? "" : " · frozen"}${values}`;
    return item(inParts(address), text, bad.has(index) && el("b", { class: "ig-bad" }, badText(...bad.get(index)!)));
  });
  return section(`Parameters${total ? ` · ${grouped(total)}` : ""}`, items);
}

function buffers({ scene }: Tree, node: TreeNode): HTMLElement | null {
  return section(
    "Buffers",
    node.buffers.map((row) => {
      const [shape, dtype] = scene.metas[scene.ops.meta[row]];
      return item(inParts(scene.ops.label[row]), `${dimensions(shape)} · ${dtype}`);
    }),
  );
}
