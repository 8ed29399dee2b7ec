// The graph's program, the global `intus`: all that a saved file, a notebook's cell and a widget carry. The server's page
// (page/main.ts) stands on it.
import "./theme.css";
import { openFile } from "./file.ts";

export { GraphView } from "./graph/index.ts";

const data = document.getElementById("intus-data");
const graph = document.getElementById("intus-graph");
if (data && graph) {
  openFile(data, graph).catch((error: unknown) => {
    graph.textContent = `This graph could not be shown: ${error instanceof Error ? error.message : String(error)}`;
  });
}
