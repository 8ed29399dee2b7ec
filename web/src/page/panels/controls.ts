// The controls: score, target, kind, and the epoch with a slider, a player and "follow live".
import { el } from "../../ui/dom.ts";
import { epoch as epochText, shown } from "../../ui/format.ts";
import { icon, PAUSE, PLAY } from "../../ui/icons.ts";
import { firstScore, groupScores, isIntrinsic, isOfUnits, kindLabel, scoreLabel, targetsOf } from "../model/scoreLabels.ts";
import { groupOf } from "../state/state.ts";
import type { Dispatch, Part, View } from "../state/view.ts";
import { setText } from "./elements.ts";
import { type Group, Picker } from "./picker.ts";

const FRAME = 500; // milliseconds per epoch while playing

const FIGURE = { score: "kmeans_mi", kind: "output", address: null, epoch: null, filter: "" };
const FIGURE_2 = "Mutual information of k-means clusters and labels";

export function controls(dispatch: Dispatch): Part {
  const scores = new Picker("Score", "score", (score) => dispatch({ type: "choose", choice: { score } }));
  let scoreOf = (_target: string): string => "";
  const targets = new Picker("Target", "target", (target) => dispatch({ type: "choose", choice: { target, score: scoreOf(target) } }));
  const kinds = new Picker("Of", "kind", (kind) => dispatch({ type: "choose", choice: { kind } }));
  const time = timeline(dispatch);
  const root = el("div", { class: "controls", role: "group", "aria-label": "What to show" });
  const figure = el(
    "button",
    { class: "toggle", type: "button", title: FIGURE_2, click: () => dispatch({ type: "choose", choice: FIGURE }) },
    "Paper’s Figure 2",
  );
  let grouped = "";
  const mean = el("button", { class: "toggle", type: "button", click: () => dispatch({ type: "choose", choice: { group: grouped ? "" : "true" } }) });
  root.append(scores.root, targets.root, kinds.root, figure, mean, time.root);
  return {
    root,
    update(view: View): void {
      const { run, state } = view;
      root.hidden = !run;
      if (!run) return;
      const group = (label: string, values: string[], name: (value: string) => string): Group => ({ label, options: values.map((value) => ({ value, label: name(value) })) });
      const { labels, choice } = state;
      scores.root.hidden = run.scores.length + run.units.length === 0;
      scores.update(choice.score, [run, labels], () => groupScores(run, labels).map((of) => group(of.label, of.scores, (score) => scoreLabel(labels, score))));
      const intrinsic = isIntrinsic(run, choice.score);
      const isFirst = choice.score === firstScore(run, choice.target, labels);
      scoreOf = (target) => (isFirst ? firstScore(run, target, labels) : choice.score);
      const fitting = intrinsic || (isFirst && run.targets.length > 0) ? run.targets : targetsOf(run, choice.score);
      targets.update(choice.target, [run, choice.score, choice.target], () => [group("", fitting, shown)]);
      targets.root.hidden = fitting.length === 0;
      targets.disabled = intrinsic;
      targets.root.title = intrinsic ? "This score needs no target" : "";
      kinds.update(choice.kind, [run, labels], () => [group("", run.kinds, (kind) => kindLabel(labels, kind))]);
      kinds.root.hidden = run.kinds.length < 2 || isOfUnits(run, choice.score);
      figure.hidden = !run.scores.includes(FIGURE.score) || run.targets.length === 0;
      figure.setAttribute("aria-pressed", String(choice.score === FIGURE.score));
      const runs = groupOf(state, run).length;
      grouped = choice.group;
      mean.hidden = runs < 2;
      setText(mean, `Mean over ${runs} runs`);
      mean.setAttribute("aria-pressed", String(grouped !== ""));
      time.update(view);
    },
  };
}

function timeline(dispatch: Dispatch): Part {
  let epochs: number[] = [];
  let at = -1;
  let playing = false;
  let timer = 0;
  const go = (index: number): void => {
    const epoch = epochs[Math.min(epochs.length - 1, Math.max(0, index))];
    if (epoch !== undefined) dispatch({ type: "choose", choice: { epoch } });
  };
  const stop = (): void => dispatch({ type: "set", values: { playing: false } });
  const tick = (): void => (at + 1 < epochs.length ? go(at + 1) : stop());
  const toggle = (): void => {
    if (!playing && at === epochs.length - 1) go(0);
    dispatch({ type: "set", values: { playing: !playing } });
  };
  const play = el("button", { class: "quiet", type: "button", click: toggle });
  const slider = el("input", {
    type: "range",
    min: 0,
    step: 1,
    "aria-label": "Epoch",
    input: () => {
      if (playing) stop();
      go(slider.valueAsNumber);
    },
  });
  const label = el("output", { class: "epoch" });
  const follow = el("button", { class: "toggle", type: "button", title: "Stay at the newest epoch" }, "Follow live");
  follow.addEventListener("click", () => {
    stop();
    dispatch({ type: "choose", choice: { epoch: null } });
  });
  const root = el("div", { class: "timeline", role: "group", "aria-label": "Time" }, play, slider, label, follow);
  listenForKeys(toggle, (step) => go(at + step));

  return {
    root,
    update({ chart, state, at: index }: View): void {
      epochs = chart.epochs;
      at = index;
      if (playing !== state.playing || !play.firstChild) {
        playing = state.playing;
        play.replaceChildren(icon(playing ? PAUSE : PLAY));
        play.setAttribute("aria-label", playing ? "Pause" : "Play through the epochs");
        play.title = playing ? "Pause (space)" : "Play through the epochs (space)";
        window.clearInterval(timer);
        if (playing) timer = window.setInterval(tick, FRAME);
      }
      root.classList.toggle("short", epochs.length < 2);
      slider.max = String(Math.max(0, epochs.length - 1));
      slider.value = String(Math.max(0, at));
      slider.disabled = play.disabled = epochs.length < 2;
      slider.style.setProperty("--done", `${epochs.length > 1 ? (100 * at) / (epochs.length - 1) : 100}%`);
      const text = at < 0 ? "no epoch" : `epoch ${epochText(epochs[at])} of ${epochText(epochs.at(-1))}`;
      slider.setAttribute("aria-valuetext", text);
      setText(label, text);
      follow.setAttribute("aria-pressed", String(state.choice.epoch === null));
    },
  };
}

/** Listen for keys: space plays; comma, full stop and arrows step. Not while a control has the focus. */
function listenForKeys(toggle: () => void, step: (by: number) => void): void {
  document.addEventListener("keydown", (event) => {
    const busy = (event.target as Element).closest("input, select, textarea, button, a, summary, [tabindex]");
    if (event.ctrlKey || event.metaKey || event.altKey || (busy && busy !== document.body)) return;
    if (event.key === " ") toggle();
    else if (event.key === "," || event.key === "ArrowLeft") step(-1);
    else if (event.key === "." || event.key === "ArrowRight") step(1);
    else return;
    event.preventDefault();
  });
}
