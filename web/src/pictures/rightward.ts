// The layout of a graph whose data flows to the right. It is laid out downwards with the width and height of every box
// exchanged, and transposed when it is drawn: x and y here are y and x of the picture. Headers stay above open boxes.
import { HEADER } from "../graph/layout/boxHeader.ts";
import { laneOf } from "../graph/layout/curve.ts";
import type { Layout, LayoutInput } from "../graph/layout/layers.ts";
import { LayoutView } from "../graph/layout/layoutView.ts";
import { FONT_SHAPE, type Measure, Sizes } from "../graph/layout/sizes.ts";
import type { Area, Spot } from "../graph/layout/words.ts";
import { dimensions, type Figures } from "../graph/model/facts.ts";
import { shapeOf } from "../graph/model/marks.ts";
import type { Tree, TreeNode } from "../graph/model/tree.ts";

const [LEAST_GAP, MOST_GAP] = [34, 110]; // between two ranks: room for the longest shape, within limits
const AROUND = 26; // around that shape, including the arrow
const CORNER = 6; // boxes are less tall than wide, so edges come closer to their corners

/** Lays out a graph to the right. */
export class RightwardLayout extends LayoutView {
  override readonly inset = [HEADER, 0] as const;

  constructor(tree: Tree, figures: Figures, measure: Measure) {
    super(tree, figures, measure, new RightwardSizes(tree, figures, measure), { measure, spots, area });
  }

  protected override size(id: number): [width: number, height: number] {
    const layout = this.open.has(id) ? this.layouts.get(id) : undefined;
    return layout ? [layout.width + HEADER, layout.height] : [this.sizes.height(id), this.sizes.width(id)];
  }

  protected override inputOf(node: TreeNode): LayoutInput {
    const input = super.inputOf(node);
    const shapes = this.levelOf(node.id).edges.map((edge) => this.sizes.measure(shapeOf(this.tree, edge, dimensions), FONT_SHAPE, false));
    const longest = shapes.reduce((most, width) => Math.max(most, width), 0);
    const port = (dx: number | null): number | null => (dx === null ? null : dx + HEADER / 2);
    return {
      ...input,
      nodes: input.nodes.map((one) => ({ ...one, tail: 0 })),
      edges: input.edges.map((edge) => ({ ...edge, fromDx: port(edge.fromDx), toDx: port(edge.toDx), mark: 0, outMark: 0 })),
      minWidth: 0,
      gap: Math.min(MOST_GAP, Math.max(LEAST_GAP, AROUND + longest)),
      corner: CORNER,
    };
  }

  protected override layOutOne(node: TreeNode): Layout {
    const layout = super.layOutOne(node);
    const least = node.id === 0 ? 0 : this.sizes.header(node);
    return layout.height < least ? this.lengthened(node, layout, least) : layout;
  }

  /** Return a copy of a layout, which may be shared, that is as long as its header, with its out-ports at the new end. */
  private lengthened(node: TreeNode, layout: Layout, height: number): Layout {
    const { edges, outs } = this.levelOf(node.id);
    const points = layout.points.slice();
    edges.forEach(({ to }, edge) => {
      if (outs.includes(to)) points[layout.starts[edge + 1] - 1] = height;
    });
    return { ...layout, height, points };
  }
}

/** Sizes without room for the text at arrows, because text runs along the edges. */
class RightwardSizes extends Sizes {
  protected override endsWidth(): number {
    return 0;
  }
}

const ROWS = [-10, 11, -22, 23, -34, 35]; // distances of text from an edge, above it and below

function spots(route: Float64Array, end: 1 | -1): Spot[] {
  const at = end > 0 ? 0 : route.length - 2;
  const [x, y] = [route[at], end > 0 ? route[3] + 5 : route[at + 1] - 8];
  const side = x > route[at + 4 * end] + 0.5 ? -1 : 1;
  const lane = laneOf(route); // of an edge against the flow, where no other edge is near
  const beside: Spot[] = lane ? [[lane.x + 9 * lane.side, route[at + 1], end < 0 ? 1 : -1]] : [];
  return [...beside, ...ROWS.map((far): Spot => [x + far * side, y, end])];
}

function area([x, y, end]: Spot, width: number, size: number): Area {
  const top = end < 0 ? y - width : y;
  return [x - size / 2, top, x + size / 2, top + width];
}
