// The layout of a graph whose data flows to the right. It is laid out downwards with the width and height of every box
// exchanged, and transposed when it is drawn: x and y here are y and x of the picture. Headers stay above open boxes.
import { HEADER } from "../graph/layout/boxHeader.ts";
import type { Layout, LayoutInput } from "../graph/layout/layers.ts";
import { LayoutView } from "../graph/layout/layoutView.ts";
import { FONT_MARK, FONT_SHAPE, type Measure, Sizes } from "../graph/layout/sizes.ts";
import { dimensions, type Figures } from "../graph/model/facts.ts";
import { marksOf, shapeOf } from "../graph/model/marks.ts";
import type { Tree, TreeNode } from "../graph/model/tree.ts";

const [LEAST_GAP, MOST_GAP] = [34, 110]; // between two ranks: room for the longest shape, within limits
const AROUND = 26; // around that shape, including the arrow
const CORNER = 6; // boxes are less tall than wide, so edges come closer to their corners

/** Lays out a graph to the right. */
export class RightwardLayout extends LayoutView {
  override readonly inset = [HEADER, 0] as const;

  constructor(tree: Tree, figures: Figures, measure: Measure) {
    super(tree, figures, measure, new Sizes(tree, figures, measure, true), { measure, turned: true, away: [3, 3] });
  }

  protected override size(id: number): [width: number, height: number] {
    const layout = this.open.has(id) ? this.layouts.get(id) : undefined;
    return layout ? [layout.width + HEADER, layout.height] : [this.sizes.height(id), this.sizes.width(id)];
  }

  protected override inputOf(node: TreeNode): LayoutInput {
    const input = super.inputOf(node);
    const longest = this.levelOf(node.id).edges.reduce((most, edge) => {
      const { into, out } = marksOf(this.tree, edge);
      const [shape, ...marks] = [shapeOf(this.tree, edge, dimensions), into, out].map((text, i) => this.sizes.measure(text, i ? FONT_MARK : FONT_SHAPE, false));
      return Math.max(most, shape, ...marks);
    }, 0);
    const port = (dx: number | null): number | null => (dx === null ? null : dx + HEADER / 2);
    return {
      ...input,
      nodes: input.nodes.map((one) => ({ ...one, tail: 0 })),
      edges: input.edges.map((edge) => ({ ...edge, fromDx: port(edge.fromDx), toDx: port(edge.toDx) })),
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
