// What the rest of the page may use of the graph.
import "./graph.css";

export { programOf, serve, type Program } from "./away.ts";
export type { Beside, openSides } from "./sides.ts";
export { GraphView } from "./view.ts";
export type { BuiltIn } from "./paint.ts";
export type { GraphOptions, Paint } from "./view.ts";
export type { VisibleBox, VisibleRoute } from "./visible.ts";
export type { Scene } from "./scene.ts";
