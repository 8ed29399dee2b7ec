"""The families of operations, compared with what PyTorch's own schemas and calls say of them."""

from __future__ import annotations

import re

import pytest
import torch

import intus
from intus.core.building import GraphBuilder
from intus.core.units import UnitAxes
from intus.core.vocabularies.families import (
    COMPARISONS,
    DRAWING,
    DRAWING_OVER,
    DROPOUTS,
    ELEMENTWISE,
    MOVES,
    NOT_NEGATIVE,
    RESHAPES,
    ROUNDING,
    SOFTMAXES,
    VIEWS,
)
from intus.tracing.comparison.judging.sides import HIDING, Side
from intus.tracing.comparison.unseen.fixed import sources

#: What may return its argument as it is, and otherwise a copy.
UNCHANGED = {"contiguous", "to", "type_as", "cpu", "cuda", "pin_memory", "as_tensor", "coalesce"}
UNCHANGED |= {"_autocast_to_full_precision", "_autocast_to_reduced_precision", "_grad_sum_to_size"}
#: Operations with the bound 0, and those that are negative of complex numbers, or of another second argument.
BOUNDED = {"relu", "relu6", "angle", "heaviside"}
#: Views of sparse, nested and dual tensors, and of torch's own tests.
OTHERS = {"indices", "values", "crow_indices", "col_indices", "ccol_indices", "row_indices", "_indices"}
OTHERS |= {"_values", "_sparse_broadcast_to", "_ncf_view", "_ncf_unsqueeze", "slice_inverse"}
OTHERS |= {"_make_dual", "_unpack_dual", "_fw_primal", "_test_autograd_multiple_dispatch_view"}


def views_by_schemas():
    """Return the names of the functions of PyTorch whose result shares the memory of the first argument."""
    found = set()
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        given, returned = schema.arguments, schema.returns
        if space != "aten" or not given or not returned or given[0].alias_info is None:
            continue
        info, result = given[0].alias_info, returned[0].alias_info
        if not info.is_write and result is not None and str(given[0].type) == "Tensor":
            found.add(name)
    return found


def test_views_are_those_of_the_schemas():
    found = {one for one in views_by_schemas() if not one.startswith("_nested")}
    assert found <= VIEWS | RESHAPES | UNCHANGED | OTHERS


VIEWING = {
    "T": lambda x: x.T,
    "H": lambda x: x.H,
    "atleast_1d": torch.atleast_1d,
    "atleast_2d": torch.atleast_2d,
    "atleast_3d": torch.atleast_3d,
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, torch.zeros(1))[0],
    "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij")[0],
    "_unsafe_view": lambda x: torch.ops.aten._unsafe_view(x, [-1]),
}


def test_views_share_memory():
    assert VIEWS - views_by_schemas() <= VIEWING.keys()
    x = torch.randn(2, 3)
    for name, call in VIEWING.items():
        assert call(x).untyped_storage().data_ptr() == x.untyped_storage().data_ptr(), name


@pytest.mark.parametrize("name", sorted(DROPOUTS))
def test_dropouts_return_what_they_are_given_in_evaluation(name):
    call = getattr(torch.nn.functional, name, None) or getattr(torch, name)
    x = torch.randn({"dropout1d": (2, 3, 4), "dropout3d": (2, 3, 4, 5, 6)}.get(name, (2, 3, 4, 5)))
    trace = intus.trace(lambda x: call(x, 0.5, False) + 1, (x,))
    assert Side(trace).is_idle_dropout(1)
    assert torch.equal(call(x, 0.5, False), x)
    assert not torch.equal(call(x, 0.5, True), x)


@pytest.mark.parametrize("name", sorted({*COMPARISONS, *ROUNDING} & {*dir(torch)} - {"equal"}))
def test_comparisons_and_rounding_hide_differences(name):
    x, y = torch.full((3,), 0.25), torch.full((3,), 4.0)
    call = getattr(torch, name)
    given, other = ((x, y), (x + 0.125, y)) if name in COMPARISONS or "div" in name else ((x,), (x + 0.125,))
    assert torch.equal(call(*given), call(*other))
    assert name in HIDING


ELEMENTS = ["hard_sigmoid", "hard_swish", "swish", "is_nan", "is_inf", "less_or_equal", "greater_or_equal"]


@pytest.mark.parametrize("type_", [*ELEMENTS, "not", "equal"])
def test_elements_of_onnx_keep_the_axis_of_channels(type_):
    builder = GraphBuilder("Net")
    x = builder.input("x", (2, 3, 8, 8), "float32")
    conv = builder.op("conv", (2, 4, 8, 8), "float32", parents=[(x, "0")])
    row = builder.op(type_, (2, 4, 8, 8), "float32", parents=[(conv, "0")])
    graph = builder.graph({"format": "ONNX"})[0]
    assert UnitAxes(graph).of(row) == UnitAxes(graph).of(conv) == 1


def test_what_moves_elements_computes_none():
    assert MOVES.isdisjoint(ELEMENTWISE)


#: What draws in training alone, or on other devices.
TRAINED = re.compile(
    "(_|feature_|alpha_|native_|fused_)*dropout|.*(attention|rnn|rrelu|lstm|gru|sdp|nested).*"
)


def test_operations_that_draw_are_those_with_the_tag_of_torch():
    found = set()
    for whole in torch._C._dispatch_get_all_op_names():
        space, _, rest = whole.partition("::")
        name, _, overload = rest.partition(".")
        if space == "aten" and hasattr(torch.ops.aten, name):
            packet = getattr(torch.ops.aten, name)
            if torch.Tag.nondeterministic_seeded in getattr(packet, overload or "default").tags:
                found.add(name.removesuffix("_"))
    found = {name for name in found if not TRAINED.fullmatch(name) and "dropout" not in name}
    of_files = {"random_normal", "random_uniform", "random_normal_like", "random_uniform_like"}
    of_files |= {"new_rand", "new_randn", "new_randint"}
    assert found == DRAWING - of_files


@pytest.mark.parametrize("name", sorted(DRAWING_OVER))
def test_what_is_drawn_over_a_tensor_does_not_depend_on_it(name):
    torch.manual_seed(0)
    given = torch.zeros(50), torch.arange(50.0)
    more = {"geometric": (0.3,)}.get(name, ())
    drawn = []
    for x in given:
        torch.manual_seed(1)
        drawn.append(getattr(x, f"{name}_")(*more))
    assert torch.equal(*drawn)
    assert drawn[0].unique().numel() > 1


def outputs(name, x):
    """Return what a function of torch returns of a tensor; None if it takes none, or only other dtypes."""
    call = getattr(torch, name, None) or getattr(torch.nn.functional, name, None)
    call = call or getattr(torch.linalg, name.removeprefix("linalg_"), None)
    for more in [(0,)] if name in SOFTMAXES else [(), (x.flip(0),)]:
        try:
            result = call(x, *more)
        except (TypeError, RuntimeError, ValueError):
            continue
        return [one for one in (result if isinstance(result, tuple) else (result,)) if one is not None]
    return None


def test_operations_that_return_no_negative_number():
    torch.manual_seed(0)
    x = torch.randn(400, 3) * torch.tensor([0.1, 1.0, 30.0])
    known = NOT_NEGATIVE & {
        *dir(torch),
        *dir(torch.nn.functional),
        *(f"linalg_{n}" for n in dir(torch.linalg)),
    }
    assert len(known) >= 15
    for name in known:
        results = outputs(name, x)
        assert results is not None, name
        assert all((one[~one.isnan()] >= 0).all() for one in results), name
    others = ELEMENTWISE - NOT_NEGATIVE - set(COMPARISONS)
    never = set()
    for name in others & {*dir(torch), *dir(torch.nn.functional)}:
        results = outputs(name, x)
        if results is not None and all(one.is_floating_point() and (one >= 0).all() for one in results):
            never.add(name)
    assert never <= BOUNDED


SOURCES = {
    "to": lambda x, y: x.to(y),
    "type_as": lambda x, y: x.type_as(y),
    "expand_as": lambda x, y: x.expand_as(y),
    "view_as": lambda x, y: x.view_as(y),
    "reshape_as": lambda x, y: x.reshape_as(y),
    "zeros_like": lambda x, y: torch.zeros_like(x) + y,
    "new_full": lambda x, y: x.new_full((2,), 3.0) + y[0, 0],
    "copy": lambda x, y: torch.empty(2, 3).copy_(y) + x,
    "copy to a part": lambda x, y: written(x, y),
    "clone": lambda x, y: x.clone(),
    "broadcast_tensors": lambda x, y: torch.broadcast_tensors(x, y)[1],
    "meshgrid": lambda x, y: torch.meshgrid(x[0], y[0], indexing="ij")[1],
    "where": lambda x, y: torch.where(x > 0, x, y),
}


def written(x, y):
    """Return a tensor with a part of another in it."""
    z = x.clone()
    z[0].copy_(y[0])
    return z


@pytest.mark.parametrize("name", SOURCES)
def test_sources_are_the_inputs_that_change_a_result(name):
    torch.manual_seed(0)  # of six numbers that are all positive, ``where`` takes none of the others
    given, call = (torch.randn(2, 3), torch.randn(2, 3)), SOURCES[name]
    result = call(*given)
    changed = {
        n for n in (0, 1) if not torch.equal(call(*(x + 9 * (n == at) for at, x in enumerate(given))), result)
    }
    graph = intus.trace(call, given).graph
    rows = graph.rows_of(1)
    assert {rows.index(row) for row in sources(graph)[-1]} == changed
