// Opens a saved file or notebook cell, whose graph is embedded in the page as gzip in base64.
import { GraphView, type Beside, type openSides, type BuiltIn, type Details, type Paint, type WorkerProgram, type Scene } from "./graph/index.ts";
import { writeHash } from "./ui/hash.ts";

/** The input of the graph's program (viewing/html.py). */
export interface Content {
  scene: Scene;
  paint: BuiltIn | (Omit<Paint, "values"> & { values: Record<string, number | null> }) | null;
  depth: number | null;
  rolled: boolean | null;
  details?: Details;
  beside?: Beside;
}

/** The program for two graphs side by side (graph/view/sides.ts), in files that need it. */
declare const intusSides: { openSides: typeof openSides };

/** Show the graph in the text of `data` in the element `host`. */
export async function openFile(data: HTMLElement, host: HTMLElement, program: WorkerProgram): Promise<GraphView> {
  const packed = Uint8Array.from(atob(data.textContent!.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { scene, paint, depth, rolled, details, beside } = (await new Response(stream).json()) as Content;
  const { hash } = location;
  const options = { depth, rolled, details, themeButton: true, isGuest: parent !== window, ownsPage: parent === window && !beside, onPlace: writeHash, program };
  const view = beside ? intusSides.openSides(GraphView, host, scene, beside, options) : new GraphView(host, scene, options);
  if (typeof paint === "string") view.paintBuiltIn(paint);
  else if (paint) view.paint({ ...paint, values: new Map(Object.entries(paint.values)) });
  view.restore(hash);
  addEventListener("hashchange", () => view.restore(location.hash));
  return view;
}
