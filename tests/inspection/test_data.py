"""DataLoaders, Datasets, pandas tables and unusual arrays as data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from intus import inspect
from intus.core.errors import InputError

X = torch.randn(50, 1, 6, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(50) % 3


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Flatten(), nn.Linear(144, 3))


def bright(image):
    return image[0] > 0.5


class Items(Dataset):
    """Items with a label, as most training scripts have them."""

    def __len__(self):
        return len(X)

    def __getitem__(self, number):
        return X[number], int(Y[number])


@pytest.mark.parametrize(
    "data",
    [
        Items(),
        TensorDataset(X, Y),
        TensorDataset(X),
        DataLoader(Items(), batch_size=7),
        DataLoader(Items(), batch_size=7, shuffle=True, drop_last=True),
        DataLoader(X, batch_size=7),
        Subset(TensorDataset(torch.cat([X, X + 1]), torch.cat([Y, Y])), range(50)),
    ],
    ids=["Dataset", "TensorDataset", "one tensor", "DataLoader", "shuffled", "loader of a tensor", "Subset"],
)
def test_loaders_and_datasets_equal_their_tensor(net, data):
    expected = inspect(net, {"bright": bright, "y": Y.numpy()}, "correlation", X, "0", batch=16)
    found = inspect(net, {"bright": bright, "y": Y.numpy()}, "correlation", data, "0", batch=16)
    pd.testing.assert_frame_equal(pd.DataFrame(found), pd.DataFrame(expected))


def test_collate_of_the_loader_makes_the_input():
    """Texts of different length are padded by the loader's own function."""
    texts = ["abc", "a", "bcab", "cc"] * 10

    def pad(items):
        longest = max(len(text) for text, _ in items)
        ids = [[ord(c) - 97 for c in text] + [0] * (longest - len(text)) for text, _ in items]
        return torch.tensor(ids), torch.tensor([label for _, label in items])

    net = nn.Embedding(3, 5)
    is_b = {"b": lambda text: np.array([c == "b" for c in text])}
    found = inspect(net, is_b, "correlation", DataLoader([(t, 0) for t in texts], collate_fn=pad), "")
    expected = inspect(net, is_b, "correlation", texts, "", inputs=lambda ts: pad([(t, 0) for t in ts])[0])
    assert found.value.tolist() == expected.value.tolist()
    assert found.n.eq(10 * 10).all()


def test_data_frames():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(40, 9, 60), "income": rng.normal(size=60), "kids": rng.integers(0, 4, 60)}
    )
    frame.index = rng.permutation(60)  # rows count, not the index
    net = nn.Linear(3, 2)
    found = inspect(net, {"old": lambda row: row["age"] > 45}, "mean_difference", frame)
    expected = inspect(
        net, {"old": (frame["age"] > 45).to_numpy()}, "mean_difference", frame.to_numpy().astype(np.float32)
    )
    assert found.value.tolist() == pytest.approx(expected.value.tolist(), abs=1e-5)
    mixed = frame.assign(city="x")
    with pytest.raises(InputError, match="The column 'city' of the DataFrame does not hold numbers"):
        inspect(net, {"old": lambda row: row["age"] > 45}, "mean_difference", mixed)
    chosen = inspect(
        net,
        {"old": lambda row: row["age"] > 45},
        "mean_difference",
        mixed,
        inputs=lambda rows: torch.tensor([row[["age", "income", "kids"]].tolist() for row in rows]),
    )
    assert chosen.value.tolist() == pytest.approx(found.value.tolist(), abs=1e-4)


def test_series():
    texts = pd.Series(["ab", "ba", "aa"] * 10, index=range(5, 35))
    encode = lambda texts: torch.tensor([[ord(c) - 97 for c in text] for text in texts])  # noqa: E731
    first = {"first": lambda text: float(text[0] == "a")}
    found = inspect(nn.Embedding(2, 3), first, "mean_difference", texts, inputs=encode)
    assert found.n.eq(30).all()


class Stream(IterableDataset):
    def __iter__(self):
        return iter(X)


class Augmented(Items):
    def __getitem__(self, number):
        return X[number] + torch.randn(1), 0


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (lambda: (x for x in X), r"got a generator, whose records have no numbers. Write list\(…\)"),
        (lambda: map(abs, [1, 2]), "got a map"),
        (lambda: {1, 2}, "got a set"),
        (lambda: Stream(), "whose records have no numbers"),
        (lambda: DataLoader(Stream()), "DataLoader of an IterableDataset"),
        (lambda: Augmented(), "Item 0 of the Augmented differs when it is read again.*random augmentation"),
        (lambda: {"image": X}, "data is a dict with the keys 'image'"),
        (lambda: b"bytes", "got a bytes"),
        (lambda: 3, "got a int"),
        (lambda: TensorDataset(X[:0]), "data is empty"),
    ],
)
def test_refusals(net, data, text):
    with pytest.raises(InputError, match=text):
        inspect(net, {"y": lambda image: 1.0}, "correlation", data(), "0")


@pytest.mark.parametrize("kind", ["bfloat16", "reversed", "big-endian", "categorical"])
def test_unusual_data_and_labels(linear, kind, images, seven, outputs):
    labels = seven
    expected = [np.corrcoef(unit, seven)[0, 1] for unit in outputs.T]
    if kind == "bfloat16":
        labels = torch.tensor(seven, dtype=torch.bfloat16)
    elif kind == "reversed":
        images, labels = images[::-1], seven[::-1]
    elif kind == "big-endian":
        images = images.astype(">f4")
    else:
        table = inspect(linear, {"seven": pd.Categorical(seven)}, "linear_f1", images, "1")
        assert np.isfinite(table.value[0])
        return
    table = inspect(linear, {"seven": labels}, "correlation", images, "1")
    np.testing.assert_allclose(table.value, expected, atol=1e-5)


def test_sparse_data(linear, images, seven):
    for data in (csr_array(images.reshape(len(images), -1)), torch.from_numpy(images[:, 0, 0]).to_sparse()):
        with pytest.raises(InputError, match="data is sparse"):
            inspect(linear, {"seven": seven}, "correlation", data, "1")
