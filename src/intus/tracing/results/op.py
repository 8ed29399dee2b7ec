"""One tensor of a trace: which operation made it, from what, where and when."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from torch import Tensor

from ...core.errors import AddressError, InputError
from ...viewing.repr_text import html, text
from ..capture.invocation import Invocation, arguments, filled
from ..replaying.replay import LEFT_OUT
from .op_facts import OpFacts


class Op(OpFacts):
    """One tensor of the pass: which operation made it, from what, where and when.

    ``value`` is the saved activation; asking for one that was not saved raises AddressError.
    """

    __slots__ = ()

    @property
    def value(self) -> Tensor:
        """The activation as it was when the operation returned it, detached; in the form that ``to`` and
        ``transform`` of ``trace`` gave it, while ``shape`` and ``dtype`` stay those of the operation."""
        try:
            return self._trace.values[self.row]
        except KeyError:
            why = self._trace.left_out.get(self.row)
            if why:
                raise AddressError(f"{self.label!r} was not stored: it {why}.") from None
            raise AddressError(
                f"{self.label!r} was not saved. Trace again with save='all', or save={self.label!r}."
            ) from None

    @property
    def grad(self) -> Tensor | None:
        """The gradient of this very tensor, once ``backward`` was called on a loss of ``trace.output``: the
        sum of all backward passes, as in torch's ``grad``. None before, and where no gradient passed: what
        requires none, what the loss does not depend on, a view that was overwritten, what runs without
        gradients inside a checkpoint. Raises InputError where the trace was taken without ``grads``.
        """
        if self._trace.gradients is None:
            raise InputError(f"{self.label!r} has no gradient: trace with grads=True, then call backward.")
        return self._trace.gradients.by_row.get(self.row)

    @property
    def grad_fn(self) -> str | None:
        """The name of the autograd node that made it, as ``"AddmmBackward0"``; None where no gradient flows
        through it, or where the trace was taken without ``grads``."""
        noted = self._graph.facts.get("autograd", {}).get(str(self.row))
        return noted[0] if noted else None

    @property
    def saved_bytes(self) -> int | None:
        """How many bytes autograd keeps until the backward pass because of this operation: memory counts
        once, where it is first kept, and parameters and buffers not at all. None where the trace was taken
        without ``grads``."""
        if "autograd" not in self._graph.facts:
            return None
        noted = self._graph.facts["autograd"].get(str(self.row))
        return noted[1] if noted else 0

    @property
    def saved(self) -> bool:
        """Whether ``value`` is there."""
        return self.row in self._trace.values

    @property
    def func(self) -> Callable[..., Any] | None:
        """The function that was called; None where it was not kept: nothing was saved, or it is no call."""
        return None if self._call is None else self._call.func

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments it was called with, each tensor as the label or address it came from."""
        if self._call is None:
            return ()
        return self._named(self._call)[0]

    @property
    def kwargs(self) -> dict[str, Any]:
        """The keyword arguments it was called with, each tensor as the label or address it came from."""
        if self._call is None:
            return {}
        return self._named(self._call)[1]

    @property
    def func_name(self) -> str:
        """The name of the function that was called; its type where the function was not kept."""
        name = str(getattr(self.func, "__name__", self.type))
        return self.type if name in ("__get__", "__set__") else name

    @property
    def plain_args(self) -> tuple[Any, ...]:
        """The positional arguments that hold no tensor."""
        return () if self._call is None else tuple(v for v in self._call.args if _is_plain(v))

    @property
    def plain_kwargs(self) -> dict[str, Any]:
        """The keyword arguments that hold no tensor."""
        return {} if self._call is None else {k: v for k, v in self._call.kwargs.items() if _is_plain(v)}

    @property
    def rng_state(self) -> Tensor | None:
        """The state of the random generator that it drew from, as it was before; None if it drew nothing, or
        where calls were not kept (``save="none"``, a copy, a file).

        >>> import torch
        >>> from intus import trace
        >>> drop = trace(torch.nn.Dropout(), torch.ones(8)).ops[0]
        >>> with torch.random.fork_rng():
        ...     torch.set_rng_state(drop.rng_state)
        ...     again = torch.nn.functional.dropout(torch.ones(8))
        >>> torch.equal(again, drop.value)
        True
        """
        states = self._call.states if self._call is not None else ()
        return states[0][1].clone() if states else None

    @property
    def _call(self) -> Invocation | None:
        replays = self._trace._replays
        return None if replays is None else replays.call(int(self._graph.ops.event[self.row]))

    def _named(self, call: Invocation) -> tuple[tuple[Any, ...], dict[str, Any]]:
        def name(source: int) -> str:
            if source >= 0:
                return self._graph.label(source)
            return "left out" if source == LEFT_OUT else self._graph.params[-1 - source].address

        return arguments(call.args, call.kwargs, [name(hole.source) for hole in call.holes])

    @property
    def unverified(self) -> bool:
        """Whether something unseen wrote to the saved value's memory, so that it may not be what was."""
        return self.row in self._trace.unverified

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and other._trace is self._trace and other.row == self.row

    def __hash__(self) -> int:
        return hash((id(self._trace), self.row))

    def __str__(self) -> str:
        from .text import op_card

        return text(op_card(self))

    def _repr_html_(self) -> str:
        from .text import op_card

        return html(op_card(self))

    def __repr__(self) -> str:
        shape = "failed" if self.failed else "×".join(map(str, self.shape)) or "scalar"
        where = f" in {self.module}" if self.module else ""
        return f"<Op {self.label}: {shape} {self.dtype}{where}{'' if self.saved else ', not saved'}>"


def _is_plain(value: Any) -> bool:
    numbers = count()
    filled(value, numbers)
    return next(numbers) == 0
