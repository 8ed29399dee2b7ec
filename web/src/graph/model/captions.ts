// The words on boxes, and which kind of box bears them.
import { count, type Figures } from "./facts.ts";
import { isCreated, isFailed, type TreeNode } from "./tree.ts";

const LONGEST_CAPTION = 36;

/** The words on a box: title and, below it, what it is. */
export function captions(node: TreeNode, figures: Figures): [title: string, subtitle: string] {
  if (!isBoxed(node)) return [short(node.title) + (node.decision && `  ${node.decision}`), ""];
  const parameters = figures.parameters[node.id];
  const subtitle = node.kind === "group" && node.address === "" ? groupCaption(node) : node.subtitle;
  return [short(node.title), short(subtitle) + (parameters ? ` · ${count(parameters)}` : "")];
}

function groupCaption(node: TreeNode): string {
  return isFold(node) ? `${node.children.length} × ${node.subtitle}` : "";
}

/** Whether a box gathers equal modules, of which one is shown for all. */
export const isFold = (node: TreeNode): boolean => node.kind === "group" && node.subtitle !== "input" && node.subtitle !== "output";

/** Keep both ends of a long name: the end tells most, the beginning says where. */
export function short(text: string): string {
  return text.length <= LONGEST_CAPTION ? text : `${text.slice(0, 14)}…${text.slice(-(LONGEST_CAPTION - 15))}`;
}

/** Modules and folds are boxes; what is no module is a pill. */
export const isBoxed = (node: TreeNode): boolean => node.kind === "module" || node.kind === "group";

export const accent = (node: TreeNode): "failed" | "created" | "" =>
  isFailed(node) ? "failed" : isCreated(node) ? "created" : "";

