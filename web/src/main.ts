// The graph's program, the global `intus`: all that a saved file, a notebook's cell and a widget carry. The server's page
// (page/main.ts) stands on it.
import "./theme.css";
import { openFile } from "./file.ts";
import { programOf, serve, type WorkerProgram } from "./graph/index.ts";

export { GraphView } from "./graph/index.ts";

const isWorker = typeof document === "undefined";

/** This program, which it runs again in a worker (graph/layout/layoutWorker.ts). */
export const program: WorkerProgram = isWorker ? {} : programOf(document.currentScript);

if (isWorker) serve();
else start();

function start(): void {
  const data = document.getElementById("intus-data");
  const graph = document.getElementById("intus-graph");
  if (!data || !graph) return;
  openFile(data, graph, program).catch(({ message }: Error) => {
    graph.textContent = `This graph could not be shown: ${message}`;
  });
}
