// The breadcrumb trail: links to the containers around the selected box, or around the visible part of the graph.
import { el } from "../../ui/dom.ts";
import type { VisibleLayout } from "../layout/visibleLayout.ts";
import type { Tree } from "../model/tree.ts";
import type { Camera } from "../paint/picture.ts";

/** Return the containers around a box, outermost first, and the box. */
export function trailOf(tree: Tree, id: number): number[] {
  const path: number[] = [];
  for (let n = id; n >= 0; n = tree.nodes[n].parent) path.unshift(n);
  return path;
}

/** Return the innermost open container at the middle of the screen. */
export function containerInView(visible: VisibleLayout, camera: Camera, width: number, height: number): number {
  const [x, y] = [camera.x + width / 2 / camera.scale, camera.y + Math.min(height / 2, 260) / camera.scale];
  let found = 0;
  let depth = 0;
  for (const box of visible.boxesIn({ x, y, width: 0, height: 0 })) {
    if (box.open && box.node.depth > depth) [found, depth] = [box.node.id, box.node.depth];
  }
  return found;
}

/** Return the trail for a path. */
export function trail(tree: Tree, path: number[], goTo: (id: number) => void): HTMLElement {
  const last = path.length - 1;
  const steps = path.map((id, i) => {
    const title = tree.nodes[id].title || tree.scene.model;
    if (i === last) return el("li", { "aria-current": "location" }, el("span", {}, title));
    return el("li", {}, el("button", { type: "button", class: "ig-link", click: () => goTo(id) }, title));
  });
  return el("nav", { class: "ig-trail", "aria-label": "Breadcrumb", hidden: last < 1 }, el("ol", {}, ...steps));
}
