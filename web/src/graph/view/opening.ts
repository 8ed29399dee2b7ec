// Opening so much that it takes a while: it is laid out in a worker, and a note says so until it stands.
import { el } from "../dom.ts";
import type { Layout } from "../layout/layers.ts";
import { canUseWorker, layOutInWorker, type LayoutTask, type WorkerProgram } from "../layout/layoutWorker.ts";
import { grouped } from "../model/facts.ts";

const LARGE = 5000; // boxes that are laid out in a worker

export class Opening {
  private stopNow: (() => void) | null = null;
  private depth = -1;
  private readonly note = el("p", { class: "ig-wait", role: "status" });

  constructor(
    private readonly program: WorkerProgram,
    private readonly area: HTMLElement,
    private readonly open: (depth: number, layouts?: Map<number, Layout>) => void,
  ) {}

  /** Whether so many boxes are better laid out away from the page. */
  isLarge(boxes: number): boolean {
    return boxes > LARGE && canUseWorker(this.program);
  }

  get busy(): boolean {
    return this.stopNow !== null;
  }

  /** Lay out, then open; where no worker is to be had, on the page itself. `canStop` says whether something else is
   * shown. Where the same is on its way already, this says what is known of it by now. */
  start(task: LayoutTask, boxes: number, canStop: boolean): void {
    const words = `Laying out ${grouped(boxes)} boxes …`;
    this.note.replaceChildren(words, ...(canStop ? [el("button", { type: "button", class: "ig-link", click: () => this.stop() }, "Cancel")] : []));
    if (this.busy && this.depth === task.depth) return;
    this.stop();
    const { done, stop } = layOutInWorker(this.program, task);
    const mine = (this.stopNow = () => {
      stop();
      this.note.remove();
    });
    this.depth = task.depth;
    this.area.append(this.note);
    void done.then((layouts) => {
      if (this.stopNow !== mine) return;
      this.stop();
      this.open(task.depth, layouts ?? undefined);
    });
  }

  /** Leave everything as it is. */
  stop(): void {
    this.stopNow?.();
    this.stopNow = null;
  }
}
