// The lists of tensors in the panel: those that enter or leave a box, and those of an edge.
import { el } from "../../ui/dom.ts";
import { bytes } from "../../ui/format.ts";
import { CLOSE } from "../../ui/icons.ts";
import { dimensions } from "../model/facts.ts";
import { tensorsOf } from "../model/levels.ts";
import { plus } from "../model/lists.ts";
import { marksOf } from "../model/marks.ts";
import { FAILED } from "../model/scene.ts";
import type { RowEdges } from "../model/stream.ts";
import type { LevelEdge, Tree, TreeNode } from "../model/tree.ts";
import { iconButton, inParts } from "./elements.ts";
import type { PanelActions } from "./panel.ts";
import { item, section, soft } from "./section.ts";
import { valueOfRow } from "./values.ts";

interface TensorEnd {
  row: number;
  box: number;
  arg: string;
}

/** Return sections with the tensors that enter and leave a box, which consists of the rows `own`, and the rows of those that
 * leave. */
export function borders(tree: Tree, node: TreeNode, own: number[], actions: PanelActions): { out: number[]; sections: (HTMLElement | null)[] } {
  const { scene, boxOf, edgesByRow } = tree;
  const { src, dst, arg } = scene.edges;
  const inside = new Set(own);
  /** Return the edges that cross its border. */
  const crossing = ({ starts, edges }: RowEdges, far: number[]): number[] =>
    own.flatMap((row) => [...edges.subarray(starts[row], starts[row + 1])].filter((raw) => !inside.has(far[raw]) && boxOf[far[raw]] >= 0));
  const into: TensorEnd[] = crossing(edgesByRow.into, src).map((raw) => ({ row: src[raw], box: boxOf[src[raw]], arg: scene.args[arg[raw]] }));
  const readers = new Map<number, number[]>();
  for (const raw of crossing(edgesByRow.from, dst)) readers.set(src[raw], plus(readers.get(src[raw]), boxOf[dst[raw]]));
  const out = [...readers.keys()];
  for (const row of node.rows) if (!readers.has(row) && node.kind !== "output" && !(scene.ops.flags[row] & FAILED)) out.push(row);
  const uniqueInto = node.children.length ? [...new Map(into.map((end) => [end.row, { ...end, arg: "" }])).values()] : into;
  out.sort((a, b) => a - b);
  const sections = [
    section("In", uniqueInto.map((end) => tensor(tree, end.row, end.arg, [end.box], actions))),
    section("Out", out.map((row) => tensor(tree, row, "", [...new Set(readers.get(row) ?? [])], actions))),
  ];
  return { out, sections };
}

function tensor(tree: Tree, row: number, arg: string, boxes: number[], actions: PanelActions): HTMLElement {
  const links = boxes.slice(0, 4).map((box) => link(tree, box, actions));
  return tensorItem(tree, row, arg, ...links, boxes.length > 4 && soft(`and ${boxes.length - 4} more`));
}

function tensorItem({ scene }: Tree, row: number, arg: string, ...more: (HTMLElement | false)[]): HTMLElement {
  const [shape, dtype, device, nbytes] = scene.metas[scene.ops.meta[row]];
  return item([arg && el("i", {}, arg), dimensions(shape)], `${dtype} · ${bytes(nbytes)}${device && device !== "cpu" ? ` · ${device}` : ""}`, ...more);
}

function link({ nodes }: Tree, box: number, actions: PanelActions): HTMLElement {
  const { kind, address, title } = nodes[box];
  const name = kind === "input" || kind === "output" ? title : address || title;
  return el("button", { type: "button", class: "ig-link", click: () => actions.goTo(box) }, ...inParts(name));
}

/** Return the panel of an edge: its tensors, their producers and consumers, arguments and passes. */
export function edgePanel(tree: Tree, edge: LevelEdge, actions: PanelActions): HTMLElement {
  const { scene, boxOf } = tree;
  const { src, dst, arg } = scene.edges;
  const rows = tensorsOf(scene, edge);
  const items = rows.map((row) => {
    const uses = edge.raw.filter((raw) => src[raw] === row);
    const consumers = uses.slice(0, 6).flatMap((raw) => [soft(`→ ${scene.args[arg[raw]]} of`), link(tree, boxOf[dst[raw]], actions)]);
    return tensorItem(tree, row, "", link(tree, boxOf[row], actions), ...consumers, uses.length > 6 && soft(`and ${uses.length - 6} more`));
  });
  const title = rows.length > 1 ? `${rows.length} tensors` : dimensions(scene.metas[scene.ops.meta[rows[0]]][0]);
  const { out, into, branch } = marksOf(tree, edge);
  const notes = [out, into, branch && "begins a condition"].filter(Boolean).join(" · ");
  return el(
    "aside",
    { class: "ig-panel", "aria-label": "Details of an edge" },
    el("header", {}, el("h2", {}, title), iconButton(CLOSE, "Close details", actions.close)),
    el("p", { class: "ig-kind" }, `Edge${notes && ` · ${notes}`}`),
    section("Tensors", items),
    rows.length === 1 && valueOfRow(scene, rows[0]),
  );
}
