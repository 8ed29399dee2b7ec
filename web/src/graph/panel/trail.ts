// The way down to the selected box, or to what is in sight: the containers around it, each a link.
import { el } from "../dom.ts";
import type { VisibleLayout } from "../layout/visibleLayout.ts";
import type { Tree } from "../model/tree.ts";
import type { Camera } from "../paint/picture.ts";

export function trailOf(tree: Tree, id: number): number[] {
  const way: number[] = [];
  for (let n = id; n >= 0; n = tree.nodes[n].parent) way.unshift(n);
  return way;
}

/** The innermost open container that covers the middle of the picture. */
export function inSight(visible: VisibleLayout, camera: Camera, width: number, height: number): number {
  const [x, y] = [camera.x + width / 2 / camera.scale, camera.y + Math.min(height / 2, 260) / camera.scale];
  let found = 0;
  let depth = 0;
  for (const box of visible.boxesIn({ x, y, width: 0, height: 0 })) {
    if (box.open && box.node.depth > depth) [found, depth] = [box.node.id, box.node.depth];
  }
  return found;
}

export function trail(tree: Tree, way: number[], goTo: (id: number) => void): HTMLElement {
  const last = way.length - 1;
  const steps = way.map((id, i) => {
    const title = tree.nodes[id].title || tree.scene.model;
    if (i === last) return el("li", { "aria-current": "location" }, el("span", {}, title));
    return el("li", {}, el("button", { type: "button", class: "ig-link", click: () => goTo(id) }, title));
  });
  return el("nav", { class: "ig-trail", "aria-label": "Where this is", hidden: last < 1 }, el("ol", {}, ...steps));
}
