// Downloads: the plot as CSV, SVG or PNG.
import { epoch as epochText } from "../../ui/format.ts";
import { runOfKey } from "../model/comparedRuns.ts";
import { readInks } from "../model/inks.ts";
import { type Chart, hasBaseline } from "../model/series.ts";
import { requestedTarget } from "../state/state.ts";
import type { View } from "../state/view.ts";
import { type About, toCsv } from "./csv.ts";
import { plotSvg } from "./plotSvg.ts";

export type Format = "csv" | "svg" | "png";

/** Download the plot as a file. */
export async function download(view: View, format: Format): Promise<void> {
  const { run, model, score, target } = view.state.choice;
  const name = [run, model, score, target].filter(Boolean).join("-").replace(/[^\p{L}\p{N}._-]+/gu, "_");
  saveAs(await content(view, format), `${name}.${format}`);
}

async function content(view: View, format: Format): Promise<Blob> {
  if (format === "csv") return new Blob([table(view)], { type: "text/csv" });
  const picture = draw(view);
  return format === "svg" ? new Blob([picture], { type: "image/svg+xml" }) : raster(picture, 2);
}

function table({ chart, compared, run, state: { choice } }: View): string {
  const about = { ...choice, target: requestedTarget(choice, run) };
  const others = compared.map(({ key, chart: other }): [Chart, About] => {
    return [other, { ...about, ...runOfKey(key) }];
  });
  return toCsv([[chart, about], ...others]);
}

function draw(view: View): string {
  const { run, model } = view.state.choice;
  const epochs = view.chart.epochs;
  const dashed = hasBaseline(view.chart) ? "; gray dashes: baseline" : "";
  return plotSvg(view.chart, {
    title: view.title,
    subtitle: `${[run, model].filter(Boolean).join(" · ")}, epochs ${epochText(epochs[0])} to ${epochText(epochs.at(-1))}${dashed}`,
    colours: view.colours,
    focus: view.state.choice.address,
    compared: view.compared,
    crowd: view.crowd,
    center: view.center,
    inks: readInks(document.body),
  });
}

async function raster(picture: string, scale: number): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(picture)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth * scale;
  canvas.height = image.naturalHeight * scale;
  (canvas.getContext("2d") as CanvasRenderingContext2D).drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("The browser could not make a PNG of the plot.")))),
  );
}

function saveAs(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  window.setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
