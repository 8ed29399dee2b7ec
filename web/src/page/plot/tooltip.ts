// The small card beside the pointer: which layer, which epoch, how much, how sure, against what.

import { othersAt } from "../model/comparedRuns.ts";
import * as format from "../../ui/format.ts";
import { h } from "../panels/elements.ts";
import type { View } from "../state/view.ts";
import { addressLabel } from "../model/scoreLabels.ts";

export interface Tooltip {
  /** The card, and the dot on the line that it speaks of. */
  parts: HTMLElement[];
  show(view: View, address: string, at: number, x: number, y: number): void;
  hide(): void;
}

export function tooltip(): Tooltip {
  const root = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
  const pin = h("div", { class: "pin", hidden: true, "aria-hidden": "true" });
  return {
    parts: [pin, root],
    show(view, address, at, x, y): void {
      const swatch = h("span", { class: "swatch" });
      swatch.style.background = view.colours.get(address) ?? "";
      const rows = facts(view, address, at).map(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]);
      root.replaceChildren(h("strong", {}, swatch, addressLabel(address)), h("dl", {}, ...rows.flat()));
      root.hidden = pin.hidden = false;
      pin.style.background = view.colours.get(address) ?? "";
      pin.style.transform = `translate(${x}px, ${y}px)`;
      const room = (root.parentElement as HTMLElement).getBoundingClientRect();
      // Below the point and beside it, where curves that rise leave room; above only when there is none below.
      const left = x + 14 + root.offsetWidth > room.width ? x - 14 - root.offsetWidth : x + 14;
      const top = y + 14 + root.offsetHeight > room.height ? y - 14 - root.offsetHeight : y + 14;
      root.style.transform = `translate(${Math.round(Math.max(0, left))}px, ${Math.round(Math.max(0, top))}px)`;
    },
    hide(): void {
      root.hidden = pin.hidden = true;
    },
  };
}

/** The lines of the card; what is not known is left out. Pure. */
export function facts({ chart, compared }: View, address: string, at: number): [string, string][] {
  const series = chart.series.find((s) => s.address === address);
  if (!series) return [];
  const interval = format.interval(series.low[at], series.high[at]);
  const rows: [string, string][] = [
    ["epoch", format.epoch(chart.epochs[at])],
    ["value", format.number(series.value[at])],
    ["95 % interval", interval],
    ["baseline", series.baseline[at] == null ? "" : format.number(series.baseline[at])],
    ["n", series.n[at] ? format.count(series.n[at]) : ""],
    ["note", series.note[at] ?? ""],
    ["revision", series.revision[at] ? format.count(series.revision[at]) : ""],
    ...othersAt(compared, address, chart.epochs[at]).map(([name, value]): [string, string] => [name, format.number(value)]),
  ];
  return rows.filter(([, text]) => text !== "");
}
