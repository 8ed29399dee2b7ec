// The plot's numbers as a tidy table. Pure.

import type { Chart } from "../model/series.ts";

/** RFC 4180 quoting; a leading =, +, - or @ in a name is kept from being a formula by an apostrophe. */
export function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export interface About {
  run: string;
  model: string;
  kind: string;
  target: string;
  score: string;
}

/** The columns of a Results table, one row per layer and epoch that was measured, of one run or several. */
export function toCsv(charts: [Chart, About][]): string {
  const head = "run,model,epoch,address,kind,target,score,value,low,high,baseline,n,note,revision";
  return [head, ...charts.flatMap(([chart, about]) => linesOf(chart, about))].join("\r\n") + "\r\n";
}

function linesOf(chart: Chart, about: About): string[] {
  return chart.series.flatMap((s) =>
    chart.epochs.flatMap((epoch, i) => {
      if (s.value[i] === null && s.note[i] === null) return [];
      const { run, model, kind, target, score } = about;
      const at = <T>(column: (T | null)[]): T | null => column[i] ?? null;
      const row = [run, model, epoch, s.address, kind, target, score];
      return [[...row, at(s.value), at(s.low), at(s.high), at(s.baseline), at(s.n), at(s.note), at(s.revision)].map(cell).join(",")];
    }),
  );
}
