// A saved file or a notebook's cell: the graph travels inside the page, as gzip in base64.
import { GraphView, type Beside, type openSides, type BuiltIn, type Paint, type WorkerProgram, type Scene } from "./graph/index.ts";

/** What a graph's program is given (viewing/html.py). */
export interface Content {
  scene: Scene;
  paint: BuiltIn | (Omit<Paint, "values"> & { values: Record<string, number | null> }) | null;
  depth: number | null;
  rolled: boolean | null;
  beside?: Beside;
}

/** Of files that show two (graph/view/sides.ts). */
declare const intusSides: { openSides: typeof openSides };

/** Show the graph that an element's text carries, in another. */
export async function openFile(data: HTMLElement, host: HTMLElement, program: WorkerProgram): Promise<GraphView> {
  const packed = Uint8Array.from(atob(data.textContent!.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { scene, paint, depth, rolled, beside } = (await new Response(stream).json()) as Content;
  const { hash } = location;
  const options = { depth, rolled, themeButton: true, onPlace: remember, program };
  const view = beside ? intusSides.openSides(GraphView, host, scene, beside, options) : new GraphView(host, scene, options);
  if (typeof paint === "string") view.paintBuiltIn(paint);
  else if (paint) view.paint({ ...paint, values: new Map(Object.entries(paint.values)) });
  view.restore(hash);
  addEventListener("hashchange", () => view.restore(location.hash));
  return view;
}

const [SEEN, APART] = [20, 150]; // milliseconds until a change is on the screen, and between two of the address

let [noting, noted] = [0, 0];

/** Keep what is seen in the address bar, so that a link leads back to it; once it is seen, for the browser takes its
 * time, and not at every step, for Safari refuses more than a hundred in ten seconds. Where somebody else changes it
 * first, that is followed. */
function remember(hash: string): void {
  const before = location.hash;
  clearTimeout(noting);
  noting = window.setTimeout(() => {
    if (location.hash !== before || hash === before) return;
    noted = performance.now();
    try {
      history.replaceState(null, "", hash);
    } catch {
      // a notebook's frame has no address of its own
    }
  }, Math.max(SEEN, noted + APART - performance.now()));
}
