// The notice of a failed pass: the exception, where it was raised, and a link to the box where it happened.
import { el } from "../../ui/dom.ts";
import { OP } from "../model/scene.ts";
import { isFailed, type Tree, type TreeNode } from "../model/tree.ts";
import { inParts } from "./elements.ts";
import { shortPath } from "./panel.ts";

interface Raised {
  file: string;
  line: number;
  function: string;
  module: string;
  text?: string;
}

/** Return the box where a pass failed: the operation that raised, else the module whose code did, else the last operation. */
export function failedBox(tree: Tree): TreeNode | undefined {
  if (!tree.scene.error) return undefined;
  const failed = tree.nodes.find((node) => isFailed(node) && node.children.length === 0);
  if (failed) return failed;
  const { module } = raisedAt(tree) ?? { module: "" };
  const last = [...tree.nodes].reverse().find((node) => node.kind === "module" && node.address.replace(/:\d+$/, "") === module);
  return last ?? tree.nodes[tree.boxOf[tree.scene.ops.kind.lastIndexOf(OP)]];
}

const raisedAt = ({ scene }: Tree): Raised | null => (scene.facts.raised as Raised | null | undefined) ?? null;

/** Return what the graph does not show or could not compute, as its trace's notes say; null if there are none. */
export function notesOf({ scene }: Tree): HTMLElement | null {
  const notes = scene.facts?.notes as string[] | undefined;
  return notes?.length ? el("div", { class: "ig-error ig-notes" }, notes.join("\n")) : null;
}

/** Return the notice of a failed pass; null if the pass succeeded. */
export function errorNote(tree: Tree, goTo: (id: number) => void): HTMLElement | null {
  const { scene } = tree;
  if (!scene.error) return null;
  const box = failedBox(tree);
  const raised = raisedAt(tree);
  const where = raised && `${shortPath(raised.file)}:${raised.line} in ${raised.function}`;
  const word = box && (isFailed(box) ? "Show" : "Last operation:");
  return el(
    "div",
    { class: "ig-error", role: "alert" },
    el("p", {}, el("strong", {}, "The model raised "), scene.error),
    where && el("p", { class: "ig-soft" }, where, raised.module && ` · module ${raised.module}`),
    raised?.text && el("pre", { class: "ig-code" }, raised.text),
    box && el("button", { type: "button", class: "ig-link", click: () => goTo(box.id) }, `${word} `, ...inParts(box.address)),
  );
}
