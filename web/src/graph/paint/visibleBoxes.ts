// What is visible, in words and screen coordinates: for tests and scripts.
import type { PlacedBox } from "../layout/visibleLayout.ts";
import type { Line } from "../layout/visibleLines.ts";
import { captions } from "../model/captions.ts";
import { paintOf } from "./boxes.ts";
import { type Picture, rectAt } from "./picture.ts";

/** A box as it stands on the screen: CSS pixels from the top left of the graph's canvas. */
export interface VisibleBox {
  address: string;
  label: string;
  kind: string;
  open: boolean;
  x: number;
  y: number;
  width: number;
  height: number;
  /** The colour it is painted with; null without paint, "missing" where the paint has no value. */
  colour: string | null;
  hatched: boolean;
}

/** A visible edge: screen points x, y, x, y, …, and the address of either end, "" for a port. */
export interface VisibleRoute {
  from: string;
  to: string;
  points: number[];
  /** The words on it: the shape, and at either end argument and passes; whether a branch begins with it. */
  label: string;
  out: string;
  into: string;
  branch: boolean;
}

export function visibleBox(picture: Picture, box: PlacedBox): VisibleBox {
  const { camera, figures } = picture;
  const r = rectAt(picture, box);
  const fill = paintOf(picture, box.node);
  return {
    address: box.node.address,
    label: captions(box.node, figures)[0],
    kind: box.node.kind,
    open: box.open,
    x: (r.x - camera.x) * camera.scale,
    y: (r.y - camera.y) * camera.scale,
    width: r.width * camera.scale,
    height: r.height * camera.scale,
    colour: fill ? (fill.colour ?? "missing") : null,
    hatched: fill?.hatched ?? false,
  };
}

export function visibleRoute({ camera, tree }: Picture, line: Line): VisibleRoute {
  const name = (id: number): string => tree.nodes[id]?.address ?? "";
  return {
    from: name(line.edge.from),
    to: name(line.edge.to),
    ...{ label: line.label, out: line.out, into: line.into, branch: line.branch !== "" },
    points: Array.from(line.route, (at, i) => (i % 2 ? line.y + at - camera.y : line.x + at - camera.x) * camera.scale),
  };
}
