// Opens large graphs: a worker lays them out while a note is shown.
import { el } from "../../ui/dom.ts";
import { grouped } from "../../ui/format.ts";
import type { Layout } from "../layout/layers.ts";
import { canUseWorker, layOutInWorker, type LayoutTask, type WorkerProgram } from "../layout/layoutWorker.ts";

const LARGE = 5000; // more boxes are laid out in a worker

/** Opens a depth that takes long to lay out. */
export class Opening {
  private stopNow: (() => void) | null = null;
  private depth = -1;
  private readonly note = el("p", { class: "ig-wait", role: "status" });

  constructor(
    private readonly program: WorkerProgram,
    private readonly area: HTMLElement,
    private readonly open: (depth: number, layouts?: Map<number, Layout>) => void,
  ) {}

  /** Return whether this many boxes should be laid out in a worker. */
  isLarge(boxes: number): boolean {
    return boxes > LARGE && canUseWorker(this.program);
  }

  get busy(): boolean {
    return this.stopNow !== null;
  }

  /** Lay out, then open; without a worker the page does both. `canStop` adds a button to cancel, for when something is shown
   * already. If the same depth is in progress, this only updates the note. */
  start(task: LayoutTask, boxes: number, canStop: boolean): void {
    const message = `Laying out ${grouped(boxes)} boxes …`;
    this.note.replaceChildren(message, ...(canStop ? [el("button", { type: "button", class: "ig-link", click: () => this.stop() }, "Cancel")] : []));
    if (this.busy && this.depth === task.depth) return;
    this.stop();
    const { done, stop } = layOutInWorker(this.program, task);
    const stopThis = (this.stopNow = () => {
      stop();
      this.note.remove();
    });
    this.depth = task.depth;
    this.area.append(this.note);
    void done.then((layouts) => {
      if (this.stopNow !== stopThis) return;
      this.stop();
      this.open(task.depth, layouts ?? undefined);
    });
  }

  /** Cancel what is in progress. */
  stop(): void {
    this.stopNow?.();
    this.stopNow = null;
  }
}
