// What to show: score, target, and the epoch with its slider, player and "follow live".

import { epoch as epochText } from "../../ui/format.ts";
import { h, icon, ICONS, Picker, setText } from "./elements.ts";
import { groupScores, isIntrinsic, kindLabel, scoreLabel, targetsOf } from "../model/scoreLabels.ts";
import type { Dispatch, Part, View } from "../state/view.ts";

const FRAME = 500; // milliseconds an epoch stays while playing

const FIGURE = { score: "kmeans_mi", kind: "output", address: null, epoch: null, filter: "" };
const FIGURE_2 = "Mutual information between k-means clusters and the labels, per layer over epochs: Figure 2 of the Vivisect paper";

export function controls(dispatch: Dispatch): Part {
  const scores = new Picker("Score", "score", (score) => dispatch({ type: "choose", choice: { score } }));
  const targets = new Picker("Target", "target", (target) => dispatch({ type: "choose", choice: { target } }));
  const kinds = new Picker("Of", "kind", (kind) => dispatch({ type: "choose", choice: { kind } }));
  const time = timeline(dispatch);
  const root = h("div", { class: "controls", role: "group", "aria-label": "What to show" });
  const figure = h(
    "button",
    { class: "toggle", type: "button", title: FIGURE_2, click: () => dispatch({ type: "choose", choice: FIGURE }) },
    "Paper’s Figure 2",
  );
  root.append(scores.root, targets.root, kinds.root, figure, time.root);
  return {
    root,
    update(view: View): void {
      const { run, state } = view;
      root.hidden = !run;
      if (!run) return;
      const named = (names: string[], label: (name: string) => string) =>
        names.map((value) => ({ value, label: label(value) }));
      const { words, choice } = state;
      const label = (score: string): string => scoreLabel(words, score);
      const groups = groupScores(run, words).map((g) => ({ label: g.label, options: named(g.scores, label) }));
      scores.root.hidden = groups.length === 0;
      scores.update(groups, choice.score);
      const intrinsic = isIntrinsic(run, choice.score);
      const fitting = intrinsic ? run.targets : targetsOf(run, choice.score);
      targets.update([{ label: "", options: named(fitting, (t) => t) }], choice.target);
      targets.root.hidden = run.targets.length === 0;
      targets.select.disabled = intrinsic;
      targets.root.title = targets.select.disabled ? "This score needs no target" : "";
      kinds.update([{ label: "", options: named(run.kinds, (kind) => kindLabel(words, kind)) }], choice.kind);
      kinds.root.hidden = run.kinds.length < 2;
      figure.hidden = !run.scores.includes(FIGURE.score) || run.targets.length === 0;
      figure.setAttribute("aria-pressed", String(choice.score === FIGURE.score));
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
  const play = h("button", { class: "quiet", type: "button", click: toggle });
  const slider = h("input", {
    type: "range",
    min: 0,
    step: 1,
    "aria-label": "Epoch",
    input: () => {
      if (playing) stop();
      go(slider.valueAsNumber);
    },
  });
  const label = h("output", { class: "epoch" });
  const follow = h("button", { class: "toggle", type: "button", title: "Stay at the newest epoch" }, "Follow live");
  follow.addEventListener("click", () => {
    stop();
    dispatch({ type: "choose", choice: { epoch: null } });
  });
  const root = h("div", { class: "timeline", role: "group", "aria-label": "Time" }, play, slider, label, follow);
  keys(toggle, (step) => go(at + step));

  return {
    root,
    update({ chart, state, at: index }: View): void {
      epochs = chart.epochs;
      at = index;
      if (playing !== state.playing || !play.firstChild) {
        playing = state.playing;
        play.replaceChildren(icon(playing ? ICONS.pause : ICONS.play));
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

/** Space plays, comma and full stop step, as in a film editor; not while a control has the keyboard. */
function keys(toggle: () => void, step: (by: number) => void): void {
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
