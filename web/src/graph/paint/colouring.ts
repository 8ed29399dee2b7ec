// Which paint is on, and the key that tells what its colours mean.
import { el } from "../dom.ts";
import type { Figures } from "../model/facts.ts";
import type { Tree } from "../model/tree.ts";
import { legend } from "./legend.ts";
import { builtInPaint, type Paint, type PaintName } from "./paint.ts";
import { scaled } from "./scale.ts";

export class Colouring {
  paint: Paint | null = null;
  which: PaintName = "";
  private given: Paint | null = null;
  private key: HTMLElement = el("div");
  private folded = false;

  constructor(
    private readonly graph: () => { tree: Tree; figures: Figures },
    private readonly changed: () => void,
    private readonly goTo: (row: number) => void,
  ) {}

  /** The title of the paint that came from outside, "" for none. */
  get offered(): string {
    return this.given?.title ?? "";
  }

  get element(): HTMLElement {
    return this.key;
  }

  /** Take a paint from outside, or none. */
  give(paint: Paint | null): void {
    this.given = paint;
    this.put(paint ? "given" : "");
  }

  put(which: PaintName): void {
    const { tree, figures } = this.graph();
    const paint = which === "given" ? this.given : which ? builtInPaint(which, tree, figures) : null;
    const before = this.paint?.title === paint?.title ? this.paint : null; // new numbers of a thing keep its scale
    this.paint = paint && scaled({ ...paint, log: before ? before.log : paint.log });
    this.which = which;
    this.showKey();
    this.changed();
  }

  /** Keep what is on, by another scale. */
  rescale(scale: Pick<Paint, "low" | "high" | "least" | "log">): void {
    this.paint = this.paint && { ...this.paint, ...scale };
    this.showKey();
    this.changed();
  }

  /** What was pressed in it keeps the focus. */
  private showKey(pressed = ""): void {
    const setLog = (log: boolean): void => {
      this.paint = { ...this.paint!, log };
      this.showKey("[aria-pressed]");
      this.changed();
    };
    const fold = (): void => {
      this.folded = !this.folded;
      this.showKey("button");
    };
    const key = legend(this.paint, this.graph().tree, this.folded, { setLog, fold, goTo: this.goTo });
    this.key.replaceWith(key);
    this.key = key;
    if (pressed) key.querySelector<HTMLElement>(pressed)!.focus();
  }
}
