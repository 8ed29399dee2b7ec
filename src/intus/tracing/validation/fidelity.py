"""Compare a traced pass with passes of the plain model: outputs, state and random state.

The plain model runs before and after the traced pass, each time from the same state, which is restored
afterwards. Where the passes differ, further plain passes decide whether the model itself is not
deterministic.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer
from torch.overrides import _get_current_function_mode_stack

from ...core.graph import OUTPUT, Graph
from ...core.nested import leaves, paths
from ...core.probes_disabled import probes_disabled
from ..capture.addresses import Addresses
from ..capture.containers import named_tensors
from ..capture.context.interrupts import interrupts_deferred
from ..capture.context.randomness import common_generators, same_random_state
from ..capture.context.reachable import stateful
from ..capture.context.state_restorer import StateRestorer
from ..capture.memory import is_freed
from ..capture.recorder import Recorder
from ..capture.run_generators import drained
from ..compiled import MOST, is_compiled, reached
from ..replaying.replay import same
from .perturb import one_line
from .report import DIFFERS, NOT_COMPARED, NOT_DETERMINISTIC, SAME, Fidelity
from .uninitialized import UNINITIALIZED

#: The types of values that are compared in what a model returns and in the attributes of its modules.
_PLAIN = (int, float, complex, bool, str, bytes)
_VALUES = (Tensor, np.ndarray, *_PLAIN)
_T = TypeVar("_T")


class Observation(NamedTuple):
    """The results and side effects of one pass, as copies by name.

    Attributes:
        outputs: The tensors, arrays, numbers and texts in what it returned.
        state: The parameters, buffers, attributes of modules, and inputs that it changed.
        random: The states of the random generators at its end.
    """

    outputs: dict[str, Any]
    state: dict[str, Any]
    random: dict[str, Any]


class FidelityCheck:
    """Compares a traced pass with plain passes.

    Args:
        model: The model.
        owner: The module that has the parameters and buffers; None for a plain function.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        seed: The seed of torch's generators for each pass; None for the current random state.
    """

    def __init__(
        self,
        model: Callable[..., Any],
        owner: Module | None,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        seed: int | None,
    ) -> None:
        self._model, self._owner, self._args, self._kwargs, self._seed = model, owner, args, kwargs, seed
        self._stateful = list(stateful(None if isinstance(model, Module) else model, args, dict(kwargs)))
        self._others = [one for one in self._stateful if isinstance(one, Module)]
        self._found = list(islice(reached(model), MOST))
        self._tensors = self._reached()
        self._why_not = self._why_not_comparable()
        self._copies: dict[int, Tensor | None] = {}  # of ``_tensors`` before all passes, by id
        self._initial: dict[str, Any] = {}
        self._first: Observation | None = None
        self._traced: Observation | None = None

    def before(self) -> None:
        """Run the plain model for the first time, before the traced pass.

        Raises:
            Exception: Whatever the model raised.
        """
        if not self._why_not:
            self._copies = {id(t): _copy(t) for t in self._tensors}
            self._initial = {name: self._copied(value) for name, value in self._state().items()}
            self._first = self._plain()

    def outputs(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], model: Callable[..., Any] | None = None
    ) -> list[Tensor] | None:
        """Return copies of the tensors that the plain model returns on other arguments.

        Args:
            args: Its positional arguments.
            kwargs: Its keyword arguments.
            model: What is called in its place.

        Returns:
            The tensors in the order of a trace's outputs; None if plain passes cannot be compared.

        Raises:
            Exception: Whatever the model raised.
        """
        if self._why_not:
            return None
        self._copies = self._copies or {id(t): _copy(t) for t in self._tensors}
        return self._run(
            lambda: drained((model or self._model)(*args, **kwargs)),
            lambda output: [t.detach().clone() for _, t in named_tensors(output)],
        )

    def observe(self, output: Any) -> None:
        """Copy what the traced pass computed and changed, before that is restored.

        Args:
            output: What the model returned.
        """
        try:
            if self._first is not None:
                self._traced = self._observation(output)
        except Exception as error:  # it must not look like an exception of the model
            self._why_not = f"the traced pass cannot be copied: {one_line(error)}"

    def result(self) -> Fidelity:
        """Run the plain model after the traced pass, and compare."""
        if self._first is None or self._traced is None:
            return Fidelity(NOT_COMPARED, (self._why_not,))
        try:
            return self._compare(self._first, self._traced)
        except Exception as error:  # values that cannot be compared: on meta, of a foreign class
            return Fidelity(NOT_COMPARED, (f"the passes cannot be compared: {one_line(error)}",))

    def _compare(self, first: Observation, traced: Observation) -> Fidelity:
        left = _differences(self._initial, self._state(), "{} is not restored after the trace")
        if left:
            with self._restored():
                pass  # every plain pass begins with the same state
        try:
            last = self._plain()
        except Exception as error:
            return Fidelity(DIFFERS, (*left, f"the untraced model raised after the trace: {one_line(error)}"))
        as_before, as_after = _compare(first, traced), _compare(traced, last)
        if not (left or as_before or as_after):
            return Fidelity(SAME, (), len(first.outputs), len(first.state))
        again = [] if left else _compare(last, self._plain())
        if again:
            return Fidelity(NOT_DETERMINISTIC, tuple(again))
        if as_before and not as_after and not left:
            return Fidelity(
                NOT_DETERMINISTIC, tuple(f"only in the first pass, {reason}" for reason in as_before)
            )
        if not as_before:
            as_after = [f"after the trace, {reason}" for reason in as_after]
        return Fidelity(DIFFERS, tuple(dict.fromkeys([*left, *(as_before or as_after)])))

    def _reached(self) -> list[Tensor]:
        """Return the tensors that a pass may write into, as far as they can be reached before it.

        These are what the model and the arguments refer to: also attributes, closures and globals.
        """
        modules = self._owner.modules() if self._owner is not None else ()
        given = [vars(module) for module in modules] + [self._args, dict(self._kwargs)]
        tensors = [one for one in self._found if isinstance(one, Tensor)]
        tensors += [t for value in given for t in leaves(value, Tensor)]
        for module in self._others:
            tensors += [*module.parameters(), *module.buffers()]
        for found in self._stateful:
            if isinstance(found, Optimizer):
                tensors += [t for state in found.state.values() for t in leaves(state, Tensor)]
        return list({id(t): t for t in tensors}.values())

    def _why_not_comparable(self) -> str:
        """Return why plain passes cannot be compared with a traced one; ``""`` if they can."""
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
            return "several processes take part, and a further pass of one would wait for the others"
        if any(map(is_lazy, self._tensors)):
            return "the first pass of a lazy module initializes it, which cannot be undone"
        if not all(map(_has_memory, self._tensors)):
            return (
                "the model or its inputs have tensors without values of their own (meta, fake, distributed)"
            )
        if any(isinstance(value, Iterator) for value in (*self._args, *self._kwargs.values())):
            return "an argument is an iterator, which only one pass can read"
        if any(isinstance(mode, Recorder) for mode in _get_current_function_mode_stack()):  # type: ignore[no-untyped-call]
            return "another trace is under way"
        if len(self._found) == MOST or any(map(is_compiled, self._found)):
            return "the model may reach code that torch.compile made, which runs uncompiled in a trace"
        return ""

    def _plain(self) -> Observation:
        """Run the plain model, and restore the state from before all passes."""
        return self._run(self._called, self._observation)

    def _run(self, call: Callable[[], Any], copied: Callable[[Any], _T]) -> _T:
        """Return copies of what a call returns, and restore the state from before all passes."""
        with (
            interrupts_deferred() as interrupts,
            same_random_state(self._seed),
            self._restored(),
            probes_disabled(),
        ):
            return copied(interrupts.run(call))

    def _called(self) -> Any:
        return drained(self._model(*self._args, **self._kwargs))

    @contextmanager
    def _restored(self) -> Iterator[None]:
        """Restore what a pass may change after the ``with`` block.

        Tensors get their values from before all passes, gradients and attributes their present ones.
        """
        restorer = StateRestorer()
        restorer.watch(())
        addresses = Addresses(restorer)
        if self._owner is not None:
            addresses.add_model(self._owner)
        restorer.add_reachable(*self._stateful)
        restorer.add_arguments((self._args, dict(self._kwargs)))
        for t in self._tensors:
            restorer.add(t)
        restorer.before_backward()
        for t in self._tensors:
            restorer.before_writing(t, self._copies[id(t)])
        try:
            yield
        finally:
            restorer.restore()

    def _copied(self, value: Any) -> Any:
        """Return the copy of a tensor from before all passes; a new one of any other value."""
        return self._copies[id(value)] if id(value) in self._copies else _copy(value)

    def _observation(self, output: Any) -> Observation:
        outputs = {
            f"output {path!r}" if path else "the output": _copy(value) for path, value in _values(output)
        }
        state = {
            name: _copy(value)
            for name, value in self._state().items()
            if name not in self._initial or not _equal(self._initial[name], value)
        }
        return Observation(outputs, state, _random_states())

    def _state(self) -> dict[str, Any]:
        """Return the current parameters, buffers, attributes of modules, and inputs, by name."""
        found: dict[str, Any] = {}
        named = list(self._owner.named_modules()) if self._owner is not None else []
        for other in self._others:
            named += other.named_modules(prefix=type(other).__name__)
        for address, module in named:
            prefix = f"{address}." if address else ""
            attributes = {name: one for name, one in vars(module).items() if isinstance(one, _VALUES)}
            for name, value in (*attributes.items(), *module._parameters.items(), *module._buffers.items()):
                if value is not None:
                    found[repr(prefix + name)] = value
        given = _values((self._args, dict(self._kwargs)))
        found.update((f"input {path}", value) for path, value in given)
        return found


def unless_uninitialized(fidelity: Fidelity, graph: Graph) -> Fidelity:
    """Return the result, or that nothing was compared if an output is uninitialized memory."""
    parents = [parent for output in graph.rows_of(OUTPUT) for parent in graph.parents(output)]
    if any(graph.types[int(graph.ops.type[parent])] in UNINITIALIZED for parent in parents):
        return Fidelity(NOT_COMPARED, ("an output is uninitialized memory",))
    return fidelity


def _has_memory(t: Tensor) -> bool:
    return not t.is_meta and type(t).__torch_dispatch__ is Tensor.__torch_dispatch__ and not is_freed(t)


def _values(value: Any) -> Iterator[tuple[str, Any]]:
    return paths(value, cast(type[Any], _VALUES))


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return None if is_freed(value) else value.detach().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _random_states() -> dict[str, Any]:
    states: dict[str, Any] = {"Python": str(random.getstate())}
    if "numpy.random" in sys.modules:
        states["numpy"] = str(np.random.get_state(legacy=False))
    for generator in common_generators():
        states[f"torch ({generator.device})"] = generator.get_state()
    return states


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if _has_memory(a) and _has_memory(b):
            return same(a.detach(), b.detach())
        return (a.shape, a.dtype) == (b.shape, b.dtype)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        may_be_nan = a.dtype.kind in "fc"
        return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=may_be_nan))
    return type(a) is type(b) and bool(a == b or (a != a and b != b))


def _compare(a: Observation, b: Observation) -> list[str]:
    """Return how two passes differ, as sentences; empty if they do not."""
    return [
        *_differences(a.outputs, b.outputs, "{} differs"),
        *_differences(a.state, b.state, "{} is left with another value"),
        *_differences(a.random, b.random, "other random numbers are drawn from the generator of {}"),
    ]


def _differences(a: Mapping[str, Any], b: Mapping[str, Any], sentence: str) -> list[str]:
    """Return the names whose values differ, each as a sentence.

    Args:
        a: Values by name.
        b: The others.
        sentence: The sentence, with a place for the name.
    """
    return [
        sentence.format(name) + _extent(a[name], b[name])
        if name in a and name in b
        else f"{name} is missing in one pass"
        for name in dict.fromkeys([*a, *b])
        if name not in a or name not in b or not _equal(a[name], b[name])
    ]


def _extent(a: Any, b: Any) -> str:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return f" ({str(a)[:40]}, then {str(b)[:40]})" if isinstance(a, _PLAIN[:4]) else ""
    if a.shape != b.shape or a.dtype != b.dtype or a.is_complex() or a.dtype == torch.uint8 or not a.numel():
        return ""
    largest = (a.detach().to_dense().double() - b.detach().to_dense().double()).abs().max().item()
    return f" by up to {largest:.3g}"
