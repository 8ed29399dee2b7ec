// A scene made ready to be shown: its boxes, their figures, and what of them stands open.
import { figures, type Figures } from "./facts.ts";
import { buildTree, type Tree } from "./model.ts";
import { roll } from "./roll.ts";
import type { Scene } from "./scene.ts";
import type { Measure } from "./sizes.ts";
import { Stage } from "./stage.ts";

export class Loaded {
  readonly tree: Tree;
  readonly figures: Figures;
  readonly stage: Stage;

  constructor(
    scene: Scene,
    readonly rolled: boolean,
    measure: Measure,
  ) {
    this.tree = buildTree(rolled ? roll(scene) : scene);
    this.figures = figures(this.tree);
    this.stage = new Stage(this.tree, this.figures, measure);
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
