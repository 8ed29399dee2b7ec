// The heat map of layers by epochs. Rows are in the order from input to output; colors are those of the graph.
import { scaleGradient, scaleRgb } from "../../ui/colour.ts";
import { el } from "../../ui/dom.ts";
import { epoch as epochText, number } from "../../ui/format.ts";
import { type Inks, readInks } from "../model/inks.ts";
import { addressLabel } from "../model/scoreLabels.ts";
import type { Series } from "../model/series.ts";
import { reach, strength, strengthText } from "../model/strength.ts";
import { share } from "../plot/scales.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { canvasContext, setText } from "./elements.ts";

const [FOOT, EDGE] = [24, 10]; // CSS pixels for epochs below the cells, and for half a label at the right
/** The colors of the scale in steps of 1/255, with an alpha of 255. */
const SHADES = Array.from({ length: 256 }, (_, i) => [...scaleRgb(i / 255), 255]);
const LONGEST = 200; // characters; longer names never fit
const LABEL = 18; // CSS pixels per name; if rows are lower, only some are labeled

interface Grid {
  rows: number;
  columns: number;
  /** The width of the names at the left. */
  names: number;
  width: number;
  height: number;
  cell: { width: number; height: number };
}

/** Return the grid with the largest cells that fit into the width and 400 pixels of height. */
export function grid(addresses: string[], columns: number, width: number): Grid {
  const rows = addresses.length;
  const longest = Math.max(0, ...addresses.map((address) => address.length));
  const names = Math.min(width / 3, 220, Math.max(48, 16 + 7 * longest));
  const high = Math.min(26, 400 / Math.max(1, rows));
  const wide = (width - names - EDGE) / Math.max(1, columns);
  return { rows, columns, names, width, height: rows * high + FOOT, cell: { width: wide, height: high } };
}

/** Return the row and column at a point, null outside the cells. */
export function cellAt(grid: Grid, x: number, y: number): { row: number; column: number } | null {
  const column = Math.floor((x - grid.names) / grid.cell.width);
  const row = Math.floor(y / grid.cell.height);
  return column < 0 || row < 0 || column >= grid.columns || row >= grid.rows ? null : { row, column };
}

export function heatMap(dispatch: Dispatch): Part {
  const canvas = el("canvas", { role: "img" });
  const stage = el("div", { class: "heat-stage" }, canvas);
  const readout = el("span", { class: "soft" });
  const scale = colourScale();
  const title = el("h2");
  const head = el("div", { class: "head" }, title, readout, scale.root);
  const root = el("section", { class: "panel heat" }, head, stage);
  let view: View | undefined;
  let drawn = grid([], 0, 0);
  let inks: Inks;
  const painted = el("canvas"); // only the cells, which are many and change less often than the marks
  const find = (event: MouseEvent) => {
    const box = canvas.getBoundingClientRect();
    const cell = cellAt(drawn, event.clientX - box.left, event.clientY - box.top);
    const series = cell && view?.chart.series[cell.row];
    return series ? { series, at: cell.column, epoch: view?.chart.epochs[cell.column] as number } : null;
  };
  canvas.addEventListener("pointermove", (event) => {
    const found = find(event);
    dispatch({ type: "set", values: { hover: found?.series.address ?? null } });
    const text = found && `${addressLabel(found.series.address)} · epoch ${epochText(found.epoch)} · ${number(found.series.value[found.at])}${remarks(found.series, found.at)}`;
    setText(readout, [text, mergedText(drawn, Boolean(view?.chart.units))].filter(Boolean).join(" · "));
  });
  canvas.addEventListener("pointerleave", () => {
    setText(readout, mergedText(drawn, Boolean(view?.chart.units)));
    dispatch({ type: "set", values: { hover: null } });
  });
  canvas.addEventListener("click", (event) => {
    const found = find(event);
    if (found) dispatch({ type: "choose", choice: { address: found.series.address, epoch: found.epoch } });
  });
  let visible = false;
  let stale = false;
  const redraw = (marksOnly = false): void => {
    if (!view || root.hidden) return;
    if (!marksOnly) {
      drawn = grid(view.chart.series.map((s) => addressLabel(s.address)), view.chart.epochs.length, stage.clientWidth);
      stage.style.blockSize = `${drawn.height}px`;
      setText(readout, mergedText(drawn, view.chart.units));
    }
    stale ||= !marksOnly;
    if (!visible) return;
    if (stale) {
      stale = false;
      inks = readInks(stage);
      drawCells(canvasContext(painted, drawn.width, drawn.height), drawn, view, inks);
    }
    drawAll(canvas, painted, drawn, view, inks);
  };
  new ResizeObserver(([entry]) => entry?.contentRect.width !== drawn.width && redraw()).observe(stage);
  // Paint only when visible: the parts at the top of the page have priority.
  new IntersectionObserver(([entry]) => {
    visible = Boolean(entry?.isIntersecting);
    if (visible) redraw(true);
  }).observe(stage);

  return {
    root,
    update(next: View): void {
      const same = view && view.colours === next.colours;
      const moved = !view || view.at !== next.at || view.focus !== next.focus;
      view = next;
      root.hidden = next.chart.series.length === 0;
      if (same && moved) redraw(true);
      if (same) return;
      canvas.setAttribute("aria-label", `${next.title} as a heat map of ${next.chart.series.length} ${next.chart.units ? "units" : "layers"} by ${next.chart.epochs.length} epochs`);
      const by = strengthText(next.center);
      setText(title, `${next.chart.units ? "Units" : "Layers"} × epochs${by && `, color: ${by}`}`);
      scale.update(next);
      redraw();
    },
  };
}

/** Return a sentence if cells are of several layers or epochs, because there are fewer pixels; else "". */
export function mergedText({ cell }: Grid, units = false): string {
  const several = (size: number, name: string): string => (size < 1 ? `up to ${Math.ceil(1 / size - 1e-9)} ${name}` : "");
  const text = [several(cell.height, units ? "units" : "layers"), several(cell.width, "epochs")].filter(Boolean).join(" × ");
  return text && `color: mean of ${text}`;
}

function remarks({ note, revision }: Series, at: number): string {
  return (note[at] ? ` · ${note[at]}` : "") + (revision[at] ? ` · revision ${revision[at]}` : "");
}

/** The color scale with its lowest and highest value. */
function colourScale(): Part {
  const bar = el("span", { class: "ramp-bar", "aria-hidden": "true" });
  bar.style.background = scaleGradient();
  const [low, high] = [el("span", {}), el("span", {})];
  return {
    root: el("span", { class: "ramp" }, low, bar, high),
    update({ chart, center }: View): void {
      const ends = reach(chart, center);
      setText(low, number(ends.low));
      setText(high, number(ends.high));
    },
  };
}

/** Draw the painted cells, the names, the epochs, and a frame around the current epoch. */
function drawAll(canvas: HTMLCanvasElement, painted: HTMLCanvasElement, grid: Grid, view: View, inks: Inks): void {
  const ctx = canvasContext(canvas, grid.width, grid.height);
  if (painted.width > 0 && painted.height > 0) ctx.drawImage(painted, 0, 0, grid.width, grid.height);
  drawLabels(ctx, grid, view, inks, getComputedStyle(canvas).fontFamily);
  if (view.at < 0) return;
  const { width, height } = grid.cell;
  ctx.strokeStyle = inks.accent;
  ctx.lineWidth = 1.5;
  ctx.strokeRect(grid.names + view.at * width + 0.25, 0.75, Math.max(2, width - 0.5), grid.rows * height - 1.5);
}

function drawCells(ctx: CanvasRenderingContext2D, grid: Grid, view: View, inks: Inks): void {
  const { columns, cell, names } = grid;
  if (grid.rows === 0 || columns === 0) return;
  const { low, high } = reach(view.chart, view.center);
  const found = cellsOf(grid, view);
  const width = (columns * cell.width) / found.columns;
  const height = (grid.rows * cell.height) / found.rows;
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(pixels(found, low, high), names, 0, columns * cell.width, grid.rows * cell.height);
  if (height > 8 && width > 6) seams(ctx, grid, inks);
  found.missing.forEach((missing, i) => {
    const [x, y] = [names + (i % found.columns) * width, Math.floor(i / found.columns) * height];
    if (missing) cross(ctx, x, y, width, height, inks, Number.isNaN(found.mean[i]));
    else if (found.part[i]) corner(ctx, x + width, y, Math.min(9, width, height), inks);
  });
}

/** The cells to paint, row by row. Where there are more layers or epochs than pixels, each is of several, with their mean. */
export interface Cells {
  rows: number;
  columns: number;
  /** NaN where there is no value. */
  mean: Float64Array;
  /** Whether a score has no value, or is of part of the rows. */
  missing: Uint8Array;
  part: Uint8Array;
}

export function cellsOf(grid: Grid, { chart, center }: Pick<View, "chart" | "center">): Cells {
  const fit = (count: number, size: number): number => Math.min(count, Math.max(1, Math.floor(count * size)));
  const [rows, columns] = [fit(grid.rows, grid.cell.height), fit(grid.columns, grid.cell.width)];
  const size = rows * columns;
  const [mean, known, missing, part] = [new Float64Array(size), new Uint32Array(size), new Uint8Array(size), new Uint8Array(size)];
  chart.series.forEach((series, row) => {
    const start = Math.floor((row * rows) / grid.rows) * columns;
    series.value.forEach((value, column) => {
      const at = start + Math.floor((column * columns) / grid.columns);
      if (value === null) return void (missing[at] ||= Number(series.note[column] !== null));
      mean[at] += strength(value, center);
      known[at]++;
      part[at] ||= Number(series.part[column]);
    });
  });
  known.forEach((n, i) => (mean[i] /= n));
  return { rows, columns, mean, missing, part };
}

/** Return a canvas with one pixel per cell, which is scaled up. Drawing 20,000 rectangles instead takes 0.1 s. */
function pixels({ rows, columns, mean }: Cells, low: number, high: number): HTMLCanvasElement {
  const image = new ImageData(columns, rows);
  mean.forEach((value, i) => {
    if (!Number.isNaN(value)) image.data.set(SHADES[Math.round(share(value, low, high) * 255)] as number[], 4 * i);
  });
  const canvas = el("canvas", { width: columns, height: rows });
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

/** Draw lines of the background color between the cells. */
function seams(ctx: CanvasRenderingContext2D, { rows, columns, names, cell }: Grid, inks: Inks): void {
  ctx.fillStyle = inks.surface;
  for (let row = 1; row <= rows; row++) ctx.fillRect(names, Math.round(row * cell.height) - 1, columns * cell.width, 1);
  for (let column = 1; column <= columns; column++) ctx.fillRect(Math.round(names + column * cell.width) - 1, 0, 1, rows * cell.height);
}

/** Mark a score that was computed from part of the rows: cut off a corner of the cell. */
function corner(ctx: CanvasRenderingContext2D, right: number, top: number, size: number, inks: Inks): void {
  ctx.fillStyle = inks.surface;
  ctx.beginPath();
  ctx.moveTo(right - size, top);
  ctx.lineTo(right, top);
  ctx.lineTo(right, top + size);
  ctx.fill();
}

/** Mark a score without a value: a cross, in a gray cell if there is no other value. */
function cross(ctx: CanvasRenderingContext2D, x: number, y: number, width: number, height: number, inks: Inks, alone: boolean): void {
  const size = Math.max(1.5, Math.min(4, width / 2.5, height / 2.5));
  const [cx, cy] = [x + width / 2, y + height / 2];
  ctx.fillStyle = inks.line;
  if (alone) ctx.fillRect(x, y, width - (width > 6 ? 1 : 0), height - (height > 8 ? 1 : 0));
  ctx.strokeStyle = inks.warning;
  ctx.lineWidth = 1.25;
  ctx.beginPath();
  ctx.moveTo(cx - size, cy - size);
  ctx.lineTo(cx + size, cy + size);
  ctx.moveTo(cx + size, cy - size);
  ctx.lineTo(cx - size, cy + size);
  ctx.stroke();
}

function drawLabels(ctx: CanvasRenderingContext2D, grid: Grid, view: View, inks: Inks, font: string): void {
  const { chart, focus } = view;
  const { width, height } = grid.cell;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  const stride = Math.max(1, Math.ceil(LABEL / height));
  const picked = chart.series.findIndex((series) => series.address === focus);
  chart.series.forEach((series, row) => {
    const selected = row === picked;
    const hidden = row % stride !== stride >> 1 || (picked >= 0 && Math.abs(row - picked) < stride);
    if (hidden && !selected) return;
    ctx.font = `${selected ? "600 " : ""}12px ${font}`;
    ctx.fillStyle = selected ? inks.text : inks["text-soft"];
    ctx.fillText(shorten(ctx, addressLabel(series.address), grid.names - 14), grid.names - 10, Math.max(7, (row + 0.5) * height));
  });
  ctx.textAlign = "center";
  ctx.font = `12px ${font}`;
  ctx.fillStyle = inks["text-soft"];
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((n) => n * width >= 32) ?? 1000;
  chart.epochs.forEach((epoch, column) => {
    if (column % every === 0) ctx.fillText(epochText(epoch), grid.names + (column + 0.5) * width, grid.height - FOOT / 2 + 2);
  });
}

/** Return the longest end of an address that fits; ends distinguish layers better than beginnings. */
function shorten(ctx: CanvasRenderingContext2D, text: string, room: number): string {
  if (text.length <= LONGEST && ctx.measureText(text).width <= room) return text;
  let [fits, tooLong] = [0, Math.min(text.length, LONGEST)];
  while (tooLong - fits > 1) {
    const size = (fits + tooLong) >> 1;
    if (ctx.measureText(`…${text.slice(-size)}`).width <= room) fits = size;
    else tooLong = size;
  }
  return `…${fits ? text.slice(-fits) : ""}`;
}
