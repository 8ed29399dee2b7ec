"""Tests of selecting during the pass: the values are those of the finished trace, and others are not kept."""

import re

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from zoo_models import ZOO, make

import intus
from intus.core.address import matches
from intus.core.errors import AddressError, InputError
from intus.core.selection import select
from intus.tracing.capture.saving.choose import may_match
from intus.tracing.results.op import Op

DEPTH = 30
COUNTS = []  # not an attribute of the model, because those are restored after a pass


class Deep(nn.Module):
    """A chain of layers that counts how many of its activations are alive."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.Identity(), nn.Softplus()) for _ in range(DEPTH)
        )

    def forward(self, x):
        memory = []
        for layer in self.layers:
            x = layer(x)
            memory.append(StorageWeakRef(x.untyped_storage()))
            memory.append(StorageWeakRef(layer[0].storage))
            COUNTS.append(sum(not ref.expired() for ref in memory))
            del layer[0].storage
        return x


def remember(module, args, out):
    module.storage = out.untyped_storage()


@pytest.fixture
def deep():
    torch.manual_seed(0)
    COUNTS.clear()
    model = Deep()
    for layer in model.layers:
        layer[0].register_forward_hook(remember)
    return model


SPARSE = [
    "linear_15",
    "linear_15_29",
    "layers.14",
    "layers.14.0",
    "layers.14:1",
    "layers.1?.1",
    ["layers.3", "linear_20"],
    40,
    -3,
    slice(-2, None),
    slice(10, 12),
    lambda op: op.module == "layers.7.0",
    lambda op: op.type == "linear" and "layers.9.0" in op.modules,
    lambda op: any(p.address == "layers.4.0.weight" for p in op.params),
    lambda op: op.type == "linear" and op.parents[0].kind == "input",
    lambda op: op.value.mean() < -100,
    "none",
]


@pytest.mark.parametrize("save", SPARSE, ids=range(len(SPARSE)))
def test_selected_values_are_those_of_the_finished_trace(deep, save):
    with torch.no_grad():
        t = intus.trace(deep, torch.ones(1, 8), save=save)
        whole = intus.trace(deep, torch.ones(1, 8))
    assert set(t.values) == set(select(whole.graph, save, handle=lambda row: Op(whole, row)))
    assert all(torch.equal(value, whole.values[row]) for row, value in t.values.items())
    assert len(t.values) <= 10


@pytest.mark.parametrize("save", SPARSE, ids=range(len(SPARSE)))
def test_unselected_values_are_not_kept_alive(deep, save):
    with torch.no_grad():
        intus.trace(deep, torch.ones(1, 8), save=save)
    most = max(COUNTS)
    assert most <= 8 + 10 * (save == "layers.1?.1")  # the ten selected, and those in use
    COUNTS.clear()
    with torch.no_grad():
        intus.trace(deep, torch.ones(1, 8))
    assert max(COUNTS) == 2 * DEPTH  # the count does see values that are kept


def selections(graph):
    """Return every name of a graph, every ordinal, and a few globs."""
    classes = {module.type for module in graph.modules}
    names = [*graph.names(), *graph.ends, *sorted(set(graph.types)), *sorted(classes)]
    globs = sorted(
        {name[: len(name) // 2] + "*" for name in names} | {"*_2*", "*:1", "?*", "*.?", "**", "**.?"}
    )
    count = len(graph)
    ordinals = [
        *range(-count, count),
        slice(1, None, 2),
        slice(-2, None),
        slice(2, -1),
        slice(None, None, -1),
    ]
    return [*names, *(g for g in globs if any(matches(g, n) for n in names)), *ordinals]


@pytest.mark.long
@pytest.mark.parametrize("name", list(ZOO))
def test_selection_on_the_zoo(name):
    model, x = make(name)
    whole = intus.trace(model, x, seed=1)
    possible = selections(whole.graph)
    for save in possible[:: max(1, len(possible) // 40)]:
        try:
            rows = set(select(whole.graph, save)) & set(whole.values)
        except AddressError:
            continue  # a glob that matches only types names nothing
        t = intus.trace(model, x, save=save, seed=1)
        assert set(t.values) == rows, save
        for row in rows:
            assert torch.equal(t.values[row], whole.values[row]) or whole.values[row].isnan().any(), save


SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 50}


@pytest.mark.long
@pytest.mark.parametrize("decompose", [False, True])
@pytest.mark.parametrize("name", ["Albert", "Llama"])  # one layer three times; masks without an input
def test_selection_on_transformers(name, decompose):
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(num_hidden_layers=3, **SMALL)
    model = getattr(transformers, f"{name}Model")(config).eval()
    inputs = {"input_ids": torch.arange(8)[None]}
    whole = intus.trace(model, inputs, decompose=decompose)
    possible = selections(whole.graph)
    for save in possible[:: len(possible) // 25]:
        try:
            rows = set(select(whole.graph, save)) & set(whole.values)
        except AddressError:
            continue
        t = intus.trace(model, inputs, save=save, decompose=decompose)
        assert set(t.values) == rows, save
        assert all(torch.equal(t.values[row], whole.values[row]) for row in rows), save


def test_input_and_output_names_select():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(num_hidden_layers=3, **SMALL)
    model, ids = transformers.LlamaForCausalLM(config).eval(), torch.arange(8)[None]
    t = intus.trace(model, {"input_ids": ids}, save=["logits", "input_ids", "LlamaMLP"])
    assert torch.equal(t["logits"].value, model(ids).logits)
    assert torch.equal(t["input_ids"].value, ids)
    mlps = [f"model.layers.{n}.mlp" for n in range(3)]
    assert {op.label for op in t.ops if op.saved} == {t[mlp].label for mlp in mlps}
    with pytest.raises(AddressError, match=r"'LlamaMLP' means 3 ops, not one: .* Write find\('LlamaMLP'\)"):
        t["LlamaMLP"]
    with pytest.raises(AddressError, match=r"Did you mean 'model.layers.0.mlp' or"):
        t["layers.0.mlp"]


def test_name_shared_by_input_and_output_means_the_input():
    def forward(states, mask):
        return {"states": states * mask}

    t = intus.trace(forward, (torch.ones(2), torch.zeros(2)))
    assert [t["states"].label, t["mask"].label] == ["input_1", "input_2"]
    saved = intus.trace(forward, (torch.ones(2), torch.zeros(2)), save="states")
    assert [op.label for op in (*saved.inputs, *saved, *saved.outputs) if op.saved] == ["input_1"]


class Views(nn.Module):
    """A module whose output was last written through another view of its memory."""

    def __init__(self):
        super().__init__()
        self.inner, self.after = nn.Identity(), nn.Identity()

    def forward(self, x):
        a = x * 2
        b = a.T
        b.add_(torch.arange(3.0))
        c = self.inner(a)
        a.mul_(100)
        return self.after(c) + 1


def test_module_output_written_through_a_view():
    model, x = Views(), torch.arange(9.0).reshape(3, 3)
    whole = intus.trace(model, x)
    for name in ("inner", "after", "add_1"):
        t = intus.trace(model, x, save=name)
        assert list(t.values) == whole.graph.rows(name)
        assert torch.equal(t[name].value, whole[name].value)
        assert not t[name].maybe_modified


def test_module_address_takes_precedence_over_type():
    class Named(nn.Module):
        def __init__(self):
            super().__init__()
            self.relu = nn.Linear(2, 2)
            self.idle = self.softplus = nn.Tanh()

        def forward(self, x):
            return torch.relu(self.relu(torch.relu(x))).softmax(-1)

    assert [op.label for op in intus.trace(Named(), torch.ones(1, 2), save="relu").ops if op.saved] == [
        "linear_1_2"
    ]
    t = intus.trace(Named(), torch.ones(1, 2), save="softmax")
    assert [t.graph.label(row) for row in t.values] == ["softmax_1_4"]


def test_predicate_on_later_facts_is_called_again_at_the_end():
    model, x = make("cnn")
    ops = []

    def chosen(op):
        ops.append(op)
        return op.children and op.children[0].type == "relu"

    t = intus.trace(model, x, save=chosen)
    assert [t.graph.label(row) for row in t.values] == ["batch_norm_1_2", "conv2d_2_4"]
    assert {type(op).__name__ for op in ops} == {"LiveOp", "Op"}


def test_predicate_is_called_once_if_possible():
    counted = []
    t = intus.trace(*make("mlp"), save=lambda op: counted.append(op.type) or len(counted) % 2)
    assert len(counted) == len(t.graph.ops)
    assert len(t.values) == (len(counted) + 1) // 2


def test_predicate_on_row_uses_rows_of_the_graph():
    t = intus.trace(*make("mlp"), save=lambda op: op.row in (1, 3))
    assert list(t.values) == [1, 3]


def test_live_op_equals_op_of_the_trace():
    model, x = make("cnn")
    live = []
    facts = ("type", "kind", "shape", "dtype", "nbytes", "meta", "seconds", "in_place", "is_factory",
             "failed",
             "source", "params")  # fmt: skip

    def save(op):
        assert type(op).__name__ == "LiveOp"
        live.append(([getattr(op, name) for name in facts], [p.type for p in op.parents], op.modules))
        return False

    t = intus.trace(model, x, save=save)
    assert not t.values
    for (values, parents, _), op in zip(live, (Op(t, row) for row in range(len(t.graph.ops))), strict=True):
        assert values == [getattr(op, name) for name in facts]
        assert parents == [parent.type for parent in op.parents]
    with pytest.raises(InputError, match="AttributeError: an Op has no 'shpae'"):
        intus.trace(model, x, save=lambda op: op.shpae)


def test_predicate_exception_is_raised_after_the_pass():
    ran = []

    class Model(nn.Module):
        def forward(self, x):
            y = torch.relu(x)
            ran.append(y)
            return y + 1

    with pytest.raises(InputError, match=r"failed at 'relu_1_1': ZeroDivisionError: division by zero"):
        intus.trace(Model(), torch.ones(1), save=lambda op: op.type == "relu" and 1 / 0)
    assert len(ran) == 1


@pytest.mark.parametrize("save", [3.5, True, None, b"x", ["a", 1.0]])
def test_invalid_selection_raises_before_the_pass(save):
    ran = []
    with pytest.raises(InputError, match="A selection must be a name"):
        intus.trace(lambda x: ran.append(x), torch.ones(1), save=save)
    assert not ran


@pytest.mark.parametrize("save", [nn.Linear, nn.Linear(2, 2), ["0", nn.Linear]])
def test_module_or_class_as_selection_raises(save):
    with pytest.raises(InputError, match="Write 'Linear' for all modules of that class"):
        intus.trace(nn.Linear(2, 2), torch.ones(1, 2), save=save)


def test_selection_as_generator():
    t = intus.trace(*make("cnn"), save=(name for name in ("conv1", "relu_2")))
    assert [t.graph.label(row) for row in t.values] == ["conv2d_1_1", "relu_2_5"]


def test_model_exception_takes_precedence_over_selection_error():
    def model(x):
        x + 1
        raise KeyError("the model's own")

    with pytest.raises(KeyError, match="the model's own"):
        intus.trace(model, torch.ones(1), save=["add_1", "linear_9"])


@given(
    st.text("ab*?_:1[]!", max_size=7) | st.from_regex(r"(a|ab|b_1)_[0-9*]+:?[0-9]", fullmatch=True),
    st.sampled_from(["a", "ab", "b_1"]),
    st.integers(1, 3),
    st.none() | st.integers(1, 12),
    st.none() | st.integers(1, 2),
)
def test_may_match_is_true_for_every_matching_glob(pattern, stem, number, overall, passno):
    label = f"{stem}_{number}" + (f"_{overall}" if overall else "") + (f":{passno}" if passno else "")
    if matches(pattern, label):
        assert may_match(pattern, stem)
    if not any(mark in pattern for mark in "*?"):
        assert may_match(pattern, stem) == bool(re.fullmatch(stem + r"_\d+_?\d*:?\d*", pattern))


def test_may_match_examples():
    for pattern in ("*attn*", "conv?", "linear", "*.?", "**.?", "linear_[0-9]*", "linear_*x", "line:r_*"):
        assert not may_match(pattern, "linear"), pattern
    for pattern in ("*", "**", "linear_*", "**_3", "li*:2", "?inear_1_*"):
        assert may_match(pattern, "linear"), pattern
