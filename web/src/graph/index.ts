// The graph: what the rest of the page may use of it.
// model/  a scene as a tree of boxes, with their names, figures and edges
// layout/ where boxes, edges and words stand
// paint/  drawing them, and what colours them
// panel/  the HTML around the picture: toolbar, outline, facts, search
// view/   what is open and chosen, and what keys, pointer and links do
import "./graph.css";

export { programOf, serve, type WorkerProgram } from "./layout/layoutWorker.ts";
export type { Beside, openSides } from "./view/sides.ts";
export { GraphView } from "./view/view.ts";
export type { BuiltIn } from "./paint/paint.ts";
export type { GraphOptions, Paint } from "./view/view.ts";
export type { VisibleBox, VisibleRoute } from "./paint/visibleBoxes.ts";
export type { Scene } from "./model/scene.ts";
