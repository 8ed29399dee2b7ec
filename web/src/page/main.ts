// The program of the server's page. It loads the graph's program (src/main.ts) when there is a graph.
import { mountPage } from "./page.ts";

mountPage(document.getElementById("intus")!);
