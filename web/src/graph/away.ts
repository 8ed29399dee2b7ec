// Laying out in a worker, so that the page answers meanwhile. The worker runs the page's own program.
import { figures } from "./facts.ts";
import type { Layout } from "./layout.ts";
import { measurer } from "./measure.ts";
import { buildTree } from "./model.ts";
import { pack, unpack, type Parcel } from "./parcel.ts";
import type { Scene } from "./scene.ts";
import { Stage } from "./stage.ts";

/** What to lay out: a scene, rolled already if it is to be, opened to a depth, its words in a font. */
export interface Task {
  scene: Scene;
  depth: number;
  font: string;
}

/** Where a worker finds the program: its text, or an address of this page's own origin. */
export interface Program {
  text?: string;
  address?: string;
}

/** The program of an inline script is its text; that of a file of a site is asked for again. */
export function programOf(script: HTMLScriptElement | SVGScriptElement | null): Program {
  if (!(script instanceof HTMLScriptElement)) return {};
  return script.src ? { address: script.src } : { text: script.text };
}

export const canGoAway = ({ text, address }: Program): boolean =>
  typeof Worker !== "undefined" && Boolean(text || address?.startsWith("http"));

/** In the worker: answer one task. */
export function serve(): void {
  addEventListener("message", ({ data }: MessageEvent<Task>) => {
    const parcel = pack(layOut(data));
    const buffers = [parcel.containers, parcel.which, parcel.counts, parcel.numbers, parcel.starts].map(({ buffer }) => buffer as ArrayBuffer);
    (self as unknown as Worker).postMessage(parcel, buffers);
  });
}

function layOut({ scene, depth, font }: Task): Map<number, Layout> {
  const tree = buildTree(scene);
  const stage = new Stage(tree, figures(tree), measurer(font));
  stage.openToDepth(depth);
  return stage.layOut();
}

/** On the page: the layouts of a task, or null where no worker is to be had. `stop` ends it without an answer. */
export function layOutAway(program: Program, task: Task): { done: Promise<Map<number, Layout> | null>; stop(): void } {
  let worker: Worker | undefined;
  const done = new Promise<Map<number, Layout> | null>((resolve) => {
    const url = program.text ? URL.createObjectURL(new Blob([program.text], { type: "text/javascript" })) : program.address!;
    try {
      worker = new Worker(url);
      worker.onmessage = ({ data }: MessageEvent<Parcel>) => resolve(unpack(data));
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
