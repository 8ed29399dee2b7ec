// The text on boxes, and the kinds of boxes.
import { count } from "../../ui/format.ts";
import type { Figures } from "./facts.ts";
import { isCreated, isFailed, type TreeNode } from "./tree.ts";

const LONGEST_CAPTION = 36;

/** Return the text on a box: its title and, below it, its type. */
export function captions(node: TreeNode, figures: Figures): [title: string, subtitle: string] {
  if (!isBoxed(node)) return [short(node.title) + (node.decision && `  ${node.decision}`), ""];
  const parameters = figures.parameters[node.id];
  const subtitle = node.kind === "group" ? `${node.children.length} × ${node.subtitle}` : node.subtitle;
  return [short(node.title), short(subtitle) + (parameters ? ` · ${count(parameters)}` : "")];
}

/** Return whether a box is a fold: it groups equal modules and shows one of them. */
export const isFold = (node: TreeNode): boolean => node.kind === "group" && node.subtitle !== "input" && node.subtitle !== "output";

/** Shorten a long name to its beginning and its end. */
export function short(text: string): string {
  return text.length <= LONGEST_CAPTION ? text : `${text.slice(0, 14)}…${text.slice(-(LONGEST_CAPTION - 15))}`;
}

/** Return whether a box is drawn as a rectangle (modules and groups) rather than as a pill. */
export const isBoxed = (node: TreeNode): boolean => node.kind === "module" || node.kind === "group";

/** Return the state of a box that its outline shows. */
export const accent = (node: TreeNode): "failed" | "created" | "" =>
  isFailed(node) ? "failed" : isCreated(node) ? "created" : "";
