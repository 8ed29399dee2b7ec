// Where points are marked. Marks on the same pixel are one, since of thousands of layers most would lie on others.
import type { Series } from "../model/series.ts";
import type { Frame } from "./frame.ts";

type Places = Map<string, [x: number, y: number]>;

export interface PointMarks {
  /** Points without a value, at the bottom. */
  missing: Places;
  /** Points computed from part of the rows. */
  partial: Places;
  /** Points that changed when they were scored again. */
  revised: Places;
}

export function pointMarks({ x, y, top, height }: Frame, epochs: number[], series: Series[]): PointMarks {
  const marks: PointMarks = { missing: new Map(), partial: new Map(), revised: new Map() };
  const put = (places: Places, i: number, up: number): void => void places.set(`${i} ${Math.round(up)}`, [x(epochs[i] as number), up]);
  for (const { value, note, part, revision } of series)
    value.forEach((v, i) => {
      if (v == null && note[i] != null) put(marks.missing, i, top + height - 7);
      if (v != null && part[i]) put(marks.partial, i, y(v));
      if (v != null && revision[i]) put(marks.revised, i, y(v));
    });
  return marks;
}
