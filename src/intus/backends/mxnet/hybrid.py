"""Observe the blocks inside a hybridized block, by a twin of its graph with more operations.

The twin runs instead of the block's own graph in passes that are observed. Its additional operations are
identities, so that it computes the same bits. Operation hooks, which cannot be removed, are registered on it
alone. All use of private names of MXNet that serves this is in this file.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import mxnet as mx
from mxnet import autograd
from mxnet.gluon import Block, HybridBlock
from mxnet.gluon.block import _flatten, _regroup
from mxnet.gluon.utils import _check_same_symbol_type
from mxnet.ndarray import CachedOp, NDArray
from mxnet.symbol import Symbol

from ...core.errors import CaptureError
from ...core.nested import leaves
from ...core.restoring import python_kept
from .arrays import replaced
from .session import Gradients
from .symbols import equal_operations, program
from .taps import HookedOp, tapped

if TYPE_CHECKING:
    from ..visit import Visit
    from .blocks import Forward, Listener


class Twin:
    """The graph of a hybridized block with taps at the inputs and outputs of the blocks inside.

    Args:
        block: The block, of which its own graph is built first if it was not called before.
        args: The arguments of a call.

    Raises:
        CaptureError: If the code of the block does not build the graph that it runs: it was partitioned for
            a backend, or its code depends on something that has changed.
    """

    def __init__(self, block: HybridBlock, args: tuple[Any, ...]) -> None:
        with leaves(args, NDArray)[0].context:
            if block._cached_op is None:
                block._build_cache(*args)
        if block._callback is not None:
            raise CaptureError(
                f"{type(block).__name__} has an operation hook of its own (register_op_hook), so the blocks "
                "inside of it are not recorded. Remove the hook by register_op_hook(None) and hybridize()."
            )
        self._original = block._cached_graph[1]
        self._has_leaves = _has_leaves(args)
        self._calls: list[TwinCall] = []
        self._taps: list[CallTap] = []
        self._used: tuple[CachedOp, list[Any]] | None = None
        if block._children:
            self._build(block, args)
        self._block = weakref.ref(block)

    def _build(self, block: HybridBlock, args: tuple[Any, ...]) -> None:
        symbol = run_with_symbols(block, args, block._cached_graph[0], self._around)
        if not self._taps:
            return
        own = program(self._original)
        if program(symbol) != own:
            raise CaptureError(
                f"{type(block).__name__} was hybridized to another graph than its code builds now, so the "
                "blocks inside of it are not recorded. Call hybridize() again, without a backend."
            )
        if (twice := equal_operations(own)) is not None:
            raise CaptureError(
                f"{type(block).__name__} runs {twice} twice on the same input, which MXNet merges when it is "
                "hybridized, so the blocks inside of it are not recorded. Run it once, or do not hybridize."
            )
        sources = dict(zip(self._original.list_inputs(), block._cached_op_args, strict=True))
        inputs = [sources[name] for name in symbol.list_inputs()]
        flags = {
            **dict(block._flags),
            "static_alloc": False,
            "static_shape": False,
            "inline_limit": 0,
            "data_indices": [at for at, (is_data, _) in enumerate(inputs) if is_data],
            "param_indices": [at for at, (is_data, _) in enumerate(inputs) if not is_data],
        }
        self._used = HookedOp(symbol, flags), inputs

    def _around(
        self, block: Block, forward: Forward | Any, own: Callable[..., Any], args: tuple[Any, ...]
    ) -> Any:
        """Call a block inside with symbols, and add taps."""
        listeners = getattr(forward, "listeners", ())
        if not any(one.operation for one in listeners):
            return own(*args)
        kinds = frozenset[str]().union(*(one.session.kinds for one in listeners))
        call = TwinCall(block, forward)
        self._calls.append(call)
        if not kinds.isdisjoint({"input", "grad_input"}):
            args = self._tapped(call, "input", args)
        output = own(*args)
        for one in listeners:
            one.tell_several(output, Symbol, 0)
        return self._tapped(call, "output", output)

    def _tapped(self, call: TwinCall, end: str, value: Any) -> Any:
        symbols = leaves(value, Symbol)
        if not symbols or len(symbols[0].list_outputs()) > 1:
            return value
        if self._has_leaves and symbols[0].get_children() is None:
            return value  # see ``taps.with_gradient``
        tap = CallTap(call, end)
        self._taps.append(tap)
        return replaced(value, symbols[0], tapped(symbols[0], tap))

    def fits(self, block: HybridBlock, args: tuple[Any, ...]) -> bool:
        """Return whether this is a twin of the block's present graph, for such arguments."""
        known = bool(block._cached_graph) and block._cached_graph[1] is self._original
        return known and self._has_leaves == _has_leaves(args)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Let the block run the twin within the context."""
        block = self._block()
        if self._used is None or block is None:
            yield
            return
        own = block._cached_op, block._cached_op_args
        block._cached_op, block._cached_op_args = self._used
        try:
            yield
        finally:
            block._cached_op, block._cached_op_args = own


class TwinCall:
    """One call of a block inside a twin.

    The gradients that arrive belong to the last call unless it was called again before its backward pass.
    """

    def __init__(self, block: Block, forward: Forward) -> None:
        self._block, self._forward = weakref.ref(block), forward
        self._visits: list[tuple[Listener, Visit, Gradients]] = []
        self._open = 0  # recorded calls without a backward pass as yet
        self._mixed = False  # several were open at once
        self._known = True  # whether the gradients that arrive are those of the last call
        self.has_taps = False

    def begin(self) -> None:
        """Count a call."""
        block = self._block()
        visits = [(one, one.visit()) for one in list(self._forward.listeners)]
        self._visits = [
            (listener, visit, Gradients(listener.operation.address, listener.session.calls))
            for listener, visit in visits
            if visit is not None and listener.operation is not None
        ]
        for listener, visit, _ in self._visits:
            if block is not None:
                listener.offer_parameters(visit, block)
        self._open += autograd.is_recording()
        self._mixed |= self._open > 1

    @property
    def running(self) -> bool:
        """True if this thread is inside a pass that is observed; another may run the twin meanwhile."""
        return any(one.session.running for one in list(self._forward.listeners))

    def pass_by(self) -> None:
        """Count a call that is not observed, whose gradients cannot be told from those of one that is."""
        self._open += autograd.is_recording()
        self._mixed |= autograd.is_recording()

    def begin_backward(self) -> None:
        """Count a backward pass, which begins at the output."""
        self._known = not self._mixed
        self._open = max(0, self._open - 1)
        self._mixed &= self._open > 0

    def capture(self, kind: str, array: NDArray) -> None:
        """Pass an array to the sessions that want its kind."""
        for listener, visit, gradients in self._visits:
            if kind in listener.session.kinds:
                if not kind.startswith("grad_"):
                    listener.session.capture(visit, kind, array)
                elif self._known:
                    listener.session.capture_gradient(visit, gradients, kind, array)
                else:
                    listener.session.safely(_raise_mixed, kind, visit.address)


class CallTap:
    """The input or output of a call inside a twin.

    Args:
        call: The call.
        end: ``"input"`` or ``"output"``.
    """

    def __init__(self, call: TwinCall, end: str) -> None:
        self._call, self._end = call, end
        self._is_first, call.has_taps = not call.has_taps, True

    def on_value(self, array: NDArray) -> None:
        """Handle the value of a forward pass."""
        if not self._call.running:
            if self._is_first:
                self._call.pass_by()
            return
        if self._is_first:
            self._call.begin()
        self._call.capture(self._end, array)

    def on_gradient(self, array: NDArray) -> None:
        """Handle the gradient of a backward pass."""
        if self._end == "output":
            self._call.begin_backward()
        self._call.capture(f"grad_{self._end}", array)


def _raise_mixed(kind: str, address: str) -> None:
    raise CaptureError(
        f"{kind} of {address!r} is not recorded, because the hybridized block around it was called again "
        "before its backward pass. Call the model once for each backward pass, or do not hybridize it."
    )


def _has_leaves(args: tuple[Any, ...]) -> bool:
    """Return whether there are arrays with a gradient of their own."""
    return any(array.grad is not None for array in leaves(args, NDArray))


def run_with_symbols(
    block: HybridBlock, args: tuple[Any, ...], inputs: Sequence[Symbol], around: Callable[..., Any]
) -> Symbol:
    """Run the code of a block with symbols, as hybridizing does, and return the graph.

    Args:
        block: A block whose parameters are initialized.
        args: The arguments of a call.
        inputs: A symbol for each array among them.
        around: Called instead of every block inside with the block, what stood as its ``forward`` on the
            instance, its own ``forward``, and the arguments; returns the result.
    """
    flat, form = _flatten(args, "input")
    symbols = iter(inputs)
    given = _regroup([None if one is None else next(symbols) for one in flat], form)
    with _restored(block), ExitStack() as stack:
        for part in inside(block):
            stack.callback(_restore, vars(part), "forward", vars(part).get("forward"))
            vars(part)["forward"] = _around(part, vars(part).get("forward"), around)
        parameters = {name: parameter.var() for name, parameter in block._reg_params.items()}
        with block.name_scope():
            result = block.hybrid_forward(mx.symbol, *given, **parameters)
    outputs = [one for one in _flatten(result, "output")[0] if one is not None]
    return mx.symbol.Group(outputs, _check_same_symbol_type(outputs))


@contextmanager
def _restored(block: Block) -> Iterator[None]:
    """Restore what the code changes in Python, and forget the symbols that parameters get meanwhile."""
    new = [parameter for parameter in block.collect_params().values() if parameter._var is None]
    for parameter in new:
        parameter.var()  # outside of the attributes that ``around`` may set
    try:
        with python_kept(block, (Block,), left_out=frozenset({"forward"})):
            yield
    finally:
        for parameter in new:
            parameter._var = None


def _restore(attributes: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        attributes.pop(name, None)
    else:
        attributes[name] = value


def _around(part: Block, stood: Any, around: Callable[..., Any]) -> Callable[..., Any]:
    def forward(*args: Any) -> Any:
        own = getattr(stood, "own", stood) or partial(type(part).forward, part)
        return around(part, stood, own, args)

    return forward


def inside(block: Block) -> Iterator[Block]:
    """Yield the blocks inside a block, each once, in order of declaration."""
    seen = {id(block)}

    def walk(one: Block) -> Iterator[Block]:
        for child in one._children.values():
            if id(child) not in seen:
                seen.add(id(child))
                yield child
                yield from walk(child)

    return walk(block)
