// The global `intus` of the page. A saved file carries its graph inside; the server's page asks for it.
import "./theme.css";

export { GraphView } from "./graph/index.ts";
