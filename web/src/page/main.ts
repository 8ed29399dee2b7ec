// The program of the server's page; the graph's stands before it (main.ts).
import { mountPage } from "./page.ts";

mountPage(document.getElementById("intus")!);
