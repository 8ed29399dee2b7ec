"""Run a plan over the models, one after the other, and keep what is finished."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...backends.base import for_model
from ...core.errors import IntusError
from ...engines import Engine
from ...scores import ScoreColumns
from ...tracing.progress_bar import bar
from ..models import Checkpoint
from ..plan import Block, Plan
from ..reading import Behavior
from ..results.against import (
    Against,
    Predictions,
    Units,
    confusions,
    gaps,
    predictions,
    stored_predictions,
    unit_gaps,
    units,
)
from ..results.pairs import pairs_of_layers
from ..results.part import Part
from ..results.store import Store
from .cache import Cache, KeptOutputs
from .concepts import concept_rows
from .content_hash import ContentHash, NotHashableError
from .engine import open_engine, run_in_workers
from .model_pass import ModelPass

_LEAST = 4  # blocks before results are first checked for precision
_GROWTH = 1.3  # factor of records between two checks, which cost time


@dataclass(frozen=True, slots=True)
class Options:
    """The options of running models, and of where results go.

    Attributes:
        cache: The folder with what was computed earlier.
        store: The database, a path or URL; None for none. Rows that an earlier call stored under the same run
            for the same question are read from there.
        run: The name of the run.
        engine: What runs the models; see ``engine.open_engine``.
        against: What layers or checkpoints are compared with; None for no comparison.
        progress: Whether to show a bar; None if someone watches.
    """

    cache: Cache
    store: str | Path | None
    run: str
    engine: int | str | None
    against: Against | None
    progress: bool | None


def rows_of(checkpoints: Sequence[Checkpoint], plan: Plan, options: Options) -> list[Part]:
    """Return the rows of each model.

    Ctrl-C ends the work with a warning, and the models that were finished remain. A model that fails has one
    row that says why.

    Args:
        checkpoints: The models.
        plan: What is asked of them.
        options: How they are run.

    Raises:
        KeyboardInterrupt: If no model was finished.
        Exception: What a hypothesis raised, or the first error if no model succeeds.
    """
    parts: dict[int, Part] = {}
    errors: list[Exception] = []
    stored = Store(options.store, options.run, plan.scores, plan.splits)
    with stored as store, open_engine(options.engine) as engine:
        runner = _Runner(plan, options, store, engine)
        for number in _order(len(checkpoints), options.against):
            checkpoint = checkpoints[number]
            try:
                parts[number] = runner.rows(checkpoint, number)
            except KeyboardInterrupt:
                if not parts:
                    raise
                left = [str(one) for n, one in enumerate(checkpoints) if n not in parts]
                warnings.warn(f"inspect was interrupted. The table lacks {', '.join(left)}.", stacklevel=4)
                break
            except Exception as error:
                # A wrong argument fails for every model, so the first refusal ends the call.
                refused = isinstance(error, IntusError) and not parts
                if error is runner.blocks.error or refused or len(checkpoints) == 1:
                    raise
                errors.append(error)
                why = f"failed: {type(error).__name__}: {error}"
                parts[number] = Part.failed(checkpoint.name, checkpoint.epoch, why)
    if len(errors) == len(checkpoints):
        raise errors[0]
    return [parts[number] for number in sorted(parts)]


def _order(count: int, against: Against | None) -> list[int]:
    """Return the numbers of the models in the order in which they run: the reference first."""
    first = against.checkpoint if against is not None else None
    return sorted(range(count), key=lambda number: (number != first, number))


class _Runner:
    """Runs models one after the other.

    Attributes:
        blocks: The blocks of the plan.
    """

    def __init__(self, plan: Plan, options: Options, store: Store, engine: Engine | None) -> None:
        self.plan, self.options, self.store, self.engine = plan, options, store, engine
        self.blocks = _Blocks(plan, options)
        self._reference: Predictions = {}
        self._units: dict[Any, Units] = {}

    def rows(self, checkpoint: Checkpoint, number: int) -> Part:
        """Return the rows of one model, from the store if they are there."""
        name, model = checkpoint.open()
        state = self.blocks.state(model)
        against = self.options.against
        is_reference = against is not None and against.checkpoint == number
        earlier = None if is_reference else self._earlier(name, checkpoint.epoch, state)
        if earlier is not None:
            return replace(earlier, new=checkpoint.new, weights=_weights(model))
        model_pass = ModelPass(model, name, self.plan)
        if self.plan.scores:
            self._run(model_pass, name)
        part = Part(name, checkpoint.epoch, *model_pass.columns(), confusions(model_pass), checkpoint.new)
        part = part.extended(*pairs_of_layers(model_pass, self.plan))
        if self.plan.scores and model_pass.done < len(self.plan.records):
            part = part.noted(self._stopped(model_pass.done))
        part = replace(part, weights=_weights(model))
        if self.plan.tcav is not None:
            part = part.extended(*self._concepts(model_pass, name, self.plan.tcav))
        if against is not None:
            part = self._compared(part, model_pass, against, is_reference)
            self.blocks.reference = state if is_reference else self.blocks.reference
        facts = self.options.run, name, checkpoint.epoch
        predicted = stored_predictions(model_pass, *facts) if self.store.is_open else []
        fingerprint = self.blocks.fingerprint(state)
        self.store.add(part, model_pass.graph, fingerprint, predicted)
        if fingerprint is not None:
            self.options.cache.keep_part(fingerprint, part)
        return part

    def _compared(self, part: Part, model_pass: ModelPass, against: Against, is_reference: bool) -> Part:
        """Return a part with its differences to what it is compared with."""
        own = predictions(model_pass)
        if is_reference:
            self._units = units(model_pass)
        if is_reference or against.checkpoint is None:
            self._reference = own
        part = part.extended(*gaps(own, self._reference, against))
        if against.checkpoint is None or is_reference:
            return part
        return part.extended(*unit_gaps(units(model_pass), self._units, against))

    def _earlier(self, name: str, epoch: float, state: str | None) -> Part | None:
        """Return the rows that were computed for the same question, from the store or the cache."""
        stored = self.store.finished(name, epoch)
        if stored is None and self.options.cache.folder is None:
            return None
        fingerprint = self.blocks.fingerprint(state)
        if fingerprint is None:
            return None
        if stored is not None and stored[0] == fingerprint:
            return stored[1]
        part = self.options.cache.part(fingerprint, name, epoch)
        if part is not None:
            self.store.add(part, None, fingerprint)
        return part

    def _stopped(self, done: int) -> str:
        plan = self.plan
        reasons = {"eps": plan.eps, "top": plan.top}
        why = [f"{name}={value:g}" for name, value in reasons.items() if value is not None]
        return f"stopped at {', '.join(why)} after {done:,} of {len(plan.records):,} records"

    def _concepts(
        self, model_pass: ModelPass, name: str, behavior: Behavior
    ) -> tuple[np.ndarray, ScoreColumns, np.ndarray]:
        """Return the rows of TCAV, for which all records are read."""
        with bar(f"{name}, tcav", len(self.plan.records), "record", self.options.progress) as show:
            return concept_rows(model_pass, self.blocks, self.plan, behavior, self.engine, show)

    def _run(self, model_pass: ModelPass, name: str) -> None:
        """Read the records, all of them or until the results are precise enough."""
        plan = self.plan
        addresses = [feed.group.address for feed in model_pass.feeds]
        model_pass.kept = KeptOutputs.of(self.options.cache, model_pass.model, addresses, plan.behavior)
        if self.engine is None:
            steps = model_pass.run(self.blocks)
        else:
            steps = run_in_workers(model_pass, self.blocks, self.engine, len(plan.order()))
        checked: float = _LEAST * plan.batch
        with bar(name, len(plan.records), "record", self.options.progress) as show:
            for done in steps:
                show(done)
                if plan.may_stop and checked <= done < len(plan.records):
                    if model_pass.precise(plan.eps, plan.top):
                        break
                    checked = done * _GROWTH


class _Blocks:
    """The blocks of a plan, which are hashed the first time that they are all read.

    Args:
        plan: The plan.
        options: How the models are run. The blocks are hashed if there is a store or cache.

    Attributes:
        error: What a hypothesis or ``inputs`` raised while a block was made.
        reference: The hash of the model that others are compared with; "" if there is none.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan = plan
        self.error: Exception | None = None
        # To hash all records would take longer than to read some of them again.
        hashed = options.cache.folder is not None or (options.store is not None and not plan.may_stop)
        total = plan.content_hash() if hashed else None
        self._start = total and total.add(str(options.against))
        self._digest: str | None = None
        self.reference: str | None = ""

    def __iter__(self) -> Iterator[Block]:
        total = copy(self._start) if self._digest is None else None
        for block in self._made():
            if total is not None:
                total = block.add_to(total)
                self._start = self._start if total else None
            yield block
        if total is not None:
            self._digest = total.digest()

    def _made(self) -> Iterator[Block]:
        try:
            yield from self.plan.blocks()
        except Exception as error:
            self.error = error
            raise

    def state(self, model: Any) -> str | None:
        """Return the hash of a model; None if it is not needed or cannot be known."""
        if self._start is None:
            return None
        content = for_model(model).state(model)
        try:
            return None if content is None else ContentHash().add(content).digest()
        except NotHashableError:
            return None

    def fingerprint(self, state: str | None) -> str | None:
        """Return the hash of a model and of all that is asked of it; None if it cannot be known.

        Args:
            state: The hash of the model.
        """
        if self._start is None or state is None or self.reference is None:
            return None
        if self._digest is None:
            for _ in self:
                pass
        return (
            None if self._digest is None else ContentHash().add(self._digest, state, self.reference).digest()
        )


def _weights(model: Any) -> tuple[Any, int] | None:
    """Return a weak reference to a model and the version of its weights."""
    try:
        return weakref.ref(model), for_model(model).version(model)
    except TypeError:  # the model takes no weak references
        return None
