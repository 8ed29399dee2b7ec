// What boxes and lines are drawn with: the part of a canvas's context that they use. Files have their own
// (pictures/recorder.ts).
type Canvas = CanvasRenderingContext2D;

export interface Pen {
  fillStyle: Canvas["fillStyle"];
  strokeStyle: Canvas["strokeStyle"];
  lineWidth: number;
  lineCap: CanvasLineCap;
  lineJoin: CanvasLineJoin;
  globalAlpha: number;
  font: string;
  textAlign: CanvasTextAlign;
  textBaseline: CanvasTextBaseline;
  save(): void;
  restore(): void;
  beginPath(): void;
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  bezierCurveTo(ax: number, ay: number, bx: number, by: number, x: number, y: number): void;
  closePath(): void;
  rect(x: number, y: number, width: number, height: number): void;
  roundRect(x: number, y: number, width: number, height: number, radii: number | number[]): void;
  fillRect(x: number, y: number, width: number, height: number): void;
  fill(): void;
  stroke(): void;
  clip(): void;
  setLineDash(dash: number[]): void;
  fillText(text: string, x: number, y: number): void;
  measureText(text: string): { width: number };
}
