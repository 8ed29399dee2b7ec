"""Tell where the batches of a PyTorch model come from."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...core.nested import leaves
from ..feeds import Items, Judged, Moment, Origin, Undecided
from .backward import BackwardPasses
from .eval_forward import buffer_writes, fingerprint, gradients, values_by_sample, version_by_sample
from .kept_values import attach
from .loaders import LOADERS, Arrivals, is_trained
from .order import row_contents
from .updates import StepCounter

_FEW = 16  # values
_REST = 100.0  # times as long as a look for an optimizer took no other follows


class TorchFeed:
    """The DataLoaders and the training state of one model; implements ``backends.feeds.Feed``.

    Args:
        model: The model, of which no reference is kept.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = weakref.ref(model)
        self.judged: Judged | None = None
        self.on_end: Callable[[int], None] | None = None
        self.on_step: Callable[[bool], None] | None = None
        self.on_stepped: Callable[[], None] | None = None
        self._steps = StepCounter(model, self._before_step, self._after_closure)
        self._written = buffer_writes(model)
        self._remembered = 0, 0, 0
        self._has_optimizer = False  # whether one was found
        self._requests, self._look_again = 0, 0.0  # for one, and when to look for it again
        self._came_before = LOADERS.came
        self._on_load: Callable[[], None] | None = None
        self._undo = [LOADERS.attach(self._ended), self._steps.remove]
        self._detach = weakref.finalize(self, _all, self._undo)

    def origin(self, inputs: Any, trained: Collection[int], *, guesses: bool, since: int) -> Origin | None:
        """Return where the batch in a call's arguments comes from."""
        return LOADERS.origin(self._arrivals, inputs, trained, guesses=guesses, since=since)

    def source(self, inputs: Any, since: int | None) -> tuple[list[Origin], bool]:
        """Return where the batch may come from, and whether it was recognized."""
        return LOADERS.source(self._arrivals, inputs, since)

    def outers(self, origin: Origin, before: Origin | None = None, *, since: int) -> list[Origin]:
        """Return the iterations within which that of a call may be under way, the first to begin first."""
        return LOADERS.outers(self._arrivals, origin, before, since)

    def items(self, inputs: Any) -> Items | None:
        """Return the ids of the rows in a call's arguments."""
        if self.judged is not None and self.judged.at.items:
            return self.judged.at.items[0]
        return LOADERS.items(self._arrivals, inputs, self._came_before)

    def is_gone(self, dataset: int) -> bool:
        """Return whether a dataset, or the part of one that an iteration draws from, no longer exists."""
        return LOADERS.is_gone(dataset)

    def is_open(self, iteration: int) -> bool:
        """Return whether an iteration may still give batches."""
        return LOADERS.is_open(iteration)

    def is_over(self, iteration: int) -> bool:
        """Return whether an iteration has given all batches of its loader."""
        return LOADERS.is_over(iteration)

    def batches(self, iteration: int) -> int | None:
        """Return how many batches an iteration gave that went on to the end; None of others."""
        return LOADERS.complete.get(iteration)

    def given(self, iteration: int) -> int:
        """Return how many batches an iteration has given so far."""
        return LOADERS.given.get(iteration, 0)

    def rounds(self, iteration: int) -> float | None:
        """Return how many times the rows of its dataset an iteration has given; None if that is not known."""
        return LOADERS.rounds(iteration)

    def is_training(self) -> bool:
        """Return whether the model is in training mode, with gradients enabled."""
        if self.judged is not None:
            return self.judged.trains
        model = self._model()
        return model is not None and model.training and torch.is_grad_enabled()

    def undecided(self) -> Undecided | None:
        """Return what tells whether the call that begins trains the model; None if its mode does."""
        model = self._model()
        if model is None or model.training or not torch.is_grad_enabled():
            return None
        return Undecided(BackwardPasses(), Moment(self._steps.done, LOADERS.arrivals, []))

    def expects_step(self) -> bool | None:
        """Return whether an optimizer may step the model; None if none was found before, and one may be new.

        To look for one takes milliseconds, so it is done at the requests 1, 2, 4, 8, … and now and then.
        """
        if self._has_optimizer or self._steps.done:
            return True
        self._requests += 1
        began = time.perf_counter()
        if began < self._look_again and self._requests & (self._requests - 1):
            return None
        self._has_optimizer = self.has_optimizer()
        self._look_again = began + _REST * (time.perf_counter() - began)
        return self._has_optimizer

    def has_optimizer(self) -> bool:
        """Return whether an optimizer has the model's parameters."""
        model = self._model()
        return model is not None and is_trained(model)

    def steps(self) -> int:
        """Return the number of steps of optimizers so far that have parameters of the model."""
        return self._steps.count() if self.judged is None else self.judged.at.stepped

    def stepped(self) -> int:
        """Return what ``steps`` does, at no cost: layers that were replaced since then do not count."""
        return self._steps.done if self.judged is None else self.judged.at.stepped

    def stepped_by(self) -> int:
        """Return a number of the optimizer that made the last step; 0 if that is not known."""
        return self._steps.by()

    def came(self) -> int:
        """Return the number of batches that came so far of any loader."""
        return self._arrivals.came

    def sources(self, since: int) -> set[int]:
        """Return the iterations that gave a batch after the first ``since`` batches, as far as kept."""
        return {one.iteration.number for one in self._arrivals.recent if one.number > since}

    def are_buffers_written(self) -> bool:
        """Return whether buffers, such as the statistics of batch normalization, were written to."""
        model = self._model()
        return model is not None and buffer_writes(model) != self._written

    def version(self) -> int:
        """Return a number that changes if the parameters change, as far as steps and some values tell."""
        model = self._model()
        found = version_by_sample(model) if model is not None else 0
        return hash((self._steps.count(), found)) if found else 0

    def gradients(self) -> int:
        """Return a number that changes with each backward pass, while gradients are kept; 0 if none are."""
        model = self._model()
        return 0 if model is None else gradients(model)

    def remember(self) -> None:
        """Remember the values of the parameters, for ``is_restored``. It reads them all."""
        if (model := self._model()) is not None:
            self._remembered = values_by_sample(model, 1), values_by_sample(model), fingerprint(model)

    def is_restored(self) -> bool:
        """Return whether the parameters are known to have the remembered values.

        In a training they mostly have not, and then those of the last parameter, such as a bias, tell it.
        """
        model, (last, few, every) = self._model(), self._remembered
        return (
            model is not None
            and bool(every)
            and last == values_by_sample(model, 1)
            and few == values_by_sample(model)
            and every == fingerprint(model)
        )

    def first_values(self, inputs: Any) -> tuple[Any, ...] | None:
        """Return a few values of the first tensor; None on another device, which reading would wait for."""
        tensor = next((one for one in leaves(inputs, Tensor) if one.ndim), None)
        if tensor is None or tensor.device.type != "cpu" or not tensor.numel():
            return None
        row = tensor.detach()[(0,) * (tensor.ndim - 1)][:_FEW]
        return tuple(tensor.shape), tensor.dtype, tuple(row.tolist())

    def row_contents(self, inputs: Any, *, by_all: bool) -> tuple[np.ndarray, bool] | None:
        """Return a hash of each row, and whether it is of all values; None on another device."""
        tensors = [one.detach() for one in leaves(inputs, Tensor) if one.ndim]
        if not all(one.is_cpu and one.layout == torch.strided for one in tensors):
            return None
        rows = [one.flatten(1) if one.ndim > 1 else one[:, None] for one in tensors]
        steps = [1 if by_all else max(one.shape[1] // _FEW, 1) for one in rows]
        found = row_contents([one[:, ::step] for one, step in zip(rows, steps, strict=True)], 0)
        return None if found is None else (found, max(steps) == 1)

    def before_load(self, call: Callable[[], None]) -> None:
        """Call a function before ``load_state_dict`` writes to the model, or to a part that it has now."""
        self._on_load = call
        if (model := self._model()) is not None:
            self._undo.append(attach(model, self._before_load))

    @property
    def _arrivals(self) -> Arrivals:
        """The batches that had come at the call that is looked at."""
        return LOADERS.arrivals if self.judged is None else self.judged.at.arrivals

    def remove(self) -> None:
        """Stop observing. Calling it again has no effect."""
        self._detach()

    def _before_step(self, has_closure: bool) -> None:
        if self.on_step is not None:
            self.on_step(has_closure)

    def _after_closure(self) -> None:
        if self.on_stepped is not None:
            self.on_stepped()

    def _before_load(self) -> None:
        if self._on_load is not None:
            self._on_load()

    def _ended(self, iteration: int) -> None:
        if self.on_end is not None:
            self.on_end(iteration)


def _all(functions: Iterable[Callable[[], None]]) -> None:
    for function in functions:
        function()
