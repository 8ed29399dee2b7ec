// A graph whose data flows to the right. It is laid out as one that flows downwards, with the width and the height of every
// box exchanged, and turned over when it is drawn: x and y here are y and x of the picture. Headers stay above open boxes.
import { HEADER } from "../graph/layout/boxHeader.ts";
import { laneOf } from "../graph/layout/curve.ts";
import type { Layout, LayoutInput } from "../graph/layout/layers.ts";
import { LayoutView } from "../graph/layout/layoutView.ts";
import { FONT_SHAPE, type Measure, Sizes } from "../graph/layout/sizes.ts";
import type { Area, Spot } from "../graph/layout/words.ts";
import { dimensions, type Figures } from "../graph/model/facts.ts";
import { shapeOf } from "../graph/model/marks.ts";
import type { Tree, TreeNode } from "../graph/model/tree.ts";

const [LEAST_GAP, MOST_GAP] = [34, 110]; // between two ranks: room for the longest shape, within reason
const AROUND = 26; // before and after that shape, its arrow included
const CORNER = 6; // boxes are less tall than wide, so edges come nearer to their corners

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

  /** A layout as long as its header, its ways out at the new end. Layouts are shared, so this is a copy. */
  private lengthened(node: TreeNode, layout: Layout, height: number): Layout {
    const { edges, outs } = this.levelOf(node.id);
    const points = layout.points.slice();
    edges.forEach(({ to }, edge) => {
      if (outs.includes(to)) points[layout.starts[edge + 1] - 1] = height;
    });
    return { ...layout, height, points };
  }
}

/** Words stand along the edges, so boxes need no room for them. */
class RightwardSizes extends Sizes {
  protected override endsWidth(): number {
    return 0;
  }
}

const ROWS = [-10, 11, -22, 23, -34, 35]; // how far from an edge words may stand, above it and below

function spots(route: Float64Array, way: 1 | -1): Spot[] {
  const at = way > 0 ? 0 : route.length - 2;
  const [x, y] = [route[at], way > 0 ? route[3] + 5 : route[at + 1] - 8];
  const side = x > route[at + 4 * way] + 0.5 ? -1 : 1;
  const lane = laneOf(route); // of an edge against the flow: there no other edge is near
  const beside: Spot[] = lane ? [[lane.x + 9 * lane.side, route[at + 1], way < 0 ? 1 : -1]] : [];
  return [...beside, ...ROWS.map((far): Spot => [x + far * side, y, way])];
}

function area([x, y, way]: Spot, width: number, size: number): Area {
  const top = way < 0 ? y - width : y;
  return [x - size / 2, top, x + size / 2, top + width];
}
