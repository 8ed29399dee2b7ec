// What a user stored of a unit besides its scores: examples with its behavior over them, and its verification.
import { el, svg } from "../../ui/dom.ts";
import { epoch as epochText, grouped, interval, number, shown } from "../../ui/format.ts";
import { share } from "../plot/scales.ts";
import type { UnitExample, UnitExamples, UnitFollowup, VerifiedPart } from "../server/api.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { setText } from "./elements.ts";
import { Picker } from "./picker.ts";

export function followups(dispatch: Dispatch): Part {
  let view: View | undefined;
  let drawn: UnitFollowup | null = null;
  const [title, about, body] = [el("h2"), el("span", { class: "soft" }), el("div")];
  const picker = new Picker("Unit", "followup", (value) => {
    if (value) dispatch({ type: "choose", choice: { ...view?.state.hypothesis, ...JSON.parse(value) } });
  });
  const root = el("section", { class: "panel followups", hidden: true }, el("div", { class: "head" }, title, about, picker.root), body);
  return {
    root,
    update(next: View): void {
      view = next;
      const { followup, hypothesis } = next.state;
      root.hidden = !followup?.units.length;
      if (!followup || drawn === followup) return;
      drawn = followup;
      const { units, unit, epoch, examples, verification } = followup;
      const [valueOf, empty] = [(address: string, epoch: number | null): string => JSON.stringify({ address, epoch }), !examples && !verification];
      const options = units.map((u) => ({ value: valueOf(u.unit, u.epoch), label: shown(u.epoch === null ? u.unit : `${u.unit}, epoch ${epochText(u.epoch)}`) }));
      picker.update(empty ? "" : valueOf(unit, epoch), [followup], () => [{ label: "", options: [{ value: "", label: "choose" }, ...options] }]);
      setText(title, `Examples and verification${empty ? "" : ` of ${unit} for ${hypothesis.target}`}`);
      setText(about, examples?.legend ?? "");
      body.replaceChildren(...(examples ? kinds(examples) : []), ...(verification ? [...verification.parts.flatMap(test), ...verification.notes.map((note) => el("p", { class: "soft" }, shown(`Note: ${note}`)))] : []));
    },
  };
}

/** Return a heading and a list for each kind of examples. */
function kinds({ examples, largest }: UnitExamples): HTMLElement[] {
  return [...new Set(examples.map(({ kind }) => kind))].flatMap((kind) => [
    el("h3", {}, kind),
    el("ul", {}, ...examples.filter((one) => one.kind === kind).map((one) => item(one, largest))),
  ]);
}

function item(example: UnitExample, largest: number): HTMLElement {
  const { record, behavior, label, picture, over, tokens } = example;
  const facts = el("span", { class: "facts" }, el("b", {}, number(behavior)), ` record ${record}, label ${shown(label)}`);
  if (!picture) return el("li", { class: "text" }, facts, tokens.length > 0 && text(example, largest));
  const image = el("span", { class: "picture" }, el("img", { src: picture, alt: `record ${record}` }), over && el("img", { src: over, alt: "" }));
  return el("li", {}, image, facts);
}

/** Return symbols, shaded by the behavior and underlined where the hypothesis holds. */
function text({ tokens, gap, shades, holds, labels, at, cut }: UnitExample, largest: number): HTMLElement {
  const spans = tokens.flatMap((token, i) => {
    const shade = shades[i] ?? 0;
    const span = el("span", { class: `${shade < 0 ? "low" : ""}${holds[i] ? " holds" : ""}${i === at ? " at" : ""}`, title: [shades.length > 0 && number((shade * largest) / 100), labels?.[i] && `label ${labels[i]}`].filter(Boolean).join(", ") }, token);
    span.style.setProperty("--shade", `${Math.abs(shade) * 0.45}%`);
    return [span, gap];
  });
  return el("span", { class: "tokens" }, cut[0] && "…", ...spans, cut[1] && "…");
}

function test({ title, measures, sentence, others }: VerifiedPart): HTMLElement[] {
  const rows = measures.map(({ name, value, low, high, n, verdict }) =>
    el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, number(value)), el("td", { class: "soft" }, interval(low, high)), el("td", { class: "soft" }, grouped(n)), el("td", {}, verdict, name === "difference" && others.length > 0 && strip(low, high, others))),
  );
  const head = ["", "Mean", "95 % interval", "n", ""].map((label) => el("th", { scope: "col" }, label));
  return [el("h3", {}, title), el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows))), el("p", { class: "soft" }, shown(sentence))];
}

/** Draw the interval of the unit's effect among the effects of other units of the layer, and a line at 0. */
function strip(low: number | null, high: number | null, others: number[]): SVGElement {
  const known = [0, ...others, low ?? 0, high ?? 0];
  const x = (value: number): number => 4 + 152 * share(value, Math.min(...known), Math.max(...known));
  const label = `The interval, beside the effects of ${others.length} random units`;
  const line = (value: number, kind: string): SVGElement => svg("line", { x1: x(value), x2: x(value), y1: 3, y2: 15, class: kind });
  const band = svg("rect", { x: x(low ?? 0) - 1, y: 0, width: x(high ?? 0) - x(low ?? 0) + 2, height: 18 });
  return svg("svg", { width: 160, height: 18, role: "img", "aria-label": label }, band, ...others.map((value) => line(value, "other")), line(0, "zero"));
}
