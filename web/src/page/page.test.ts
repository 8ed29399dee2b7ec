// Tests of the pure modules. tests/browser/page/test_page_modules.py runs them in node and reports failures.
import * as format from "../ui/format.ts";
import { cell, toCsv } from "./download/csv.ts";
import { plotSvg } from "./download/plotSvg.ts";
import { otherLines, othersAt } from "./model/comparedRuns.ts";
import { crowdOf, crowdText } from "./model/crowd.ts";
import { depthColours, oklch } from "./model/depthColours.ts";
import { headerCounts } from "./model/headerCounts.ts";
import { firstScore, groupScores, isIntrinsic, kindLabel, scoreLabel } from "./model/scoreLabels.ts";
import { baselines, chart, extent, filtered, layerOf, nearest, notesOf, strongest } from "./model/series.ts";
import { reach, strengthText } from "./model/strength.ts";
import { gain, sortUnits, unitChart, unitRows } from "./model/unitRows.ts";
import { gapText, mostFrequent } from "./panels/classTable.ts";
import { examples, probePort, snippet } from "./panels/firstSteps.ts";
import { cellAt, cellsOf, grid, mergedText } from "./panels/heatMap.ts";
import { found, matches } from "./panels/picker.ts";
import { inSight } from "./panels/rows.ts";
import { frameOf, stretches } from "./plot/frame.ts";
import { pointMarks } from "./plot/pointMarks.ts";
import { boundsText, doubtsText, notesText } from "./plot/plotPanel.ts";
import { padded, ticks } from "./plot/scales.ts";
import type { Columns, Run, ScoreInfo } from "./server/api.ts";
import { KnownPoints } from "./server/knownPoints.ts";
import { backoff } from "./server/stream.ts";
import { choiceOfHash, hashOfChoice } from "./state/choiceHash.ts";
import { requestedTarget, initial, reduce, type State } from "./state/state.ts";

function equal(found: unknown, expected: unknown): void {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`found ${a}, expected ${b}`);
}

function check(condition: boolean, message: string): void {
  if (!condition) throw new Error(message);
}

type Row = [address: string, epoch: number | null, value: number | null, more?: Partial<Record<keyof Columns, unknown>>];

function columns(rows: Row[]): Columns {
  const full = rows.map(([address, epoch, value, more]) => ({
    ...{ address, epoch, value, unit: -1, step: 0, kind: "output", target: "digit", score: "linear_f1", mode: "probe" },
    ...{ low: null, high: null, baseline: 0.1, n: 50, note: "", revision: 0 },
    ...more,
  }));
  const names = Object.keys(full[0] as object) as (keyof Columns)[];
  return Object.fromEntries(names.map((name) => [name, full.map((row) => row[name])])) as unknown as Columns;
}

const info = (name: string, label: string, baseline_of = ""): ScoreInfo => ({ name, label, about: "", baseline: "", interval: "", baseline_of, center: null });

const SCORES = [info("linear_f1", "Linear probe"), info("linear_f1.majority", "Majority", "linear_f1"), info("mean", "Mean")];

const run = (name: string, more: Partial<Run> = {}): Run => ({
  ...{ run: name, model: "Net", framework: "torch", started: 0, updated: 0, epochs: [0, 1], addresses: ["a", "b"] },
  ...{ targets: ["digit", "even"], scores: ["mean", "linear_f1"], kinds: ["output"], has_graph: false, group: "", points: 4, first: [], units: [] },
  layers: ["digit", "even"].map((target) => ({ score: "linear_f1", target })).concat({ score: "mean", target: "" }),
  ...more,
});

const withRuns = (state: State, ...runs: Run[]): State => reduce(state, { type: "runs", runs, scores: SCORES, kinds: { output: "output" } });

const about = { run: "r", model: "m", kind: "output", target: "digit", score: "linear_f1" };

const INKS = { text: "#000", "text-soft": "#555", line: "#ddd", surface: "#fff", warning: "#850", accent: "#00f" };

const OPTIONS = { title: "t", subtitle: "s", focus: null, inks: INKS, compared: [], center: null };

const tests: Record<string, () => void | Promise<void>> = {
  "layers are in network order and share one axis of epochs": () => {
    const made = chart(columns([["b", 0, 0.5], ["a", 1, 0.7], ["z", 2.5, 0.2]]), ["a", "b"]);
    equal(made.epochs, [0, 1, 2.5]);
    equal(made.series.map((s) => [s.address, s.value]), [["a", [null, 0.7, null]], ["b", [0.5, null, null]], ["z", [null, null, 0.2]]]);
    equal([made.low, made.high, made.missing], [0.2, 0.7, 0]);
  },
  "a value that is not a number differs from a missing one": () => {
    const made = chart(columns([["a", 0, null, { note: "3 NaN" }], ["a", 1, 1], ["b", 1, 1]]), ["a", "b"]);
    equal(made.series.map((s) => s.note), [["3 NaN", null], [null, null]]);
    equal(made.missing, 1);
    equal(chart(columns([["a", 0, null]]), []).series[0]?.note, ["no value"]);
  },
  "units are series of their own, of which the strongest are drawn": () => {
    const rows = [[3, 0, 0.1], [4, 0, -0.9], [3, 2, 0.2], [4, 2, 0.1], [5, 2, 0.15]] as const;
    const made = chart(columns(rows.map(([unit, epoch, value]): Row => ["conv", epoch, value, { unit }])), ["conv"]);
    equal(made.series.map((s) => [s.address, s.value]), [["conv[3]", [0.1, 0.2]], ["conv[4]", [-0.9, 0.1]], ["conv[5]", [null, 0.15]]]);
    equal([made.units, made.epochs, layerOf(made, "conv[3]")], [true, [0, 2], "conv"]);
    equal(strongest(made, 2).series.map((s) => s.address), ["conv[3]", "conv[4]"]);
    const layers = chart(columns([["a[3]", 0, 0.5]]), []);
    equal([layers.units, layerOf(layers, "a[3]"), strongest(layers, 0) === layers], [false, "a[3]", true]);
  },
  "a run with scores of units alone has a score, a target and a hypothesis": () => {
    const units = ["up", "down"].flatMap((target) => ["corr", "iou"].map((score) => ({ score, target })));
    const only = run("r", { scores: [], targets: [], layers: [], units });
    const state = withRuns(initial(), only);
    equal([state.choice.score, state.choice.target, state.hypothesis], ["corr", "up", { score: "corr", target: "up" }]);
    equal(groupScores(only, { scores: [], kinds: {} }), [{ label: "What single units respond to", scores: ["corr", "iou"] }]);
    const other = reduce(state, { type: "hypothesis", score: "iou", target: "down" });
    equal([other.choice.score, other.choice.target, requestedTarget(other.choice, only)], ["iou", "down", "down"]);
    const mixed = withRuns(initial(), run("r", { units }));
    equal(mixed.choice.score, "linear_f1");
    equal(reduce(mixed, { type: "hypothesis", score: "iou", target: "down" }).choice.score, "linear_f1");
  },
  "comparisons are sentences": () => {
    const gap = { value: 0.25, low: 0.1, high: 0.4, p: 0.00001, n: 1234, note: "" };
    equal(gapText(gap, '["layer","fc1"]'), "0.250 above fc1 (95 % interval 0.100 – 0.400), p < 0.0001, on the same 1,234 held-out rows.");
    equal(gapText({ ...gap, value: -0.5, low: null, p: 0.25, note: "few" }, '["epoch",3]'), "0.500 below epoch 3, p = 0.250, on the same 1,234 held-out rows. Note: few.");
    equal(gapText({ ...gap, value: null, note: "none are stored" }, '["epoch",3]'), "No comparison: none are stored.");
    equal([gapText(gap, ""), gapText(null, '["epoch",3]')], ["", ""]);
  },
  "of many classes those with the most rows are shown": () => {
    const confusion = { classes: ["a", "b", "c"], matrix: [[1, 0, 0], [0, 0, 0], [2, 0, 9]], f1: [], low: [], high: [] };
    equal([mostFrequent(confusion, 2), mostFrequent(confusion, 9)], [[0, 2], [0, 1, 2]]);
  },
  "interval and baseline of a score are described": () => {
    equal(boundsText({ ...info("a", "A"), interval: "95 %, by items", baseline: "chance" }), "Interval: 95 %, by items. Baseline: chance.");
    equal([boundsText(info("a", "A")), boundsText(undefined)], ["", ""]);
  },
  "of two rows of an epoch the one with the later step is used": () => {
    const rows: Row[] = [["a", 0, 0.9, { step: 7 }], ["a", 0, 0.1, { step: 3 }]];
    equal(chart(columns(rows), []).series[0]?.value, [0.9]);
  },
  "rows without an epoch are at 0 only if no row has one": () => {
    equal(chart(columns([["a", null, 0.4]]), []).epochs, [0]);
    equal(chart(columns([["a", null, 0.4], ["a", 3, 0.5]]), []).epochs, [3]);
  },
  "the axis includes intervals and baselines": () => {
    const made = chart(columns([["a", 0, 0.5, { low: 0.3, high: 0.95 }]]), []);
    equal(extent([made]), { low: 0.1, high: 0.95 });
    equal(baselines(chart(columns([["a", 0, 1], ["b", 0, 1, { baseline: 0.4 }]]), []), undefined, null), [[0.4]]);
  },
  "the baseline of a score with a center is on both of its sides": () => {
    const made = chart(columns([["a", 0, 0.5, { baseline: -0.3 }], ["b", 0, 0.5, { baseline: 0.2 }], ["b", 1, 0.5, { baseline: null }]]), []);
    equal(baselines(made, undefined, 0), [[-0.3, null], [0.3, null]]);
    equal(baselines(made, made.series[1], 0.5), [[0.2, null], [0.8, null]]);
    equal([extent([made]), extent([made], 0)], [{ low: -0.3, high: 0.5 }, { low: -0.3, high: 0.5 }]);
    equal(extent([chart(columns([["a", 0, 0.5]]), [])], 0), { low: -0.1, high: 0.5 });
    const dashed = (center: number | null): number =>
      [...plotSvg(made, { ...OPTIONS, center, colours: new Map() }).matchAll(/M[^"]+" fill="none" stroke="[^"]+" stroke-dasharray="5 4"/g)].length;
    equal([dashed(null), dashed(0)], [1, 2]);
  },
  "nearest epoch, newest epoch, and none": () => {
    equal([nearest([0, 2, 5], 4), nearest([0, 2, 5], null), nearest([], null), nearest([], 3)], [2, 2, -1, -1]);
  },
  "the first answer selects the newest run and a score of a target": () => {
    const state = withRuns(initial(), run("new"), run("old"));
    equal([state.choice.run, state.choice.score, state.choice.target, state.choice.kind], ["new", "linear_f1", "digit", "output"]);
  },
  "a choice from the address bar is kept if it exists": () => {
    const asked = choiceOfHash("#run=old&model=Net&score=mean&target=even&epoch=1&address=a");
    const state = withRuns(initial(asked), run("new"), run("old"));
    equal([state.choice.run, state.choice.score, state.choice.target, state.choice.epoch, state.choice.address], ["old", "mean", "even", 1, "a"]);
    equal(withRuns(initial(choiceOfHash("#run=gone&model=Net&score=none&epoch=7")), run("new")).choice.epoch, null);
  },
  "a run that does not exist is named until another is chosen": () => {
    const asked = withRuns(initial(choiceOfHash("#run=gone&model=Net")), run("new"), run("old"));
    equal([asked.gone, asked.choice.run, withRuns(asked, run("new")).gone], ["gone", "new", "gone"]);
    const moved = reduce(asked, { type: "choose", choice: { score: "mean" } });
    equal([moved.gone, reduce(moved, { type: "choose", choice: { run: "old", model: "Net" } }).gone], ["gone", ""]);
    equal(withRuns(initial(choiceOfHash("#run=old&model=Other")), run("new"), run("old")).gone, "");
    equal(withRuns(reduce(asked, { type: "choose", choice: { run: "old" } }), run("new")).gone, "old");
  },
  "changing the run keeps score and target, and drops layer and epoch": () => {
    const first = withRuns(initial({ score: "mean", target: "even" }), run("new"), run("old", { targets: ["even"] }));
    const picked = reduce(first, { type: "choose", choice: { address: "a", epoch: 1 } });
    equal([picked.choice.address, picked.choice.epoch], ["a", 1]);
    const removed = withRuns(picked, run("old"));
    equal([removed.choice.run, removed.choice.score, removed.choice.target, removed.choice.address, removed.choice.epoch], ["old", "mean", "even", null, null]);
  },
  "a score without a target requests none": () => {
    const state = withRuns(initial({ score: "mean" }), run("r"));
    const shown = state.runs[0];
    equal([requestedTarget(state.choice, shown), requestedTarget({ ...state.choice, score: "linear_f1" }, shown)], ["", "digit"]);
  },
  "setting equal values returns the same state": () => {
    const state = initial();
    check(reduce(state, { type: "set", values: { hover: null } }) === state, "a set of equal values made a new state");
  },
  "an empty list of runs is no error": () => {
    const state = withRuns(initial());
    equal([state.loaded, state.choice.run], [true, ""]);
  },
  "a hash contains the whole choice, for all names": () => {
    const choice = { run: "a&b=c#d", model: "Nét", score: "s", target: "t u", kind: "output", address: "layer\\:1[3]", epoch: 2.5, filter: "conv fc", group: "true", against: ['["a b","Net"]', '["c","Net"]'] };
    equal(choiceOfHash(hashOfChoice(choice)), choice);
    equal([choiceOfHash("#epoch=soon&x=%").epoch, choiceOfHash("#run=r").address], [null, null]);
    equal(choiceOfHash(hashOfChoice({ ...choice, address: "" })).address, "");
  },
  "CSV quotes special characters, and no name becomes a formula": () => {
    equal([cell('a"b'), cell("a,b"), cell("=1+1"), cell(-0.5), cell(null)], ['"a""b"', '"a,b"', "'=1+1", "-0.5", ""]);
    const made = chart(columns([["a", 0, 0.5], ["b", 1, null]]), []);
    equal(toCsv([[made, about]]).split("\r\n").slice(1), ["r,m,0,a,output,digit,linear_f1,0.5,,,0.1,50,,0", "r,m,1,b,output,digit,linear_f1,,,,0.1,50,no value,0", ""]);
  },
  "numbers of every size are formatted": () => {
    equal([0, 0.12345, 12.345, 1234.5, -0.5, 1.5e-7, 2e9, null, Infinity].map((x) => format.number(x)), ["0", "0.123", "12.35", "1235", "−0.500", "1.50e−7", "2.00e9", "NaN", "∞"]);
    equal([format.epoch(3), format.epoch(2.5), format.grouped(1234567), format.interval(null, 1)], ["3", "2.5", "1,234,567", ""]);
    equal([format.ago(5), format.ago(200), format.ago(7300), format.ago(200000)], ["just now", "3 min ago", "2 h ago", "2 d ago"]);
  },
  "ticks are round and within the range": () => {
    equal([ticks(0, 1, 5), ticks(-0.03, 0.31, 4), ticks(2, 2, 4)], [[0, 0.2, 0.4, 0.6, 0.8, 1], [0, 0.1, 0.2, 0.3], [2]]);
    equal([padded(0.01, 0.99), padded(0, 0)], [[0, 1], [0, 0.06]]);
    const [low, high] = padded(-3, 5);
    check(low < -3 && high > 5, "the data is not padded");
  },
  "the frame of the plot converts epochs to positions and back": () => {
    const frame = frameOf([chart(columns([["a", 0, 0.5], ["a", 9, 0.9]]), [])], { left: 50, top: 10, width: 600, height: 300 });
    check(Math.abs(frame.epochAt(frame.x(4.2)) - 4.2) < 1e-9, "an epoch changed");
    check(frame.y(0.9) < frame.y(0.5) && frame.y(0.1) <= 310 && frame.y(0.9) >= 10, "values are upside down or outside");
    check(frame.xTicks.every(Number.isInteger) && frame.xTicks.includes(9), "ticks between whole epochs");
  },
  "colors from input to output are distinct": () => {
    const made = [...depthColours(["a", "b", "c", "d"], "light").values()];
    equal([new Set(made).size, depthColours(["only"], "dark").size], [4, 1]);
    equal([oklch(1, 0, 0), oklch(0, 0, 0), oklch(0.628, 0.2577, 29.23)], ["#ffffff", "#000000", "#ff0000"]);
  },
  "a plot of many layers has their range, the middle half, and lines from the first to the last": () => {
    const of = (size: number): ReturnType<typeof chart> => chart(columns(Array.from({ length: size }, (_, i): Row => [`b.${i}`, 0, i === 7 ? null : i])), Array.from({ length: size }, (_, i) => `b.${i}`));
    const [few, all] = [of(200), of(1001)];
    equal([crowdOf(few, few).lines.length, crowdOf(few, few).bands, crowdText(crowdOf(few, few), 200, 200)], [200, [], ""]);
    const crowd = crowdOf(all, all);
    equal([crowd.lines.length, crowd.lines[0]?.address, crowd.lines.at(-1)?.address, new Set(crowd.lines).size], [40, "b.0", "b.1000", 40]);
    equal(crowd.bands, [{ low: [0], high: [1000] }, { low: [251], high: [750] }]);
    equal(crowdText(crowd, 1001, 1001), "Gray: the range of all 1,001 layers, darker the middle half. Lines: 40 from input to output; point, select or filter to see others.");
    const some = filtered(all, "b.99");
    equal([crowdOf(some, all).lines.length, crowdOf(some, all).bands.length, crowdText(crowdOf(some, all), some.series.length, 1001)], [11, 1, "Gray: the range of all 1,001 layers."]);
    const picture = plotSvg(all, { ...OPTIONS, focus: "b.33", colours: depthColours(all.series.map((s) => s.address), "light") });
    const strokes = [...picture.matchAll(/<path [^>]*stroke-width="(1|1.75|2.75)"/g)].map((m) => m[1]);
    equal([strokes.length, strokes.at(-1)], [41, "2.75"]);
    check(picture.includes(">960 other layers (gray)<") && picture.includes(">b.33<"), "the legend does not say what has no line");
  },
  "marks on the same pixel are one": () => {
    const part = { note: "incomplete: 3 of 4 arrays came" };
    const made = chart(columns([["a", 0, 0.5, part], ["b", 0, 0.5, part], ["c", 0, 0.9, part], ["d", 0, null], ["e", 0, null]]), []);
    const marks = pointMarks(frameOf([made], { left: 0, top: 0, width: 100, height: 100 }), made.epochs, made.series);
    equal([marks.partial.size, marks.missing.size, marks.revised.size], [2, 1, 0]);
  },
  "a long list has the rows in sight and some around them, a short list all": () => {
    equal([inSight(250, 20, 3000, 400), inSight(0, 20, 0, 400)], [[0, 250], [0, 0]]);
    equal([inSight(10_000, 20, 0, 400), inSight(10_000, 20, 4000, 400), inSight(10_000, 20, 1e9, 400)], [[0, 40], [190, 230], [9960, 10_000]]);
    check(inSight(10_000, 20, 0, 1e6)[1] < 200, "a list without a height has too many rows");
  },
  "options are found by all of the words, also in their headings": () => {
    const groups = [{ label: "Baselines", options: [{ value: "m", label: "Majority class" }] }, { label: "", options: [{ value: "1", label: "lr=0.1 seed=3" }, { value: "2", label: "lr=0.1 seed=4" }] }];
    equal([matches("lr=0.1 Seed=3", "SEED=3 lr"), matches("lr=0.1 seed=3", "seed=3 x")], [true, false]);
    equal(found(groups, "").flatMap((g) => g.options.map((o) => o.value)), ["m", "1", "2"]);
    equal(found(groups, "0.1 =4"), [{ label: "", options: [{ value: "2", label: "lr=0.1 seed=4" }] }]);
    equal(found(groups, "base class").length, 1);
  },
  "a line has gaps at missing values": () => {
    equal(stretches(6, (i) => i !== 2 && i !== 5), [[0, 1], [3, 4]]);
  },
  "a saved picture escapes names and shows lone points": () => {
    const made = chart(columns([["<b>&\u0000", 0, 0.5], ["<b>&\u0000", 1, null], ["<b>&\u0000", 2, 0.7]]), []);
    const picture = plotSvg(made, { ...OPTIONS, colours: new Map([["<b>&\u0000", "#123456"]]) });
    check(!picture.includes("<b>") && picture.includes("&lt;b&gt;&amp;\ufffd"), "a name became markup");
    check(!picture.includes("NaN") && !picture.includes("undefined"), "a missing value was drawn");
    check((picture.match(/h0\.1/g) ?? []).length === 2, "a lone point is not visible");
  },
  "the legend of a saved picture has all of 200 layers": () => {
    const names = Array.from({ length: 200 }, (_, i) => `block.${i}`);
    const picture = plotSvg(chart(columns(names.map((name): Row => [name, 0, 0.5])), names), { ...OPTIONS, colours: depthColours(names, "light") });
    check(names.every((name) => picture.includes(`>${name}<`)), "a layer is missing in the legend");
    const width = Number(/width="(\d+)"/.exec(picture)?.[1]);
    const places = [...picture.matchAll(/<text x="([\d.]+)" y="([\d.]+)" font-size="9"/g)].map((m) => [Number(m[1]), Number(m[2])]);
    equal([places.length, new Set(places.map(String)).size], [200, 200]);
    check(places.every(([x = 0, y = 0]) => x + 50 < width && y < 500), "a name is outside the picture");
  },
  "a score of part of the rows is marked": () => {
    const part = "labels matched by order of arrival; incomplete: 37 of 40 arrays came";
    const made = chart(columns([["a", 0, 0.5, { note: part }], ["a", 1, null, { note: part }], ["a", 2, 0.5]]), []);
    equal([made.partial, made.missing, made.series[0]?.part], [1, 1, [true, true, false]]);
    equal(doubtsText(made), "Incomplete points: 1 from part of the rows (ring), 1 without a value (cross).");
    equal(doubtsText(filtered(made, "b")), "");
  },
  "points of epochs of training are told apart from those of one state of the weights": () => {
    const changing = (more: Row[3], value: number | null = 0.5): boolean => chart(columns([["a", 0, value, more], ["b", 0, 0.5]]), []).changing;
    const train = { mode: "train", step: -1 };
    equal([changing(train), changing({ ...train, step: null }), changing({ ...train, note: "mine; parameters as before the training" })], [true, true, false]);
    equal([changing({ ...train, step: 3 }), changing(train, null), changing({ ...train, mode: "eval" }), changing({ ...train, mode: "" })], [false, false, false, false]);
  },
  "words of the user in a note mark nothing": () => {
    const named = "rows of 2 of 4 classes (incomplete, each position is a row)";
    const made = chart(columns([["a", 0, 0.5, { note: named }]]), []);
    equal([made.partial, made.series[0]?.part, made.series[0]?.positions], [0, [false], [false]]);
  },
  "a score of less than half the rows of another epoch counts as one of part of the rows": () => {
    const made = chart(columns([["a", 0, 0.9, { n: 455 }], ["a", 1, 0.5, { n: 3, note: "matched 16 of 1797 labels" }], ["a", 2, 0.9, { n: 230 }], ["b", 0, 0.1, { n: 20 }]]), []);
    equal(made.series.map((s) => s.part), [[false, true, false], [false, false, false]]);
    equal(made.partial, 1);
  },
  "notes that differ only in numbers are merged, without the numbers that differ": () => {
    const of = (note: string, revision = 0): Row[3] => ({ note, revision });
    const made = chart(columns([
      ["a", 0, 0.5, of("order not verified; matched 1,300 of 1797 labels", 2)],
      ["b", 1, 0.5, of("matched 16 of 1797 labels")],
      ["b", 0, 0.5, of("matched 128 of 1797 labels")],
      ["c", 0, 0.5, of("")],
    ]), []);
    equal(notesOf(made).map(({ parts, points }) => [parts.join(""), points]), [["matched … of 1797 labels", 3], ["order not verified", 1]]);
    equal(notesText(made), "1 point changed after the first scoring, as by late rows or another training under its name (diamond). Notes: “matched … of 1797 labels” on 3 points; “order not verified” on 1 point.");
    equal(notesText(chart(columns([["a", 0, 0.5]]), [])), "");
  },
  "a line is broken where rows change from items to positions, and few items are not part of many positions": () => {
    const by = { n: 3024, note: "each position is a row" };
    const made = chart(columns([["a", 0, 20.3, { n: 240 }], ["a", 1, 20.3, { n: 240 }], ["a", 2, 5.6, by], ["a", 3, 5.6, by], ["a", 4, 20.3, { n: 240 }]]), []);
    check(notesText(made).startsWith("Lines are broken where the rows change from items to positions"), notesText(made));
    equal(made.partial, 0);
    const [series] = made.series as [(typeof made.series)[0]];
    equal(stretches(5, () => true, series.positions), [[0, 1], [2, 3], [4]]);
    const picture = plotSvg(made, { ...OPTIONS, colours: new Map([["a", "red"]]) });
    equal((/<path d="([^"]*)" fill="none" stroke="red"/.exec(picture)?.[1]?.match(/M/g) ?? []).length, 3);
    equal(notesText(chart(columns([["a", 0, 5.6, by], ["a", 1, 5.5, by]]), [])), "Notes: “each position is a row” on 2 points.");
  },
  "of a score that is loaded again, only the epochs that changed are loaded": async () => {
    const [asked, query] = [[] as (number | undefined)[], { run: "r", model: "m", score: "s", target: "", kind: "", level: "layer", group: "" } as const];
    const replies = [
      { ...columns([["a", 0, 0.1], ["b", 0, 0.2], ["a", 1, 0.3]]), change: 5, whole: true },
      { ...columns([["a", 1, 0.4], ["b", 1, 0.5], ["a", 2, 0.6]]), change: 7, whole: false },
      { ...columns([["c", 0, 0.9]]), change: 9, whole: true }, // of another run of that name
    ];
    const known = new KnownPoints(async (_, after) => (asked.push(after), replies[asked.length - 1] as (typeof replies)[0]));
    equal((await known.of(query)).value, [0.1, 0.2, 0.3]);
    const later = await known.of({ ...query });
    equal([later.address, later.epoch, later.value], [["a", "b", "a", "b", "a"], [0, 0, 1, 1, 2], [0.1, 0.2, 0.4, 0.5, 0.6]]);
    equal([(await known.of(query)).value, asked], [[0.9], [undefined, 5, 7]]);
  },
  "the baseline and the interval of a single epoch are visible": () => {
    const made = chart(columns([["a", 0, 0.5, { low: 0.4, high: 0.6, revision: 1 }]]), []);
    const picture = plotSvg(made, { ...OPTIONS, focus: "a", colours: depthColours(["a"], "light") });
    check(/stroke-dasharray="5 4"/.test(picture) && /m-10 0h20" fill="none"/.test(picture), "the baseline has no width");
    check(/m-10 0h20V[\d.]+h-20Z/.test(picture), "the interval has no width");
    check(/m0 -9l9 9l-9 9l-9 -9z/.test(picture), "the revision is not marked");
  },
  "a filter keeps layers with one of its words, on the scale of all layers": () => {
    const made = chart(columns([["a.conv", 0, 0.1], ["a.norm", 0, 0.5], ["b.mlp", 0, 0.9]]), []);
    equal(filtered(made, "NORM, b.").series.map((s) => s.address), ["a.norm", "b.mlp"]);
    equal([filtered(made, "conv").low, filtered(made, "conv").high], [0.1, 0.9]);
    check(filtered(made, " ") === made, "an empty filter hid a layer");
  },
  "compared runs show the focused layer, or all layers unless too many": () => {
    const of = (value: number): ReturnType<typeof chart> => chart(columns([["a", 0, value], ["b", 0, 1]]), []);
    const compared = [{ key: '["x","Net"]', chart: of(0.2) }, { key: '["y","y"]', chart: of(0.3) }];
    equal(otherLines(of(0.5), compared, "a").map(({ series }) => series.value[0]), [0.2, 0.3]);
    equal([otherLines(of(0.5), compared, null).length, otherLines(of(0.5), compared, "gone").length], [4, 0]);
    equal(othersAt(compared, "a", 0), [["x · Net", 0.2], ["y", 0.3]]);
    equal(othersAt(compared, "a", 7), []);
    const deep = chart(columns(Array.from({ length: 50 }, (_, i): Row => [`l${i}`, 0, 1])), []);
    equal([otherLines(deep, [{ key: '["x","x"]', chart: deep }], null).length, otherLines(deep, [{ key: '["x","x"]', chart: deep }], "l7").length], [0, 1]);
  },
  "a missing run is removed from the comparison": () => {
    const key = (name: string): string => JSON.stringify([name, "Net"]);
    const asked = initial({ run: "new", model: "Net", against: [key("old"), key("gone"), key("new")] });
    equal(withRuns(asked, run("new"), run("old")).choice.against, [key("old")]);
  },
  "cells of the heat map are found by position": () => {
    const made = grid(["a", "b"], 4, 400);
    const x = made.names + 2.5 * made.cell.width;
    equal([cellAt(made, x, 1), cellAt(made, made.names - 1, 1), cellAt(made, x, 2 * made.cell.height + 1)], [{ row: 0, column: 2 }, null, null]);
    const deep = grid(Array.from({ length: 5000 }, () => "x"), 4, 400);
    check(deep.height < 500, "a deep network makes a tall page");
    equal([mergedText(made), mergedText(deep), mergedText(grid(["a"], 900, 400), true)], ["", "color: mean of up to 13 layers", "color: mean of up to 3 epochs"]);
    const names = Array.from({ length: 800 }, (_, i) => `x${i}`);
    const of = chart(columns(names.map((name, i): Row => [name, 0, i === 2 || i === 4 || i === 5 ? null : i])), names);
    const cells = cellsOf(grid(names, 1, 400), { chart: of, center: null });
    equal([cells.rows, cells.columns, ...cells.mean.slice(0, 2)], [400, 1, 0.5, 3]);
    equal([...cells.missing.slice(0, 4)], [0, 1, 1, 0]);
    check(Number.isNaN(cells.mean[2] as number), "a cell without a value has one");
  },
  "units have their curve, and are sorted with missing values last": () => {
    const of = (unit: number): Row[3] => ({ unit, target: "loop" });
    const units = unitChart(columns([["c", 0, 0.1, of(1)], ["c", 1, 0.4, of(1)], ["c", 1, null, of(2)], ["c", 1, 0.9, of(3)], ["c", 1, 1, { unit: 3 }]]), "loop");
    const rows = unitRows(units, 1);
    equal(sortUnits(rows, "value", true, null).map((r) => [r.address, r.layer, r.curve]), [["c[3]", "c", [null, 0.9]], ["c[1]", "c", [0.1, 0.4]], ["c[2]", "c", [null, null]]]);
    equal(sortUnits(rows, "value", false, null).map((r) => r.address), ["c[1]", "c[3]", "c[2]"]);
    equal(sortUnits(rows, "unit", true, null).map((r) => r.address), ["c[3]", "c[2]", "c[1]"]);
    equal(unitRows(units, 0).map((r) => [r.value, r.note]), [[0.1, null], [null, null], [null, null]]);
    equal(rows.map((r) => r.note), [null, "no value", null]);
  },
  "units on both sides of a center are ranked by their distance from it": () => {
    const of = (unit: number): Row[3] => ({ unit, baseline: 0.074 });
    const units = unitChart(columns([["c", 0, -0.81, of(0)], ["c", 0, -0.02, of(1)], ["c", 0, 0.3, of(2)]]), "digit");
    const rows = sortUnits(unitRows(units, 0), "value", true, 0);
    equal(rows.map((r) => [r.value, gain(r, 0)?.toFixed(3)]), [[-0.81, "0.736"], [0.3, "0.226"], [-0.02, "-0.054"]]);
    equal(sortUnits(rows, "gain", false, 0).map((r) => r.value), [-0.02, 0.3, -0.81]);
    equal([reach(units, 0), reach(units, null)], [{ low: 0, high: 0.81 }, { low: -0.81, high: 0.3 }]);
    equal([0, 0.5, null].map(strengthText), ["|value|", "|value − 0.5|", ""]);
    const areas = unitChart(columns([["c", 0, 0, { unit: 0, baseline: 0.6 }], ["c", 0, 0.55, { unit: 1, baseline: 0.6 }]]), "digit");
    equal(unitRows(areas, 0).map((r) => gain(r, 0.5)?.toFixed(2)), ["0.40", "-0.05"]);
    equal(strongest(areas, 1, 0.5).series.map((s) => s.address), ["c[0]"]);
  },
  "counts are of the run, losses are bad, and what is not known is not 0": () => {
    const none = { sent: 0, under_way: 0, unknown: 0, refused: 0, waiting: 0, queued: 0, postponed: 0, seconds_left: null, trouble: "", scored: 0, failed: 0, lost: 0, dropped: 0, incomplete: 0 };
    const ours = { ...none, run: "r", model: "Net", dropped: 3, sent: 4000, scored: 1000, waiting: 2500, queued: 2500, lost: 500 };
    const of = (key: string, more = {}, requests = {}) => headerCounts(run("r"), { runs: [{ ...ours, run: "other" }, { ...ours, ...more }], requests }, 2).find((c) => c.key === key);
    equal(["scores", "sent", "scored", "waiting", "dropped", "refused", "failed", "lost", "empty"].map((key) => of(key)?.text), ["4", "4,000", "1,000", "2,500", "3", "0", "0", "500", "2"]);
    equal([of("dropped")?.bad, of("refused")?.bad, of("scores")?.bad, of("unknown")], [true, false, false, undefined]);
    equal([of("waiting")?.label, of("waiting", { seconds_left: 130 })?.label, of("waiting", { queued: 0 })?.label, of("waiting", { waiting: 0 })?.label],
      ["waiting, time not known", "waiting, 3 min left", "waiting for their epoch to end", "waiting"]);
    equal(of("waiting", { trouble: "The disk is full." })?.label, "waiting, not scored now");
    equal([of("requests"), of("requests", {}, { refused: 2 })?.text], [undefined, "2"]);
    equal(headerCounts(run("r"), { runs: [] }, 0).map(({ text }) => text), ["4", "not known:", "0"]);
    equal(headerCounts(run("r"), {}, 0).map(({ key }) => key), ["scores", "empty"]);
  },
  "scores are grouped by their results, in the server's order, unknown ones last": () => {
    const scores = ["mean", "mine", "kurtosis", "a.b", "linear_f1.majority", "linear_f1"];
    const layers = scores.map((score) => ({ score, target: ["mean", "kurtosis"].includes(score) ? "" : "digit" }));
    const labels = { scores: SCORES, kinds: { grad_output: "gradient of the output" } };
    const groups = groupScores(run("r", { scores, layers }), labels);
    equal(groups.map((g) => g.scores), [["linear_f1", "a.b", "mine"], ["linear_f1.majority"], ["mean", "kurtosis"]]);
    equal([isIntrinsic(run("r", { layers }), "kurtosis"), isIntrinsic(run("r", { layers }), "mine")], [true, false]);
    equal([scoreLabel(labels, "mean"), scoreLabel(labels, "kurtosis")], ["Mean", "kurtosis"]);
    equal([kindLabel(labels, "grad_output"), kindLabel(labels, "output@eval")], ["gradient of the output", "output@eval"]);
  },
  "a target without results of the score is replaced": () => {
    const layers = [{ score: "r2", target: "age" }, { score: "linear_f1", target: "digit" }, { score: "mean", target: "" }];
    const mixed = run("r", { scores: ["linear_f1", "r2", "mean"], targets: ["digit", "age"], layers });
    const state = withRuns(initial({ score: "linear_f1", target: "digit" }), mixed);
    const picked = reduce(state, { type: "choose", choice: { score: "r2" } });
    equal([picked.choice.target, requestedTarget(picked.choice, mixed)], ["age", "age"]);
    const plain = reduce(picked, { type: "choose", choice: { score: "mean" } });
    equal([plain.choice.target, requestedTarget(plain.choice, mixed)], ["age", ""]);
  },
  "the first score of a target of numbers is shown with it": () => {
    const layers = [{ score: "linear_f1", target: "digit" }, { score: "linear_f1", target: "age" }, { score: "r2", target: "age" }];
    const mixed = run("r", { scores: ["linear_f1", "r2"], targets: ["digit", "age"], layers, first: [{ score: "r2", target: "age" }] });
    const { choice, labels } = withRuns(initial({ target: "age" }), mixed);
    equal([choice.score, firstScore(mixed, "age", labels), firstScore(mixed, "digit", labels)], ["r2", "r2", "linear_f1"]);
    equal(withRuns(initial(), mixed).choice.score, "linear_f1");
    const own = run("r", { ...mixed, layers: layers.slice(1), first: [] });
    equal(firstScore({ ...own, layers: [{ score: "r2", target: "age" }] }, "age", labels), "r2");
  },
  "the time between attempts to connect doubles up to fifteen seconds": () => {
    equal([0, 1, 2, 10, 1000].map(backoff), [500, 1000, 2000, 15000, 15000]);
  },
  "the first steps name the port that receives records": () => {
    equal([probePort("8080"), probePort("9000"), probePort("")], [8082, 9000, 8082]);
    equal([examples("8080"), examples("9000")], ["intus examples", "intus examples --port 9000"]);
    check(snippet("localhost", "8080").includes(`intus.probe(model, "localhost", 8082)`), "the snippet names another port");
  },
};

/** Name and error text ("" for none) of every test. */
export const results = Promise.all(Object.entries(tests).map(async ([name, test]) => {
  try {
    await test();
    return [name, ""];
  } catch (error) {
    return [name, String(error)];
  }
}));
