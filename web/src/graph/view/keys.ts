// What keys and presses on the graph mean.
import type { VisibleLayout } from "../layout/visibleLayout.ts";
import type { LevelEdge, Tree } from "../model/tree.ts";
import type { CameraControl } from "../paint/camera.ts";
import { boxAt, lineAt } from "../paint/hit.ts";
import type { Gestures } from "./input.ts";
import { step } from "./walk.ts";

/** What hands may do to a graph. */
export interface Hands {
  readonly tree: Tree;
  readonly visible: VisibleLayout;
  readonly cameraControl: CameraControl;
  readonly selected: number;
  /** Pixels from side to side. */
  readonly sight: number;
  choose(id: number, reach?: boolean): void;
  chooseEdge(edge: LevelEdge): void;
  toggle(id: number): void;
  pick(id: number, part: "all" | "next" | "previous"): void;
  hover(id: number, live: boolean): void;
  openToDepth(depth: number): void;
  fit(): void;
}

/** Keys that mean the same in the picture and in the outline; whether this was one. */
export function onLevelKey(key: string, hands: Hands): boolean {
  if (!/^[1-9*]$/.test(key)) return false;
  hands.openToDepth(key === "*" ? Infinity : Number(key));
  return true;
}

/** Keys that mean something in the picture; whether this was one. */
export function onPictureKey(key: string, hands: Hands): boolean {
  const { tree, visible, selected, cameraControl } = hands;
  if (key.startsWith("Arrow")) {
    const next = selected < 0 ? (tree.nodes[0].children[0] ?? -1) : step(tree, visible, selected, key);
    if (next >= 0) hands.choose(next, true);
  } else if ((key === "Enter" || key === " ") && selected >= 0) hands.toggle(selected);
  else if (key === "Escape") hands.choose(selected > 0 && tree.nodes[selected].parent > 0 ? tree.nodes[selected].parent : -1, true);
  else if (key === "[" && selected >= 0) hands.pick(selected, "previous");
  else if (key === "]" && selected >= 0) hands.pick(selected, "next");
  else if (key === "+" || key === "=") cameraControl.zoom(1.25);
  else if (key === "-") cameraControl.zoom(0.8);
  else if (key === "0") hands.fit();
  else return false;
  return true;
}

export function gestures(hands: Hands): Gestures {
  const at = (x: number, y: number): ReturnType<typeof boxAt> => boxAt(hands.visible, hands.cameraControl.camera, hands.sight, x, y);
  const line = (x: number, y: number): ReturnType<typeof lineAt> => lineAt(hands.visible, hands.cameraControl.camera, x, y);
  return {
    pan: (dx, dy) => hands.cameraControl.pan(dx, dy),
    zoom: (factor, x, y) => hands.cameraControl.zoom(factor, { x, y }),
    press: (x, y) => {
      const hit = at(x, y);
      if (!hit) {
        const found = line(x, y);
        return found ? hands.chooseEdge(found.edge) : hands.choose(-1);
      }
      const { id } = hit.box.node;
      if (hit.part === "button") hands.toggle(id);
      else if (hit.part === "body") hands.choose(id);
      else hands.pick(id, hit.part);
    },
    pressTwice: (x, y) => {
      const hit = at(x, y);
      if (hit?.part === "body" && hit.box.node.children.length) hands.toggle(hit.box.node.id);
    },
    hover: (x, y) => {
      const hit = at(x, y);
      hands.hover(hit?.box.node.id ?? -1, hit !== undefined || line(x, y) !== undefined);
    },
    leave: () => hands.hover(-1, false),
  };
}
