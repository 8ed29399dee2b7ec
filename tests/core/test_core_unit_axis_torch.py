"""The tables of ``core.units``, checked with torch's own table of operations and sample inputs."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

import intus
from intus.core.units import _POINTWISE, KEEPING

pytestmark = pytest.mark.filterwarnings("ignore")

RANDOM = ("bernoulli", "nn.functional.rrelu", "nn.functional.dropout", "nn.functional.alpha_dropout", "rand")
PER_CHANNEL = ("nn.functional.prelu",)
#: Returns a bool; the ``Equal`` of ONNX, of the same name, compares elements.
NO_TENSOR = ("equal",)
OPS = [
    op
    for op in op_db
    if torch.float32 in op.dtypes and not op.name.startswith(("jiterator", "special.", "__", *NO_TENSOR))
]


def samples(op):
    torch.manual_seed(0)
    return op.sample_inputs("cpu", torch.float32)


def tensors(out):
    return [t for t in (out if isinstance(out, tuple | list) else [out]) if isinstance(t, torch.Tensor)]


def types_of(op):
    """Return the operation types in a trace of the operation."""
    sample = next(iter(samples(op)))
    trace = intus.trace(lambda x: op(x, *sample.args, **sample.kwargs), (sample.input,), save="none")
    return {one.type for one in trace.ops}


@pytest.mark.long
@pytest.mark.parametrize(
    "op", [op for op in OPS if isinstance(op, UnaryUfuncInfo | BinaryUfuncInfo)], ids=lambda op: op.full_name
)
def test_elementwise_functions_are_pointwise(op):
    """Each is known, and reordering entries along an axis reorders the result along the same axis."""
    assert types_of(op) <= _POINTWISE | {"max", "min"}
    if op.name in RANDOM or op.name in PER_CHANNEL:
        return
    for sample in samples(op):
        given = [a for a in (sample.input, *sample.args) if isinstance(a, torch.Tensor)]
        if any(t.shape != sample.input.shape for t in given):
            continue
        for axis in range(sample.input.ndim):
            order = torch.arange(sample.input.shape[axis]).flip(0)
            move = lambda t, axis=axis, order=order: (  # noqa: E731
                t.index_select(axis, order) if isinstance(t, torch.Tensor) else t
            )
            plain = tensors(op(sample.input, *sample.args, **sample.kwargs))
            moved = tensors(op(move(sample.input), *map(move, sample.args), **sample.kwargs))
            for one, other in zip(plain, moved, strict=True):
                torch.testing.assert_close(move(one), other, equal_nan=True)


@pytest.mark.long
@pytest.mark.parametrize(
    "op", [op for op in OPS if op.name.rpartition(".")[2] in KEEPING], ids=lambda op: op.full_name
)
def test_axis_preserving_operations_move_no_axis(op):
    """An axis of the result that is reordered with an axis of the argument is the same axis."""
    if op.name in RANDOM:
        pytest.skip("random")
    for sample in samples(op):
        x = sample.input[0] if isinstance(sample.input, list | tuple) else sample.input
        rest = sample.input[1:] if isinstance(sample.input, list | tuple) else None

        def run(t, sample=sample, rest=rest):
            given = t if rest is None else [t, *rest]
            return tensors(op(given, *sample.args, **sample.kwargs))[0]

        plain = run(x)
        for axis in range(x.ndim if plain.ndim == x.ndim and plain.numel() else 0):
            order = torch.arange(x.shape[axis]).roll(1)
            moved = run(x.index_select(axis, order))
            same = [
                b
                for b in range(plain.ndim)
                if plain.shape[b] == x.shape[axis]
                and close(turned := plain.index_select(b, order), moved)
                and not close(turned, plain)
            ]
            assert not same or axis in same, (axis, sample)


def close(a, b):
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), equal_nan=True)
