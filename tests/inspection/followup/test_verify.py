"""Verification of units whose truth is planted: what they respond to, and whether the output uses them."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from sklearn.metrics import silhouette_score
from torch import nn

from intus import inspect
from intus.core.errors import InputError
from intus.core.probes_disabled import are_probes_disabled

DETECTOR, CONFOUNDED, UNUSED = 3, 5, 9


class Planted(nn.Module):
    """Tokens 2a + b: unit 3 detects a and is used, unit 5 detects b, unit 9 detects a and is not used."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        table = torch.randn(4, 16, generator=generator) * 0.3
        for unit, values in {DETECTOR: (0, 0, 1, 1), CONFOUNDED: (0, 1, 0, 1), UNUSED: (0, 0, 1, 1)}.items():
            table[:, unit] = torch.tensor(values).float()
        self.embed = nn.Embedding(4, 16, _weight=table)
        self.head = nn.Linear(16, 6)
        weight = torch.randn(6, 16, generator=generator) * 0.1
        weight[:, DETECTOR], weight[:, UNUSED] = 1.0, 0.0
        self.head.weight, self.head.bias = nn.Parameter(weight), nn.Parameter(torch.ones(6))

    def forward(self, tokens):
        return self.head(torch.relu(self.embed(tokens)))


def has_a(record):
    return record >= 2


def tokens(records=300, length=12, share=0.25, agree=0.85):
    random = np.random.default_rng(0)
    a = random.random((records, length)) < share
    b = np.where(random.random(a.shape) < agree, a, ~a)
    return 2 * a + b


@pytest.fixture(scope="module")
def planted():
    return inspect(Planted(), has_a, "correlation", tokens(), "embed")


def row(table, unit):
    return table[table.unit == unit].iloc[0]


def test_detector_follows_hypothesis_and_is_used(planted):
    found = planted.verify(row(planted, DETECTOR))
    one, two = found.perturbation, found.ablation
    assert one.flips.value == pytest.approx(1)
    assert one.baseline.value == 0
    assert one.excess == (1, 1, 1, one.flips.n + one.baseline.n)  # all records agree
    assert "follows the hypothesis" in repr(found)
    assert one.silhouette == pytest.approx(1)
    assert one.rank == 1
    assert one.units == 16
    assert two.effect.value > 0
    assert two.effect.low > 0
    assert two.p == two.p_anywhere == 1 / 16  # more than any of the 15 others
    assert "against 15 random units of the layer; the least possible p is 0.062" in repr(found)
    assert two.mean == pytest.approx((tokens() >= 2).mean())
    assert found.notes == ()


def test_unit_of_a_confounder_changes_without_the_hypothesis(planted):
    assert row(planted, CONFOUNDED).value > 0.6
    one = planted.verify(row(planted, CONFOUNDED), tests="perturbation").perturbation
    assert one.baseline.value == pytest.approx(1)  # a fixed, so that another token has another b
    assert one.flips.value < 0.85
    assert one.excess.high < 0
    assert one.silhouette < 0.5
    assert one.rank > 2


def test_unit_that_no_output_uses_has_no_effect(planted):
    found = planted.verify(row(planted, UNUSED))
    assert found.perturbation.flips.value == pytest.approx(1)
    assert found.ablation.effect.value == 0
    assert found.ablation.p == 1
    assert "the output does not depend on the unit" in repr(found)


def test_ablation_equals_a_hook(planted):
    """The judge computes the effect per symbol with a forward hook."""
    found = planted.verify(row(planted, DETECTOR), records=300).ablation
    model, data = Planted().eval(), tokens()
    with torch.no_grad():
        before = model(torch.from_numpy(data)).numpy()

        def replace(module, inputs, output):
            output = output.clone()
            output[..., DETECTOR] = output[..., DETECTOR].mean()
            return output

        model.embed.register_forward_hook(replace)
        after = model(torch.from_numpy(data)).numpy()
    effect = np.linalg.norm(after - before, axis=-1) / np.linalg.norm(before, axis=-1).mean()
    holds = data >= 2
    assert found.holds.value == pytest.approx(effect[holds].mean(), rel=1e-5)
    assert found.lacks.value == pytest.approx(effect[~holds].mean(), rel=1e-5)
    assert found.effect.n == data.size


def test_metric_per_record(planted):
    def metric(output, records):
        assert output.shape == (len(records), 12, 6)
        return output.mean(axis=(1, 2))

    many = inspect(Planted(), lambda record: bool((record >= 2).sum() > 3), "correlation", tokens(), "embed")
    found = many.verify(row(many, DETECTOR), metric=metric, tests="ablation").ablation
    # Where many tokens have a, the mean lies below the unit, so that the output falls.
    shares = (tokens() >= 2).mean(axis=1)
    assert found.holds.high < 0
    assert found.effect.high < 0
    assert found.holds.value == pytest.approx(0.25 - shares[shares > 3 / 12].mean(), rel=0.1)


def test_rare_hypothesis_is_flipped_by_donors_of_its_label():
    data = np.zeros((400, 30), dtype=np.int64)
    data[:] = np.random.default_rng(0).integers(0, 2, data.shape)
    data[7, 3] = data[90, 20] = 3  # two of 12,000 symbols
    table = inspect(Planted(), has_a, "correlation", data, "embed")
    one = table.verify(row(table, DETECTOR), tests="perturbation").perturbation
    assert one.flips.n > 180
    assert one.flips.value == pytest.approx(1)
    assert one.baseline.value == 0


class Masked(Planted):
    def forward(self, tokens, attention_mask):
        return super().forward(tokens) * attention_mask[..., None]


def padded(side, length=15):
    """Return the inputs of records that are padded with token 2, which has a."""

    def inputs(records):
        tokens, mask = torch.full((len(records), length), 2), torch.zeros(len(records), length)
        for at, record in enumerate(records):
            part = slice(length - len(record), length) if side == "left" else slice(len(record))
            tokens[at, part], mask[at, part] = torch.as_tensor(record), 1
        return {"tokens": tokens, "attention_mask": mask}

    return inputs


@pytest.mark.long
@pytest.mark.parametrize("symbols", [None, lambda record: list(range(len(record)))])
@pytest.mark.parametrize("shortest", [5, 12])
def test_padding_at_either_side(shortest, symbols):
    lengths = np.random.default_rng(1).integers(shortest, 13, 300)
    data = [record[:length].copy() for record, length in zip(tokens(), lengths, strict=True)]
    found = {}
    for side in ("left", "right"):
        table = inspect(
            Masked(), has_a, "correlation", data, "embed", inputs=padded(side), batch=32, symbols=symbols
        )
        found[side] = table.verify(row(table, DETECTOR))
        assert found[side].perturbation.flips.value == pytest.approx(1)
        assert found[side].perturbation.baseline.value == 0
        assert table.verify(row(table, CONFOUNDED), tests="perturbation").perturbation.flips.value < 0.85
    assert found["left"].perturbation == found["right"].perturbation
    assert found["left"].ablation.effect == pytest.approx(found["right"].ablation.effect, rel=1e-6)


@pytest.mark.parametrize("label", [lambda image: image[0], lambda image: float(image.mean())])
def test_measurements_have_no_change_that_leaves_them(label):
    images = np.random.default_rng(0).random((40, 1, 8, 8)).astype(np.float32)
    model = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1))
    table = inspect(model, {"light": label}, "correlation", images, "0")
    found = table.verify(0, tests="perturbation", records=40)
    assert np.isfinite(found.perturbation.flips.value)
    assert np.isnan([found.perturbation.baseline.value, found.perturbation.excess.value]).all()
    assert found.perturbation.rank is None
    assert "silhouette not known" in repr(found)
    assert "leaves the labels of 'light' was found in 0 of 40 records" in found.notes[0]


def test_measurements_with_a_change_that_leaves_them():
    images = np.random.default_rng(0).integers(0, 9, (40, 1, 8, 8)).astype(np.float32)

    def change(image, random):
        return image[:, ::-1].copy() if random.random() < 0.5 else image + 1

    table = inspect(
        nn.Sequential(nn.Conv2d(1, 3, 3)), lambda image: float(image.sum()), "correlation", images, "0"
    )
    found = table.verify(0, tests="perturbation", change=change)
    assert np.isfinite(found.perturbation.excess.low)
    assert found.notes == ()


def test_black_and_white_images_have_a_note():
    images = np.repeat(np.arange(40) % 2, 64).reshape(40, 1, 8, 8).astype(np.float32)
    table = inspect(
        nn.Sequential(nn.Conv2d(1, 3, 3, padding=1)), lambda image: image[0] > 0.5, "correlation", images, "0"
    )
    found = table.verify(0, tests="perturbation")
    assert np.isnan(found.perturbation.excess.value)
    assert "was found in 0 of 200 records" in found.notes[0]


def test_few_groups_have_a_note():
    groups = np.repeat(np.arange(3), 100)
    table = inspect(Planted(), has_a, "correlation", tokens(), "embed", groups=groups)
    found = table.verify(row(table, DETECTOR))
    assert np.isfinite(found.perturbation.excess.value)
    assert np.isnan(found.perturbation.excess.low)
    assert [note.partition(":")[0] for note in found.notes] == ["no intervals"] * 2


def test_silhouette_equals_scikit_learn_on_recomputed_changes():
    """Records of one symbol: a is flipped or kept by a function, so that the judge knows all changes."""

    def change(record, random):
        changed = record.copy()
        changed[0] ^= 2 if random.random() < 0.5 else 1
        return changed

    data = tokens(200, 1)
    table = inspect(Planted(), has_a, "correlation", data, "embed")
    one = table.verify(row(table, 0), change=change, tests="perturbation").perturbation
    values = Planted().embed.weight[:, 0].detach().numpy()
    sign = np.where(data[:, 0] < 2, 1, -1)
    flips = (values[data[:, 0] ^ 2] - values[data[:, 0]]) * sign
    calms = values[data[:, 0] ^ 1] - values[data[:, 0]]
    both = np.concatenate([flips, calms])[:, None]
    assert one.silhouette == pytest.approx(silhouette_score(both, np.repeat([1, 0], 200)), abs=1e-6)
    assert one.flips.value == pytest.approx(flips.mean(), abs=1e-6)
    assert one.baseline.value == pytest.approx(np.abs(calms).mean(), abs=1e-6)
    assert one.flips.n == one.baseline.n == 200
    half = 1.97196 * flips.std(ddof=1) / np.sqrt(200)  # Student's t with 199 degrees of freedom
    assert one.flips.high - one.flips.value == pytest.approx(half, rel=1e-4)


@pytest.mark.long
def test_interval_of_excess_covers_planted_value():
    """A unit with noise that does not depend on the label: its excess is not above 0."""
    covered = 0
    for seed in range(30):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Embedding(4, 6))
        with torch.no_grad():
            net[0].weight[2:] = net[0].weight[:2]  # depends on b alone
        data = np.random.default_rng(seed).integers(0, 4, (60, 5))
        table = inspect(net, has_a, "correlation", data, "0")
        covered += table.verify(0, tests="perturbation", records=60).perturbation.excess.low <= 0
    assert covered == 30


def test_patches_of_images(model, images):
    """The first convolution is linear, so that one pixel changes a unit there by the kernel's center."""

    def ink(image):
        return image[0] > 0.5

    table = inspect(model, ink, "correlation", images, "conv1")
    centers = model.conv1.weight[:, 0, 1, 1].detach().numpy()
    for unit, center in enumerate(centers):
        one = table.verify(row(table, unit), tests="perturbation", records=60).perturbation
        assert np.sign(one.flips.value) == np.sign(center)
        assert 0.3 < abs(one.flips.value / center) < 1  # how far a pixel that passes 0.5 moves
    found = table.verify(0, records=20, patch=3)
    assert "holds everywhere" in repr(found)  # each digit has ink somewhere, and the model one output


def test_texts_and_labels_of_different_lengths():
    texts = ["a(b)c", "((x))", "no", "f(g(h(1)))", "()"] * 10

    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(128, 4)
            with torch.no_grad():
                self.embed.weight[:, 2] = 0
                self.embed.weight[ord("("), 2] = 1

        def forward(self, ids):
            return self.embed(ids)

    def encode(texts):
        longest = max(map(len, texts))
        return torch.tensor([[ord(c) for c in text.ljust(longest)] for text in texts])

    def opens(text):
        return [c == "(" for c in text]

    table = inspect(Reader(), opens, "correlation", texts, "embed", inputs=encode, batch=7)
    found = table.verify(row(table, 2), records=60)
    assert found.perturbation.flips.value == pytest.approx(1)
    assert found.perturbation.baseline.value == 0
    symbols = "".join(texts)
    assert found.ablation.mean == pytest.approx(symbols.count("(") / len(symbols))  # padding does not count


def test_model_is_left_unchanged(model, images):
    model.train()
    before, random = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    table = inspect(model, lambda image: image[0].mean() > 0.3, "correlation", images, "conv2")
    assert table.verify(0, records=20, patch=8).ablation is not None
    table.examples(0)
    assert model.training
    assert torch.equal(random, torch.random.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.long
def test_operation_and_second_call():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.Linear(4, 4)
            with torch.no_grad():
                self.cell.weight.copy_(torch.eye(4))
                self.cell.bias.zero_()

        def forward(self, x):
            y = torch.relu(self.cell(x))
            return self.cell(y)[:, :2]

    data = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    table = inspect(Twice(), lambda record: record[0] > 0.5, "correlation", data, ["relu_1", "cell:2"])
    for address in ("relu_1", "cell:2"):
        one, other = (
            table.verify({"address": address, "unit": unit, "target": table.target[0]}) for unit in (0, 3)
        )
        assert one.perturbation.rank == 1
        assert one.ablation.effect.value > 0
        assert other.ablation.effect.value == 0  # unit 3 does not reach the output


@pytest.mark.parametrize(
    ("hypotheses", "options", "message"),
    [
        ({"given": np.arange(300) % 2}, {}, "given as an array"),
        (lambda record: 1, {}, "changed in 0 of"),
        (has_a, {"tests": "both"}, "tests must be one or both"),
        (has_a, {"records": 0}, "records=0 must be 1 or more"),
        (has_a, {"change": lambda record, random: record[:5]}, "as many symbols"),
        (has_a, {"tests": "ablation", "metric": lambda output, records: 1}, "one number per record"),
        (lambda record: record, {"tests": "ablation"}, "are not 0 and 1"),
    ],
)
def test_refusals(hypotheses, options, message):
    table = inspect(Planted(), hypotheses, "correlation", tokens(), "embed")
    with pytest.raises(InputError, match=message):
        table.verify(0, **options)


def test_layer_and_unknown_rows_are_refused(planted):
    layers = inspect(Planted(), has_a, "linear_f1", tokens(), "embed")
    with pytest.raises(InputError, match="as a whole"):
        layers.verify(0)
    with pytest.raises(InputError, match="row=16 labels 0 rows of the table's index"):
        planted.verify(16)
    with pytest.raises(InputError, match="has no column 'unit'"):
        planted.verify({"address": "embed"})
    with pytest.raises(InputError, match="no layer or operation whose units the table has read"):
        planted.verify({"address": "head", "unit": 0, "target": "has_a"})


def test_branch_on_a_changed_value_is_a_note():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)

        def forward(self, x):
            y = self.first(x)
            return y + 1 if float(y.sum()) > 0 else y

    data = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    table = inspect(Branching(), lambda record: record[0] > 0, "correlation", data, "first")
    found = table.verify(0, records=32)
    assert found.ablation is None
    assert "no ablation" in repr(found)
    assert found.perturbation is not None


def test_model_is_restored_at_once_after_a_refusal():
    """The exception is kept, with all frames, as a notebook keeps the last one."""
    model = Planted()
    table = inspect(model, has_a, "correlation", tokens(), "embed")
    model.train()
    with pytest.raises(InputError) as kept:
        table.verify(0, metric=lambda output, records: 1, tests="ablation")
    assert model.training
    assert not are_probes_disabled()
    with pytest.raises(InputError) as also:
        inspect(model, lambda record: record[:5], "correlation", tokens(), "embed")
    assert model.training
    assert not are_probes_disabled()
    assert kept.value.__traceback__ is not also.value.__traceback__
