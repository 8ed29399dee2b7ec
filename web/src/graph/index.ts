// The public interface of the graph.
// model/  the scene as a tree of boxes, with names, figures and edges
// layout/ the positions of boxes, edges and labels
// paint/  drawing and coloring
// panel/  the HTML around the picture: toolbar, outline, panel, search
// view/   the state, and the effects of keys, pointer and links
import "./graph.css";

export { programOf, serve, type WorkerProgram } from "./layout/layoutWorker.ts";
export type { Beside, openSides } from "./view/sides.ts";
export { GraphView } from "./view/view.ts";
export type { BuiltIn } from "./paint/paint.ts";
export type { GraphOptions, Paint } from "./view/view.ts";
export type { VisibleBox, VisibleRoute } from "./paint/visibleBoxes.ts";
export type { Details } from "./model/details.ts";
export type { Scene } from "./model/scene.ts";
