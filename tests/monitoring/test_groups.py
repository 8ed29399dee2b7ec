"""Groups and types of targets and probe sets, scored by a real server on planted truth."""

from __future__ import annotations

import json
import urllib.request

import numpy as np
import pytest
import torch
from torch import nn

from intus import flush, probe, register_targets
from intus.core.errors import InputError
from intus.monitoring.probe_set import check_probe_set
from intus.serving.run import Server

DOCUMENT = np.repeat(np.arange(20), 30)  # 20 documents of 30 records
TOPIC = np.random.default_rng(0).permutation(np.arange(20) % 2)[DOCUMENT]  # random by document


def about_documents():
    torch.manual_seed(0)
    return torch.randn(20, 16)[DOCUMENT] + 0.1 * torch.randn(600, 16)


def newest(server, run, **equal):
    """Return the scores of the last epoch: their row by (address, score, target)."""
    with urllib.request.urlopen(f"{server.page_url}api/points?run={run}", timeout=20) as answer:
        points = json.load(answer)
    rows = [dict(zip(points, row, strict=True)) for row in zip(*points.values(), strict=True)]
    return {(row["address"], row["score"], row["target"]): row for row in rows}


@pytest.mark.long
def test_labels_random_by_document(tmp_path):
    """Rows of a document resemble each other, so without groups its label is "known" by recognizing it."""
    data = about_documents()  # it sets the seed
    model = nn.Sequential(nn.Linear(16, 16))
    with Server(no_token=True, database=tmp_path / "x.db", port=0) as server:
        at = server.host, server.port
        for name, groups in {"naive": None, "topic": [f"doc {number}" for number in DOCUMENT]}.items():
            assert register_targets(*at, name=name, targets=TOPIC, groups=groups)
        with probe(model, *at, run="ids") as watch:
            for rows in torch.randperm(600).split(100):
                watch.items = rows
                model(data[rows])
        with probe(model, *at, run="set", probe_set=(data, {"set": TOPIC}, {"groups": DOCUMENT})) as watch:
            watch.run_probe_set()
        assert flush(*at)
        ids, of_set = newest(server, "ids"), newest(server, "set")
    for score in ("linear_accuracy", "linear_f1", "lda_f1"):
        naive = ids["0", score, "naive"]
        assert naive["low"] > 0.8 > naive["baseline"]
        for row in (ids["0", score, "topic"], of_set["0", score, "set"]):
            assert row["low"] <= row["baseline"] <= row["high"], row
    assert ids["0", "mean", ""]["n"] == 600  # scores without targets are given once
    assert ids["0", "linear_f1", "topic"]["note"] == ids["0", "linear_f1", "naive"]["note"]


@pytest.mark.long
def test_control_task_has_token_ids_as_types(tmp_path):
    """A layer that knows only the word has selectivity 0 for labels that are a random function of it."""
    torch.manual_seed(0)
    tokens = torch.randint(0, 60, (250, 8))
    tag = np.random.default_rng(1).integers(0, 2, 60)[tokens]
    labels = {"tag": tag, "odd item": np.arange(250) % 2}
    model = nn.Sequential(nn.Embedding(60, 64), nn.Linear(64, 64))
    scores = "default,linear_selectivity"
    with Server(no_token=True, database=tmp_path / "x.db", port=0, scores=scores) as server:
        at = server.host, server.port
        with probe(model, *at, run="tokens", probe_set=(tokens, labels)) as watch:
            watch.run_probe_set()
        assert flush(*at)
        found = newest(server, "tokens")
    assert found["0", "linear_accuracy", "tag"]["value"] > 0.95
    assert abs(found["0", "linear_selectivity", "tag"]["value"]) <= 0.03
    assert found["0", "linear_selectivity", "odd item"]["note"].startswith("no types were given")


@pytest.mark.parametrize("given", [True, False])
def test_types_that_the_script_gave_are_told_of_if_no_score_needs_them(tmp_path, given):
    tokens = torch.randint(0, 30, (60, 4))
    labels, third = {"tag": tokens % 2}, ({"types": tokens},) * given
    with Server(no_token=True, database=tmp_path / "x.db", port=0) as server:
        at = server.host, server.port
        with probe(nn.Embedding(30, 4), *at, run="tokens", probe_set=(tokens, labels, *third)) as watch:
            watch.run_probe_set()
        assert register_targets(*at, name="half", targets=[0, 1], types=["a", "b"] if given else None)
        assert flush(*at)
        with urllib.request.urlopen(f"{server.page_url}api/notices", timeout=20) as answer:
            notices = json.load(answer)["notices"]
        assert "linear_selectivity" not in {score for _, score, _ in newest(server, "tokens")}
    texts = [one["text"] for one in notices if one["code"] == "types_unused"]
    assert len(texts) == given
    assert all("target 'tag'" in text and "--scores default,linear_selectivity" in text for text in texts)


def given(third, labels=None):
    inputs, labels = torch.zeros(4, 3, dtype=torch.int64), labels or {"tag": [["a", "b", "c"]] * 4}
    return check_probe_set((inputs, labels, third), None, len)


def test_types_of_probe_set():
    tokens = torch.arange(12).reshape(4, 3)
    tags, short, long = [["a"] * 3] * 4, [["a"] * 2] * 4, [["a", "a", "a", None]] * 4
    labels = {"tag": tags, "short": short, "long": long, "item": [1, 2, 3, 4], "beyond": [["a"] * 4] * 4}
    for inputs in (tokens, (tokens, tokens.float()), {"input_ids": tokens, "mask": tokens}, tokens.numpy()):
        types = check_probe_set((inputs, labels), None, lambda inputs: 4).types
        second = {name: rows and rows[1] for name, rows in types.items()}
        assert second == {
            "tag": [3, 4, 5],
            "short": [3, 4],
            "long": [3, 4, 5, None],
            "item": None,
            "beyond": None,
        }
    for inputs in (tokens.float(), {"a": tokens, "b": tokens}, tokens[None]):
        assert set(check_probe_set((inputs, labels), None, lambda inputs: 4).types.values()) == {None}
    assert check_probe_set((tokens[:, 0], labels), None, len).types["item"] == [0, 3, 6, 9]
    words = [["x", "y", "z"]] * 4
    assert given({"types": words}).types == {"tag": words}
    assert given({"types": None}).types == {"tag": None}


def test_types_are_not_guessed_from_one_of_two_vocabularies():
    """Labels of a translator may be those of the source or of the target; a mask or positions are neither."""
    tokens, others = torch.arange(12).reshape(4, 3), torch.arange(12, 24).reshape(4, 3)
    labels = {"tag": [["a"] * 3] * 4}

    def types(*inputs, **named):
        return check_probe_set((named or inputs, labels), None, lambda inputs: 4).types["tag"]

    assert types(tokens, others) is None
    assert types(input_ids=tokens, decoder_input_ids=others) is None
    for beside in ((tokens > 5).long(), torch.arange(3).expand(4, 3)):  # a mask; positions
        assert types(tokens, beside) == types(input_ids=tokens, other=beside) == tokens.tolist()


def test_types_and_layers_of_each_target():
    words, others = [["x", "y", "z"]] * 4, [["u", "v", "w"]] * 4
    labels = {"tag": [["a", "b", "c"]] * 4, "next": [["b", "c", None]] * 4, "topic": [1, 2, 1, 2]}
    checked = given({"types": {"tag": words, "next": others}, "layers": {"next": "decoder"}}, labels=labels)
    assert checked.types == {"tag": words, "next": others, "topic": None}
    assert checked.layers == {"next": "decoder"}


@pytest.mark.parametrize(
    ("third", "message"),
    [
        ({"groups": [1, 2]}, r"groups has shape \(2,\), but the targets need \(4,\)"),
        ({"groups": [1, 2, 3, None]}, r"groups must be whole numbers or strings, got None at \[3\]"),
        ({"groups": [0.5] * 4}, "got 0.5"),
        ({"types": [1, 2, 3, 4]}, r"types has shape \(4,\), but the targets need \(4, 3\)"),
        ({"types": {"tags": [["a"] * 3] * 4}}, "types names 'tags', which has no labels. Did you mean 'tag'"),
        ({"types": {"tag": [1, 2, 3, 4]}}, r"types\['tag'\] has shape \(4,\)"),
        ({"layers": {"tags": "fc"}}, "layers names 'tags', which has no labels. Did you mean 'tag'"),
        ({"layers": {"tag": "("}}, r"layers\['tag'\]"),
        ({"layers": "fc"}, "layers must map names of targets"),
        ({"group": [1] * 4}, "may have 'groups', 'types' and 'layers', got 'group'"),
        ([1] * 4, "must be a pair"),
    ],
)
def test_parts_of_probe_set_that_do_not_fit(third, message):
    with pytest.raises(InputError, match=message):
        given(third)


def test_register_targets_refuses_ids_that_do_not_fit():
    for facts, message in [
        ({"groups": [1]}, r"groups has shape \(1,\), but the targets need \(2,\). Give one id for each row"),
        ({"types": [1, 2, 3]}, r"types has shape \(3,\), but the targets need \(2,\)"),
        ({"types": [1, None]}, r"got None at \[1\]"),
        ({"groups": 7}, "groups must be a list or an array, got int"),
    ]:
        with pytest.raises(InputError, match=message):
            register_targets(name="digit", targets=[3, 1], **facts)
