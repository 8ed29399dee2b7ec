"""Examples and verifications of units in the database that the page reads, against numpy and Pillow."""

from __future__ import annotations

import base64
import io
import json
import sqlite3

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from intus import inspect
from intus.core.errors import InputError
from intus.core.followup import UnitExample, UnitExamples
from intus.inspection.followup import summaries
from intus.serving.frontend import Frontend
from intus.serving.messages import FollowupQuery
from intus.storage import followups
from intus.storage.database import Database

TEXTS = ["print((1))", "x = [f(a) for a in (b, c)]", "no brackets\nhere", "</script><b>(", "secret word"] * 8


def encode(texts):
    longest = max(map(len, texts))
    return torch.tensor([[ord(c) for c in text.ljust(longest)] for text in texts])


def opens(text):
    return [c == "(" for c in text]


@pytest.fixture
def reader():
    """A model of characters whose unit 1 is 2 at an opening bracket, -1 at "x", and 0 elsewhere."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(128, 3))
    with torch.no_grad():
        net[0].weight[:, 1] = 0
        net[0].weight[ord("("), 1], net[0].weight[ord("x"), 1] = 2, -1
    return net


def ask(model, store, run="r", data=TEXTS, inputs=encode, hypothesis=opens, units="0"):
    return inspect(
        model, {"idea": hypothesis}, "correlation", data, units, inputs=inputs, store=store, run=run
    )


def stored(store, unit, run="r", model="Sequential", epoch=None):
    with Database(store) as database:
        return Frontend(database).followup(FollowupQuery(run, model, "idea", unit, epoch))


def test_examples_of_text(reader, tmp_path):
    store = tmp_path / "x.db"
    table = ask(reader, store)
    found = table.examples(table[table.unit == 1].iloc[0], k=4, store=True)
    reply = stored(store, "0[1]")
    assert [(one.unit, one.epoch) for one in reply.units] == [("0[1]", None)]
    assert reply.examples.largest == 2
    marks = "boxed: the symbol of the value, underlined: the hypothesis holds"
    assert reply.examples.legend == f"orange: up to 2, blue: down to −2, {marks}"
    assert [(one.kind, one.record, one.behavior) for one in reply.examples.examples] == list(
        zip(found.kind, found.record, found.behavior, strict=True)
    )
    for one, place in zip(reply.examples.examples, found.position, strict=True):
        text = TEXTS[one.record]
        assert "".join(one.tokens) == text.replace("\n", "↵")
        assert one.shades == [{"(": 100, "x": -50}.get(c, 0) for c in text]
        assert one.holds == [c == "(" for c in text]
        assert (one.at, one.gap, one.cut, one.picture) == (place, "", (False, False), "")


def test_long_text_is_cut_around_the_symbol(reader, tmp_path):
    text = "x" * 500 + "(" + "y" * 500
    table = ask(reader, tmp_path / "x.db", data=[text, text[::-1]])
    table.examples(1, k=1, store=True)
    top = stored(tmp_path / "x.db", "0[1]").examples.examples[0]
    assert "".join(top.tokens) == "x" * 80 + "(" + "y" * 80
    assert (top.at, top.cut, top.shades[80], top.holds.index(True)) == (80, (True, True), 100, 80)


def test_labels_of_symbols_that_are_numbers(reader, tmp_path):
    def depth(text):
        return np.cumsum([(c == "(") - (c == ")") for c in text]) / 2

    table = ask(reader, tmp_path / "x.db", hypothesis=depth)
    table.examples(1, k=4, store=True)
    for one in stored(tmp_path / "x.db", "0[1]").examples.examples:
        assert [float(label) for label in one.labels] == depth(TEXTS[one.record]).tolist()
        assert one.label == one.labels[one.at]
        assert one.holds == []


def image(url):
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))).astype(int)


@pytest.mark.parametrize("size", [(8, 8), (200, 150)])
def test_examples_of_images(tmp_path, size):
    random = np.random.default_rng(0)
    images = random.random((6, 1, *size)).astype(np.float32)
    copy = nn.Sequential(nn.Conv2d(1, 1, 1))
    with torch.no_grad():
        copy[0].weight[:], copy[0].bias[:] = 2, -1  # the pixel, from -1 to 1

    def left(record):
        return np.broadcast_to(np.arange(size[1]) < size[1] // 2, size)

    table = ask(copy, tmp_path / "x.db", data=images, inputs=None, hypothesis=left)
    table.examples(0, k=2, store=True)
    found = stored(tmp_path / "x.db", "0[0]").examples
    assert found.largest == pytest.approx(1, abs=0.05)
    assert found.legend.startswith("orange: up to ")
    assert found.legend.endswith("outlined: the hypothesis holds")
    for one in found.examples:
        record = images[one.record, 0]
        below, above = image(one.picture), image(one.over)
        assert below.shape[:2] == above.shape[:2] == ((96, 96) if size == (8, 8) else (67, 50))
        rows, columns = (np.arange(n) * m // n for n, m in zip(below.shape, size, strict=False))
        if size != (8, 8):
            rows, columns = np.arange(67) * 3, np.arange(50) * 3
        part = record[rows][:, columns]
        expected = 255 * (part - record.min()) / np.ptp(record)
        assert np.abs(below - expected[..., None]).max() <= 1
        opaque = above[..., 3] == 255  # the outline
        strength = np.abs(2 * part - 1) / found.largest
        assert np.abs(above[..., 3] - 200 * strength)[~opaque].max() <= 2
        assert (above[..., 0] == 255)[~opaque & (part > 0.51)].all()  # orange
        assert (above[..., 2] == 255)[~opaque & (part < 0.49)].all()  # blue
        edge = np.flatnonzero(opaque.all(axis=0))
        assert len(edge) == 2
        assert edge[1] == edge[0] + 1 == np.flatnonzero(columns >= size[1] // 2)[0]
        assert (above[:, edge[0], :3] == 255).all()
        assert (above[:, edge[1], :3] == 0).all()


class Photos(torch.utils.data.Dataset):
    """Color images of Pillow with a label each, in several modes."""

    modes = ("RGB", "L", "RGBA", "P")

    def __init__(self, size):
        pixels = np.random.default_rng(0).integers(0, 256, (8, *size, 3), dtype=np.uint8)
        self.images = [
            Image.fromarray(one).convert(self.modes[at % len(self.modes)]) for at, one in enumerate(pixels)
        ]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, number):
        return self.images[number], number % 2


@pytest.mark.parametrize("as_dataset", [True, False])
@pytest.mark.parametrize("side", [8, 12, 5])
def test_examples_of_images_of_pillow(tmp_path, as_dataset, side):
    """The model gets 8 × 8 pixels: those of the image, or of a resized one."""
    photos = Photos((side, side))

    def inputs(images):
        small = [np.asarray(one.convert("RGB").resize((8, 8), Image.Resampling.BILINEAR)) for one in images]
        return torch.tensor(np.stack(small)).permute(0, 3, 1, 2) / 255

    copy = nn.Sequential(nn.Conv2d(3, 1, 1))
    with torch.no_grad():
        copy[0].weight[:], copy[0].bias[:] = 1, 0
    data = photos if as_dataset else photos.images
    table = ask(copy, tmp_path / "x.db", data=data, inputs=inputs, hypothesis=lambda one: one.mode == "RGB")
    table.examples(0, k=3, store=True)
    found = stored(tmp_path / "x.db", "0[0]").examples.examples
    assert len(found) >= 6
    for one in found:
        below = image(one.picture)
        times = 96 // side
        assert below.shape == (side * times, side * times, 3)
        pixels = np.asarray(photos.images[one.record].convert("RGB")).astype(float)
        low, high = pixels.min(), pixels.max()
        assert np.abs(below[::times, ::times] - 255 * (pixels - low) / (high - low)).max() <= 1
        assert bool(one.over) is (side == 8)  # it is not known where pixels of another image lie
        assert one.tokens == []


def test_layer_without_positions_is_stored_without_shades(tmp_path):
    images = np.random.default_rng(0).random((40, 1, 4, 4)).astype(np.float32)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    table = ask(
        net, tmp_path / "x.db", data=images, inputs=None, hypothesis=lambda r: r.mean() > 0.5, units="1"
    )
    found = table.examples(0, k=2, store=True)
    reply = stored(tmp_path / "x.db", "1[0]").examples
    shown = reply.examples
    assert reply.legend == ""  # nothing is colored
    assert [one.behavior for one in shown] == pytest.approx(found.behavior.tolist())
    assert all(one.picture and not one.over and not one.tokens for one in shown)


def test_text_in_a_layer_without_positions_has_no_shades(tmp_path):
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(128, 4), nn.Linear(4, 2)

        def forward(self, ids):
            return self.head(self.embed(ids).mean(1))

    texts = [text.ljust(30) for text in TEXTS]
    table = ask(Pooled(), tmp_path / "x.db", data=texts, hypothesis=lambda text: "(" in text, units="head")
    found = table.examples(0, k=2, store=True)
    shown = stored(tmp_path / "x.db", "head[0]", model="Pooled").examples.examples
    assert [one.behavior for one in shown] == pytest.approx(found.behavior.tolist())
    assert all("".join(one.tokens).rstrip() == TEXTS[one.record].replace("\n", "↵") for one in shown)
    assert all(one.shades == one.holds == [] and one.at is None for one in shown)
    assert {one.label for one in shown} <= {"0", "1", "True", "False"}


def test_verification_is_stored_as_it_prints(reader, tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(*reader, nn.Linear(3, 2))
    table = ask(model, tmp_path / "x.db")
    found = table.verify(1, store=True)
    shown = stored(tmp_path / "x.db", "0[1]").verification
    changed, ablated = shown.parts
    for measure, estimate in zip(
        changed.measures + ablated.measures,
        [getattr(found.perturbation, name) for name in ("flips", "baseline", "excess")]
        + [getattr(found.ablation, name) for name in ("holds", "lacks", "effect", "anywhere")],
        strict=True,
    ):
        numbers = measure.value, measure.low, measure.high, measure.n
        assert tuple(np.nan if x is None else x for x in numbers) == pytest.approx(estimate, nan_ok=True)
        assert f"  {measure.name}" in repr(found)
        assert measure.verdict in repr(found)
    assert changed.measures[2].verdict.startswith("follows the hypothesis")
    assert ablated.others == found.ablation.others.tolist()
    assert f"rank {found.perturbation.rank} of 3 units" in changed.sentence


def content(store):
    """Return all that a database file and its journal hold."""
    return b"".join(path.read_bytes() for path in store.parent.iterdir())


def test_no_record_is_stored_unless_asked_for(reader, tmp_path):
    store = tmp_path / "x.db"
    table = ask(reader, store)
    table.examples(1, k=2)
    table.verify(1)
    forms = b"no brackets", json.dumps(list("no brackets"))[1:-1].encode()
    assert not any(form in content(store) for form in forms)
    assert stored(store, "0[1]").units == []
    table.examples(1, k=10, store=True)
    assert any(form in content(store) for form in forms)


def test_scores_computed_again_drop_what_was_stored(reader, tmp_path):
    store = tmp_path / "x.db"
    ask({1: reader, 2: reader}, store).examples(1, store=True)
    ask({1: reader, 2: reader}, store)  # the same question is read from the database
    assert [(one.unit, one.epoch) for one in stored(store, "0[1]").units] == [("0[1]", 1)]
    assert stored(store, "0[1]", epoch=1).examples is not None
    assert stored(store, "0[1]", epoch=2).examples is None
    with torch.no_grad():
        reader[0].weight[:, 1] *= -1
    ask({1: reader, 2: reader}, store)
    assert stored(store, "0[1]").units == []


def test_other_hypotheses_keep_what_was_stored(reader, tmp_path):
    store = tmp_path / "x.db"
    ask(reader, store).examples(1, store=True)
    inspect(reader, {"other": opens}, "correlation", TEXTS, "0", inputs=encode, store=store, run="r")
    assert stored(store, "0[1]").examples is not None


def test_table_without_database_refuses_to_store(reader):
    table = inspect(reader, {"idea": opens}, "correlation", TEXTS, "0", inputs=encode)
    for call in (table.examples, table.verify):
        with pytest.raises(InputError, match=r"this one has none\. Pass store=, a path or URL, to inspect"):
            call(1, store=True)


def test_too_many_examples_are_refused(reader, tmp_path):
    table = ask(reader, tmp_path / "x.db")
    with pytest.raises(InputError, match=r"k=11 with store=True: at most 10 examples of each kind"):
        table.examples(1, k=11, store=True)
    assert len(table.examples(1, k=11)) > 11


def test_largest_examples_fit_and_larger_ones_are_refused(tmp_path):
    """Pictures of noise, which do not compress, are the largest that can be stored."""
    over = summaries.UnitOver(
        np.random.default_rng(0).random((3, 96, 96)),
        np.random.default_rng(1).integers(0, 2, (96, 96)),
        (96, 96),
        None,
        np.random.default_rng(2).normal(size=(96, 96)),
        (96, 96),
    )
    below, above = summaries._pictures(over, 3.0, True)
    assert len(below) + len(above) < followups.LARGEST / (4 * summaries.MOST)
    one = stored_example(below * 40)
    with (
        Database(tmp_path / "x.db") as database,
        pytest.raises(InputError, match=r"at most \d+ MB are stored"),
    ):
        database.put_followup("r", "m", 0, "0", 1, "idea", UnitExamples([one] * 40, 1.0, ""))


def stored_example(picture):
    return UnitExample("top", 0, 1.0, "1", [], "", [], [], None, (False, False), picture, "")


def test_damaged_database_costs_a_warning_only(reader, tmp_path):
    store = tmp_path / "x.db"
    table = ask(reader, store)
    for path in tmp_path.iterdir():
        path.unlink()
    store.write_bytes(b"no database, but long enough to be read as one" * 20)
    with pytest.warns(UserWarning, match="are not stored in"):
        found = table.examples(1, k=2, store=True)
    assert found.kind.tolist() == ["top", "top", "random", "random"]


def test_damaged_content_is_refused_in_a_sentence(reader, tmp_path):
    store = tmp_path / "x.db"
    ask(reader, store).examples(1, k=1, store=True)
    connection = sqlite3.connect(store)
    connection.execute("UPDATE followup SET content = '{\"examples\": 3}'")
    connection.commit()
    connection.close()
    with pytest.raises(InputError, match="examples"):
        stored(store, "0[1]")
