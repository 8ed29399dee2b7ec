// A canvas that notes what is drawn on it as shapes, for files in which words stay words and lines stay sharp.
import type { Measure } from "../graph/layout/sizes.ts";
import type { Pen } from "../graph/paint/pen.ts";

interface Ink {
  /** Colours as #rrggbb; absent where a shape is not filled, or has no outline. */
  fill?: string;
  line?: string;
  weight?: number;
  dash?: number[];
  /** Whether lines end and meet round. */
  round?: boolean;
}

/** A box with round corners. */
export interface RectShape extends Ink {
  kind: "rect";
  x: number;
  y: number;
  width: number;
  height: number;
  radius: number;
}

/** Lines and curves in SVG's own words: M, L, C and Z. */
export interface PathShape extends Ink {
  kind: "path";
  d: string;
}

/** Words on one line around the height `y`, of which `anchor` stands at `x`. */
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

/** Shapes of which only what lies inside another is seen. */
export interface ClipShape {
  kind: "clip";
  by: RectShape | PathShape;
  shapes: Shape[];
}

export type Shape = RectShape | PathShape | TextShape | ClipShape;

/** Shapes that are one thing, and what it is in words; "" where it is decoration. */
export interface ShapeGroup {
  title: string;
  shapes: Shape[];
}

const ANCHORS = { left: "start", start: "start", center: "middle", right: "end", end: "end" } as const;
const UNSHOWN = /[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const ROUNDNESS = 0.5523; // of a corner's radius: how far a curve's control points lie from its ends

/** Words with a sign in place of each character that would break a file or turn a line's direction. */
export const shown = (words: string): string => words.replace(UNSHOWN, "\ufffd");

const places = (value: number): number => Math.round(value * 100) / 100;

interface PenState {
  fillStyle: string;
  strokeStyle: string;
  lineWidth: number;
  dash: number[];
  clip: ClipShape | null;
}

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
  /** The shape that the path was last drawn as, which its outline may join. */
  private last: RectShape | PathShape | null = null;
  private origin: readonly [x: number, y: number] = [0, 0];
  private turned = false;

  constructor(private readonly measure: Measure) {}

  /** Begin a new group. From now on coordinates count from `origin` and, where `turned`, x and y change places. */
  begin(title: string, origin: readonly [x: number, y: number], turned = false): void {
    this.groups.push({ title, shapes: [] });
    [this.origin, this.turned] = [origin, turned];
  }

  set globalAlpha(alpha: number) {
    if (alpha !== 1) throw new Error("Pictures have no shapes to see through.");
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

  /** A line to (x, y), and a quarter of a circle or nothing to (u, v), which begins across or down. */
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
    const ink: Ink = { line: hex(this.strokeStyle), weight: places(this.lineWidth) };
    if (this.dash.length) ink.dash = this.dash;
    if (this.lineCap === "round") ink.round = true;
    if (this.last && !this.last.line) Object.assign(this.last, ink);
    else this.last = this.put({ ...this.path, ...ink });
  }

  /** Only what lies inside the path is seen from now on. A path that holds all that is seen anyway changes nothing. */
  clip(): void {
    const [now, by] = [this.clipped?.by, this.path!];
    const holds = now?.kind === "rect" && by.kind === "rect" && by.x <= now.x && by.y <= now.y && by.x + by.width >= now.x + now.width && by.y + by.height >= now.y + now.height;
    if (!holds) this.clipped = this.put({ kind: "clip", by, shapes: [] });
  }

  setLineDash(dash: number[]): void {
    this.dash = dash;
  }

  fillText(text: string, x: number, y: number): void {
    const [bold, size] = this.type();
    const [u, v] = this.at(x, y);
    this.put({ kind: "text", x: u, y: v, words: shown(text), size, bold, ink: hex(this.fillStyle), anchor: ANCHORS[this.textAlign] });
  }

  measureText(text: string): { width: number } {
    const [bold, size] = this.type();
    return { width: this.measure(text, size, bold) };
  }

  private type(): [bold: boolean, size: number] {
    const [, bold, size] = /^(600 )?([\d.]+)px/.exec(this.font)!;
    return [bold !== undefined, Number(size)];
  }

  private at(x: number, y: number): [x: number, y: number] {
    const [dx, dy] = this.origin;
    return this.turned ? [places(y + dx), places(x + dy)] : [places(x + dx), places(y + dy)];
  }

  private box(x: number, y: number, width: number, height: number, radius: number): RectShape {
    const [u, v] = this.at(x, y);
    const [w, h] = this.turned ? [height, width] : [width, height];
    return { kind: "rect", x: u, y: v, width: places(w), height: places(h), radius: places(radius) };
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

/** #rrggbb of a colour, which may be written rgb(r, g, b). */
export function hex(colour: string): string {
  if (colour.startsWith("#")) return colour;
  return `#${colour.match(/\d+/g)!.map((part) => Number(part).toString(16).padStart(2, "0")).join("")}`;
}
