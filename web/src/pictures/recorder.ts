// A canvas that records what is drawn on it as shapes, for files with selectable text and scalable lines.
import type { Measure } from "../graph/layout/sizes.ts";
import type { Pen } from "../graph/paint/pen.ts";
import { shown } from "../ui/format.ts";

interface Ink {
  /** Colors as #rrggbb; absent if a shape has no fill or no outline. */
  fill?: string;
  line?: string;
  weight?: number;
  dash?: number[];
  /** Whether lines have round caps and joins. */
  round?: boolean;
}

/** A rectangle, possibly with round corners. */
export interface RectShape extends Ink {
  kind: "rect";
  x: number;
  y: number;
  width: number;
  height: number;
  radius: number;
}

/** Lines and curves as SVG path data with the commands M, L, C and Z. */
export interface PathShape extends Ink {
  kind: "path";
  d: string;
}

/** One line of text with vertical middle `y`, whose `anchor` is at `x`. */
export interface TextShape {
  kind: "text";
  x: number;
  y: number;
  words: string;
  size: number;
  bold: boolean;
  ink: string;
  anchor: "start" | "middle" | "end";
}

/** Shapes that are visible only inside another. */
export interface ClipShape {
  kind: "clip";
  by: RectShape | PathShape;
  shapes: Shape[];
}

export type Shape = RectShape | PathShape | TextShape | ClipShape;

/** Shapes that make up one thing, with its description; "" for decoration. */
export interface ShapeGroup {
  title: string;
  shapes: Shape[];
}

const ANCHORS = { left: "start", start: "start", center: "middle", right: "end", end: "end" } as const;
const ROUNDNESS = 0.5523; // of the radius: the distance of the control points of a quarter circle from its ends

const rounded = (value: number): number => Math.round(value * 100) / 100;

interface PenState {
  fillStyle: string;
  strokeStyle: string;
  lineWidth: number;
  dash: number[];
  clip: ClipShape | null;
}

/** Records drawing commands as shapes. */
export class Recorder implements Pen {
  readonly groups: ShapeGroup[] = [];
  fillStyle = "";
  strokeStyle = "";
  lineWidth = 1;
  lineCap: CanvasLineCap = "butt";
  lineJoin: CanvasLineJoin = "miter";
  font = "";
  textAlign: CanvasTextAlign = "left";
  textBaseline: CanvasTextBaseline = "middle";
  private dash: number[] = [];
  private clipped: ClipShape | null = null;
  private readonly saved: PenState[] = [];
  private path: RectShape | PathShape | null = null;
  /** The shape that the path was filled as, to which its outline can be added. */
  private last: RectShape | PathShape | null = null;
  private origin: readonly [x: number, y: number] = [0, 0];
  private turned = false;

  constructor(private readonly measure: Measure) {}

  /** Begin a new group, whose coordinates are relative to `origin` and, if `turned`, have x and y exchanged. */
  begin(title: string, origin: readonly [x: number, y: number], turned = false): void {
    this.groups.push({ title, shapes: [] });
    [this.origin, this.turned] = [origin, turned];
  }

  set globalAlpha(alpha: number) {
    if (alpha !== 1) throw new Error("Still pictures have no transparent shapes.");
  }

  get globalAlpha(): number {
    return 1;
  }

  save(): void {
    const { fillStyle, strokeStyle, lineWidth, dash, clipped: clip } = this;
    this.saved.push({ fillStyle, strokeStyle, lineWidth, dash, clip });
  }

  restore(): void {
    const { clip, ...style } = this.saved.pop()!;
    Object.assign(this, style);
    this.clipped = clip;
  }

  beginPath(): void {
    this.path = this.last = null;
  }

  moveTo(x: number, y: number): void {
    this.add("M", [x, y]);
  }

  lineTo(x: number, y: number): void {
    this.add("L", [x, y]);
  }

  bezierCurveTo(...points: [number, number, number, number, number, number]): void {
    this.add("C", points);
  }

  closePath(): void {
    this.add("Z", []);
  }

  rect(x: number, y: number, width: number, height: number): void {
    this.path = this.box(x, y, width, height, 0);
  }

  roundRect(x: number, y: number, width: number, height: number, radii: number | number[]): void {
    if (typeof radii === "number") {
      this.path = this.box(x, y, width, height, Math.min(radii, width / 2, height / 2));
      return;
    }
    const [right, foot] = [x + width, y + height];
    const [a, b, c, d] = radii;
    this.moveTo(x + a, y);
    this.corner(right - b, y, right, y + b, 1);
    this.corner(right, foot - c, right - c, foot, 0);
    this.corner(x + d, foot, x, foot - d, 1);
    this.corner(x, y + a, x + a, y, 0);
    this.closePath();
  }

  /** Add a line to (x, y) and a quarter circle from there to (u, v), which begins across or down. */
  private corner(x: number, y: number, u: number, v: number, across: 0 | 1): void {
    this.lineTo(x, y);
    if (x === u && y === v) return;
    const [dx, dy] = [(u - x) * ROUNDNESS, (v - y) * ROUNDNESS];
    if (across) this.bezierCurveTo(x + dx, y, u, v - dy, u, v);
    else this.bezierCurveTo(x, y + dy, u - dx, v, u, v);
  }

  fillRect(x: number, y: number, width: number, height: number): void {
    this.put({ ...this.box(x, y, width, height, 0), fill: hex(this.fillStyle) });
  }

  fill(): void {
    if (this.path) this.last = this.put({ ...this.path, fill: hex(this.fillStyle) });
  }

  stroke(): void {
    if (!this.path) return;
    const ink: Ink = { line: hex(this.strokeStyle), weight: rounded(this.lineWidth) };
    if (this.dash.length) ink.dash = this.dash;
    if (this.lineCap === "round") ink.round = true;
    if (this.last && !this.last.line) Object.assign(this.last, ink);
    else this.last = this.put({ ...this.path, ...ink });
  }

  /** Clip to the path from now on. A path that contains the current clip changes nothing. */
  clip(): void {
    const [now, by] = [this.clipped?.by, this.path!];
    const contains = now?.kind === "rect" && by.kind === "rect" && by.x <= now.x && by.y <= now.y && by.x + by.width >= now.x + now.width && by.y + by.height >= now.y + now.height;
    if (!contains) this.clipped = this.put({ kind: "clip", by, shapes: [] });
  }

  setLineDash(dash: number[]): void {
    this.dash = dash;
  }

  fillText(text: string, x: number, y: number): void {
    const [bold, size] = this.fontStyle();
    const [u, v] = this.at(x, y);
    this.put({ kind: "text", x: u, y: v, words: shown(text), size, bold, ink: hex(this.fillStyle), anchor: ANCHORS[this.textAlign] });
  }

  measureText(text: string): { width: number } {
    const [bold, size] = this.fontStyle();
    return { width: this.measure(text, size, bold) };
  }

  private fontStyle(): [bold: boolean, size: number] {
    const [, bold, size] = /^(600 )?([\d.]+)px/.exec(this.font)!;
    return [bold !== undefined, Number(size)];
  }

  private at(x: number, y: number): [x: number, y: number] {
    const [dx, dy] = this.origin;
    return this.turned ? [rounded(y + dx), rounded(x + dy)] : [rounded(x + dx), rounded(y + dy)];
  }

  private box(x: number, y: number, width: number, height: number, radius: number): RectShape {
    const [u, v] = this.at(x, y);
    const [w, h] = this.turned ? [height, width] : [width, height];
    return { kind: "rect", x: u, y: v, width: rounded(w), height: rounded(h), radius: rounded(radius) };
  }

  private add(command: string, numbers: number[]): void {
    if (this.path?.kind !== "path") this.path = { kind: "path", d: "" };
    let d = command;
    for (let i = 0; i < numbers.length; i += 2) d += `${i ? " " : ""}${this.at(numbers[i], numbers[i + 1]).join(" ")}`;
    this.path.d += d;
  }

  private put<T extends Shape>(shape: T): T {
    (this.clipped?.shapes ?? this.groups[this.groups.length - 1].shapes).push(shape);
    return shape;
  }
}

/** Convert a color, #rrggbb or rgb(r, g, b), to #rrggbb. */
export function hex(colour: string): string {
  if (colour.startsWith("#")) return colour;
  return `#${colour.match(/\d+/g)!.map((part) => Number(part).toString(16).padStart(2, "0")).join("")}`;
}
