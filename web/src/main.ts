// The global `intus` of the page. A saved file carries its graph inside; the server's page asks for it.
import "./theme.css";
import { openFile } from "./file.ts";
import { mountPage } from "./page/index.ts";

export { GraphView } from "./graph/index.ts";

const data = document.getElementById("intus-data");
const graph = document.getElementById("intus-graph");
if (data && graph) {
  openFile(data, graph).catch((error: unknown) => {
    graph.textContent = `This graph could not be shown: ${error instanceof Error ? error.message : String(error)}`;
  });
}

const live = document.getElementById("intus");
if (live) mountPage(live);
