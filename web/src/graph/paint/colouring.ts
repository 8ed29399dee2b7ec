// The current paint and its legend.
import { el } from "../../ui/dom.ts";
import type { Figures } from "../model/facts.ts";
import type { Tree } from "../model/tree.ts";
import { legend } from "./legend.ts";
import { builtInPaint, type Paint, type PaintName } from "./paint.ts";
import { scaled } from "./scale.ts";

/** Keeps the current paint and its legend. */
export class Colouring {
  paint: Paint | null = null;
  which: PaintName = "";
  private given: Paint | null = null;
  private legend: HTMLElement = el("div");
  private folded = false;

  constructor(
    private readonly graph: () => { tree: Tree; figures: Figures },
    private readonly changed: () => void,
    private readonly goTo: (row: number) => void,
  ) {}

  /** The title of the paint given from outside, "" for none. */
  get givenTitle(): string {
    return this.given?.title ?? "";
  }

  get element(): HTMLElement {
    return this.legend;
  }

  /** Show a paint from outside, or none. */
  give(paint: Paint | null): void {
    this.given = paint;
    this.put(paint ? "given" : "");
  }

  /** Show a paint by name. */
  put(which: PaintName): void {
    const { tree, figures } = this.graph();
    const paint = which === "given" ? this.given : which ? builtInPaint(which, tree, figures) : null;
    const before = this.paint?.title === paint?.title ? this.paint : null; // new values of the same quantity keep its scale
    this.paint = paint && scaled({ ...paint, log: before ? before.log : paint.log });
    this.which = which;
    this.showLegend();
    this.changed();
  }

  /** Show the current paint on another scale. */
  rescale(scale: Pick<Paint, "low" | "high" | "least" | "log">): void {
    this.paint = this.paint && { ...this.paint, ...scale };
    this.showLegend();
    this.changed();
  }

  /** Update the legend; the element of it that was pressed keeps the focus. */
  private showLegend(pressed = ""): void {
    const setLog = (log: boolean): void => {
      this.paint = { ...this.paint!, log };
      this.showLegend("[aria-pressed]");
      this.changed();
    };
    const fold = (): void => {
      this.folded = !this.folded;
      this.showLegend("button");
    };
    const next = legend(this.paint, this.graph().tree, this.folded, { setLog, fold, goTo: this.goTo });
    this.legend.replaceWith(next);
    this.legend = next;
    if (pressed) next.querySelector<HTMLElement>(pressed)!.focus();
  }
}
