// Two graphs side by side (intus.viewing.side_by_side), a program of its own, `intusSides`, for the files that show it: marked with what differs, and walking together. The one last touched
// leads; the other opens, chooses and looks as its partners do.
import "../sides.css";
import { el } from "../dom.ts";
import type { PlacedBox } from "../layout/visibleLayout.ts";
import { dimensions } from "../model/facts.ts";
import type { Scene } from "../model/scene.ts";
import type { TreeNode } from "../model/tree.ts";
import type { CanvasTheme } from "../paint/colour.ts";
import { formatValue, type Paint } from "../paint/paint.ts";
import { nameOf, type Place } from "./link.ts";
import type { GraphOptions, GraphView } from "./view.ts";

type Mark = [mark: number, partner: string, pair: number];

export interface Beside {
  scene: Scene;
  /** What a box can be marked as, from the least to the worst. */
  marks: string[];
  /** The labels of where they part, "" for none. */
  first: [string, string];
  figures: Record<"relative" | "max_abs" | "cosine", (number | null)[]> & Record<"shape_a" | "shape_b", (number[] | null)[]>;
  summary: string;
  /** For each side, by label and module call: the mark, the partner's name, the number of the pair's figures. */
  names: Record<string, Mark>[];
}

const HATCHED = "only here"; // what has no counterpart is told without colours too
const TOKENS: Record<string, keyof CanvasTheme> = { close: "close-fill", "only here": "only-fill", differs: "differs-fill", "first difference": "first-fill" };

/** Show `scene` and the one beside it in `host`, each in a `View`; the options are the left one's. */
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

  const walk = (side: number, hash: string): void => {
    if (side === 0) options.onPlace?.(hash);
    if (side !== leader || !views[1]) return;
    const [{ place }, other] = [views[side], views[1 - side]];
    const alone = other.place.open.filter((name) => !fold(1 - side, name));
    const open = [...place.open.map((name) => fold(side, name)).filter(Boolean), ...alone];
    const picks = place.picks.map(([name, pick]): Place["picks"][0] => [fold(side, name), pick]);
    const now = JSON.stringify([open, picks, place.rolled]);
    const as = { at: fold(side, place.at), rolled: place.rolled };
    other.follow(now === sent ? as : { ...as, picks, open: open.flatMap((name) => [name, name.replace(/:\d+$/, ""), `${name}:1`]) });
    sent = now;
  };

  let painting = false;
  /** Colour the other as this one is, and both on one scale. */
  const paint = (side: number): void => {
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

  /** Look at the other from where the partner of a box in sight stands as that box does. */
  const look = (side: number): void => {
    if (side !== leader || !views[1]) return;
    const [{ look: seen }, other] = [views[side], views[1 - side]];
    const { camera, visible, tree, selected, width, height } = seen;
    const [x, y] = [camera.x + width / 2 / camera.scale, camera.y + height / 2 / camera.scale];
    const there = other.look.visible;
    let best: [PlacedBox, PlacedBox] | null = null;
    let least = Infinity;
    for (const box of visible.boxesIn({ x: camera.x, y: camera.y, width: width / camera.scale, height: height / camera.scale })) {
      const middle = box.y + (box.open ? 0 : box.height / 2);
      const far = Math.abs(middle - y) * (box.node.id === selected ? 0.01 : 1) + Math.abs(box.x + box.width / 2 - x) / 100;
      if (far >= least) continue;
      const mate = there.box(other.idOf(fold(side, nameOf(tree, box.node))));
      if (mate) [best, least] = [[box, mate], far];
    }
    if (!best) return;
    const [box, mate] = best;
    const { scale } = camera;
    const to = { scale, x: camera.x + mate.x + mate.width / 2 - box.x - box.width / 2, y: camera.y + mate.y - box.y };
    const was = other.look.camera;
    if (was.scale !== to.scale || Math.abs(was.x - to.x) + Math.abs(was.y - to.y) > 0.5 / scale) other.lookFrom(to);
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
    const own = { ...options, themeButton: side === 1, onPlace: (hash: string) => walk(side, hash), onLook: () => look(side), onPaint: () => paint(side), onSearch: (text: string) => views[1 - side]?.writeSearch(text) };
    views.push(new View(panes[side], { ...one, model: `${"ab"[side]} · ${one.model}` }, own));
  });
  const rolled = views[0].place.rolled;
  views[1].roll(rolled);
  views.forEach((view, side) => view.paint(paintOf(beside, names, side)));
  host.intusView = views[0];
  return views[0];
}

function paintOf(beside: Beside, names: Map<string, Mark>[], side: number): Paint {
  const { marks, figures } = beside;
  const facts = (node: TreeNode): [string, string][] => {
    const found = node.names.map((name) => names[side].get(name)).filter((mark) => mark !== undefined);
    if (!found.length) return [];
    const pair = found.filter(([, , number]) => number >= 0).sort(([a], [b]) => b - a)[0]?.[2] ?? -1; // of many passes, the worst
    const number = (column: "relative" | "max_abs" | "cosine"): string => (figures[column][pair] == null ? "" : formatValue(PLAIN, figures[column][pair]!));
    const shapes = [figures.shape_a[pair], figures.shape_b[pair]].map((shape) => (shape ? dimensions(shape) : ""));
    return [
      ["Compared", marks[Math.max(...found.map(([mark]) => mark))]],
      [side ? "In a" : "In b", found[0][1] || "without a partner"],
      ["Relative", number("relative")],
      ["Largest", number("max_abs")],
      ["Cosine", number("cosine")],
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
