"""Keep the state of a model of TensorFlow or Keras: its variables, generators and Python attributes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from ...core.restoring import PythonState, global_restorers

#: What intus, or Keras where a model is observed, puts on a layer: not what a call leaves.
_LEFT_OUT = frozenset({"call", "train_function", "test_function", "predict_function"})
_OF_KERAS = "global_seed_generator"
#: The seed of eager TensorFlow in passes, and what its operations take theirs from, as ``tf.random.set_seed``
#: sets them. The numbers of the latter go on, so that a pass has no operation of an earlier one.
_SEED = 0x1A705
_RANDOM = random.Random(_SEED)
#: Generators that a pass made. A function that was traced in it fails once its variables are gone.
_MADE: list[Any] = []


@contextmanager
def state_kept(model: Any, *, is_built: bool = True) -> Iterator[None]:
    """Restore at the end what calls of a model changed.

    A pass that builds the model, which adds variables to it, is its first call: nothing but the variables
    that there were is restored after it, so that a training goes on as if it had built the model.

    Args:
        model: The model.
        is_built: False if it is known that calls build the model.
    """
    state = _python_state(model)
    before = values_of([*model.variables, *state.leaves, *_global_variables()])
    restorers = [*global_restorers(), *_restorers_of_keras()]
    try:
        with eager_seeds_kept() if is_built else nullcontext():
            yield
    finally:
        assign(before)
        if is_built and len(_python_state(model).leaves) <= len(state.leaves):
            for restore in restorers:
                restore()
            state.restore()


@contextmanager
def eager_seeds_kept() -> Iterator[None]:
    """Let eager ``tf.random`` take seeds that no other call takes.

    TensorFlow keeps an operation with its seeds and how far it has drawn, which it does not tell. So the
    operations of the training must not be those of a pass.
    """
    eager = sys.modules.get("tensorflow.python.eager.context")
    attributes = {} if eager is None else vars(eager.context())
    before = dict(attributes)
    attributes.update(_seed=_SEED, _rng=_RANDOM)
    try:
        yield
    finally:
        for name in ("_seed", "_rng"):  # the latter is not there before a seed is set
            attributes.pop(name, None)
            if name in before:
                attributes[name] = before[name]


@contextmanager
def code_kept(model: Any) -> Iterator[None]:
    """Restore at the end what a tracing of a model, which runs its Python code alone, changed."""
    state, restorers = _python_state(model), [*global_restorers(), *_restorers_of_keras()]
    try:
        yield
    finally:
        for restore in restorers:
            restore()
        state.restore()


def values_of(variables: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return variables, each once, with copies of their values; without those that have none."""
    found = []
    for variable in {id(one): one for one in variables}.values():
        try:
            found.append((variable, variable.numpy()))
        except Exception:  # each kind of variable raises its own error
            continue
    return found


def assign(before: Iterable[tuple[Any, Any]]) -> None:
    """Give variables the values that ``values_of`` returned, where they have others."""
    for variable, value in before:
        if variable.numpy().tobytes() != value.tobytes():
            variable.assign(value)


def _python_state(model: Any) -> PythonState:
    parts: list[type] = []
    leaf: list[type] = []
    keras: Any = sys.modules.get("keras")  # either may not be there
    tf: Any = sys.modules.get("tensorflow")
    if hasattr(keras, "Variable"):
        parts += [keras.Layer, keras.metrics.Metric, keras.random.SeedGenerator]
        leaf.append(keras.Variable)
    if hasattr(tf, "Variable"):
        parts += [tf.Module, tf.random.Generator]
        leaf.append(tf.Variable)
    return PythonState(model, tuple(parts), tuple(leaf), _LEFT_OUT)


def _global_variables() -> list[Any]:
    """Return the states of the global generators of TensorFlow and Keras, as far as these exist."""
    operations = sys.modules.get("tensorflow.python.ops.stateful_random_ops")
    found = [getattr(operations, "global_generator", None), _generator_of_keras()]
    return [generator.state for generator in found if generator is not None]


def _generator_of_keras() -> Any:
    attributes = sys.modules.get("keras.src.backend.common.global_state")
    return None if attributes is None else attributes.get_global_attribute(_OF_KERAS)


def _restorers_of_keras() -> list[Callable[[], Any]]:
    """Return a function that restores that Keras has no generator yet, if it has none."""
    return [] if _generator_of_keras() is not None else [_forget_generator_of_keras]


def _forget_generator_of_keras() -> None:
    """Let the training make Keras's global generator, from the seed that it would have without the pass."""
    if (generator := _generator_of_keras()) is not None:
        _MADE.append(generator)
        sys.modules["keras.src.backend.common.global_state"].set_global_attribute(_OF_KERAS, None)
