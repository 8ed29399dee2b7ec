// The commands of keys and presses on the graph.
import type { VisibleLayout } from "../layout/visibleLayout.ts";
import type { LevelEdge, Tree } from "../model/tree.ts";
import type { CameraControl } from "../paint/camera.ts";
import { boxAt, lineAt } from "../paint/hit.ts";
import type { Gestures } from "./input.ts";
import { step } from "./walk.ts";

/** What keys and presses can do to a graph. */
export interface GraphCommands {
  readonly tree: Tree;
  readonly visible: VisibleLayout;
  readonly cameraControl: CameraControl;
  readonly selected: number;
  /** The width of the picture in pixels. */
  readonly viewWidth: number;
  selectBox(id: number, reveal?: boolean): void;
  selectEdge(edge: LevelEdge): void;
  toggle(id: number): void;
  pick(id: number, part: "all" | "next" | "previous"): void;
  hover(id: number, clickable: boolean): void;
  openToDepth(depth: number): void;
  fit(): void;
}

/** Handle a key that the picture and the outline share; return whether it was one. */
export function onLevelKey(key: string, graph: GraphCommands): boolean {
  if (!/^[1-9*]$/.test(key)) return false;
  graph.openToDepth(key === "*" ? Infinity : Number(key));
  return true;
}

/** Handle a key in the picture; return whether it was one. */
export function onPictureKey(key: string, graph: GraphCommands): boolean {
  const { tree, visible, selected, cameraControl } = graph;
  if (key.startsWith("Arrow")) {
    const next = selected < 0 ? (tree.nodes[0].children[0] ?? -1) : step(tree, visible, selected, key);
    if (next >= 0) graph.selectBox(next, true);
  } else if ((key === "Enter" || key === " ") && selected >= 0) graph.toggle(selected);
  else if (key === "Escape") graph.selectBox(selected > 0 && tree.nodes[selected].parent > 0 ? tree.nodes[selected].parent : -1, true);
  else if (key === "[" && selected >= 0) graph.pick(selected, "previous");
  else if (key === "]" && selected >= 0) graph.pick(selected, "next");
  else if (key === "+" || key === "=") cameraControl.zoom(1.25);
  else if (key === "-") cameraControl.zoom(0.8);
  else if (key === "0") graph.fit();
  else return false;
  return true;
}

/** Return the gestures of a graph. */
export function gestures(graph: GraphCommands): Gestures {
  const at = (x: number, y: number): ReturnType<typeof boxAt> => boxAt(graph.visible, graph.cameraControl.camera, graph.viewWidth, x, y);
  const line = (x: number, y: number): ReturnType<typeof lineAt> => lineAt(graph.visible, graph.cameraControl.camera, x, y);
  return {
    pan: (dx, dy) => graph.cameraControl.pan(dx, dy),
    zoom: (factor, x, y) => graph.cameraControl.zoom(factor, { x, y }),
    press: (x, y) => {
      const hit = at(x, y);
      if (!hit) {
        const found = line(x, y);
        return found ? graph.selectEdge(found.edge) : graph.selectBox(-1);
      }
      const { id } = hit.box.node;
      if (hit.part === "button") graph.toggle(id);
      else if (hit.part === "body") graph.selectBox(id);
      else graph.pick(id, hit.part);
    },
    pressTwice: (x, y) => {
      const hit = at(x, y);
      if (hit?.part === "body" && hit.box.node.children.length) graph.toggle(hit.box.node.id);
    },
    hover: (x, y) => {
      const hit = at(x, y);
      graph.hover(hit?.box.node.id ?? -1, hit !== undefined || line(x, y) !== undefined);
    },
    leave: () => graph.hover(-1, false),
  };
}
