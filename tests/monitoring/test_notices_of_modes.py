"""Judge what is said of labels by the stored scores: it is true of the kind and the mode it is said of."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from intus.monitoring import flush, probe
from intus.serving.run import Server
from intus.storage.database import Database

HOST = "127.0.0.1"
KINDS = {"output": "output", "grad_output": "gradient of the output"}
LAYERS = {"", "0", "1", "2"}
LABELS = torch.arange(120) % 2
ROWS = torch.randn(120, 4, generator=torch.Generator().manual_seed(0)) + 2 * LABELS[:, None]
TRAINING, VALIDATION = torch.arange(80), torch.arange(80, 120)
CLAIM = re.compile(r"no scores|no labels|cannot be matched(?! to rows by)|has \d+ labels, but")
SERIES = re.compile(r"((?:gradient of the )?output) in mode (\w+)")
PART = re.compile(r"at (\d+) of (\d+) layers: (.*?)(?: and (\d+) more)?\. ")


def evaluation(loop):
    """Return the ids of the batches that a loop evaluates in each epoch."""
    batches = VALIDATION.split(20)
    return {"validation": batches, "sanity check": batches, "slice": [torch.arange(16)]}.get(loop, ())


def evaluate(watch, model, loop, known):
    model.eval()
    for ids in evaluation(loop):
        watch.items = ids if "eval" in known else None
        with torch.no_grad():
            model(ROWS[ids])


def train(watch, model, loop, known):
    """Train for three epochs with shuffled rows, and evaluate; ids are named in the known modes alone."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    for watch.epoch in range(3):
        if loop == "sanity check" and watch.epoch == 0:  # as of Lightning, before anything is trained
            evaluate(watch, model, loop, known)
        model.train()
        for ids in TRAINING[torch.randperm(len(TRAINING), generator=generator)].split(20):
            watch.items = ids if "train" in known else None
            optimizer.zero_grad()
            F.cross_entropy(model(ROWS[ids]), LABELS[ids]).backward()
            optimizer.step()
        evaluate(watch, model, loop, known)
        if loop == "probe set":
            watch.run_probe_set()


def scored(points, target="digit"):
    """Return the layers with scores of a target, by kind and mode in words; sets may be empty."""
    out = {}
    for row in points.where(unit=-1):
        layers = out.setdefault((KINDS[row["kind"].partition("@")[0]], row["mode"]), set())
        if row["target"] == target and np.isfinite(row["value"]):
            layers.add(row["address"] or "")
    return out


def check_claims(texts, scores):
    """Assert that each sentence on missing labels names its modes, and that these have no scores."""
    named = set()
    for text in texts:
        if CLAIM.search(text):
            series = set(SERIES.findall(text))
            modes = set(re.findall(r"\bmode (\w+)", text.partition("labels are for")[0]))
            assert series or modes, text
            without, part = LAYERS, PART.search(text)
            if part:
                without = set(re.findall(r"'(.*?)'", part[3]))
            for each in series | {("output", mode) for mode in modes - {mode for _, mode in series}}:
                assert not scores[each] & without, text
            if not part:
                named |= series
    return named


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Run a server for all tests, and return it with its database."""
    path = tmp_path_factory.mktemp("server") / "x.db"
    with Server(database=path, port=0, scores="mean,lda_f1") as server, Database(path) as database:
        yield server, database


def watched(server, model, run, **options):
    """Return a probe of a model that has labels of all rows."""
    options |= {"structure": False, "budget": np.inf, "block": True}
    watch = probe(model, HOST, server.port, run=run, name="m", **options)
    watch.register_targets(name="digit", targets=LABELS)
    return watch


def results(page, watch):
    """Return the scored layers of a run, its notices and its faults."""
    server, database = page
    assert flush(HOST, server.port)
    points = database.points(watch.run, "m", level="layer")
    notices = [one for one in database.notices(watch.run) if one["run"] == watch.run]
    return scored(points), notices, watch.status()["faults"]


LOOPS = ["train", "validation", "sanity check", "slice", "probe set", "gradients"]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("known", [(), ("train",), ("eval",), ("train", "eval")], ids="-".join)
def test_notices_of_labels_agree_with_the_scores(page, loop, known):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    options = {"kinds": list(KINDS)} if loop == "gradients" else {}
    if loop == "probe set":
        options["probe_set"] = (ROWS, {"shown": LABELS})
    with watched(page[0], model, f"{loop} {known}", **options) as watch:
        train(watch, model, loop, known)
    scores, notices, faults = results(page, watch)
    modes = {"probe"} if loop == "probe set" else {"train", "eval"} if evaluation(loop) else {"train"}
    assert {mode for _, mode in scores} == modes
    for (_, mode), layers in scores.items():
        assert layers == (LAYERS if mode in known else set())
    told = check_claims([one["text"] for one in notices], scores)
    check_claims(faults, scores)
    if loop != "probe set":  # where only the set is recorded, for which these labels are not
        assert told == {series for series, layers in scores.items() if not layers}
    matched = [one for one in notices if one["code"] == "target_misfit"]
    assert len(matched) == (loop != "probe set" and not modes.intersection(known))
    for code in ("target_misfit", "target_partly"):
        texts = [one["text"] for one in notices if one["code"] == code]
        assert len(texts) == len(set(texts))


@pytest.mark.parametrize("way", ["validation", "slice"])
def test_labels_of_a_shuffled_loader_that_validation_lacks_are_no_fault(page, way):
    """Before, the page said "no scores at 4 of 4 layers", which all had scores of the training."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    training, validation = (
        DataLoader(TensorDataset(ROWS[ids], LABELS[ids]), 20, shuffle=ids is TRAINING)
        for ids in (TRAINING, VALIDATION)
    )
    with watched(page[0], model, f"loader {way}") as watch:
        for _ in range(3):
            model.train()
            for x, y in training:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
            model.eval()
            with torch.no_grad():
                for x in [ROWS[:16]] if way == "slice" else (x for x, _ in validation):
                    model(x)
    scores, notices, faults = results(page, watch)
    assert scores == {("output", "train"): LAYERS, ("output", "eval"): set()}
    assert check_claims([one["text"] for one in notices], scores) == {("output", "eval")}
    assert faults == []
    [partly] = [one for one in notices if one["code"].startswith("target_")]
    assert partly["level"] == "info"
    assert partly["text"].startswith("The target 'digit' has no scores of the output in mode eval. ")
