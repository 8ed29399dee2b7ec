"""inspect: scores against scipy and scikit-learn, options, errors, side effects."""

from __future__ import annotations

import copy
import re
from inspect import signature

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import ndimage, stats
from sklearn.metrics import jaccard_score
from torch import nn

import intus
from intus.core.errors import AddressError, CaptureError, InputError
from intus.inspection import hypothesis, inspect


def ink(image):
    return image[0] > 0.5


def right_edge(image):
    return (np.diff(image[0], axis=1, append=0) < -0.4).astype(float)


def maps_of(model, name, images):
    """Return a layer's maps at each pixel, by scipy; those of conv2 (stride 2) lie on every second pixel."""
    found = []
    handle = getattr(model, name).register_forward_hook(lambda m, i, o: found.append(o))
    mode = model.training
    with torch.no_grad():
        model.eval()(torch.from_numpy(images))
    model.train(mode)
    handle.remove()
    maps = found[0].numpy()
    step = 8 // maps.shape[-1]
    place = np.mgrid[: len(maps), : maps.shape[1], :8, :8].astype(float)
    place[2:] /= step
    return ndimage.map_coordinates(maps, place, order=1, mode="nearest")


def row(frame, **equal):
    for name, value in equal.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1, frame
    return frame.iloc[0]


@pytest.fixture(scope="module")
def answer(checkpoints, images):
    return inspect(
        checkpoints[-1], [ink, right_edge], ["iou", "correlation"], images, [(1, "*"), (3, "*")], batch=128
    )


@pytest.mark.parametrize("layer", ["conv1", "conv2"])
@pytest.mark.parametrize("function", [ink, right_edge])
def test_iou_and_correlation_equal_sklearn_and_scipy_on_maps_at_pixels(
    answer, model, images, layer, function
):
    maps = maps_of(model, layer, images)
    truth = np.stack([function(image) for image in images]).reshape(-1).astype(float)
    for unit in range(maps.shape[1]):
        values = maps[:, unit].reshape(-1)
        got = row(answer, address=layer, unit=unit, target=function.__name__, score="correlation")
        assert got.value == pytest.approx(stats.pearsonr(values.astype(float), truth).statistic, abs=1e-5)
        assert got.n == 600 * 64
        got = row(answer, address=layer, unit=unit, target=function.__name__, score="iou")
        want = jaccard_score(truth == 1, values > np.quantile(values, 0.995))
        assert got.value == pytest.approx(want, abs=2e-4)


def test_columns_and_order_of_the_table(answer):
    columns = "run model epoch address unit target score value low high baseline p q n note"
    assert list(answer.columns) == columns.split()
    assert set(answer.model) == {"Small"}
    assert answer.address.drop_duplicates().tolist() == ["conv1", "conv2"]
    assert answer[answer.address == "conv2"].unit.drop_duplicates().tolist() == list(range(8))
    assert len(answer) == (6 + 8) * 2 * 2
    found = answer[(answer.score == "correlation") & (answer.target == "ink")]
    assert (found.low <= found.value).all()
    assert found.value.abs().max() > found.baseline.max() > 0.3  # digits look alike: so does any other ink
    assert isinstance(answer, pd.DataFrame)


def test_planted_unit_is_found(images):
    """Unit 2 computes exactly the ink."""
    planted = nn.Sequential(nn.Conv2d(1, 4, 1))
    with torch.no_grad():
        planted[0].weight.normal_(0, 0.01)
        planted[0].bias.normal_()
        planted[0].weight[2], planted[0].bias[2] = 5.0, 0.0
    data = (images > 0.5).astype(np.float32)
    frame = inspect(planted, ink, ["iou_max", "correlation", "mean_difference"], data, "0")
    assert row(frame, unit=2, score="iou_max").value == 1.0
    assert row(frame, unit=2, score="correlation").value == pytest.approx(1.0)
    assert row(frame, unit=2, score="mean_difference").value == pytest.approx(5.0, abs=1e-5)


def test_address_with_units(model, images):
    from intus.core.address import Address

    for units in ("conv1[4]", "conv1:1[4]", Address.parse("conv1[4]"), [("conv1[4]", "*")]):
        frame = inspect(model, ink, "correlation", images[:50], units)
        assert (frame.address.tolist(), frame.unit.tolist()) == (["conv1"], [4])
    both = inspect(model, ink, "correlation", images[:50], ["conv1[4]", "conv1[1]", Address("conv2")])
    assert both.unit.tolist() == [4, 1, *range(8)]
    with pytest.raises(AddressError, match=r"'conv1\[6\]' is out of range: there are 6 units"):
        inspect(model, ink, "correlation", images[:50], "conv1[6]")
    with pytest.raises(InputError, match=r"'conv1\[4\]' names units already"):
        inspect(model, ink, "correlation", images[:50], ("conv1[4]", [1]))


def test_checkpoints_are_epochs(checkpoints, images):
    frame = inspect(checkpoints, ink, "correlation", images, [("conv1", [4, 1])])
    assert frame.epoch.tolist() == [0, 0, 1, 1, 2, 2]
    assert frame.unit.tolist() == [4, 1] * 3
    by_epoch = inspect(
        {10: checkpoints[1], 20: checkpoints[2]}, ink, "correlation", images, [("conv1", [4, 1])]
    )
    assert by_epoch.epoch.tolist() == [10, 10, 20, 20]
    assert by_epoch.value.tolist() == frame.value.tolist()[2:]
    named = inspect({"a": checkpoints[1], "b": checkpoints[2]}, ink, "correlation", images, [("conv1", 4)])
    assert named.model.tolist() == ["a", "b"]
    assert named.epoch.isna().all()


@pytest.mark.long
def test_loaded_models_are_freed(checkpoints, images):
    import gc
    import weakref

    alive: list[weakref.ref] = []

    def load(number):
        def one():
            gc.collect()
            assert all(ref() is None for ref in alive), "the model before is still in memory"
            model = copy.deepcopy(checkpoints[number])
            alive.append(weakref.ref(model))
            return model

        return one

    frame = inspect([load(0), load(1)], ink, "correlation", images[:50], (1, 0))
    assert frame.epoch.tolist() == [0, 1]
    assert len(alive) == 2


def test_hypotheses_run_once_for_all_models(checkpoints, images):
    asked = []

    @hypothesis("counted", kind="binary")
    def function(image):
        asked.append(1)
        return image[0] > 0.5

    frame = inspect(checkpoints, function, "correlation", images[:80], [(1, 0), (2, 0)], batch=32)
    assert len(asked) == 80
    assert set(frame.target) == {"counted"}


def test_batch_size_does_not_change_scores(model, images):
    frames = [
        inspect(model, [ink], ["iou", "iou_max", "correlation"], images, "conv2", batch=batch)
        for batch in (600, 37)
    ]
    moved = [frame.pop("baseline").where(frame.score != "correlation", 0) for frame in frames]
    pd.testing.assert_frame_equal(*frames, rtol=1e-4, atol=1e-5)
    pd.testing.assert_series_equal(*moved)


def test_data_as_array_tensor_or_list(model, images):
    want = inspect(model, ink, "correlation", images, "conv1").value
    for data in (torch.from_numpy(images), list(images), [torch.from_numpy(i) for i in images]):
        np.testing.assert_allclose(inspect(model, ink, "correlation", data, "conv1").value, want)
    doubled = inspect(model, ink, "correlation", images.astype(np.float64), "conv1").value
    np.testing.assert_allclose(doubled, want, atol=1e-6)


def test_labels_as_functions_and_arrays(model, images, digit):
    frame = inspect(
        model,
        {
            "digit": digit,
            "is_zero": digit == 0,
            "grid": images[:, 0] > 0.5,
            "heavy": lambda i: i.mean() > 0.3,
        },
        ["correlation", "linear_accuracy"],
        images,
        ["conv2"],
    )
    maps = maps_of(model, "conv2", images)
    small = []
    model.conv2.register_forward_hook(lambda m, i, o: small.append(o.numpy())).remove()
    got = row(frame, unit=3, target="is_zero", score="correlation")
    with torch.no_grad():
        model.eval()
        x = model.conv2(torch.relu(model.norm(model.conv1(torch.from_numpy(images))))).numpy()
    want = stats.pearsonr(x[:, 3].mean(axis=(1, 2)).astype(float), (digit == 0).astype(float)).statistic
    assert got.value == pytest.approx(want, abs=1e-6)
    assert got.n == 600
    assert row(frame, unit=3, target="grid", score="correlation").n == maps[:, 3].size
    layer = row(frame, unit=-1, target="digit", score="linear_accuracy")
    assert layer.value > 2 * layer.baseline


def test_layer_without_positions_takes_record_labels(model, images, digit):
    frame = inspect(model, {"three": digit == 3}, ["correlation", "iou_max"], images, "head")
    best = frame[frame.score == "iou_max"].sort_values("value").iloc[-1]
    assert best.unit == 3
    assert best.value > 0.6 > best.baseline


def test_nan_is_not_annotated(model, images):
    def half(image):
        return np.where(np.arange(8) < 4, image[0] > 0.5, np.nan)

    got = row(inspect(model, half, "correlation", images, ("conv1", 2)))
    maps = maps_of(model, "conv1", images)[:, 2, :, :4]
    want = stats.pearsonr(maps.reshape(-1).astype(float), (images[:, 0, :, :4] > 0.5).reshape(-1)).statistic
    assert (got.value, got.n) == (pytest.approx(want, abs=1e-6), maps.size)


def test_layer_scores_and_functions(model, images, digit):
    frame = inspect(model, [], ["mean", "dead", lambda b: float(b.max())], images, ["conv1", "head"])
    assert frame.unit.tolist() == [-1] * 6
    some = inspect(model, {"digit": digit}, ["linear_f1"], images, ("head", [0, 1]))
    assert set(some.note) == {"2 of 10 units"}


@pytest.mark.parametrize(
    "hypotheses",
    [{}, {"digit": np.arange(600) % 2}, {"grid": np.random.default_rng(0).random((600, 16, 16)) > 0.5}],
)
def test_layer_scores_read_the_output_unchanged(images, hypotheses):
    """Not averaged for labels of records, not up-sampled for those of large grids: a row per record."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU())
    with torch.no_grad():
        truth = net(torch.from_numpy(images)).numpy()
    frame = inspect(net, hypotheses, ["max", "sparsity", "std", "mean"], images, ("1", "*"))
    want = {"max": truth.max(), "sparsity": (truth == 0).mean(), "std": truth.std(), "mean": truth.mean()}
    for name, value in want.items():
        assert row(frame, score=name).value == pytest.approx(value, abs=1e-5), name
        assert row(frame, score=name).n == 600


def test_layer_scores_of_texts_of_different_length():
    net = nn.Sequential(nn.Embedding(9, 3))
    texts = [[1, 2, 3], [4, 5, 6], [7], [1]]
    with torch.no_grad():
        full = [net(torch.tensor(text)).numpy() for text in texts]
    frame = inspect(net, [], ["mean_abs"], texts, "0", inputs=torch.tensor, batch=2)
    assert frame.value[0] == pytest.approx(np.mean([np.abs(one).sum() / 9 for one in full]), abs=1e-6)
    with pytest.raises(
        InputError, match=r"'0' gave records of shape \(3, 1\) at first and of \(3, 3\) later"
    ):
        inspect(net, [], ["mean_abs"], texts[::-1], "0", inputs=torch.tensor, batch=2)


def test_seed(model, images, digit):
    ask = lambda seed: inspect(model, {"d": digit}, "linear_f1", images, "conv2", seed=seed)  # noqa: E731
    pd.testing.assert_frame_equal(ask(1), ask(1))
    assert ask(1).value.iloc[0] != ask(2).value.iloc[0]


# -- nothing stays changed ---------------------------------------------------------------------------


def state_of(model):
    return (
        [m.training for m in model.modules()],
        [dict(m._forward_hooks) | dict(m._forward_pre_hooks) for m in model.modules()],
        [sorted(vars(m)) for m in model.modules()],
        {name: value.clone() for name, value in model.state_dict().items()},
        [p.grad for p in model.parameters()],
        [p.requires_grad for p in model.parameters()],
        torch.get_rng_state(),
        np.random.get_state()[1].tolist(),
        torch.is_grad_enabled(),
    )


def assert_unchanged(before, after):
    for old, new in zip(before, after, strict=True):
        if isinstance(old, dict):
            assert all(torch.equal(old[name], new[name]) for name in old | new)
        elif isinstance(old, torch.Tensor):
            assert torch.equal(old, new)
        else:
            assert old == new


def test_model_and_random_state_are_restored(checkpoints, images):
    model = copy.deepcopy(checkpoints[0]).train()
    model.norm.eval()
    data = images.copy()
    before = state_of(model)
    inspect(model, ink, ["iou", "linear_f1"], data, ["conv*", "norm"])
    assert_unchanged(before, state_of(model))
    assert (data == images).all()


@pytest.mark.parametrize("where", ["hypothesis", "model", "inputs"])
def test_restored_after_an_exception(checkpoints, images, where):
    model = copy.deepcopy(checkpoints[0]).train()
    before = state_of(model)

    def boom(*_):
        torch.rand(3)
        raise RuntimeError("boom")

    if where == "model":
        handle = model.head.register_forward_hook(boom)
        before = state_of(model)
    with pytest.raises(RuntimeError, match="boom") as caught:
        inspect(
            model,
            boom if where == "hypothesis" else ink,
            "iou",
            images,
            "conv1",
            inputs=boom if where == "inputs" else None,
        )
    if where == "hypothesis":
        assert caught.value.__notes__ == ["in the hypothesis 'boom', on record 0"]
    assert_unchanged(before, state_of(model))
    if where == "model":
        handle.remove()


def test_hypothesis_writing_into_its_record(model, images):
    def greedy(image):
        image[:] = 0
        return image[0]

    data = images.copy()
    inspect(model, greedy, "correlation", data[:20], "conv1")
    inspect(model, greedy, "correlation", torch.from_numpy(data)[:20], "conv1")
    assert (data == images).all()


# -- the store ---------------------------------------------------------------------------------------


def test_store_writes_results_and_graph(checkpoints, images, tmp_path):
    from intus.storage.codec import decode_graph
    from intus.storage.database import Database

    where = tmp_path / "x.db"
    frame = inspect(checkpoints[:2], ink, "correlation", images, "conv1", store=where, run="mine")
    assert set(frame.run) == {"mine"}
    with Database(where) as database:
        points = database.points("mine", "Small", level="unit")
        assert len(points) == len(frame) == 12
        assert points["value"].tolist() == pytest.approx(frame.value.tolist())
        assert points["epoch"].tolist() == frame.epoch.tolist()
        (kept,) = database.runs()
        assert kept["units"] == [{"score": "correlation", "target": "ink"}]
        assert kept["has_graph"]
        graph, _ = decode_graph(database.graph("mine", "Small"))
        assert graph.rows("conv1") is not None
    again = inspect(checkpoints[0], ink, "iou", images[:20], "conv1", store=f"sqlite:///{where}")
    assert again.run.iloc[0].startswith("inspect 20")


def test_store_keeps_scores_of_a_training_run(checkpoints, images, tmp_path):
    from intus.core.results import Results
    from intus.storage.database import Database

    where = tmp_path / "x.db"
    seen = {
        "run": "r",
        "model": "Small",
        "epoch": 3,
        "address": "conv1",
        "score": "mean",
        "value": 123.0,
        "n": 9,
    }
    with Database(where) as database:
        database.add(Results.from_rows([seen]))
    frame = inspect({3: checkpoints[0]}, [], "mean", images[:40], "conv1", store=where, run="r")
    with Database(where) as database:
        kept = {row["kind"]: row["value"] for row in database.points("r", "Small", score="mean")}
    assert kept == {"output": 123.0, "inspect": pytest.approx(frame.value[0])}


# -- mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"units": (1, 6)}, AddressError, r"'conv1\[6\]' is out of range: there are 6 units, counted from 0"),
        (
            {"units": (9, "*")},
            AddressError,
            r"parameters are 1 \('conv1'\), 2 \('norm'\), 3 \('conv2'\) and 4 \('head'\)\.",
        ),
        ({"units": (0, "*")}, AddressError, "has no layer 0"),
        ({"units": "conv3"}, AddressError, "Small has no 'conv3'. Did you mean 'conv"),
        ({"units": (1, "all")}, InputError, "'\\*', numbers, a slice or a mask, or text.*, got 'all'"),
        ({"units": (1, 2, 3)}, InputError, r"for example \(1, '\*'\), got \(1, 2, 3\)"),
        ({"units": []}, InputError, "units is empty"),
        ({"units": ("conv1", [True, False])}, AddressError, "mask for 'conv1' has 2 entries.*6 units"),
        ({"models": []}, InputError, "models is empty"),
        ({"models": 3}, InputError, "builtins.int cannot be observed"),
        ({"models": nn.ReLU()}, AddressError, "ReLU has no layer with parameters"),
        ({"data": np.empty((0, 1, 8, 8))}, InputError, "data is empty"),
        ({"data": "text"}, InputError, "got a str"),
        ({"data": ["a", "b"]}, InputError, "type str cannot be stacked.*inputs="),
        ({"batch": 0}, InputError, "batch=0"),
        ({"scores": "iuo"}, InputError, "Did you mean 'iou'"),
        ({"hypotheses": []}, InputError, "no hypotheses, but the score 'iou' needs one"),
        ({"hypotheses": "ink"}, InputError, "got 'ink'"),
        ({"hypotheses": [ink, ink]}, InputError, "Two hypotheses are called 'ink'"),
        ({"hypotheses": {"short": np.zeros(7)}}, InputError, r"'short' have 7 entries.*600 records"),
        (
            {"hypotheses": lambda image: image},
            InputError,
            r"'lambda_0' gives labels of shape \(1, 8, 8\) per record, but 'conv1' has positions of shape",
        ),
        (
            {"units": "head"},
            InputError,
            r"'ink' gives labels of shape \(8, 8\) per record, but 'head' has one value per record",
        ),
        (
            {"hypotheses": {"odd": lambda image: np.zeros((8, 8 if image.sum() > 20 else 7))}},
            InputError,
            r"'odd' gave labels of shape \(8, [78]\) for record 0 and \(8, [78]\) for record",
        ),
    ],
)
def test_input_errors(checkpoints, images, change, error, text):
    given = {"models": checkpoints[0], "hypotheses": ink, "scores": "iou", "data": images, "units": (1, "*")}
    with pytest.raises(error, match=text):
        inspect(**{**given, **change})


def test_hypothesis_kind(model, images):
    with pytest.raises(InputError, match="'grey' is binary, but record 0 got more"):
        inspect(model, hypothesis("grey", "binary")(lambda image: image[0]), "iou", images, "conv1")
    with pytest.raises(InputError, match="kind='colour'"):
        hypothesis("x", "colour")
    named = hypothesis("parity", "categorical")(lambda image: int(image.sum()) % 2)
    frame = inspect(model, named, ["correlation", "linear_f1"], images, ("conv1", 0))
    assert row(frame, score="correlation").note == "the labels are not numbers"
    assert np.isfinite(row(frame, score="linear_f1").value)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_missing_labels_are_no_class(model, images, missing):
    def parity(image):
        return missing if image[0, 3, 3] > 0.5 else float(image.sum() > 20)

    numbers = lambda image: np.nan if parity(image) is missing else parity(image)  # noqa: E731
    named = {"named": hypothesis("named", "categorical")(parity), "plain": numbers}
    frame = inspect(model, named, "linear_f1", images, "head")
    one, other = (row(frame, score="linear_f1", target=target) for target in named)
    assert (one.n, one.value) == (other.n, pytest.approx(other.value))


def test_layer_that_does_not_run(images):
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Conv2d(1, 2, 3), nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(CaptureError, match="'unused' did not run"):
        inspect(Lazy(), ink, "iou", images, "unused")


def test_public_names():
    assert intus.inspect is inspect
    assert intus.hypothesis is hypothesis


def test_maps_with_channels_last(images):
    """As in Swin: a linear layer over (n, h, w, c)."""

    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(1, 3)

        def forward(self, x):
            return self.mix(x.permute(0, 2, 3, 1))

    frame = inspect(Last(), lambda image: image[0], "correlation", images[:50], "mix")
    assert frame.unit.tolist() == [0, 1, 2]
    assert frame.value.abs().tolist() == pytest.approx([1, 1, 1])


def test_store_without_graph(checkpoints, images, tmp_path, monkeypatch, caplog):
    from intus.storage.database import Database

    def fails(*_, **__):
        raise RuntimeError("no trace today")

    monkeypatch.setattr("intus.tracing.first_pass_graph.FirstPassRecorder.begin", fails)
    inspect(checkpoints[0], ink, "correlation", images[:40], "conv1", store=tmp_path / "x.db", run="r")
    assert "The graph of Small could not be recorded" in caplog.text
    with Database(tmp_path / "x.db") as database:
        assert len(database.points("r", "Small")) == 6


@pytest.mark.parametrize("crop", [np.s_[:5], np.s_[:5, :5], np.s_[:, 1:]])
def test_map_of_a_cropped_record_is_refused(model, images, crop):
    with pytest.raises(
        InputError, match=r"'crop' gives maps of \d × \d, which fit neither the record \(8 × 8\)"
    ):
        inspect(model, {"crop": lambda image: image[0][crop] > 0.5}, "correlation", images, "conv1")
    as_tuples = [(image, 0) for image in images]  # records that are no arrays: the size is the input's
    with pytest.raises(InputError, match=r"fit neither the record \(8 × 8\)"):
        inspect(
            model,
            {"crop": lambda record: record[0][0][crop] > 0.5},
            "correlation",
            as_tuples,
            "conv1",
            inputs=lambda records: torch.stack([torch.from_numpy(image) for image, _ in records]),
        )


def test_score_that_does_not_apply_has_a_row_with_the_reason():
    data = np.random.default_rng(0).normal(size=(50, 7, 8)).astype(np.float32)
    labels = {
        "name": lambda row: "ab"[int(row.sum() > 0)],
        "number": lambda row: int(row.sum() > 0) + 3,
        "sum": lambda row: float(row.sum()),
    }
    frame = inspect(nn.LSTM(8, 16, batch_first=True), labels, "r2", data)
    refused = row(frame, target="name")
    assert np.isnan(refused["value"])
    assert refused["note"] == "the labels are not numbers"
    assert np.isfinite(row(frame, target="number")["value"])  # it was requested by name
    assert np.isfinite(row(frame, target="sum")["value"])


@pytest.mark.parametrize("pattern", ["*", "**"])
def test_pattern_on_a_model_without_submodules_means_the_model(pattern):
    data = np.random.default_rng(0).normal(size=(20, 7, 8)).astype(np.float32)
    model, hypotheses = nn.LSTM(8, 4, batch_first=True), {"first": lambda row: row[:, 0]}
    frame = inspect(model, hypotheses, "correlation", data, pattern)
    pd.testing.assert_frame_equal(frame, inspect(model, hypotheses, "correlation", data, ""))
    assert frame["unit"].tolist() == [0, 1, 2, 3]


def test_scores_of_pairs_of_layers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5))
    data = torch.randn(300, 6)
    table = inspect(model, {}, ["cka", "svcca", "mean"], data, ["0", "1", "2[0:3]"])
    pairs = table[table.score == "cka"]
    assert pairs[["address", "target"]].values.tolist() == [["0", "1"], ["0", "2[0:3]"], ["1", "2[0:3]"]]
    with torch.no_grad():
        first, second = model[0](data).numpy().astype(float), model[:2](data).numpy().astype(float)
    a, b = (one - one.mean(axis=0) for one in (first, second))
    biased = np.linalg.norm(a.T @ b) ** 2 / np.linalg.norm(a.T @ a) / np.linalg.norm(b.T @ b)
    assert pairs.value.iloc[0] == pytest.approx(biased, abs=0.03)  # the score is unbiased
    assert (pairs.low > pairs.baseline).all()
    assert table[table.score == "svcca"].value.iloc[0] > 0.5
    assert (table.score == "mean").sum() == 3
    alone = inspect(model, {}, "cka", data, "0")
    assert alone.note.tolist() == ["a single layer, with none to compare it with"]


def test_layers_are_compared_with_hypotheses_that_are_vectors():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 5))
    data = torch.randn(400, 6)
    with torch.no_grad():
        brain = model(data).numpy() @ np.random.default_rng(0).normal(size=(5, 20))
    noise = np.random.default_rng(1).normal(size=(400, 9))
    ideas = {"brain": brain, "noise": noise, "name": np.array(["a", "b"] * 200)}
    table = inspect(model, ideas, "cka", data, ["1", "2"], batch=64)
    found = table.set_index(["address", "target"])
    assert list(found.index) == [
        *(("1", "2"), ("1", "brain"), ("1", "noise"), ("2", "brain"), ("2", "noise")),
        *(("1", "name"), ("2", "name")),
    ]
    assert found.value["2", "brain"] > found.value["1", "brain"] > 0.3
    assert found.low["2", "brain"] > 0.5 > 0.1 > abs(found.value["2", "noise"])
    assert found.note["1", "name"] == "the labels are not numbers"
    mixed = inspect(model, {"up": data[:, 0] > 0}, ["cka", "correlation"], data, "*")
    assert (mixed.target == "up").sum() == 12 + 12 + 5  # no row of CKA, as labels are not vectors then


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"batch": 32.5}, "batch=32.5 must be a whole number"),
        ({"seed": None}, "seed=None must be a whole number"),
        ({"splits": "3"}, "splits='3' must be a whole number"),
        ({"top": 2.5}, "top=2.5 must be a whole number"),
        ({"eps": "a"}, "eps='a' must be a positive half-width"),
        ({"given": np.zeros(3)}, "given= takes the names of hypotheses, got a ndarray"),
        ({"given": "five", "null": 50}, "null=50 permutes hypotheses"),
        ({"groups": [None] * 3 + [1] * 597}, "groups has no id for 3 records, such as record 0"),
    ],
)
def test_impossible_options(linear, options, text, images, digit, seven):
    with pytest.raises(InputError, match=text):
        inspect(linear, {"seven": seven, "five": digit == 5}, "correlation", images, "1", **options)


def test_docstring_has_the_options_in_the_order_of_the_signature():
    described = re.findall(
        r"(?m)^        (\w+): ", inspect.__doc__.partition("Args:")[2].partition("Returns:")[0]
    )
    assert described == list(signature(inspect).parameters)
