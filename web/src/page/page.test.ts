// What the pure modules promise; tests/browser/test_page_modules.py runs these in node and reports each.

import type { Columns, Run, ScoreInfo } from "./server/api.ts";
import { depthColours, oklch } from "./model/depthColours.ts";
import { otherLines, othersAt } from "./model/comparedRuns.ts";
import { cell, toCsv } from "./download/csv.ts";
import { examples, probePort, snippet } from "./panels/firstSteps.ts";
import * as format from "../ui/format.ts";
import { frameOf, stretches } from "./plot/frame.ts";
import { fromHash, toHash } from "./state/choiceHash.ts";
import { cellAt, grid } from "./panels/heatMap.ts";
import { doubtsText, notesText } from "./plot/plotPanel.ts";
import { padded, ticks } from "./plot/scales.ts";
import { chart, extent, filtered, highestBaseline, nearest, notesOf } from "./model/series.ts";
import { askedTarget, initial, reduce, type State } from "./state/state.ts";
import { backoff } from "./server/stream.ts";
import { plotSvg } from "./download/plotSvg.ts";
import { tally } from "./model/runCounts.ts";
import { sortUnits, unitAddress, unitRows } from "./model/unitRows.ts";
import { groupScores, isIntrinsic, kindLabel, scoreLabel } from "./model/scoreLabels.ts";

function same(found: unknown, wanted: unknown): void {
  const [a, b] = [JSON.stringify(found), JSON.stringify(wanted)];
  if (a !== b) throw new Error(`found ${a}, wanted ${b}`);
}

function holds(truth: boolean, what: string): void {
  if (!truth) throw new Error(what);
}

type Row = [address: string, epoch: number | null, value: number | null, more?: Partial<Record<keyof Columns, unknown>>];

function columns(rows: Row[]): Columns {
  const full = rows.map(([address, epoch, value, more]) => ({
    ...{ address, epoch, value, unit: -1, step: 0, kind: "output", target: "digit", score: "linear_f1" },
    ...{ low: null, high: null, baseline: 0.1, n: 50, note: "", revision: 0 },
    ...more,
  }));
  const names = Object.keys(full[0] as object) as (keyof Columns)[];
  return Object.fromEntries(names.map((name) => [name, full.map((row) => row[name])])) as unknown as Columns;
}

const info = (name: string, label: string, baseline_of = ""): ScoreInfo => ({ name, label, about: "", baseline: "", baseline_of });

const SCORES = [info("linear_f1", "Linear probe"), info("linear_f1.majority", "Majority", "linear_f1"), info("mean", "Mean")];

const run = (name: string, more: Partial<Run> = {}): Run => ({
  ...{ run: name, model: "Net", framework: "torch", started: 0, updated: 0, epochs: [0, 1], addresses: ["a", "b"] },
  ...{ targets: ["digit", "even"], scores: ["mean", "linear_f1"], kinds: ["output"], has_graph: false, points: 4, units: [] },
  layers: ["digit", "even"].map((target) => ({ score: "linear_f1", target })).concat({ score: "mean", target: "" }),
  ...more,
});

const withRuns = (state: State, ...runs: Run[]): State => reduce(state, { type: "runs", runs, scores: SCORES, kinds: { output: "output" } });

const about = { run: "r", model: "m", kind: "output", target: "digit", score: "linear_f1" };

const checks: Record<string, () => void> = {
  "layers follow the network and share one axis of epochs": () => {
    const made = chart(columns([["b", 0, 0.5], ["a", 1, 0.7], ["z", 2.5, 0.2]]), ["a", "b"]);
    same(made.epochs, [0, 1, 2.5]);
    same(made.series.map((s) => [s.address, s.value]), [["a", [null, 0.7, null]], ["b", [0.5, null, null]], ["z", [null, null, 0.2]]]);
    same([made.low, made.high, made.missing], [0.2, 0.7, 0]);
  },
  "a value that is no number is told from one never measured": () => {
    const made = chart(columns([["a", 0, null, { note: "3 NaN" }], ["a", 1, 1], ["b", 1, 1]]), ["a", "b"]);
    same(made.series.map((s) => s.note), [["3 NaN", null], [null, null]]);
    same(made.missing, 1);
    same(chart(columns([["a", 0, null]]), []).series[0]?.note, ["no value"]);
  },
  "of two rows for one epoch the later step stands": () => {
    const rows: Row[] = [["a", 0, 0.9, { step: 7 }], ["a", 0, 0.1, { step: 3 }]];
    same(chart(columns(rows), []).series[0]?.value, [0.9]);
  },
  "rows that know no epoch stand at 0 only when none does": () => {
    same(chart(columns([["a", null, 0.4]]), []).epochs, [0]);
    same(chart(columns([["a", null, 0.4], ["a", 3, 0.5]]), []).epochs, [3]);
  },
  "the axis holds intervals and baselines": () => {
    const made = chart(columns([["a", 0, 0.5, { low: 0.3, high: 0.95 }]]), []);
    same(extent([made]), { low: 0.1, high: 0.95 });
    same(highestBaseline(chart(columns([["a", 0, 1], ["b", 0, 1, { baseline: 0.4 }]]), []).series, 1), [0.4]);
  },
  "the nearest epoch, the newest, and none": () => {
    same([nearest([0, 2, 5], 4), nearest([0, 2, 5], null), nearest([], null), nearest([], 3)], [2, 2, -1, -1]);
  },
  "the first answer picks the newest run and what layers know": () => {
    const state = withRuns(initial(), run("new"), run("old"));
    same([state.choice.run, state.choice.score, state.choice.target, state.choice.kind], ["new", "linear_f1", "digit", "output"]);
  },
  "a choice from the address bar is kept where it exists": () => {
    const asked = fromHash("#run=old&model=Net&score=mean&target=even&epoch=1&address=a");
    const state = withRuns(initial(asked), run("new"), run("old"));
    same([state.choice.run, state.choice.score, state.choice.target, state.choice.epoch, state.choice.address], ["old", "mean", "even", 1, "a"]);
    same(withRuns(initial(fromHash("#run=gone&model=Net&score=none&epoch=7")), run("new")).choice.epoch, null);
  },
  "another run keeps score and target and drops what was picked in it": () => {
    const first = withRuns(initial({ score: "mean", target: "even" }), run("new"), run("old", { targets: ["even"] }));
    const picked = reduce(first, { type: "choose", choice: { address: "a", epoch: 1 } });
    same([picked.choice.address, picked.choice.epoch], ["a", 1]);
    const removed = withRuns(picked, run("old"));
    same([removed.choice.run, removed.choice.score, removed.choice.target, removed.choice.address, removed.choice.epoch], ["old", "mean", "even", null, null]);
  },
  "an intrinsic score asks for no target": () => {
    const state = withRuns(initial({ score: "mean" }), run("r"));
    const shown = state.runs[0];
    same([askedTarget(state.choice, shown), askedTarget({ ...state.choice, score: "linear_f1" }, shown)], ["", "digit"]);
  },
  "nothing new is no change": () => {
    const state = initial();
    holds(reduce(state, { type: "set", values: { hover: null } }) === state, "a set of equal values made a new state");
  },
  "an empty list of runs is not an error": () => {
    const state = withRuns(initial());
    same([state.loaded, state.choice.run], [true, ""]);
  },
  "a hash says all that was chosen, whatever the names": () => {
    const choice = { run: "a&b=c#d", model: "Nét", score: "s", target: "t u", kind: "output", address: "layer\\:1[3]", epoch: 2.5, filter: "conv fc", against: ['["a b","Net"]', '["c","Net"]'] };
    same(fromHash(toHash(choice)), choice);
    same([fromHash("#epoch=soon&x=%").epoch, fromHash("#run=r").address], [null, null]);
    same(fromHash(toHash({ ...choice, address: "" })).address, "");
  },
  "csv quotes what would break it, and no name becomes a formula": () => {
    same([cell('a"b'), cell("a,b"), cell("=1+1"), cell(-0.5), cell(null)], ['"a""b"', '"a,b"', "'=1+1", "-0.5", ""]);
    const made = chart(columns([["a", 0, 0.5], ["b", 1, null]]), []);
    same(toCsv([[made, about]]).split("\r\n").slice(1), ["r,m,0,a,output,digit,linear_f1,0.5,,,0.1,50,,0", "r,m,1,b,output,digit,linear_f1,,,,0.1,50,no value,0", ""]);
  },
  "numbers read well at every size": () => {
    same([0, 0.12345, 12.345, 1234.5, -0.5, 1.5e-7, 2e9, null, Infinity].map((x) => format.number(x)), ["0", "0.123", "12.35", "1235", "−0.500", "1.50e−7", "2.00e9", "NaN", "∞"]);
    same([format.epoch(3), format.epoch(2.5), format.count(1234567), format.interval(null, 1)], ["3", "2.5", "1\u202f234\u202f567", ""]);
    same([format.ago(5), format.ago(200), format.ago(7300), format.ago(200000)], ["just now", "3 min ago", "2 h ago", "2 d ago"]);
  },
  "ticks are round and inside": () => {
    same([ticks(0, 1, 5), ticks(-0.03, 0.31, 4), ticks(2, 2, 4)], [[0, 0.2, 0.4, 0.6, 0.8, 1], [0, 0.1, 0.2, 0.3], [2]]);
    same([padded(0.01, 0.99), padded(0, 0)], [[0, 1], [0, 0.06]]);
    const [low, high] = padded(-3, 5);
    holds(low < -3 && high > 5, "no air around the data");
  },
  "the plot's frame turns places into epochs and back": () => {
    const frame = frameOf([chart(columns([["a", 0, 0.5], ["a", 9, 0.9]]), [])], { left: 50, top: 10, width: 600, height: 300 });
    holds(Math.abs(frame.epochAt(frame.x(4.2)) - 4.2) < 1e-9, "an epoch does not come back");
    holds(frame.y(0.9) < frame.y(0.5) && frame.y(0.1) <= 310 && frame.y(0.9) >= 10, "values stand upside down or outside");
    holds(frame.xTicks.every(Number.isInteger) && frame.xTicks.includes(9), "ticks between whole epochs");
  },
  "colours go from input to output, each another": () => {
    const made = [...depthColours(["a", "b", "c", "d"], "light").values()];
    same([new Set(made).size, depthColours(["only"], "dark").size], [4, 1]);
    same([oklch(1, 0, 0), oklch(0, 0, 0), oklch(0.628, 0.2577, 29.23)], ["#ffffff", "#000000", "#ff0000"]);
  },
  "a line breaks where nothing is known": () => {
    same(stretches(6, (i) => i !== 2 && i !== 5), [[0, 1], [3, 4]]);
  },
  "a saved picture is safe and whole": () => {
    const made = chart(columns([["<b>&\u0000", 0, 0.5], ["<b>&\u0000", 1, null], ["<b>&\u0000", 2, 0.7]]), []);
    const look = { title: "t", subtitle: "s", focus: null, text: "#000", soft: "#555", line: "#ddd", background: "#fff", warning: "#850", compared: [] };
    const picture = plotSvg(made, { ...look, colours: new Map([["<b>&\u0000", "#123456"]]) });
    holds(!picture.includes("<b>") && picture.includes("&lt;b&gt;&amp;\ufffd"), "a name became markup");
    holds(!picture.includes("NaN") && !picture.includes("undefined"), "a missing value was drawn");
    holds((picture.match(/h0\.1/g) ?? []).length === 2, "a lone point is not visible");
  },
  "a saved picture names every layer, however many": () => {
    const names = Array.from({ length: 200 }, (_, i) => `block.${i}`);
    const look = { title: "t", subtitle: "s", focus: null, text: "#000", soft: "#555", line: "#ddd", background: "#fff", warning: "#850", compared: [] };
    const picture = plotSvg(chart(columns(names.map((name): Row => [name, 0, 0.5])), names), { ...look, colours: depthColours(names, "light") });
    holds(names.every((name) => picture.includes(`>${name}<`)), "a layer is missing in the legend");
    const width = Number(/width="(\d+)"/.exec(picture)?.[1]);
    const places = [...picture.matchAll(/<text x="([\d.]+)" y="([\d.]+)" font-size="9"/g)].map((m) => [Number(m[1]), Number(m[2])]);
    same([places.length, new Set(places.map(String)).size], [200, 200]);
    holds(places.every(([x = 0, y = 0]) => x + 50 < width && y < 500), "a name stands outside the picture");
  },
  "a score of part of the rows is told from one of all": () => {
    const part = "labels matched by order of arrival; incomplete: 37 of 40 arrays came";
    const made = chart(columns([["a", 0, 0.5, { note: part }], ["a", 1, null, { note: part }], ["a", 2, 0.5]]), []);
    same([made.partial, made.missing, made.series[0]?.part], [1, 1, [true, true, false]]);
    same(doubtsText(made), "Points to doubt: 1 from part of the rows (ringed), 1 without a value (crossed).");
    same(doubtsText(filtered(made, "b")), "");
  },
  "a score of less than half the rows of another epoch is one of part of the rows": () => {
    const made = chart(columns([["a", 0, 0.9, { n: 455 }], ["a", 1, 0.5, { n: 3, note: "matched 16 of 1797 labels" }], ["a", 2, 0.9, { n: 230 }], ["b", 0, 0.1, { n: 20 }]]), []);
    same(made.series.map((s) => s.part), [[false, true, false], [false, false, false]]);
    same(made.partial, 1);
  },
  "notes that differ by their numbers alone are one, with the newest numbers": () => {
    const of = (note: string, revision = 0): Row[3] => ({ note, revision });
    const made = chart(columns([
      ["a", 0, 0.5, of("order not verified; matched 1,300 of 1797 labels", 2)],
      ["b", 1, 0.5, of("matched 16 of 1797 labels")],
      ["b", 0, 0.5, of("matched 128 of 1797 labels")],
      ["c", 0, 0.5, of("")],
    ]), []);
    same(notesOf(made), [{ text: "matched 16 of 1797 labels", points: 3 }, { text: "order not verified", points: 1 }]);
    same(notesText(made), "1 scored again when more came (in a diamond). Noted: “matched 16 of 1797 labels” on 3 points; “order not verified” on 1 point.");
    same(notesText(chart(columns([["a", 0, 0.5]]), [])), "");
  },
  "one epoch alone has a baseline and an interval that can be seen": () => {
    const look = { title: "t", subtitle: "s", focus: "a", text: "#000", soft: "#555", line: "#ddd", background: "#fff", warning: "#850", compared: [] };
    const made = chart(columns([["a", 0, 0.5, { low: 0.4, high: 0.6, revision: 1 }]]), []);
    const picture = plotSvg(made, { ...look, colours: depthColours(["a"], "light") });
    holds(/stroke-dasharray="5 4"/.test(picture) && /m-10 0h20" fill="none"/.test(picture), "the baseline has no width");
    holds(/m-10 0h20V[\d.]+h-20Z/.test(picture), "the interval has no width");
    holds(/m0 -9l9 9l-9 9l-9 -9z/.test(picture), "the revision is not marked");
  },
  "a filter lets through layers with one of its words, on the scale of all": () => {
    const made = chart(columns([["a.conv", 0, 0.1], ["a.norm", 0, 0.5], ["b.mlp", 0, 0.9]]), []);
    same(filtered(made, "NORM, b.").series.map((s) => s.address), ["a.norm", "b.mlp"]);
    same([filtered(made, "conv").low, filtered(made, "conv").high], [0.1, 0.9]);
    holds(filtered(made, " ") === made, "no word hid something");
  },
  "runs compared show the layer in focus, or all of them while they can be told apart": () => {
    const of = (value: number): ReturnType<typeof chart> => chart(columns([["a", 0, value], ["b", 0, 1]]), []);
    const compared = [{ key: '["x","Net"]', chart: of(0.2) }, { key: '["y","y"]', chart: of(0.3) }];
    same(otherLines(of(0.5), compared, "a").map(({ series }) => series.value[0]), [0.2, 0.3]);
    same([otherLines(of(0.5), compared, null).length, otherLines(of(0.5), compared, "gone").length], [4, 0]);
    same(othersAt(compared, "a", 0), [["x · Net", 0.2], ["y", 0.3]]);
    same(othersAt(compared, "a", 7), []);
    const deep = chart(columns(Array.from({ length: 50 }, (_, i): Row => [`l${i}`, 0, 1])), []);
    same([otherLines(deep, [{ key: '["x","x"]', chart: deep }], null).length, otherLines(deep, [{ key: '["x","x"]', chart: deep }], "l7").length], [0, 1]);
  },
  "a run that is gone is compared no more": () => {
    const key = (name: string): string => JSON.stringify([name, "Net"]);
    const asked = initial({ run: "new", model: "Net", against: [key("old"), key("gone"), key("new")] });
    same(withRuns(asked, run("new"), run("old")).choice.against, [key("old")]);
  },
  "the heat map finds its cells": () => {
    const made = grid(["a", "b"], 4, 400);
    const x = made.names + 2.5 * made.cell.width;
    same([cellAt(made, x, 1), cellAt(made, made.names - 1, 1), cellAt(made, x, 2 * made.cell.height + 1)], [{ row: 0, column: 2 }, null, null]);
    holds(grid(Array.from({ length: 5000 }, () => "x"), 4, 400).height < 500, "a deep network makes a tall page");
  },
  "units bear their curve, best first, unknown last": () => {
    const of = (unit: number): Row[3] => ({ unit, target: "loop" });
    const rows = unitRows(columns([["c", 0, 0.1, of(1)], ["c", 1, 0.4, of(1)], ["c", 1, null, of(2)], ["c", 1, 0.9, of(3)], ["c", 1, 1, { unit: 3 }]]), "loop");
    same(sortUnits(rows, "value", true).map((r) => [unitAddress(r), r.curve]), [["c[3]", [0.9]], ["c[1]", [0.1, 0.4]], ["c[2]", [null]]]);
    same(sortUnits(rows, "value", false).map((r) => r.unit), [1, 3, 2]);
    same(sortUnits(rows, "unit", true).map((r) => r.unit), [3, 2, 1]);
  },
  "counts are the run's, summed over servers, and losses stand out": () => {
    const ours = { run: "r", model: "Net" };
    const status = { runs: [{ ...ours, dropped: 3, refused: 1 }, { ...ours, scored: 7, refused: 1 }, { run: "other", model: "Net", dropped: 9 }] };
    const of = (key: string, requests = {}) => tally(run("r"), { ...status, requests }, 2).find((c) => c.key === key);
    same(["scores", "dropped", "refused", "failed", "empty"].map((key) => of(key)?.value), [4, 3, 2, 0, 2]);
    same([of("dropped")?.bad, of("scores")?.bad], [true, false]);
    same([of("requests"), of("requests", { refused: 2 })?.value], [undefined, 2]);
  },
  "scores are grouped by what the results say, in the server's order, those it does not know last": () => {
    const scores = ["mean", "mine", "kurtosis", "a.b", "linear_f1.majority", "linear_f1"];
    const layers = scores.map((score) => ({ score, target: ["mean", "kurtosis"].includes(score) ? "" : "digit" }));
    const words = { scores: SCORES, kinds: { grad_output: "gradient of the output" } };
    const groups = groupScores(run("r", { scores, layers }), words);
    same(groups.map((g) => g.scores), [["linear_f1", "a.b", "mine"], ["linear_f1.majority"], ["mean", "kurtosis"]]);
    same([isIntrinsic(run("r", { layers }), "kurtosis"), isIntrinsic(run("r", { layers }), "mine")], [true, false]);
    same([scoreLabel(words, "mean"), scoreLabel(words, "kurtosis")], ["Mean", "kurtosis"]);
    same([kindLabel(words, "grad_output"), kindLabel(words, "output@eval")], ["gradient of the output", "output@eval"]);
  },
  "a target that a score has no results of gives way to one that it has": () => {
    const layers = [{ score: "r2", target: "age" }, { score: "linear_f1", target: "digit" }, { score: "mean", target: "" }];
    const mixed = run("r", { scores: ["linear_f1", "r2", "mean"], targets: ["digit", "age"], layers });
    const state = withRuns(initial({ score: "linear_f1", target: "digit" }), mixed);
    const picked = reduce(state, { type: "choose", choice: { score: "r2" } });
    same([picked.choice.target, askedTarget(picked.choice, mixed)], ["age", "age"]);
    const plain = reduce(picked, { type: "choose", choice: { score: "mean" } });
    same([plain.choice.target, askedTarget(plain.choice, mixed)], ["age", ""]);
  },
  "tries to reconnect grow rare, never rarer than every fifteen seconds": () => {
    same([0, 1, 2, 10, 1000].map(backoff), [500, 1000, 2000, 15000, 15000]);
  },
  "the lines to paste name the port that takes records": () => {
    same([probePort("8080"), probePort("9000"), probePort("")], [8082, 9000, 8082]);
    same([examples("8080"), examples("9000")], ["intus examples", "intus examples --port 9000"]);
    holds(snippet("localhost", "8080").includes(`intus.probe(model, "localhost", 8082)`), "the snippet names another port");
  },
};

/** Name and error text ("" for none) of every check. */
export const results = Object.entries(checks).map(([name, check]) => {
  try {
    check();
    return [name, ""];
  } catch (error) {
    return [name, String(error)];
  }
});
