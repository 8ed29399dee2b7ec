// Opens a saved file or notebook cell, whose graph is embedded in the page as gzip in base64.
import { GraphView, type Beside, type openSides, type BuiltIn, type Paint, type WorkerProgram, type Scene } from "./graph/index.ts";

/** The input of the graph's program (viewing/html.py). */
export interface Content {
  scene: Scene;
  paint: BuiltIn | (Omit<Paint, "values"> & { values: Record<string, number | null> }) | null;
  depth: number | null;
  rolled: boolean | null;
  beside?: Beside;
}

/** The program for two graphs side by side (graph/view/sides.ts), in files that need it. */
declare const intusSides: { openSides: typeof openSides };

/** Show the graph in the text of `data` in the element `host`. */
export async function openFile(data: HTMLElement, host: HTMLElement, program: WorkerProgram): Promise<GraphView> {
  const packed = Uint8Array.from(atob(data.textContent!.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { scene, paint, depth, rolled, beside } = (await new Response(stream).json()) as Content;
  const { hash } = location;
  const options = { depth, rolled, themeButton: true, onPlace: updateAddress, program };
  const view = beside ? intusSides.openSides(GraphView, host, scene, beside, options) : new GraphView(host, scene, options);
  if (typeof paint === "string") view.paintBuiltIn(paint);
  else if (paint) view.paint({ ...paint, values: new Map(Object.entries(paint.values)) });
  view.restore(hash);
  addEventListener("hashchange", () => view.restore(location.hash));
  return view;
}

const [DELAY, INTERVAL] = [20, 150]; // milliseconds before the address is updated, and between two updates

let [timer, lastUpdate] = [0, 0];

/** Write the current place into the address bar, so that it can be shared as a link. The update is delayed, so that it does
 * not delay drawing, and limited in rate, because Safari refuses more than a hundred in ten seconds. It is dropped if
 * something else changed the address meanwhile. */
function updateAddress(hash: string): void {
  const before = location.hash;
  clearTimeout(timer);
  timer = window.setTimeout(() => {
    if (location.hash !== before || hash === before) return;
    lastUpdate = performance.now();
    try {
      history.replaceState(null, "", hash);
    } catch {
      // the iframe of a notebook cell has no address
    }
  }, Math.max(DELAY, lastUpdate + INTERVAL - performance.now()));
}
