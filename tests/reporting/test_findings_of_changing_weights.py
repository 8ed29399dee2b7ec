"""Findings of rows that were recorded while the weights changed: a mixture of states is not a model."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import intus
from intus.core.findings import findings
from intus.core.notes import Facts
from intus.core.results import Results
from intus.scores import Scorer, get
from intus.serving.run import Server

SENTENCE = "The rows of an epoch of training are recorded while the weights change"
NUMBERS = ("value", "low", "high", "baseline", "n")
LAYERS = ["h.0", "h.1"]
CLASSES, PER_CLASS, WIDTH = 4, 150, 6
LABELS = np.repeat(np.arange(CLASSES), PER_CLASS)
INPUTS = np.random.default_rng(0).normal(size=(len(LABELS), WIDTH)) + 6 * np.eye(CLASSES, WIDTH)[LABELS]


def moving(far, seed, *, in_order=False, knows=True):
    """Return rows of a layer of which each has its own weights, labels, and the layer's rows at one time.

    The weights are a drift, which nothing of the layer's knowledge depends on: at any time they are a
    rotation and an offset.

    Args:
        far: How far the weights move in the epoch; 0 for one state.
        seed: The seed.
        in_order: Whether the rows come in the order of their labels.
        knows: Whether the inputs have the label at all.
    """
    rng = np.random.default_rng(seed)
    inputs = INPUTS if knows else rng.normal(size=INPUTS.shape)
    order = np.arange(len(LABELS)) if in_order else rng.permutation(len(LABELS))
    times = np.linspace(0, 1, len(LABELS))
    turn = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
    rows = np.empty_like(inputs)
    for place, item in enumerate(order):
        angle = far * times[place]
        weights = turn.copy()
        weights[:, :2] = turn[:, :2] @ [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        weights[:, 2:4] = turn[:, 2:4] @ [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        rows[place] = inputs[item] @ weights + angle
    return rows, LABELS[order], inputs @ turn


def f1(rows, labels):
    """Return the F1 that scikit-learn has on every fourth row."""
    held = np.arange(len(rows)) % 4 == 0
    fitted = LogisticRegression(max_iter=1000).fit(rows[~held], labels[~held])
    return f1_score(labels[held], fitted.predict(rows[held]), average="macro")


def scored(epochs, mode, notes=(), address="h.0"):
    """Return the scores that a server computes of a layer's rows in each epoch."""
    table = []
    for epoch, (rows, labels) in enumerate(epochs):
        scorer = Scorer([get("linear_f1").by_default()])
        scorer.update(rows, {"y": labels}, items=np.arange(len(rows)))
        (result,) = (each for each in scorer.result() if each.score == "linear_f1")
        facts = {"address": address, "epoch": epoch, "score": result.score, "target": "y", "mode": mode}
        note = notes[epoch] if notes else result.note
        table.append(facts | {name: getattr(result, name) for name in NUMBERS} | {"note": note})
    return table


def kinds_of(table):
    return {each.kind: each for each in findings(Results.from_rows(table), LAYERS)}


def test_nothing_is_learned_by_weights_that_slow_down():
    """Before, y was "learned in h.0 from epoch 2", of which each state of the weights knows all of it."""
    epochs = [moving(far, seed) for seed, far in enumerate((9.0, 9.0, 0.2, 0.1))]
    assert all(f1(state, LABELS) > 0.98 for *_, state in epochs)  # the model never knows less
    mixtures = [f1(rows, labels) for rows, labels, _ in epochs]
    assert max(mixtures[:2]) < 0.9 < min(mixtures[2:])
    points = [(rows, labels) for rows, labels, _ in epochs]
    found = kinds_of(scored(points, "train"))
    assert "learned" not in found
    risen = found["risen"]
    assert risen.text.startswith("linear_f1 of y rises in h.0 from epoch 2: ")
    assert f" {SENTENCE}: weights that change less would look the same, which a probe_set" in risen.text
    assert kinds_of(scored(points, ""))["learned"].epoch == 2  # as told of databases without modes


@pytest.mark.parametrize(("mode", "kind"), [("generator", "risen"), ("eval", "learned"), ("", "learned")])
def test_passes_of_a_mode_that_the_script_names_may_train_the_model(mode, kind):
    values = [0.3, 0.9, 0.9]
    table = [
        {"address": "h.0", "epoch": epoch, "score": "linear_f1", "target": "y", "mode": mode, "value": value}
        | {"kind": f"output@{mode}" if mode else "output", "low": value - 0.05, "high": value + 0.05}
        | {"baseline": 0.25, "n": 100}
        for epoch, value in enumerate(values)
    ]
    found = kinds_of(table)
    assert found.keys() & {"learned", "risen"} == {kind}
    if kind == "risen":
        assert "Passes of mode generator may train the model" in found[kind].text


def test_nothing_is_learned_by_rows_in_the_order_of_their_labels():
    """Weights that move tell when a row came: the score is then higher than that of any state."""
    still, moves = moving(0, 0, knows=False), moving(3.0, 1, in_order=True, knows=False)
    assert f1(moves[2], LABELS) < 0.4 < 0.6 < f1(*moves[:2])
    untrained = Facts(is_untrained=True).note
    points = [each[:2] for each in (still, still, moves, moves)]
    found = kinds_of(scored(points, "train", [untrained, untrained, "", ""]))
    assert "learned" not in found
    assert f"{SENTENCE}: rows in the order of their labels would look the same" in found["risen"].text


def test_what_a_model_of_one_state_rises_to_is_learned():
    """The truth is planted: the inputs of the layer have the label from epoch 2 on."""
    points = [moving(0, seed, knows=seed > 1) for seed in range(4)]
    known = [f1(state, LABELS) for *_, state in points]
    assert max(known[:2]) < 0.4 < 0.98 < min(known[2:])
    for mode in ("probe", "eval"):
        found = kinds_of(scored([each[:2] for each in points], mode))
        assert found["learned"].epoch == 2
        assert SENTENCE not in found["learned"].text
    of_steps = [row | {"step": 10 * row["epoch"]} for row in scored([p[:2] for p in points], "train")]
    assert kinds_of(of_steps)["learned"].epoch == 2


def test_fall_and_layers_that_add_nothing_name_what_would_look_the_same():
    """The second layer knows as much as the first at each time, and moves more."""
    fast = [moving(far, seed) for seed, far in enumerate((0, 0, 60.0, 60.0))]
    slow = [moving(0, seed) for seed in range(4)]
    assert all(f1(state, LABELS) > 0.98 for *_, state in [*fast, *slow])
    layers = dict(zip(LAYERS, (slow, fast), strict=True))
    for mode, is_said in (("train", True), ("probe", False)):
        table = [
            row
            for address, epochs in layers.items()
            for row in scored([each[:2] for each in epochs], mode, address=address)
        ]
        found = kinds_of(table)
        assert "learned" not in found
        told = found["idle"]
        assert (f"{SENTENCE}: later layers whose outputs change more would look" in told.text) == is_said
        if "fell" in found:
            assert (f"{SENTENCE}: weights that change more would look" in found["fell"].text) == is_said


@pytest.mark.parametrize("seed", range(30))
def test_each_sentence_on_a_change_says_whether_weights_changed(seed):
    """Draw modes, steps, and up to which epoch the parameters are those before the training."""
    choose = random.Random(seed)
    mode, step = choose.choice(["train", "train", "probe", "eval", ""]), choose.choice([-1, -1, 7])
    moves, rises = choose.randrange(6), choose.randrange(1, 4)
    values = [0.5 if epoch < rises else 0.9 for epoch in range(6)]
    if is_fall := bool(seed % 2):
        values = [0.9 if epoch < rises + 1 else 0.5 for epoch in range(6)]
    table = [
        {"address": "h.0", "target": "y", "score": "linear_f1", "epoch": epoch, "value": value, "mode": mode}
        | {"low": value - 0.05, "high": value + 0.05, "baseline": 0.5, "n": 100, "step": step}
        | {"note": Facts(is_untrained=epoch < moves).note}
        for epoch, value in enumerate(values)
    ]
    found = kinds_of(table)
    is_mixed = mode == "train" and step < 0 and moves < 6
    assert not (is_mixed and "learned" in found)
    assert "risen" not in found or is_mixed
    for kind in {"fell"} if is_fall else {"risen", "decodable"}:
        if kind in found:
            assert (SENTENCE in found[kind].text) == is_mixed
    assert is_fall or found.keys() & {"learned", "risen", "decodable"}


def outputs_of(model, images):
    """Return the outputs of each layer, of one state of the model; without a hook or a call of the model."""
    with torch.no_grad():
        return {str(place): model[: place + 1](images).numpy() for place in range(len(model))}


@pytest.mark.long
@pytest.mark.parametrize("how", ["own passes", "evaluation mode", "probe set"])
def test_training_whose_learning_rate_falls_has_learned_what_the_model_has(tmp_path, how):
    """The judge is scikit-learn, of the model as it is before the training and after each epoch."""
    digits = load_digits()
    images, labels = torch.tensor(digits.data / 16).float(), torch.tensor(digits.target)
    halves = (digits.data[:, :32].sum(1) > digits.data[:, 32:].sum(1)).astype(int)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 10))
    model.train(how != "evaluation mode")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.1)
    fixed = (images[:900], {"half": halves[:900]}) if how == "probe set" else None
    with Server(database=tmp_path / "runs.db", port=0) as server:
        where = server.host, server.port
        with intus.probe(model, *where, run="r", budget=float("inf"), probe_set=fixed) as watch:
            if fixed is None:
                intus.register_targets(*where, name="half", targets=halves)
            states = [outputs_of(model, images)]
            for _ in range(4):
                for x, y in DataLoader(TensorDataset(images, labels), 32, shuffle=True):
                    optimizer.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    optimizer.step()
                scheduler.step()
                states.append(outputs_of(model, images))
            assert watch.flush()
    run = intus.runs(tmp_path / "runs.db")["r"]
    found = {each.kind: each for each in run.findings()}
    assert set(run.scores(target="half")["mode"]) == {"probe" if fixed else "train"}
    assert ("risen" in found) == (fixed is None)
    if fixed is None:
        first = states[1]["3"], states[4]["3"]
        assert abs(f1(first[0], halves) - f1(first[1], halves)) < 0.05  # it rose by the weights alone
        assert "learned" not in found
    else:
        assert all(SENTENCE not in each.text for each in found.values())
        learned = found["learned"]
        before, since = (states[at][learned.address] for at in (0, int(learned.epoch)))
        assert f1(since, halves) > f1(before, halves) + 0.05
