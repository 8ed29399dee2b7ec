"""Run a plan over the models, one after the other, and keep what is finished."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path
from typing import Any

from ..backends.base import for_model
from ..core.errors import IntusError
from ..engines import Engine
from ..tracing.progress_bar import bar
from .content_hash import ContentHash, NotHashableError
from .engine import open_engine, spread
from .model_pass import ModelPass
from .models import Checkpoint
from .plan import Block, Plan
from .store import Store
from .table import Part


def rows_of(
    checkpoints: Sequence[Checkpoint],
    plan: Plan,
    store: str | Path | None,
    run: str,
    progress: bool | None,
    engine: int | str | None,
) -> list[Part]:
    """Return the rows of each model.

    Ctrl-C ends the work with a warning, and the models that were finished remain. A model that fails has one
    row that says why.

    Args:
        checkpoints: The models.
        plan: What is asked of them.
        store: The database, a path or URL; None for none. Rows that an earlier call stored under the same run
            for the same question are read from there.
        run: The name of the run.
        progress: Whether to show a bar; None if someone watches.
        engine: What runs the models; see ``engine.open_engine``.

    Raises:
        KeyboardInterrupt: If no model was finished.
        Exception: What a hypothesis raised, or the first error if no model succeeds.
    """
    parts: list[Part] = []
    errors: list[Exception] = []
    blocks = _Blocks(plan, hashed=store is not None)
    with Store(store, run, plan.scores) as stored, open_engine(engine) as workers:
        for number, checkpoint in enumerate(checkpoints):
            try:
                parts.append(_rows(checkpoint, plan, blocks, stored, workers, progress))
            except KeyboardInterrupt:
                if not parts:
                    raise
                missing = ", ".join(str(one) for one in checkpoints[number:])
                warnings.warn(f"inspect was interrupted. The table lacks {missing}.", stacklevel=4)
                break
            except Exception as error:
                # A wrong argument fails for every model, so the first refusal ends the call.
                refused = isinstance(error, IntusError) and number == 0
                if error is blocks.error or refused or len(checkpoints) == 1:
                    raise
                errors.append(error)
                why = f"failed: {type(error).__name__}: {error}"
                parts.append(Part.failed(checkpoint.name, checkpoint.epoch, why))
    if len(errors) == len(checkpoints):
        raise errors[0]
    return parts


class _Blocks:
    """The blocks of a plan, which are hashed the first time that they are all read.

    Args:
        plan: The plan.
        hashed: Whether the hash is needed.

    Attributes:
        error: What a hypothesis or ``inputs`` raised while a block was made.
    """

    def __init__(self, plan: Plan, hashed: bool) -> None:
        self.plan = plan
        self.error: Exception | None = None
        self._start = plan.content_hash() if hashed else None
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


def _rows(
    checkpoint: Checkpoint,
    plan: Plan,
    blocks: _Blocks,
    store: Store,
    engine: Engine | None,
    progress: bool | None,
) -> Part:
    """Return the rows of one model, from the store if they are there."""
    name, model = checkpoint.open()
    earlier = store.finished(name, checkpoint.epoch)
    if earlier is not None and earlier[0] == blocks.fingerprint(model):
        return earlier[1]
    model_pass = ModelPass(model, name, plan)
    steps = (
        model_pass.run(blocks) if engine is None else spread(model_pass, blocks, engine, len(plan.order()))
    )
    with bar(name, len(plan.records), "record", progress) as show:
        for done in steps:
            show(done)
    part = Part(name, checkpoint.epoch, *model_pass.columns())
    store.add(part, model_pass.graph, blocks.fingerprint(model))
    return part
