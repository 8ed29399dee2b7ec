// Layout in a worker, so that the page stays responsive. The worker runs the page's own program.
import type { Details } from "../model/details.ts";
import { figures } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import { buildTree } from "../model/tree.ts";
import type { Layout } from "./layers.ts";
import { pack, type PackedLayouts, unpack } from "./layoutTransfer.ts";
import { LayoutView } from "./layoutView.ts";
import { measurer } from "./measure.ts";

/** A scene (as `drawn` in view/graphModel.ts returns it) to lay out, open down to a depth, with text in a font. */
export interface LayoutTask {
  scene: Scene;
  depth: number;
  details: Details;
  font: string;
}

/** The source of the worker's program: its text, or a URL of this page's origin. */
export interface WorkerProgram {
  text?: string;
  address?: string;
}

/** Return the program of a script element: the text of an inline script, the URL of an external one. */
export function programOf(script: HTMLScriptElement | SVGScriptElement | null): WorkerProgram {
  if (!(script instanceof HTMLScriptElement)) return {};
  return script.src ? { address: script.src } : { text: script.text };
}

/** Return whether this browser and program allow a worker. */
export const canUseWorker = ({ text, address }: WorkerProgram): boolean =>
  typeof Worker !== "undefined" && Boolean(text || address?.startsWith("http"));

/** Answer tasks, in the worker. */
export function serve(): void {
  addEventListener("message", ({ data }: MessageEvent<LayoutTask>) => {
    const packed = pack(layOut(data));
    const buffers = [packed.containers, packed.which, packed.counts, packed.numbers, packed.starts].map(({ buffer }) => buffer as ArrayBuffer);
    (self as unknown as Worker).postMessage(packed, buffers);
  });
}

function layOut({ scene, depth, details, font }: LayoutTask): Map<number, Layout> {
  const tree = buildTree(scene, details);
  const layoutView = new LayoutView(tree, figures(tree), measurer(font));
  layoutView.openToDepth(depth);
  return layoutView.layOut();
}

/** Start a worker, on the page. `done` resolves to the layouts, or null if there is no worker; `stop` cancels it. */
export function layOutInWorker(program: WorkerProgram, task: LayoutTask): { done: Promise<Map<number, Layout> | null>; stop(): void } {
  let worker: Worker | undefined;
  const done = new Promise<Map<number, Layout> | null>((resolve) => {
    const url = program.text ? URL.createObjectURL(new Blob([program.text], { type: "text/javascript" })) : program.address!;
    try {
      worker = new Worker(url);
      worker.onmessage = ({ data }: MessageEvent<PackedLayouts>) => resolve(unpack(data));
      worker.onerror = (event) => {
        event.preventDefault();
        resolve(null);
      };
      worker.postMessage(task);
    } catch {
      resolve(null); // the Content-Security-Policy of a host may forbid workers
    }
  });
  const stop = (): void => worker?.terminate();
  void done.then(stop);
  return { done, stop };
}
