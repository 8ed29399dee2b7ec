// A saved file or a notebook's cell: the graph travels inside the page, as gzip in base64.
import { GraphView, type Beside, type openSides, type BuiltIn, type Paint, type Program, type Scene } from "./graph/index.ts";

interface Content {
  scene: Scene;
  paint: BuiltIn | (Omit<Paint, "values"> & { values: Record<string, number | null> }) | null;
  depth: number | null;
  rolled: boolean | null;
  beside?: Beside;
}

/** Of files that show two (graph/sides.ts). */
declare const intusSides: { openSides: typeof openSides };

/** Show the graph that an element's text carries, in another. */
export async function openFile(data: HTMLElement, host: HTMLElement, program: Program): Promise<GraphView> {
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

const REST = 150; // milliseconds

let noting = 0;

/** Keep what is seen in the address bar, so that a link leads back to it; once it is seen and at rest, for the browser
 * takes its time, and Safari refuses more than a hundred changes in ten seconds. */
function remember(hash: string): void {
  clearTimeout(noting);
  noting = window.setTimeout(() => write(hash), REST);
}

function write(hash: string): void {
  if (location.hash === hash) return;
  try {
    history.replaceState(null, "", hash);
  } catch {
    // a notebook's frame has no address of its own
  }
}
