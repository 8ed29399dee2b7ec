// A scene made ready to be shown: its boxes, their figures, and what of them stands open.
import { LayoutView } from "../layout/layoutView.ts";
import type { Measure } from "../layout/sizes.ts";
import { figures, type Figures } from "../model/facts.ts";
import { isRecurrent, roll } from "../model/roll.ts";
import type { Scene } from "../model/scene.ts";
import { buildTree, type Tree } from "../model/tree.ts";

const READABLE = 26; // boxes open at first
const MANY = 40; // boxes that are too many at first, if rolling makes them fewer

/** The scene as it is to begin. Where it is not said whether it is rolled, it is if it would show too many boxes. */
export function load(scene: Scene, rolled: boolean | null | undefined, depth: number | null | undefined, measure: Measure, layout = LayoutView): GraphModel {
  const graphModel = new GraphModel(scene, rolled ?? false, measure, layout);
  return rolled == null && isRecurrent(scene) && graphModel.count(depth) > MANY ? new GraphModel(scene, true, measure, layout) : graphModel;
}

export class GraphModel {
  readonly tree: Tree;
  readonly figures: Figures;
  readonly layoutView: LayoutView;

  constructor(
    scene: Scene,
    readonly rolled: boolean,
    measure: Measure,
    layout: typeof LayoutView,
  ) {
    this.tree = buildTree(rolled ? roll(scene) : scene);
    this.figures = figures(this.tree);
    this.layoutView = new layout(this.tree, this.figures, measure);
  }

  /** How many boxes there are down to a depth; where none is said, the model's own, since few more are opened. */
  count(depth: number | null | undefined): number {
    return depth == null ? this.tree.nodes[0].children.length : this.layoutView.depths.count(depth);
  }

  /** Open down to a depth; where none is said, as far as it can be read. */
  begin(depth: number | null | undefined): void {
    if (depth == null) this.layoutView.openReadable(READABLE);
    else this.layoutView.openToDepth(depth);
  }

  /** The box of an address, -1 for none. */
  find(address: string): number {
    return this.tree.byAddress.get(address) ?? this.tree.byAddress.get(`${address}:1`) ?? -1;
  }

  /** The box that a name of a place means (see link.ts): an address, or `~` and that of a fold's first member. */
  idOf(name: string): number {
    const id = name ? this.find(name.replace("~", "")) : -1;
    return name.startsWith("~") ? (this.tree.nodes[id]?.parent ?? -1) : id;
  }

  /** The box to look at first: the input. */
  get entry(): number {
    const { children } = this.tree.nodes[0];
    return children.find((id) => this.tree.nodes[id].kind === "input") ?? children[0] ?? -1;
  }
}
