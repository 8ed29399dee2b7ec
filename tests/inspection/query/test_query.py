"""Queries, judged by plain ``inspect``, pandas, and DuckDB on a table of everything."""

from __future__ import annotations

import subprocess
import sys

import duckdb
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from torch import nn

import intus
from intus import inspect, query
from intus.core.errors import InputError, MissingExtraError
from intus.inspection.query import run

FROM = "FROM models M, units U, hypotheses H, inputs D WHERE M.mid = U.mid"
INSPECT = "INSPECT U.uid AND H.h USING correlation OVER D.seq AS S"


def test_query_of_the_paper(ask, checkpoints, ideas, images):
    table = ask(
        f"""SELECT M.epoch, S.uid {INSPECT} FROM models M, units U, hypotheses H, inputs D
        WHERE M.mid = U.mid AND M.mid = '2' AND U.layer = 'conv1' AND H.name = 'ink'
        GROUP BY M.epoch HAVING S.unit_score > 0.2"""
    )
    judge = inspect(checkpoints[2], {"ink": ideas["ink"]}, "correlation", images, "conv1")
    judge = judge[judge.value > 0.2]
    assert 0 < len(judge) < 6
    assert sorted(table.uid) == [f"conv1[{unit}]" for unit in judge.unit]
    assert table.epoch.tolist() == [2] * len(judge)
    assert table.attrs["computed"] == 6
    assert table.attrs["records"] == 600


def test_query_of_several_scores_equals_inspect(ask, checkpoints, ideas, images):
    table = ask(
        """SELECT M.epoch, S.uid, S.h, S.measure, S.unit_score, S.group_score, S.low,
        S.high, S.baseline, S.p, S.q, S.n
        INSPECT U.uid AND H.h USING correlation, logistic_f1 OVER D.seq AS S
        FROM models M, units U, hypotheses H, inputs D
        WHERE M.mid = U.mid AND U.layer = 'conv2' AND H.name LIKE 'e%' AND U.unit < 5
        GROUP BY M.epoch ORDER BY S.unit_score DESC, M.epoch, S.uid, S.h"""
    )
    chosen = {name: ideas[name] for name in ("edge", "even")}
    judge = inspect(checkpoints, chosen, ["correlation", "logistic_f1"], images, ("conv2", slice(0, 5)))
    assert table.unit_score.dropna().is_monotonic_decreasing
    key = ["epoch", "unit", "target"]
    table["unit"], table["target"] = table.uid.str.extract(r"\[(\d+)\]")[0].astype(int), table.h.astype(str)
    single = table[table.measure == "correlation"].merge(judge[judge.unit >= 0], on=key)
    assert len(single) == 3 * 5 * 2 == (table.measure == "correlation").sum()
    np.testing.assert_allclose(single.unit_score, single.value, rtol=1e-9)
    for name in ("low", "high", "baseline", "p", "q", "n"):
        np.testing.assert_allclose(single[f"{name}_x"], single[f"{name}_y"], rtol=1e-9)
    joint = table[table.measure == "logistic_f1"].merge(judge[judge.unit == -1], on=["epoch", "target"])
    assert len(joint) == 3 * 5 * 2
    np.testing.assert_allclose(joint.group_score, joint.value, rtol=1e-9)
    assert joint.unit_score.isna().all()
    assert single.group_score.isna().all()


CONDITIONS = st.sampled_from(
    [
        *("U.layer = 'conv1'", "U.layer LIKE 'conv%'", "U.unit BETWEEN 1 AND 3", "U.unit % 2 = M.epoch % 2"),
        *("M.epoch > 0", "M.mid = '1'", "H.name IN ('ink', 'even')", "(H.h = 'three' OR U.unit < 2)"),
        *(
            "U.uid = 'norm[3]'",
            "NOT (U.class = 'Conv2d' AND H.h = 'ink')",
            "U.n = 8",
            "length(H.name) > U.unit",
        ),
        *("U.uid IN (SELECT uid FROM units WHERE unit = 1)", "M.n_parameters IS NOT NULL", "U.number <= 2"),
        *("M.epoch = (SELECT max(epoch) FROM models)", "CASE WHEN U.unit > 2 THEN H.h = 'ink' ELSE TRUE END"),
    ]
)
AFTER = st.sampled_from(
    ["", "S.unit_score > 0.1", "S.low > 0 OR S.high < 0", "S.p < 0.01 AND length(S.uid) > 7"]
)


@pytest.fixture(scope="module")
def everything(ask):
    """Return all scores of a subset of layers, with all columns that conditions name."""
    return ask(
        f"SELECT M.*, U.*, H.*, S.unit_score, S.high, S.p, S.low {INSPECT} $FROM AND U.layer <> 'drop' AND "
        "U.layer <> 'relu' AND U.layer <> 'relu:2' AND U.layer <> 'head'"
    )


@pytest.mark.long
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(CONDITIONS, max_size=3), AFTER)
def test_where_pushed_down_equals_filter_of_everything(ask, everything, conditions, after):
    assert len(everything) == 3 * (6 + 6 + 8) * 4
    layers = "U.layer IN ('conv1', 'norm', 'conv2')"
    text = f"SELECT U.mid, S.uid, S.h, S.unit_score, S.high, S.p, S.low {INSPECT} $FROM AND {layers} "
    text += "".join(f"AND {condition} " for condition in conditions)
    text += f"HAVING {after}" if after else ""
    judge = duckdb.connect()
    parts = {
        "models": ["mid", "name", "epoch", "class", "n_parameters"],
        "units": ["mid_1", "uid", "layer", "unit", "class_1", "number", "n"],
        "hypotheses": ["hid", "h", "name_1", "kind"],
    }
    for name, columns in parts.items():
        frame = everything[columns].drop_duplicates().rename(columns=lambda c: c.removesuffix("_1"))
        judge.register(name, frame)
    judge.register("all_scores", everything[["mid", "uid", "h", "unit_score", "high", "p", "low"]])
    expected = judge.execute(
        "SELECT U.mid, S.uid, S.h, S.unit_score, S.high, S.p, S.low FROM models M, units U, hypotheses H, "
        "all_scores S WHERE M.mid = U.mid AND S.mid = U.mid AND S.uid = U.uid AND S.h = H.h"
        + "".join(f" AND ({condition})" for condition in [*conditions, *filter(None, [after])])
    ).df()
    pairs = judge.execute(
        "SELECT count(*) FROM models M, units U, hypotheses H WHERE M.mid = U.mid"
        + "".join(f" AND ({condition})" for condition in conditions)
    ).fetchone()[0]
    if not pairs:
        with pytest.raises(InputError, match="WHERE leaves no"):
            ask(text)
        return
    table = ask(text)
    assert table.attrs["computed"] == pairs
    key = ["mid", "uid", "h"]
    table, expected = (f.sort_values(key).reset_index(drop=True) for f in (table, expected))
    assert table[key].astype(str).values.tolist() == expected[key].astype(str).values.tolist()
    np.testing.assert_allclose(table.unit_score, expected.unit_score, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(table.low, expected.low, rtol=1e-7, atol=1e-9)


def test_only_what_where_leaves_is_computed(checkpoints, images, digit, monkeypatch):
    """Models, hypotheses, records and pairs that WHERE leaves out cost nothing."""
    calls = {"loaded": [], "forward": [], "ink": 0, "even": 0}
    rows = []

    def load(epoch):
        def loader():
            calls["loaded"].append(epoch)
            model = checkpoints[epoch]
            model.conv1.register_forward_hook(lambda m, i, o: calls["forward"].append(len(i[0])))
            return model

        return loader

    def ink(image):
        calls["ink"] += 1
        return image[0] > 0.5

    def even(image):
        calls["even"] += 1
        return 1.0

    def spy(*args, **kwargs):
        table = inspect(*args, **kwargs)
        rows.append(len(table))
        return table

    monkeypatch.setattr(run, "inspect", spy)
    table = query(
        f"""SELECT S.uid {INSPECT} FROM models M, units U, hypotheses H, inputs D
        WHERE M.mid = U.mid AND M.epoch = 1 AND H.name = 'ink' AND D.split = 'test' AND
        (U.uid = 'conv1[2]' OR U.layer = 'conv2' AND U.unit > 5)""",
        models={epoch: load(epoch) for epoch in range(3)},
        hypotheses={"ink": ink, "even": even},
        data=images,
        metadata={"inputs": pd.DataFrame({"split": np.where(np.arange(600) < 500, "train", "test")})},
        batch=100,
    )
    for handle in checkpoints[1].conv1._forward_hooks.copy():
        del checkpoints[1].conv1._forward_hooks[handle]
    assert sorted(table.uid) == ["conv1[2]", "conv2[6]", "conv2[7]"]
    assert table.attrs["computed"] == sum(rows) == 3
    assert table.attrs["records"] == 100
    assert set(calls["loaded"]) == {1}
    assert calls["ink"] == 100 + 1  # one record, to know whether it returns several hypotheses
    assert calls["even"] == 1
    assert sum(calls["forward"]) <= 2 * (100 + 2)  # two hooks: it was loaded twice; the graph takes a record


def test_units_with_different_hypotheses_take_one_pass(checkpoints, ideas, images, monkeypatch):
    calls = []
    monkeypatch.setattr(run, "inspect", lambda *a, **k: calls.append(a) or inspect(*a, **k))
    table = query(
        f"SELECT S.uid, S.h, S.unit_score {INSPECT} FROM units U, hypotheses H, inputs D "
        "WHERE U.layer = 'conv1' AND "
        "(U.unit < 2 AND H.h = 'ink' OR U.unit > 0 AND U.unit < 4 AND H.h IN ('three', 'edge')) ORDER BY ALL",
        models=checkpoints[2],
        hypotheses=ideas,
        data=images,
    )
    assert len(calls) == 1
    assert table.attrs["computed"] == len(table) == 2 + 3 * 2
    judge = inspect(checkpoints[2], ideas, "correlation", images, "conv1").set_index(["unit", "target"])
    for uid, h, value in table.itertuples(index=False):
        assert value == pytest.approx(judge.value[int(uid[6:-1]), h], abs=1e-12)


def test_group_by_columns_of_units_makes_groups(checkpoints, digit, images):
    """Judge: the joint score of exactly these units, by scikit-learn's macro F1 and by inspect."""
    model = checkpoints[2]
    text = """SELECT U.layer, U.unit % 2 AS odd, any_value(S.group_score) AS f1, count(*) AS n,
        list(U.unit ORDER BY U.unit) AS u
        INSPECT U.uid AND H.h USING linear_f1 OVER D.seq AS S FROM units U, hypotheses H, inputs D
        WHERE U.layer IN ('conv2', 'head') GROUP BY U.layer, odd ORDER BY ALL"""
    table = query(text, models=model, hypotheses={"digit": digit.astype(str)}, data=images)
    assert table[["layer", "odd", "n"]].values.tolist() == [
        *(["conv2", 0, 4], ["conv2", 1, 4]),
        *(["head", 0, 5], ["head", 1, 5]),
    ]
    judge = [
        inspect(model, {"digit": digit.astype(str)}, "linear_f1", images, (layer, list(units))).value[0]
        for layer, units in zip(table.layer, table.u, strict=True)
    ]
    np.testing.assert_allclose(table.f1, judge, rtol=1e-9)
    assert len(set(judge)) == 4
    whole = query(
        text.replace("GROUP BY U.layer, odd", "GROUP BY U.layer").replace("U.unit % 2", "0"),
        models=model,
        hypotheses={"digit": digit.astype(str)},
        data=images,
    )
    guess = model.eval()(torch.from_numpy(images)).argmax(1).numpy()
    assert whole.f1[1] > max(table.f1[2:])
    assert whole.f1[1] == pytest.approx(f1_score(digit, guess, average="macro"), abs=0.1)


@pytest.mark.parametrize("by", ["U.layer, U.unit % 2", "1, 2", "U.layer, odd", "ALL"])
def test_ways_to_write_group_by(checkpoints, ideas, images, by):
    table = query(
        "SELECT U.layer, U.unit % 2 AS odd, max(S.group_score) AS f1 INSPECT U.uid AND H.h USING linear_f1 "
        f"OVER D.seq AS S FROM units U, hypotheses H, inputs D WHERE U.layer = 'conv2' AND H.h = 'even' "
        f"GROUP BY {by} ORDER BY odd",
        models=checkpoints[2],
        hypotheses=ideas,
        data=images,
    )
    judge = [
        inspect(checkpoints[2], {"even": ideas["even"]}, "linear_f1", images, f"conv2[{part}]").value[0]
        for part in ("0,2,4,6", "1,3,5,7")
    ]
    np.testing.assert_allclose(table.f1, judge, rtol=1e-9)


def test_aggregates_windows_and_limit(ask, everything):
    table = ask(
        f"""SELECT M.epoch, H.name, max(S.unit_score) AS best, count(*) AS n {INSPECT} $FROM
        AND U.layer = 'conv1' GROUP BY M.epoch, H.name HAVING max(S.unit_score) > 0.05 ORDER BY ALL"""
    )
    own = everything[everything.layer == "conv1"]
    judge = own.groupby(["epoch", "h"]).unit_score.agg(["max", "count"]).reset_index()
    judge = judge[judge["max"] > 0.05]
    assert table.name.tolist() == judge.h.tolist()
    np.testing.assert_allclose(table.best, judge["max"], rtol=1e-9)
    assert table.n.tolist() == judge["count"].tolist()

    top = ask(
        f"""SELECT M.epoch, S.h, S.uid, S.unit_score {INSPECT} $FROM AND U.layer = 'conv1'
        QUALIFY row_number() OVER (PARTITION BY M.epoch, S.h ORDER BY S.unit_score DESC) <= 2
        ORDER BY ALL LIMIT 7"""
    )
    judge = own.sort_values("unit_score").groupby(["epoch", "h"]).tail(2).sort_values(["epoch", "h", "uid"])
    assert top.uid.tolist() == judge.uid.tolist()[:7]
    np.testing.assert_allclose(top.unit_score, judge.unit_score[:7], rtol=1e-9)


def test_missing_scores_are_null_and_no_filter_passes_them(images):
    """A constant unit has no correlation: DuckDB sorts NaN above all numbers, so it must be NULL."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    nn.init.zeros_(model[1].weight[1:2])
    with torch.no_grad():
        model[1].weight[1] = 0
    text = f"SELECT S.uid, S.unit_score {INSPECT} FROM units U, hypotheses H, inputs D WHERE U.layer = '1'"
    given = {"models": model, "hypotheses": {"ink": images.mean((1, 2, 3))}, "data": images}
    assert query(f"{text} ORDER BY 1", **given).unit_score.isna().tolist() == [False, True, False]
    assert "1[1]" not in query(f"{text} HAVING S.unit_score > -2", **given).uid.tolist()


def test_records_of_a_data_frame_and_of_an_lstm():
    texts = ["def f(a): return (a)", "x = (1, (2, 3))", "print((((1))))", "y = [f(0), (1)]"] * 30
    frame = pd.DataFrame({"text": texts, "split": ["train", "test", "test"] * 40, "n": range(120)})

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm = nn.Embedding(128, 8), nn.LSTM(8, 12, batch_first=True)

        def forward(self, ids):
            return self.lstm(self.embed(ids))[0]

    def encode(records):
        longest = 24
        return torch.tensor([[ord(c) for c in record["text"].ljust(longest)] for record in records])

    def depth(record):
        return np.cumsum([(c == "(") - (c == ")") for c in record["text"]])

    torch.manual_seed(0)
    model = Reader()
    table = query(
        f"""SELECT S.uid, S.unit_score, S.n {INSPECT} FROM units U, hypotheses H, inputs D
        WHERE U.layer = 'lstm' AND D.split = 'test' AND D.n > 20 ORDER BY U.unit""",
        models=model,
        hypotheses=depth,
        data=frame,
        inputs=encode,
    )
    kept = frame[(frame.split == "test") & (frame.n > 20)]
    with torch.no_grad():
        out = model(encode(kept.to_dict("records"))).numpy()
    rows = np.concatenate([o[: len(t)] for o, t in zip(out, kept.text, strict=True)])
    labels = np.concatenate([depth({"text": t}) for t in kept.text])
    judge = [np.corrcoef(rows[:, unit], labels)[0, 1] for unit in range(12)]
    np.testing.assert_allclose(table.unit_score, judge, atol=1e-6)
    assert table.n.eq(len(labels)).all()
    assert table.attrs["records"] == len(kept)


def test_text_of_records_in_where(checkpoints):
    words = ["apple", "pear", "plum", "fig"] * 10
    model = nn.Sequential(nn.Linear(2, 3))
    table = query(
        f"SELECT S.uid, S.n {INSPECT} FROM units U, hypotheses H, inputs D "
        "WHERE D.seq LIKE 'p%' AND U.layer = '0'",
        models=model,
        hypotheses={"length": len},
        data=words,
        inputs=lambda batch: torch.tensor([[len(w), ord(w[1])] for w in batch]).float(),
    )
    assert table.n.tolist() == [20] * 3


def test_options_per_record_follow_the_records(checkpoints, ideas, images):
    groups = np.repeat(np.arange(60), 10)
    text = f"SELECT S.low, S.high, S.n {INSPECT} FROM units U, hypotheses H, inputs D "
    text += "WHERE U.layer = 'conv1' AND D.did < 300"
    table = query(
        f"{text} ORDER BY U.unit",
        models=checkpoints[1],
        hypotheses={"even": ideas["even"]},
        data=images,
        groups=groups,
    )
    judge = inspect(
        checkpoints[1],
        {"even": ideas["even"][:300]},
        "correlation",
        images[:300],
        "conv1",
        groups=groups[:300],
    )
    np.testing.assert_allclose(table.low, judge.low, rtol=1e-9)
    np.testing.assert_allclose(table.high, judge.high, rtol=1e-9)
    with pytest.raises(InputError, match="groups has 5 entries for 600 records"):
        query(text, models=checkpoints[1], hypotheses=ideas, data=images, groups=groups[:5])


def test_labels_with_another_index_than_data():
    values = np.random.default_rng(0).normal(size=(90, 3)).astype(np.float32)
    frame = pd.DataFrame(values, columns=list("abc"), index=np.arange(90)[::-1])
    asked = {
        "models": nn.Sequential(nn.Linear(3, 2)),
        "data": frame,
        "inputs": lambda rows: torch.tensor([list(row.values()) for row in rows]),
    }
    text = f"SELECT S.uid, S.unit_score {INSPECT} FROM units U, hypotheses H, inputs D WHERE U.layer = '0'"
    labels, groups = pd.Series(values[:, 0] > 0), pd.Series(np.arange(90) // 3)
    with pytest.raises(
        InputError, match=r"The labels 'y' have another index.*Write labels.loc\[data.index\]"
    ):
        query(text, hypotheses={"y": labels}, **asked)
    with pytest.raises(InputError, match=r"groups has another index.*Write groups.loc\[data.index\]"):
        query(text, hypotheses={"y": labels.to_numpy()}, groups=groups, **asked)
    table = query(text, hypotheses={"y": labels.loc[frame.index]}, **asked)
    expected = [
        np.corrcoef(asked["models"](torch.tensor(values)).detach()[:, unit], labels.loc[frame.index])
        for unit in (0, 1)
    ]
    assert table.unit_score.tolist() == pytest.approx([one[0, 1] for one in expected], abs=1e-6)


def test_groups_of_pandas_follow_the_records(checkpoints, ideas, images):
    """A Series is selected by position, whatever its index is."""
    text = f"SELECT S.uid, S.low, S.high {INSPECT} $FROM AND U.layer = 'conv1' AND D.did >= 200"
    groups = np.repeat(np.arange(60), 10)
    given = {"models": checkpoints[2], "hypotheses": {"ink": ideas["ink"]}, "data": images}
    tables = [
        query(text.replace("$FROM", FROM), groups=one, **given)
        for one in (groups, pd.Series(groups, index=np.arange(600)[::-1]))
    ]
    pd.testing.assert_frame_equal(*tables)


def test_tcav_is_a_score_of_a_group(checkpoints, images, digit):
    concept = (images.mean((1, 2, 3)) > 0.3).astype(float)
    table = query(
        f"SELECT S.uid, S.group_score, S.p, S.n INSPECT U.uid AND H.h USING TCAV OVER D.seq AS S {FROM} "
        "AND U.layer IN ('conv1', 'conv2') AND U.unit < 4 ORDER BY S.uid",
        models=checkpoints[2],
        hypotheses={"bright": concept},
        data=images,
        output=3,
    )
    judge = inspect(checkpoints[2], {"bright": concept}, "tcav", images, ["conv1[:4]", "conv2[:4]"], output=3)
    for _, row in judge.iterrows():
        here = table[table.uid.str.startswith(f"{row.address}[")]
        assert here.group_score.tolist() == [row.value] * 4
        assert here.p.tolist() == [row.p] * 4


def test_given_holds_a_confounder_that_where_leaves_out(checkpoints, ideas, images):
    table = query(
        f"SELECT S.h, S.unit_score, S.note {INSPECT} FROM units U, hypotheses H, inputs D "
        "WHERE U.layer = 'conv1' AND H.h = 'edge' ORDER BY U.unit",
        models=checkpoints[1],
        hypotheses=ideas,
        data=images,
        given="ink",
    )
    both = {name: ideas[name] for name in ("edge", "ink")}
    judge = inspect(checkpoints[1], both, "correlation", images, "conv1", given="ink")
    judge = judge[judge.target == "edge"]
    np.testing.assert_allclose(table.unit_score, judge.value, rtol=1e-9)
    assert table.note.str.contains("given").all()


def test_metadata_of_every_relation(checkpoints, ideas, images):
    table = query(
        f"SELECT M.epoch, M.lr, H.family, U.role, S.uid {INSPECT} {FROM} AND M.lr < 0.05 "
        "AND H.family = 'pixel' AND U.role = 'first' AND U.unit = 0 ORDER BY ALL",
        models={"a": checkpoints[0], "b": checkpoints[1], "c": checkpoints[2]},
        hypotheses=ideas,
        data=images,
        metadata={
            "models": {"a": {"epoch": 5, "lr": 0.1}, "b": {"epoch": 6, "lr": 0.01}, "c": {"lr": 0.02}},
            "hypotheses": pd.DataFrame({"name": ["ink", "edge"], "family": "pixel"}),
            "units": pd.DataFrame({"layer": ["conv1"], "role": ["first"]}),
        },
    )
    assert table.lr.tolist() == [0.01, 0.01, 0.02, 0.02]
    assert table.epoch.fillna(-1).tolist() == [6, 6, -1, -1]
    assert set(table.uid) == {"conv1[0]"}
    assert table.attrs["computed"] == 4


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"model": {}}, "names the relation 'model'. Did you mean 'models'?"),
        ({"models": {"9": {"lr": 1}}}, "is about '9', which is no mid of models"),
        ({"models": {"1": 3}}, "a dict of dicts by mid, got a dict"),
        ({"inputs": pd.DataFrame({"split": ["a"]})}, "has 1 rows for 600 records"),
        ({"hypotheses": pd.DataFrame({"name": ["ink", "ink"], "x": 1})}, "has two rows for name='ink'"),
        ({"units": pd.DataFrame({"layer": ["conv1"], "h": 1})}, "has the column 'h'"),
        (3, "metadata must be a dict by relation"),
    ],
)
def test_metadata_refused(ask, metadata, message):
    with pytest.raises(InputError) as error:
        ask(f"SELECT S.uid {INSPECT} $FROM", metadata=metadata)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "SELECT M.epok {I} {F}",
            "SELECT names M.epok, but M has the columns mid, name, epoch, class, n_param",
        ),
        ("SELECT M.epok {I} {F}", "Did you mean 'epoch'?"),
        ("SELECT S.unitscore {I} {F}", "Did you mean 'unit_score'"),
        ("SELECT X.uid {I} {F}", "SELECT names X.uid, but no relation is called 'X'"),
        (
            "SELECT S.uid {I} {F} AND U.lay = 'conv1'",
            "WHERE names U.lay, but U has the columns mid, uid, layer",
        ),
        ("SELECT S.uid {I} {F} GROUP BY M.epock", "GROUP BY names M.epock"),
        ("SELECT S.uid {I} {F} HAVING S.scor > 1", "HAVING names S.scor"),
        ("SELECT S.uid {I} {F} ORDER BY S.scor", "ORDER BY names S.scor"),
        ("SELECT S.uid {I} {F} QUALIFY row_number() OVER (ORDER BY S.scor) < 2", "QUALIFY names S.scor"),
        ("SELECT S.uid {I} {F} AND splitt = 'test'", "WHERE names the column 'splitt'"),
        ("SELECT uid {I} {F}", "mbiguous"),
        (
            "SELECT S.uid INSPECT V.uid AND H.h USING iou OVER D.seq AS S {F}",
            "INSPECT names 'V', but FROM has",
        ),
        ("SELECT S.uid INSPECT U.uid AND H.h USING iou OVER E.seq AS S {F}", "OVER names 'E', but FROM has"),
        (
            "SELECT S.uid INSPECT U.uid AND H.h USING iou OVER D.seq AS M {F}",
            "takes a name that FROM has too",
        ),
        (
            "SELECT S.uid INSPECT U.uid AND H.h USING corelation OVER D.seq AS S {F}",
            "Did you mean 'correlation'",
        ),
        (
            "SELECT S.uid {I} {F} AND U.layer = 'conv3'",
            "no row meets (U.layer = 'conv3'). Did you mean 'conv",
        ),
        ("SELECT S.uid {I} {F} AND M.mid = 'net'", "WHERE leaves no model: no row meets (M.mid = 'net')"),
        ("SELECT S.uid {I} {F} AND D.did < 0", "WHERE leaves no record: no row meets (D.did < 0)"),
        (
            "SELECT S.uid {I} {F} AND U.layer = 'conv1' AND U.n = 8",
            "no row meets (U.n = 8) together with the conditions before it",
        ),
        ("SELECT S.uid {I} {F} AND U.layer = 0", "write U.layer = '0', or U.number = 1"),
        ("SELECT S.uid {I} {F} AND D.did = U.unit", "WHERE compares the inputs D with something else"),
        ("SELECT D.did {I} {F}", "may be used in WHERE only"),
        ("SELECT M.epoch {I} {F} GROUP BY D.did", "may be used in WHERE only"),
        ("SELECT S.uid {I} {F} AND U.unit < 9 * random()", "WHERE has random(), which is another one each"),
        (
            "SELECT S.uid {I} {F} AND U.unit IN (SELECT unit FROM units ORDER BY random() LIMIT 1)",
            "WHERE has random(), which is another one each",
        ),
        (
            "SELECT S.uid {I} FROM units U TABLESAMPLE 3 ROWS, hypotheses H, inputs D",
            "FROM has a SAMPLE, which is another one each",
        ),
        (
            "WITH u AS (SELECT * FROM units WHERE random() < 1) "
            "SELECT S.uid {I} FROM u U, hypotheses H, inputs D",
            "WITH has random(), which is another one each",
        ),
        ("SELECT S.uid {I} {F} AND H.name = ink", "If it is a text, write it in single quotes: 'ink'"),
        ("SELECT S.uid {I} {F} AND S.p = (SELECT min(p) FROM S)", "A subquery reads the scores S, which are"),
        ("SELECT S.uid {I} {F} GROUP BY ROLLUP (U.layer, U.unit)", "would put a unit into several groups"),
        ("SELECT S.uid, max(S.p) {I} {F} GROUP BY M.epoch", "GROUP BY"),
        ("SELECT S.uid {I} FROM units U, nothing N, hypotheses H, inputs D", "nothing"),
        (
            "SELECT S.uid {I} FROM units U, hypotheses H LEFT JOIN inputs D ON TRUE",
            "Write them after a comma",
        ),
        ("SELECT S.uid {I} FROM units U, hypotheses H, inputs D, read_csv('/etc/passwd')", "disabled"),
        ("SELECT S.uid {I} {F} AND U.layer = (SELECT content FROM read_text('/etc/hostname'))", "disabled"),
        ("SELECT S.uid {I} {F} WHERE 1", "cannot be read"),
        ("DROP TABLE units", "The query has no INSPECT"),
        ("CREATE TABLE t AS SELECT S.uid {I} {F}", "cannot be read: Only SELECT"),
        ("COPY (SELECT 1) TO 'out' ; SELECT S.uid {I} {F}", "more after the semicolon"),
        ("(SELECT 1 UNION SELECT 2) UNION SELECT S.uid {I} {F}", "this one has UNION"),
    ],
)
def test_refused(ask, text, message):
    with pytest.raises(InputError) as error:
        ask(text.replace("{I}", INSPECT).replace("{F}", "$FROM"))
    assert message in str(error.value)


def test_python_variables_are_no_relations(ask):
    secret = pd.DataFrame({"x": [1]})
    with pytest.raises(InputError, match="secret"):
        ask(f"SELECT S.uid {INSPECT} FROM units U, hypotheses H, inputs D, secret")
    assert len(secret) == 1


@pytest.mark.parametrize(
    "text",
    [
        f"""WITH late AS (SELECT * FROM models WHERE epoch = 2) SELECT S.uid, S.h, S.unit_score {INSPECT}
        FROM late M, units U, hypotheses H, inputs D
        WHERE M.mid = U.mid AND U.layer = 'conv1' AND H.h = 'ink' ORDER BY S.uid""",
        """select\n\ts.uid ,s.h, s.unit_score
        inspect u.uid/*all*/and h.h using corr over d.seq as s -- FROM here
        from units u join models m on m.mid=u.mid cross join hypotheses h, inputs d
        where m.mid='2' and u.layer='conv1'and h.h='ink'order by 1;""",
        """SELECT scores.uid, scores.h, unit_score
        INSPECT units.uid AND hypotheses.name USING correlation OVER inputs.did scores
        FROM units, hypotheses, inputs
        WHERE units.mid = '2' AND units.layer = 'conv1' AND name = 'ink' ORDER BY 1""",
        f"""SELECT S.uid, S.h, S.unit_score {INSPECT}
        FROM models M JOIN units U USING (mid), (SELECT * FROM hypotheses WHERE name = 'ink') H, inputs D
        WHERE M.mid = '2' AND U.layer = 'conv1' AND S.n > 0 ORDER BY S.uid""",
        f"""SELECT S.uid, S.h, S.unit_score
        FROM (SELECT 1) x, models M, units U, hypotheses H, inputs D {INSPECT}
        WHERE M.mid = U.mid AND M.epoch = 2 AND U.layer = 'conv1' AND H.h = 'ink' ORDER BY S.uid""",
    ],
    ids=["with", "spaces", "no aliases", "subquery", "order of clauses"],
)
def test_other_spellings(ask, everything, text):
    judge = everything[(everything.epoch == 2) & (everything.layer == "conv1") & (everything.h == "ink")]
    table = ask(text)
    assert table.uid.tolist() == judge.sort_values("uid").uid.tolist()
    np.testing.assert_allclose(table.unit_score, judge.sort_values("uid").unit_score, rtol=1e-9)
    assert table.attrs["computed"] == 6


def test_scores_that_need_no_hypothesis(checkpoints, ideas, images):
    table = query(
        "SELECT DISTINCT U.layer, S.group_score INSPECT U.uid AND H.h USING sparsity OVER D.seq AS S "
        "FROM units U, hypotheses H, inputs D WHERE U.layer IN ('conv1', 'relu:2') "
        "GROUP BY U.layer ORDER BY 1",
        models=checkpoints[2],
        hypotheses=ideas,
        data=images,
    )
    judge = inspect(checkpoints[2], {}, "sparsity", images, ["conv1", "relu:2"])
    assert table.layer.tolist() == judge.address.tolist()
    np.testing.assert_allclose(table.group_score, judge.value, rtol=1e-9)


def test_scores_is_no_option(ask):
    with pytest.raises(InputError, match="USING names the scores"):
        ask(f"SELECT S.uid {INSPECT} $FROM", scores="iou")


def test_importing_intus_imports_no_duckdb():
    code = "import sys, intus, intus.inspection; assert intus.query and 'duckdb' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert intus.query is query


def test_functions_that_return_several_hypotheses(checkpoints, images, digit):
    def parse(image):
        return {"ink": image[0] > 0.5, "dark": image[0] < 0.1}

    def other(image):
        return {"dark": image[0] < 0.2, "half": image[0] > 0.4}

    table = query(
        f"SELECT S.uid, S.h, S.unit_score {INSPECT} FROM units U, hypotheses H, inputs D "
        "WHERE U.layer = 'conv1' AND (H.h = 'parse.dark' AND U.unit = 1 OR H.h = 'half' AND U.unit < 2) "
        "AND D.did > 99 ORDER BY ALL",
        models=checkpoints[1],
        hypotheses=[parse, other, digit == 3],
        data=images,
    )
    judge = inspect(checkpoints[1], [parse, other], "correlation", images[100:], "conv1[0:2]")
    judge = judge.set_index(["unit", "target"]).value
    assert table[["uid", "h"]].values.tolist() == [
        ["conv1[0]", "half"],
        ["conv1[1]", "half"],
        ["conv1[1]", "parse.dark"],
    ]
    expected = [judge[0, "half"], judge[1, "half"], judge[1, "parse.dark"]]
    np.testing.assert_allclose(table.unit_score, expected, rtol=1e-9)


def test_coefficients_of_units_have_the_score_of_their_group(checkpoints, ideas, images):
    table = query(
        "SELECT S.uid, S.unit_score, S.group_score INSPECT U.uid AND H.h USING logistic_l2 OVER D.seq AS S "
        "FROM units U, hypotheses H, inputs D WHERE U.layer = 'conv2' AND H.h = 'even' ORDER BY U.unit",
        models=checkpoints[2],
        hypotheses=ideas,
        data=images,
    )
    judge = inspect(checkpoints[2], {"even": ideas["even"]}, "logistic_l2", images, "conv2")
    judge = judge[judge.score.isin(["logistic_l2", "logistic_l2.coef"])]
    np.testing.assert_allclose(table.unit_score, judge[judge.unit >= 0].value, rtol=1e-9)
    assert table.group_score.nunique() == 1
    assert table.group_score[0] == pytest.approx(judge[judge.unit < 0].value.iloc[0])


def test_axes_calls_and_operations_of_units(checkpoints, ideas, images):
    """``units=`` lists operations that no module returns, and names an axis; each call is a layer."""
    given = {"hypotheses": {"even": ideas["even"]}, "data": images}
    text = (
        f"SELECT DISTINCT S.layer {INSPECT} FROM units U, hypotheses H, inputs D WHERE U.unit = 0 ORDER BY 1"
    )
    table = query(text, models=checkpoints[1], units=["relu", "flatten_1"], **given)
    assert table.layer.tolist() == ["flatten_1", "relu", "relu:2"]

    class Patches(nn.Module):
        def forward(self, x):
            return x.unfold(2, 4, 4).flatten(2, 3)

    table = query(text, models=nn.Sequential(Patches()), units="0[:@2]", **given)
    assert table.layer.tolist() == ["0"]
    assert table.attrs["pairs"] == 16


def test_model_that_fails_is_named(checkpoints, ideas, images):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 6, 3, padding=1)

        def forward(self, x):
            if len(x) > 1:
                raise ValueError("one record only")
            return self.conv1(x)

    text = f"SELECT M.mid, S.uid {INSPECT} {FROM} AND U.layer = 'conv1' AND H.h = 'ink'"
    models = {"good": checkpoints[0], "odd": Odd()}
    with pytest.warns(UserWarning, match="The answer lacks the model 'odd', which failed: .*one record only"):
        table = query(text, models=models, hypotheses=ideas, data=images)
    assert table.mid.tolist() == ["good"] * 6


def test_sample_of_records(ask):
    """A condition on inputs alone is evaluated once, so it may be random."""
    chosen = "U.uid = 'conv1[0]' AND H.h = 'even' AND M.epoch = 1"
    table = ask(f"SELECT S.n {INSPECT} $FROM AND {chosen} AND random() < 0.5 + 0 * D.did")
    assert 200 < table.n[0] < 400
    assert table.n[0] == table.attrs["records"]


@pytest.mark.long
def test_names_of_scores_of_the_paper(checkpoints, ideas, images):
    given = {"models": checkpoints[1], "hypotheses": {"ink": ideas["ink"]}, "data": images}
    text = "SELECT S.unit_score INSPECT U.uid AND H.h USING {} OVER D.seq AS S "
    text += "FROM units U, hypotheses H, inputs D WHERE U.layer = 'conv1' ORDER BY U.unit"
    for name, own in {"corr": "correlation", "CORRELATION": "correlation", "LocalIOU": "iou"}.items():
        found, judge = (query(text.format(score), **given).unit_score for score in (name, own))
        assert len(found) == 6
        np.testing.assert_allclose(found, judge, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "mids"),
    [
        ("{F} AND M.mid <> '2' AND M.epoch = (SELECT max(epoch) FROM models) - 1", ["1"]),
        ("{F} AND M.mid = '1' AND U.unit IN (SELECT unit FROM units WHERE mid = '0' AND unit < 1)", ["1"]),
        (
            "FROM models M, units U, units V, hypotheses H, inputs D "
            "WHERE M.mid = '0' AND V.mid = '2' AND U.uid = V.uid",
            ["0"],
        ),
        (
            "FROM models M, models N, units U, hypotheses H, inputs D "
            "WHERE U.mid = M.mid AND N.epoch = M.epoch + 1 AND N.mid = '2'",
            ["1"],
        ),
    ],
)
def test_models_that_only_subqueries_read_are_there(ask, text, mids):
    chosen = "AND U.layer = 'conv1' AND U.unit = 0 AND H.h = 'even'"
    table = ask(f"SELECT S.mid, S.uid {INSPECT} {text} {chosen}".replace("{F}", "$FROM"))
    assert table.mid.tolist() == mids
    assert table.attrs["computed"] == 1


def test_cte_with_the_name_of_a_relation(ask):
    text = f"WITH models AS (SELECT * FROM models WHERE epoch = 2) SELECT S.mid {INSPECT} $FROM"
    assert ask(f"{text} AND U.uid = 'conv1[0]' AND H.h = 'even'").mid.tolist() == ["2"]


def test_without_duckdb(ask, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(MissingExtraError, match=r"duckdb is needed to answer queries.*intus\[query\]"):
        ask(f"SELECT S.uid {INSPECT} $FROM")
