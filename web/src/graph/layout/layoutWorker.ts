// Laying out in a worker, so that the page answers meanwhile. The worker runs the page's own program.
import { figures } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import { buildTree } from "../model/tree.ts";
import type { Layout } from "./layers.ts";
import { pack, type PackedLayouts, unpack } from "./layoutTransfer.ts";
import { LayoutView } from "./layoutView.ts";
import { measurer } from "./measure.ts";

/** What to lay out: a scene, rolled already if it is to be, opened to a depth, its words in a font. */
export interface LayoutTask {
  scene: Scene;
  depth: number;
  font: string;
}

/** Where a worker finds the program: its text, or an address of this page's own origin. */
export interface WorkerProgram {
  text?: string;
  address?: string;
}

/** The program of an inline script is its text; that of a file of a site is asked for again. */
export function programOf(script: HTMLScriptElement | SVGScriptElement | null): WorkerProgram {
  if (!(script instanceof HTMLScriptElement)) return {};
  return script.src ? { address: script.src } : { text: script.text };
}

export const canUseWorker = ({ text, address }: WorkerProgram): boolean =>
  typeof Worker !== "undefined" && Boolean(text || address?.startsWith("http"));

/** In the worker: answer one task. */
export function serve(): void {
  addEventListener("message", ({ data }: MessageEvent<LayoutTask>) => {
    const parcel = pack(layOut(data));
    const buffers = [parcel.containers, parcel.which, parcel.counts, parcel.numbers, parcel.starts].map(({ buffer }) => buffer as ArrayBuffer);
    (self as unknown as Worker).postMessage(parcel, buffers);
  });
}

function layOut({ scene, depth, font }: LayoutTask): Map<number, Layout> {
  const tree = buildTree(scene);
  const layoutView = new LayoutView(tree, figures(tree), measurer(font));
  layoutView.openToDepth(depth);
  return layoutView.layOut();
}

/** On the page: the layouts of a task, or null where no worker is to be had. `stop` ends it without an answer. */
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
      resolve(null); // a host may forbid workers
    }
  });
  const stop = (): void => worker?.terminate();
  void done.then(stop);
  return { done, stop };
}
