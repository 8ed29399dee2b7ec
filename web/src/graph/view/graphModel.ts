// The model of a shown graph: the tree of boxes, their figures, and the open boxes.
import { LayoutView } from "../layout/layoutView.ts";
import type { Measure } from "../layout/sizes.ts";
import type { Details } from "../model/details.ts";
import { figures, type Figures } from "../model/facts.ts";
import { withParameters } from "../model/parameters.ts";
import { isRecurrent, roll } from "../model/roll.ts";
import type { Scene } from "../model/scene.ts";
import { buildTree, type Tree } from "../model/tree.ts";

const READABLE = 26; // the number of boxes to show at first
const MANY = 40; // with more boxes at first, a recurrent model is rolled

/** Return the scene to draw: rolled or not, with parameters or without. */
export function drawn(scene: Scene, rolled: boolean, details: Details): Scene {
  const whole = details === "parameters" ? withParameters(scene) : scene;
  return rolled ? roll(whole) : whole;
}

/** Return the model of a scene. If `rolled` is not given, a recurrent model with too many boxes is rolled. */
export function load(scene: Scene, rolled: boolean | null | undefined, depth: number | null | undefined, measure: Measure, details: Details = "names", layout = LayoutView): GraphModel {
  const graphModel = new GraphModel(scene, rolled ?? false, details, measure, layout);
  return rolled == null && isRecurrent(scene) && graphModel.count(depth) > MANY ? new GraphModel(scene, true, details, measure, layout) : graphModel;
}

/** A tree of boxes with their figures and layout. */
export class GraphModel {
  readonly tree: Tree;
  readonly figures: Figures;
  readonly layoutView: LayoutView;

  constructor(
    scene: Scene,
    readonly rolled: boolean,
    details: Details,
    measure: Measure,
    layout: typeof LayoutView,
  ) {
    this.tree = buildTree(drawn(scene, rolled, details), details);
    this.figures = figures(this.tree);
    this.layoutView = new layout(this.tree, this.figures, measure);
  }

  /** Count the boxes down to a depth; without a depth, the model's direct children, since few more are opened. */
  count(depth: number | null | undefined): number {
    return depth == null ? this.tree.nodes[0].children.length : this.layoutView.depths.count(depth);
  }

  /** Open down to a depth, or by default as many boxes as are readable. */
  begin(depth: number | null | undefined): void {
    if (depth == null) this.layoutView.openReadable(READABLE);
    else this.layoutView.openToDepth(depth);
  }

  /** Return the box of an address, -1 for none. */
  find(address: string): number {
    return this.tree.byAddress.get(address) ?? this.tree.byAddress.get(`${address}:1`) ?? -1;
  }

  /** Return the box of a name in a link (see link.ts): an address, or `~` and the address of a fold's first member. */
  idOf(name: string): number {
    const id = name ? this.find(name.replace("~", "")) : -1;
    return name.startsWith("~") ? (this.tree.nodes[id]?.parent ?? -1) : id;
  }

  /** The box to show first: the input. */
  get entry(): number {
    const { children } = this.tree.nodes[0];
    return children.find((id) => this.tree.nodes[id].kind === "input") ?? children[0] ?? -1;
  }
}
