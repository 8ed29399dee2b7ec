// The points of the plot as CSV.
import type { Chart } from "../model/series.ts";

/** Quote a cell as in RFC 4180. An apostrophe before a leading =, +, - or @ prevents spreadsheets from reading a formula. */
export function cell(value: string | number | null): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** The values of the columns that are equal in all rows of a chart. */
export interface About {
  run: string;
  model: string;
  kind: string;
  target: string;
  score: string;
}

/** Return the columns of a `Results` table, one row per layer and epoch, of one or several runs. */
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
