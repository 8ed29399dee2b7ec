"""What strangers broke: odd labels, odd data, and options that do not go together."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from intus import Dictionary, Directions, inspect
from intus.core.errors import InputError

DIGITS = load_digits()
IMAGES = (DIGITS.images[:, None] / 16).astype(np.float32)
SEVEN = (DIGITS.target == 7).astype(float)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6))


def units(net, images=IMAGES):
    with torch.no_grad():
        return net(torch.from_numpy(np.array(images))).numpy()


def test_early_stop_waits_for_a_rare_hypothesis(net):
    """4 positives in 10,000 records: no block so far may have had one."""
    rng = np.random.default_rng(0)
    images = IMAGES[rng.integers(0, len(IMAGES), 10_000)]
    rare = np.zeros(10_000)
    rare[[4000, 5000, 6000, 7000]] = 1
    for option in ({"eps": 0.05}, {"top": 1}):
        table = inspect(net, {"rare": rare}, "correlation", images, "1", batch=64, **option)
        assert np.isfinite(table.value).all()
        assert table.n[0] > 500


def test_masked_labels_are_not_annotated(net):
    masked = np.ma.array(SEVEN, mask=np.arange(len(SEVEN)) % 2 == 0)
    table = inspect(net, {"seven": masked}, "correlation", IMAGES, "1")
    expected = [np.corrcoef(unit[1::2], SEVEN[1::2])[0, 1] for unit in units(net).T]
    np.testing.assert_allclose(table.value, expected, atol=1e-6)
    assert table.n.eq(len(SEVEN) // 2).all()


@pytest.mark.parametrize("constant", [0.0, 1.0])
def test_mean_difference_of_a_constant_hypothesis(net, constant):
    table = inspect(net, {"all": np.full(len(SEVEN), constant)}, "mean_difference", IMAGES, "1")
    assert table.value.isna().all()
    assert table.note.eq("the unit or the hypothesis is constant").all()


def test_rows_where_a_unit_is_not_finite():
    class Holes(nn.Module):
        def forward(self, x):
            x = x.flatten(1)[:, 10:13].clone()
            x[::3, 1] = float("nan")
            return x

    table = inspect(
        nn.Sequential(Holes()), {"seven": SEVEN}, ["auroc", "iou", "correlation"], IMAGES, "0[:@1]"
    )
    missing = sum(len(range(0, min(256, len(SEVEN) - at), 3)) for at in range(0, len(SEVEN), 256))
    for _, rows in table.groupby("score"):
        assert rows.n.tolist() == [len(SEVEN), len(SEVEN) - missing, len(SEVEN)]
        assert [f"{missing} rows left out: NaN or infinite" in note for note in rows.note] == [
            False,
            True,
            False,
        ]


def test_pandas_labels_with_another_index(net):
    frame = pd.DataFrame(IMAGES.reshape(len(IMAGES), -1))
    labels = pd.Series(SEVEN).sample(frac=1, random_state=0)
    with pytest.raises(InputError, match=r"another index than data. Write labels.loc\[data.index\]"):
        inspect(net, {"seven": labels}, "correlation", frame, "1")
    table = inspect(net, {"seven": labels.loc[frame.index]}, "correlation", frame, "1")
    expected = [np.corrcoef(unit, SEVEN)[0, 1] for unit in units(net).T]
    np.testing.assert_allclose(table.value, expected, atol=1e-6)


@pytest.mark.parametrize("kind", ["bfloat16", "reversed", "big-endian", "categorical"])
def test_unusual_data_and_labels(net, kind):
    images, labels = IMAGES, SEVEN
    expected = [np.corrcoef(unit, SEVEN)[0, 1] for unit in units(net).T]
    if kind == "bfloat16":
        labels = torch.tensor(SEVEN, dtype=torch.bfloat16)
    elif kind == "reversed":
        images, labels = IMAGES[::-1], SEVEN[::-1]
    elif kind == "big-endian":
        images = IMAGES.astype(">f4")
    else:
        table = inspect(net, {"seven": pd.Categorical(SEVEN)}, "linear_f1", images, "1")
        assert np.isfinite(table.value[0])
        return
    table = inspect(net, {"seven": labels}, "correlation", images, "1")
    np.testing.assert_allclose(table.value, expected, atol=1e-5)


def test_units_that_are_no_gradients(net):
    basis = Dictionary(np.random.default_rng(0).normal(size=(6, 9)))
    wrong = [(basis, "gradient"), (Directions(np.eye(6)), "activation*gradient")]
    for units_, behavior in wrong:
        with pytest.raises(
            InputError, match=f"behavior='{behavior.replace('*', '.')}' is not defined for the units"
        ):
            inspect(
                net, {"seven": SEVEN}, "correlation", IMAGES, [("1", units_)], behavior=behavior, output=3
            )


def test_comparison_over_splits(net):
    table = inspect(
        nn.Sequential(*net, nn.Linear(6, 3)),
        {"digit": DIGITS.target},
        "linear_accuracy",
        IMAGES,
        ["1", "2"],
        splits=3,
        against="2",
    )
    gap = table[table.score == "linear_accuracy above 2"].iloc[0]
    values = table[table.score == "linear_accuracy"].set_index("address").value
    assert gap.value == pytest.approx(values["1"] - values["2"])
    assert gap.note == "mean of 3 splits"
    assert gap.low < gap.value < gap.high
    assert (table[table.score == "linear_accuracy"].high <= 1).all()


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
        ({"groups": [None] * 3 + [1] * 1794}, "groups has no id for 3 records, such as record 0"),
    ],
)
def test_impossible_options(net, options, text):
    with pytest.raises(InputError, match=text):
        inspect(net, {"seven": SEVEN, "five": DIGITS.target == 5}, "correlation", IMAGES, "1", **options)


def test_sparse_data(net):
    from scipy.sparse import csr_array

    for data in (csr_array(IMAGES.reshape(len(IMAGES), -1)), torch.from_numpy(IMAGES[:, 0, 0]).to_sparse()):
        with pytest.raises(InputError, match="data is sparse"):
            inspect(net, {"seven": SEVEN}, "correlation", data, "1")


# -- what is asked of a row ---------------------------------------------------------------------------


def test_row_of_a_model_that_was_trained_on():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))
    table = inspect(model, {"seven": SEVEN}, "correlation", IMAGES, "1")
    assert len(table.examples(0, k=1))
    with torch.no_grad():
        model[1].weight.zero_()
    with pytest.raises(InputError, match="weights of the model have changed since the table was made"):
        table.examples(0, k=1)


def test_number_of_a_row_is_its_label(net):
    table = inspect(net, {"seven": SEVEN}, "correlation", IMAGES, "1")
    part = table[table.unit >= 2]
    label = part.value.idxmax()
    pd.testing.assert_frame_equal(part.examples(label, k=2), table.examples(table.loc[label], k=2))
    with pytest.raises(InputError, match="row=0 labels 0 rows of the table's index"):
        part.examples(0)


def test_best_unit_of_an_inverted_detector():
    class Inverted(nn.Module):
        def forward(self, x):
            x = x.flatten(1)
            return torch.stack([x[:, 20], -x[:, 36], x[:, 3]], 1)

    dark = IMAGES[:, 0, 4, 4] > 0.5
    model = nn.Sequential(Inverted())
    table = inspect(model, {"dark": dark}, ["auroc", "correlation"], IMAGES, "0[:@1]")
    for score in ("auroc", "correlation"):
        assert table.best(by="target", score=score).unit.tolist() == [1]
    assert table[(table.score == "auroc") & (table.unit == 1)].value.item() == 0


def test_best_unit_is_no_random_direction(net):
    directions = Directions(np.eye(6)[:2])
    table = inspect(net, {"seven": SEVEN}, "correlation", IMAGES, [("1", directions)])
    assert table.best(by="target").address.tolist() == ["1 (directions)"]


def test_perfect_unit_says_why_it_has_no_interval():
    data = torch.from_numpy(np.column_stack([SEVEN, IMAGES[:, 0, 0, 3]]).astype(np.float32))
    table = inspect(nn.Sequential(nn.Identity()), {"seven": SEVEN}, ["correlation", "auroc"], data, "0[:@1]")
    perfect = table[table.unit == 0]
    assert np.allclose(perfect.value, 1)
    assert perfect.low.isna().all()
    assert perfect.note.str.contains("no interval: fewer than 4 groups of items, or no spread").all()
