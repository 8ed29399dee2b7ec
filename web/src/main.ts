// The graph's program, the global `intus`. Saved files, notebook cells and widgets contain it, and the server's page
// (page/main.ts) loads it.
import "./ui/theme.css";
import { openFile } from "./file.ts";
import { programOf, serve, type WorkerProgram } from "./graph/index.ts";

export { GraphView } from "./graph/index.ts";

const isWorker = typeof document === "undefined";

/** The source of this program, which also runs in a worker (graph/layout/layoutWorker.ts). */
export const program: WorkerProgram = isWorker ? {} : programOf(document.currentScript);

if (isWorker) serve();
else start();

/** Show the graph of a saved file or notebook cell, if this page is one. */
function start(): void {
  const data = document.getElementById("intus-data");
  const graph = document.getElementById("intus-graph");
  if (!data || !graph) return;
  openFile(data, graph, program).catch(({ message }: Error) => {
    graph.textContent = `This graph could not be shown: ${message}`;
  });
}
