"""The same addresses in every verb: each means the same everywhere, or is refused with the reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import intus
from intus.core.address import split_units
from intus.core.errors import AddressError, CaptureError, InputError


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.fc = nn.LayerNorm(5), nn.Linear(5, 5)

    def forward(self, x):
        return torch.sigmoid(self.fc(self.norm(x)))


class Mix(nn.Module):
    """Returns three axes of unknown meaning."""

    def forward(self, x):
        return x.reshape(len(x), 3, -1) + 1


class Net(nn.Module):
    """Channels second, channels last, blocks, a layer called twice, names with special characters."""

    def __init__(self):
        super().__init__()
        self.emb, self.pool = nn.Embedding(20, 6), nn.MaxPool1d(2)
        self.h = nn.Sequential(Block(), Block(), Block())
        self.conv, self.act = nn.Conv2d(1, 4, 3), nn.GELU()
        self.shared, self.mix = nn.Linear(5, 5), Mix()
        self.heads = nn.ModuleDict({"a:b": nn.Linear(5, 3), "c[0]": nn.Linear(5, 3)})
        self.spare = nn.Linear(2, 2)

    def forward(self, ids):
        x = self.pool(self.emb(ids).transpose(1, 2))  # (n, 6 channels, 5 positions)
        y = self.act(self.conv(x[:, None] * 2).permute(0, 2, 3, 1))  # (n, 4, 3, 4 channels)
        x = self.shared(self.shared(self.h(x)))
        return self.heads["a:b"](x) + self.heads["c[0]"](x) + self.mix(x).mean() + y.mean()


@dataclass
class Meaning:
    """The meaning of an address.

    Attributes:
        calls: The calls of modules whose outputs it means, for ``inspect``.
        units: The units; None for all.
        axis: The axis of the units.
        ops: The labels that ``find`` returns, if they are not just the outputs of ``calls``.
        param: The parameter, if it is one.
    """

    calls: tuple[str, ...] = ()
    units: tuple[int, ...] | None = None
    axis: int = 1
    ops: tuple[str, ...] | None = None
    param: str = ""


LINEARS = ("h.0.fc", "h.1.fc", "h.2.fc", "shared", "shared:2", r"heads.a\:b", r"heads.c\[0\]")
BLOCKS = ("h.0", "h.1", "h.2")
INNER = tuple(f"{block}.{name}" for block in BLOCKS for name in ("norm", "fc"))
TOP = ("emb", "pool", "h", "conv", "act", "shared", "shared:2", "mix")

MEANINGS = {
    "emb": Meaning(("emb",), axis=2),
    "pool": Meaning(("pool",)),
    "pool[3]": Meaning(("pool",), (3,)),
    "pool[1,3]": Meaning(("pool",), (1, 3)),
    "pool[-1]": Meaning(("pool",), (5,)),
    "pool[0:2]": Meaning(("pool",), (0, 1)),
    "pool[::2]": Meaning(("pool",), (0, 2, 4)),
    "pool[4,0:2]": Meaning(("pool",), (4, 0, 1)),
    "pool[1@2]": Meaning(("pool",), (1,), 2),
    "pool[1:3@-1]": Meaning(("pool",), (1, 2), 2),
    "act": Meaning(("act",), axis=3),
    "act[3]": Meaning(("act",), (3,), 3),
    "conv[3]": Meaning(("conv",), (3,), 1),
    "h.1": Meaning(("h.1",), axis=2),
    "h.*": Meaning(BLOCKS, axis=2),
    "h.?": Meaning(BLOCKS, axis=2),
    "h.**": Meaning((*BLOCKS, *INNER), axis=2),
    "**.fc": Meaning(LINEARS[:3], axis=2),
    "h.*.fc[2]": Meaning(LINEARS[:3], (2,), 2),
    "Linear": Meaning(LINEARS, axis=2),
    "linear": Meaning(LINEARS, axis=2),
    "Linear[0]": Meaning(LINEARS, (0,), 2),
    "sigmoid": Meaning(BLOCKS, axis=2),
    "embedding_1": Meaning(("emb",), axis=2),
    "embedding_1_1[5]": Meaning(("emb",), (5,), 2),
    "embedding_*": Meaning(("emb",), axis=2),
    "shared": Meaning(("shared", "shared:2"), axis=2),
    "shared:2": Meaning(("shared:2",), axis=2),
    "shared:2[1]": Meaning(("shared:2",), (1,), 2),
    "linear_4:1": Meaning(("shared",), axis=2),
    r"heads.a\:b": Meaning((r"heads.a\:b",), axis=2),
    r"heads.c\[0\][2]": Meaning((r"heads.c\[0\]",), (2,), 2),
    "**": Meaning((*TOP, *BLOCKS, *INNER, *LINEARS[-2:])),
    "*": Meaning(TOP),
    "**.h.*": Meaning(BLOCKS, axis=2),
    "**.conv": Meaning(("conv",), axis=1),
    "mul_1": Meaning(ops=("mul_1_5",)),
    "ids": Meaning(ops=("input_1",)),
    "emb.weight": Meaning(param="emb.weight"),
    "emb.weight[2]": Meaning(param="emb.weight", units=(2,), axis=1),
    "conv.weight[2]": Meaning(param="conv.weight", units=(2,), axis=0),
    "shared.bias[2]": Meaning(param="shared.bias", units=(2,), axis=0),
    "h.*.fc.bias": Meaning(param="h.0.fc.bias"),
}

IDS = torch.randint(0, 20, (8, 10), generator=torch.Generator().manual_seed(0))
LABELS = np.arange(8) % 2


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def t(net):
    return intus.trace(net, IDS)


def rows_of(t, meaning):
    """Return the rows of the meaning."""
    if meaning.ops == ("all",):
        return set(range(len(t.graph.ops)))
    if meaning.ops is not None:
        return {t[label].row for label in meaning.ops}
    return {t.graph.rows(call if call in t else f"{call}:1")[0] for call in meaning.calls} | {
        t.graph.rows(f"{call}:1")[0] for call in meaning.calls if ":" not in call and "shared" in call
    }


def units_of(value, meaning):
    """Return the part of a value in the meaning, as a mask."""
    mask = torch.zeros(value.shape, dtype=torch.bool)
    if meaning.units is None:
        return ~mask
    mask.movedim(meaning.axis, 0)[list(meaning.units)] = True
    return mask


@pytest.mark.parametrize("address", MEANINGS)
def test_find(t, address):
    meaning = MEANINGS[address]
    if meaning.units is None and not meaning.param:
        found = {op.row for op in t.find(address)}
        if address == "shared:2":
            assert found == {t["shared:2"].row}
        else:
            assert found == rows_of(t, meaning)
    else:
        with pytest.raises(
            AddressError, match="is a parameter|3 parameters" if meaning.param else "names units"
        ):
            t.find(address)


@pytest.mark.parametrize("address", MEANINGS)
def test_index_of_a_trace(t, address):
    """Indexing returns one op or the first pass of a layer, and refuses several ops, units and parameters."""
    meaning = MEANINGS[address]
    several = len(rows_of(t, meaning)) > 1 and not address.startswith("shared")
    if meaning.units is not None or meaning.param or several:
        with pytest.raises(AddressError, match=r"names units|is a parameter|3 parameters|ops, not one"):
            t[address]
    else:
        assert t[address].row == min(op.row for op in t.find(address))


@pytest.mark.parametrize("address", MEANINGS)
def test_save(net, t, address):
    meaning = MEANINGS[address]
    if meaning.units is None and not meaning.param:
        saved = intus.trace(net, IDS, save=address)
        assert set(saved.values) == {op.row for op in t.find(address)}
    else:
        with pytest.raises(AddressError, match=r"is a parameter|3 parameters|names units"):
            intus.trace(net, IDS, save=address)


@pytest.mark.parametrize("address", [one for one in MEANINGS if one not in ("*", "**")])
def test_rerun_and_value(t, address):
    """Rerun sets the part in the meaning to 7, and ``value`` returns that part."""
    meaning = MEANINGS[address]
    if meaning.param:
        changed = t.rerun({address: 7.0})
        value = changed._parameter(meaning.param)
        assert torch.equal(value == 7, units_of(value, meaning))
        if "*" not in address:
            whole = t._parameter(meaning.param)
            part = whole if meaning.units is None else whole.select(meaning.axis, meaning.units[0])
            assert torch.equal(t.value(address), part)
        return
    changed = t.rerun({address: 7 if address == "ids" else 7.0})
    whole = split_units(address)[0] if meaning.units is not None else address
    for op in t.find(whole):
        value = changed.values[op.row]
        assert torch.equal((value == 7) & (op.value != 7), units_of(value, meaning) & (op.value != 7))
    if len(t.find(whole)) == 1:
        part = t[whole].value
        if meaning.units is not None:
            part = part.index_select(meaning.axis, torch.tensor(meaning.units))
        assert torch.equal(t.value(address).flatten(), part.flatten())


@pytest.mark.parametrize("address", MEANINGS)
def test_inspect(net, t, address):
    """The mean difference of every unit is that of the part in the meaning."""
    meaning = MEANINGS[address]
    if meaning.param or address == "mul_1":
        text = "is a parameter" if meaning.param else "'mul_1' has shape .* do not determine its unit axis"
        with pytest.raises(AddressError, match=text):
            intus.inspect(net, {"odd": LABELS}, "mean_difference", IDS, address)
        return
    table = intus.inspect(net, {"odd": LABELS}, "mean_difference", IDS, address)
    calls = meaning.calls or (address,)  # an input is read by its own name
    assert set(table.address) == set(calls)
    if address in ("*", "**"):
        unread = table[table.unit < 0]
        assert unread.address.tolist() == ["mix"]
        assert unread.note.str.contains("do not determine its unit axis").all()
        for call in set(calls) - {"mix"}:
            alone = intus.inspect(net, {"odd": LABELS}, "mean_difference", IDS, call)
            found = table[table.address == call].value.tolist()
            assert found == alone[alone.address == call].value.tolist()
        return
    for call in calls:
        value = t[call if ":" in call.replace("\\:", "") or call in t else f"{call}:1"].value
        units = meaning.units if meaning.units is not None else range(value.shape[meaning.axis])
        scores_of_call = table[table.address == call]
        assert scores_of_call.unit.tolist() == list(units)
        of_units = value.movedim(meaning.axis, 1).reshape(len(value), value.shape[meaning.axis], -1).double()
        odd, even = of_units[LABELS == 1].mean((0, 2)), of_units[LABELS == 0].mean((0, 2))
        assert scores_of_call.value.to_numpy() == pytest.approx((odd - even)[list(units)].numpy(), abs=1e-5)


@pytest.mark.parametrize("address", MEANINGS)
def test_probe(net, address):
    """A probe attaches to whole modules, before anything has run, and refuses other addresses."""
    meaning = MEANINGS[address]
    named = {name for name, _ in net.named_modules()} | {r"heads.a\:b", r"heads.c\[0\]"}
    known = not any(c in address for c in ("embedding", "sigmoid", "linear", "mul", "ids"))
    if not known or meaning.units is not None or meaning.param or address == "shared:2":
        with pytest.raises(AddressError, match="which="):
            intus.probe(net, which=address)
        return
    with intus.probe(net, which=address) as watch:
        attached = set(watch.operations)
    wanted = {call.partition(":")[0] if call == "shared:2" else call for call in meaning.calls}
    never = {"spare", "heads"} if address in ("Linear", "*", "**") else set()
    assert attached - never == wanted <= named


@pytest.mark.parametrize(
    ("address", "error", "text"),
    [
        ("nope", AddressError, "has no 'nope'"),
        ("h.*.nope", AddressError, r"has no 'h.\*.nope'"),
        ("*.fc", AddressError, r"'\*' does not match dots. Write '\*\*.fc'"),
        ("pool[", InputError, "is not an address"),
        ("pool[x]", InputError, r"\[x\] does not name units"),
        ("pool[9]", AddressError, r"'pool\[9\]' is out of range: there are 6 units"),
        ("pool[0@3]", AddressError, "has 3 axes"),
        ("mix[0]", AddressError, r"'mix(\[0\])?' has shape \(\d, 3, 10\), .* unit axis"),
    ],
)
def test_unknown_addresses_are_refused_by_every_verb(net, t, address, error, text):
    verbs = [
        lambda: t.value(address),
        lambda: t.rerun({address: 0.0}),
        lambda: intus.inspect(net, {"odd": LABELS}, "mean_difference", IDS, address),
    ]
    for verb in verbs:
        with pytest.raises(error, match=text):
            verb()
    whole = [
        lambda: t[address],
        lambda: t.find(address),
        lambda: intus.trace(net, IDS, save=address),
        lambda: intus.probe(net, which=address),
    ]
    for verb in whole:  # these refuse units, whether they exist or not
        with pytest.raises(error, match=f"{text}|names units"):
            verb()


def test_at_least_thirty_addresses():
    assert len(MEANINGS) >= 30


class Several(nn.Module):
    """A layer that returns three tensors, then layers whose unit axes are easily confused."""

    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(6, 5, batch_first=True, bidirectional=True), nn.Linear(10, 3)
        self.up, self.mixing = nn.ConvTranspose1d(10, 4, 2), nn.Identity()

    def forward(self, x):
        y, (h, _) = self.lstm(x)
        wide = self.up(y.transpose(1, 2))  # (n, 4 channels, positions)
        positions = self.mixing(wide.mean(1))  # (n, positions): no units are left
        return self.fc(y) + h.sum() + positions.sum()


@pytest.fixture(scope="module")
def several():
    torch.manual_seed(0)
    model, x = Several(), torch.randn(4, 7, 6)
    return model, x, intus.trace(model, x)


def test_units_of_several_outputs_are_those_of_the_first(several):
    model, x, t = several
    assert torch.equal(t.value("lstm[7]"), t["lstm_1"].value[..., 7])
    changed = t.rerun({"lstm[0]": 0})
    assert (changed["lstm_1"].value[..., 0] == 0).all()
    assert torch.equal(changed["lstm_2"].value, t["lstm_2"].value)
    zeroed = t.rerun({"lstm[9]": 0})
    assert (zeroed["lstm_1"].value[..., 9] == 0).all()
    table = intus.inspect(model, {"odd": np.arange(4) % 2}, "mean_difference", x, "lstm[9]")
    assert table.unit.tolist() == [9]


def test_inspect_reads_an_output_that_is_not_the_first(several):
    model, x, t = several
    idea = {"odd": np.arange(4) % 2}
    assert len(intus.inspect(model, idea, "mean_difference", x, "lstm_1")) == 10
    table = intus.inspect(model, idea, "mean_difference", x, "lstm_2")
    states = t["lstm_2"].value.mean(0).numpy()  # (2 directions, 4 records, 5 units)
    assert table.value.to_numpy() == pytest.approx(states[1::2].mean(0) - states[::2].mean(0), abs=1e-5)


def test_tensor_cannot_replace_several_outputs(several):
    _, _, t = several
    with pytest.raises(InputError, match="'lstm' returns 3 tensors: 'lstm_1_3'"):
        t.rerun({"lstm": torch.zeros(4, 7, 10)})
    assert (t.rerun({"lstm_1": torch.zeros(4, 7, 10)})["lstm_1"].value == 0).all()


def test_units_of_a_parameter_are_those_it_computes(several):
    _, _, t = several
    assert t.value("fc.weight[2]").shape == (10,)
    assert t.value("up.weight[3]").shape == (10, 2)
    with pytest.raises(AddressError, match="do not determine its unit axis"):
        t.value("lstm.weight_ih_l0[0]")
    silent = t.rerun({"up.weight[3]": 0, "up.bias[3]": 0})
    assert (silent["up"].value[:, 3] == 0).all()
    assert (silent["up"].value[:, :3] == t["up"].value[:, :3]).all()


def test_mean_over_the_units_leaves_none(several):
    model, x, t = several
    with pytest.raises(AddressError, match="do not determine its unit axis"):
        t.value("mixing[6]")
    with pytest.raises(AddressError, match="do not determine its unit axis"):
        intus.inspect(model, {"odd": np.arange(4) % 2}, "mean_difference", x, "mixing")


@pytest.mark.parametrize("brackets", ["[20:30]", "[5:3]", "[3:3@2]"])
def test_empty_ranges_are_refused(several, brackets):
    model, x, t = several
    for verb in (
        lambda: t.value(f"lstm{brackets}"),
        lambda: t.rerun({f"lstm{brackets}": 0}),
        lambda: intus.inspect(model, {"odd": np.arange(4) % 2}, "mean_difference", x, f"lstm{brackets}"),
    ):
        with pytest.raises(AddressError, match="selects no unit"):
            verb()


class Idle(nn.Module):
    """Has modules that do not run."""

    def __init__(self):
        super().__init__()
        self.fc, self.idle = nn.Linear(4, 4), nn.Linear(4, 4)
        self.box, self.silent = nn.Sequential(nn.Tanh()), Silent()

    def forward(self, x):
        self.silent(x)
        return self.fc(x)


class Silent(nn.Module):
    """Returns no tensor."""

    def forward(self, x):
        return None


@pytest.mark.parametrize("name", ["idle", "idle[3]", "id*", "box", "box.0", "Sequential", "**.0"])
def test_module_that_did_not_run_is_reported_as_such(name, tmp_path):
    model, x, place = Idle(), torch.randn(2, 4), name.partition("[")[0]
    t = intus.trace(model, x)
    sentence = rf"^{re.escape(repr(place))} did not run"
    for verb in (
        lambda: t[name],
        lambda: t.find(name),
        lambda: t.rerun({name: 0}),
        lambda: intus.trace(model, x, save=place),
        lambda: intus.collect(model, [x], ["fc", place], tmp_path / "a"),
    ):
        with pytest.raises(AddressError, match=sentence):
            verb()
    with pytest.raises((AddressError, CaptureError), match=sentence):
        intus.inspect(model, {"first": lambda row: float(row[0])}, "correlation", x, name)


def test_module_that_ran_and_returned_no_tensor():
    t = intus.trace(Idle(), torch.randn(2, 4))
    with pytest.raises(AddressError) as error:
        t["silent"]
    assert "did not run" not in str(error.value)
