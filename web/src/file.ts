// A saved file or a notebook's cell: the graph travels inside the page, as gzip in base64.
import { GraphView, type Paint, type Scene } from "./graph/index.ts";

interface Content {
  scene: Scene;
  paint: "time" | "memory" | "parameters" | (Omit<Paint, "values"> & { values: Record<string, number | null> }) | null;
  depth: number | null;
}

/** Show the graph that an element's text carries, in another. */
export async function openFile(data: HTMLElement, host: HTMLElement): Promise<GraphView> {
  const packed = Uint8Array.from(atob(data.textContent!.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const { scene, paint, depth } = (await new Response(stream).json()) as Content;
  const view = new GraphView(host, scene, { depth, themeButton: true });
  if (typeof paint === "string") view.paintBuiltIn(paint);
  else if (paint) view.paint({ ...paint, values: new Map(Object.entries(paint.values)) });
  return view;
}
