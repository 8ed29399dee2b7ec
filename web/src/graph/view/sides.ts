// Two graphs side by side (intus.viewing.side_by_side), with their differences marked. A separate program, `intusSides`, for
// the files that need it. The graph that was used last leads; the other follows what it opens, selects and shows.
import "../sides.css";
import { el } from "../../ui/dom.ts";
import type { PlacedBox } from "../layout/visibleLayout.ts";
import { dimensions } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import type { TreeNode } from "../model/tree.ts";
import type { CanvasTheme } from "../paint/colour.ts";
import { formatValue, type Paint } from "../paint/paint.ts";
import { nameOf, type Place } from "./link.ts";
import type { GraphOptions, GraphView } from "./view.ts";

/** The mark of a box, the name of its counterpart, and the number of their pair. */
type BoxMark = [mark: number, partner: string, pair: number];

/** The second graph, and the comparison of both. */
export interface Beside {
  scene: Scene;
  /** The marks, in increasing order of severity. */
  marks: string[];
  /** The labels of the first difference on each side, "" for none. */
  first: [string, string];
  figures: Record<"relative" | "max_abs" | "cosine", (number | null)[]> & Record<"shape_a" | "shape_b", (number[] | null)[]>;
  summary: string;
  /** For each side the marks by label and module call. */
  names: Record<string, BoxMark>[];
}

const HATCHED = "only here"; // boxes without counterpart are recognizable without color too
const TOKENS: Record<string, keyof CanvasTheme> = { close: "close-fill", "only here": "only-fill", differs: "differs-fill", "first difference": "first-fill" };

/** Show `scene` and the second graph in `host`, each in a `View`; the options apply to the left one. */
export function openSides(View: typeof GraphView, host: HTMLElement, scene: Scene, beside: Beside, options: GraphOptions): GraphView {
  const names = beside.names.map((side) => new Map(Object.entries(side)));
  const partner = (side: number, name: string): string => (names[side].get(name) ?? names[side].get(`${name}:1`))?.[1] ?? "";
  const fold = (side: number, name: string): string => {
    const found = partner(side, name.replace(/^~/, ""));
    return found && (name.startsWith("~") ? `~${found}` : found);
  };
  const views: GraphView[] = [];
  let [leader, sent] = [0, ""];
  const lead = (side: number): void => {
    if (side !== leader) [leader, sent] = [side, ""];
  };

  /** Open and select in the other graph what was opened and selected in this one. */
  const followPlace = (side: number, hash: string): void => {
    if (side === 0) options.onPlace?.(hash);
    if (side !== leader || !views[1]) return;
    const [{ place }, other] = [views[side], views[1 - side]];
    const alone = other.place.open.filter((name) => !fold(1 - side, name));
    const open = [...place.open.map((name) => fold(side, name)).filter(Boolean), ...alone];
    const picks = place.picks.map(([name, pick]): Place["picks"][0] => [fold(side, name), pick]);
    const now = JSON.stringify([open, picks, place.rolled]);
    const selection = { at: fold(side, place.at), rolled: place.rolled };
    other.follow(now === sent ? selection : { ...selection, picks, open: open.flatMap((name) => [name, name.replace(/:\d+$/, ""), `${name}:1`]) });
    sent = now;
  };

  let painting = false;
  /** Use the paint of this graph for the other too, with one scale for both. */
  const sharePaint = (side: number): void => {
    if (painting || !views[1]) return;
    painting = true;
    const [{ colours }, other] = [views[side], views[1 - side].colours];
    if (other.which !== colours.which) other.put(colours.which);
    const [one, two] = [colours.paint, other.paint];
    if (one && two && !one.kinds) {
      const least = Math.min(one.least ?? Infinity, two.least ?? Infinity);
      const scale = { low: Math.min(one.low, two.low), high: Math.max(one.high, two.high), least: least < Infinity ? least : undefined, log: one.log };
      for (const each of [colours, other]) each.rescale(scale);
    }
    painting = false;
  };

  /** Move the camera of the other graph so that the counterpart of a visible box is at the same place on the screen. */
  const followCamera = (side: number): void => {
    if (side !== leader || !views[1]) return;
    const [{ viewport }, other] = [views[side], views[1 - side]];
    const { camera, visible, tree, selected, width, height } = viewport;
    const [x, y] = [camera.x + width / 2 / camera.scale, camera.y + height / 2 / camera.scale];
    const otherVisible = other.viewport.visible;
    let best: [PlacedBox, PlacedBox] | null = null;
    let least = Infinity;
    for (const box of visible.boxesIn({ x: camera.x, y: camera.y, width: width / camera.scale, height: height / camera.scale })) {
      const middle = box.y + (box.open ? 0 : box.height / 2);
      const far = Math.abs(middle - y) * (box.node.id === selected ? 0.01 : 1) + Math.abs(box.x + box.width / 2 - x) / 100;
      if (far >= least) continue;
      const counterpart = otherVisible.box(other.idOf(fold(side, nameOf(tree, box.node))));
      if (counterpart) [best, least] = [[box, counterpart], far];
    }
    if (!best) return;
    const [box, counterpart] = best;
    const { scale } = camera;
    const to = { scale, x: camera.x + counterpart.x + counterpart.width / 2 - box.x - box.width / 2, y: camera.y + counterpart.y - box.y };
    const from = other.viewport.camera;
    if (from.scale !== to.scale || Math.abs(from.x - to.x) + Math.abs(from.y - to.y) > 0.5 / scale) other.moveCamera(to);
  };

  const panes = [scene, beside.scene].map(() => el("div", { class: "ig-side" }));
  for (const event of ["pointerdown", "wheel", "keydown"]) panes.forEach((pane, side) => pane.addEventListener(event, () => lead(side), true));
  const toFirst = (): void => {
    lead(beside.first[0] ? 0 : 1);
    views[leader].select(beside.first[leader]);
  };
  const button = beside.first.some(Boolean) && el("button", { type: "button", class: "ig-toggle", click: toFirst }, "Go to the first difference");
  host.replaceChildren(el("div", { class: "ig-sides" }, el("header", {}, el("p", {}, beside.summary), button), ...panes));
  [scene, beside.scene].forEach((one, side) => {
    const own = { ...options, themeButton: side === 1, onPlace: (hash: string) => followPlace(side, hash), onDraw: () => followCamera(side), onPaint: () => sharePaint(side), onSearch: (text: string) => views[1 - side]?.writeSearch(text) };
    views.push(new View(panes[side], { ...one, model: `${"ab"[side]} · ${one.model}` }, own));
  });
  const rolled = views[0].place.rolled;
  views[1].show(rolled, views[0].place.details);
  views.forEach((view, side) => view.paint(paintOf(beside, names, side)));
  host.intusView = views[0];
  return views[0];
}

function paintOf(beside: Beside, names: Map<string, BoxMark>[], side: number): Paint {
  const { marks, figures } = beside;
  const facts = (node: TreeNode): [string, string][] => {
    const found = node.names.map((name) => names[side].get(name)).filter((mark) => mark !== undefined);
    if (!found.length) return [];
    const pair = found.filter(([, , number]) => number >= 0).sort(([a], [b]) => b - a)[0]?.[2] ?? -1; // the most severe of several passes
    const figure = (column: "relative" | "max_abs" | "cosine"): string => (figures[column][pair] == null ? "" : formatValue(PLAIN, figures[column][pair]!));
    const shapes = [figures.shape_a[pair], figures.shape_b[pair]].map((shape) => (shape ? dimensions(shape) : ""));
    return [
      ["Compared", marks[Math.max(...found.map(([mark]) => mark))]],
      [side ? "Counterpart in a" : "Counterpart in b", found[0][1] || "none"],
      ["Relative difference", figure("relative")],
      ["Largest difference", figure("max_abs")],
      ["Cosine similarity", figure("cosine")],
      ["Shapes", shapes[0] === shapes[1] ? shapes[0] : `a: ${shapes[0] || "none"}, b: ${shapes[1] || "none"}`],
    ];
  };
  const alone = ({ names: all }: TreeNode): boolean => {
    const found = all.map((name) => names[side].get(name)).filter((mark) => mark !== undefined);
    return found.length > 0 && found.every(([, partner]) => partner === "");
  };
  const values = new Map([...names[side]].map(([name, [mark]]) => [name, mark]));
  return { ...PLAIN, values, kinds: marks.map((word) => [word, TOKENS[word]]), hatched: [HATCHED, alone], facts, format: (value) => marks[value] };
}

const PLAIN: Paint = { title: "Differences", values: new Map(), low: 0, high: 1 };
