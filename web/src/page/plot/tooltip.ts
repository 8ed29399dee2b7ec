// The tooltip of a point: layer, epoch, value, interval, baseline and note.
import { el } from "../../ui/dom.ts";
import { epoch as epochText, grouped, interval, number, shown } from "../../ui/format.ts";
import { othersAt } from "../model/comparedRuns.ts";
import { addressLabel } from "../model/scoreLabels.ts";
import type { View } from "../state/view.ts";

export interface Tooltip {
  /** The tooltip, and the dot at its point. */
  parts: HTMLElement[];
  show(view: View, address: string, at: number, x: number, y: number): void;
  hide(): void;
}

export function tooltip(): Tooltip {
  const root = el("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const pin = el("div", { class: "pin", hidden: true, "aria-hidden": "true" });
  return {
    parts: [pin, root],
    show(view, address, at, x, y): void {
      const swatch = el("span", { class: "swatch" });
      swatch.style.background = view.colours.get(address) ?? "";
      const rows = tooltipRows(view, address, at).map(([name, text]) => [el("dt", {}, name), el("dd", {}, shown(text))]);
      root.replaceChildren(el("strong", {}, swatch, addressLabel(address)), el("dl", {}, ...rows.flat()));
      root.hidden = pin.hidden = false;
      pin.style.background = view.colours.get(address) ?? "";
      pin.style.transform = `translate(${x}px, ${y}px)`;
      const room = (root.parentElement as HTMLElement).getBoundingClientRect();
      // Right of the point and below it, because most curves rise; on the other sides if there is no room.
      const left = x + 14 + root.offsetWidth > room.width ? x - 14 - root.offsetWidth : x + 14;
      const top = y + 14 + root.offsetHeight > room.height ? y - 14 - root.offsetHeight : y + 14;
      root.style.transform = `translate(${Math.round(Math.max(0, left))}px, ${Math.round(Math.max(0, top))}px)`;
    },
    hide(): void {
      root.hidden = pin.hidden = true;
    },
  };
}

/** Return the rows of the tooltip, without missing values. */
export function tooltipRows({ chart, compared }: View, address: string, at: number): [string, string][] {
  const series = chart.series.find((s) => s.address === address);
  if (!series) return [];
  const rows: [string, string][] = [
    ["epoch", epochText(chart.epochs[at])],
    ["value", number(series.value[at])],
    ["95 % interval", interval(series.low[at], series.high[at])],
    ["baseline", series.baseline[at] == null ? "" : number(series.baseline[at])],
    ["n", series.n[at] ? grouped(series.n[at]) : ""],
    ["note", series.note[at] ?? ""],
    ["revision", series.revision[at] ? grouped(series.revision[at]) : ""],
    ...othersAt(compared, address, chart.epochs[at]).map(([name, value]): [string, string] => [name, number(value)]),
  ];
  return rows.filter(([, text]) => text !== "");
}
