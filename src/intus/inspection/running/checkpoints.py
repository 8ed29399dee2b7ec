"""Run a plan over the models, one after the other, and keep what is finished."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...backends.base import for_model
from ...core.errors import IntusError
from ...engines import Engine
from ...tracing.progress_bar import bar
from ..models import Checkpoint
from ..plan import Block, Plan
from ..results.against import Against, Predictions, confusions, gaps, predictions
from ..results.store import Store
from ..results.table import Part
from .content_hash import ContentHash, NotHashableError
from .engine import open_engine, spread
from .model_pass import ModelPass


@dataclass(frozen=True, slots=True)
class Options:
    """How models are run, and where results go.

    Attributes:
        store: The database, a path or URL; None for none. Rows that an earlier call stored under the same run
            for the same question are read from there.
        run: The name of the run.
        engine: What runs the models; see ``engine.open_engine``.
        against: What layers or checkpoints are compared with; None for no comparison.
        progress: Whether to show a bar; None if someone watches.
    """

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
    with Store(options.store, options.run, plan.scores) as store, open_engine(options.engine) as engine:
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

    def rows(self, checkpoint: Checkpoint, number: int) -> Part:
        """Return the rows of one model, from the store if they are there."""
        name, model = checkpoint.open()
        against = self.options.against
        is_reference = against is not None and against.checkpoint == number
        earlier = None if is_reference else self.store.finished(name, checkpoint.epoch)
        if earlier is not None and earlier[0] == self.blocks.fingerprint(model):
            return replace(earlier[1], new=checkpoint.new)
        model_pass = self._run(model, name)
        part = Part(name, checkpoint.epoch, *model_pass.columns(), confusions(model_pass), checkpoint.new)
        if against is not None:
            own = predictions(model_pass)
            if is_reference or against.checkpoint is None:
                self._reference = own
            part = part.extended(*gaps(own, self._reference, against, self.plan.scores))
        self.store.add(part, model_pass.graph, self.blocks.fingerprint(model))
        return part

    def _run(self, model: Any, name: str) -> ModelPass:
        model_pass = ModelPass(model, name, self.plan)
        if self.engine is None:
            steps = model_pass.run(self.blocks)
        else:
            steps = spread(model_pass, self.blocks, self.engine, len(self.plan.order()))
        with bar(name, len(self.plan.records), "record", self.options.progress) as show:
            for done in steps:
                show(done)
        return model_pass


class _Blocks:
    """The blocks of a plan, which are hashed the first time that they are all read.

    Args:
        plan: The plan.
        options: How the models are run. The blocks are hashed if there is a store.

    Attributes:
        error: What a hypothesis or ``inputs`` raised while a block was made.
    """

    def __init__(self, plan: Plan, options: Options) -> None:
        self.plan = plan
        self.error: Exception | None = None
        total = plan.content_hash() if options.store is not None else None
        self._start = total and total.add(str(options.against))
        self._digest: str | None = None

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

    def fingerprint(self, model: Any) -> str | None:
        """Return the hash of a model and of all that is asked of it; None if it cannot be known."""
        state = for_model(model).state(model)
        if self._start is None or state is None:
            return None
        if self._digest is None:
            for _ in self:
                pass
        try:
            return None if self._digest is None else ContentHash().add(self._digest, state).digest()
        except NotHashableError:
            return None
