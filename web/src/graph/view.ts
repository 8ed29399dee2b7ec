import type { Scene } from "./scene.ts";

/** Values that colour the boxes, by address; null or absent means there is none, which is shown as such. */
export interface Paint {
  title: string;
  values: Map<string, number | null>;
  low: number;
  high: number;
  format?: (value: number) => string;
}

export interface GraphOptions {
  onSelect?: (address: string | null) => void;
  toolbar?: boolean;
  /** How many levels of modules to open at first; as many as stay readable when absent. */
  depth?: number;
}

/** A box as it stands on the screen, for tests: CSS pixels from the top left of the graph's canvas. */
export interface VisibleBox {
  address: string;
  label: string;
  kind: string;
  open: boolean;
  x: number;
  y: number;
  width: number;
  height: number;
  /** The colour it is painted with; null without paint, "missing" where the paint has no value. */
  colour: string | null;
}

/** The interactive graph of one model, filling `host`. */
export class GraphView {
  readonly addresses: string[] = [];

  constructor(
    readonly host: HTMLElement,
    readonly scene: Scene,
    readonly options: GraphOptions = {},
  ) {}

  paint(_paint: Paint | null): void {}
  select(_address: string | null): void {}
  open(_address: string): void {}
  close(_address: string): void {}
  openToDepth(_depth: number): void {}
  fit(): void {}
  destroy(): void {}
}
