"""Run a plan over the models, one after the other, and keep what is finished."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..core.errors import IntusError
from ..tracing.progress_bar import bar
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

    Raises:
        KeyboardInterrupt: If no model was finished.
        Exception: What a hypothesis raised, or the first error if no model succeeds.
    """
    parts: list[Part] = []
    errors: list[Exception] = []
    with Store(store, run, plan.scores) as stored:
        for number, checkpoint in enumerate(checkpoints):
            blocks = _Blocks(plan)
            try:
                parts.append(_rows(checkpoint, plan, blocks, stored, progress))
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
    """The blocks of a plan; ``error`` is what a hypothesis or ``inputs`` raised while they were made."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Block]:
        blocks = self.plan.blocks()
        while True:
            try:
                block = next(blocks)
            except StopIteration:
                return
            except Exception as error:
                self.error = error
                raise
            yield block


def _rows(
    checkpoint: Checkpoint, plan: Plan, blocks: Iterable[Block], store: Store, progress: bool | None
) -> Part:
    """Return the rows of one model, from the store if they are there."""
    name, model = checkpoint.open()
    model_pass = ModelPass(model, name, plan)
    with bar(name, len(plan.records), "record", progress) as show:
        for done in model_pass.run(blocks):
            show(done)
    part = Part(name, checkpoint.epoch, *model_pass.columns())
    store.add(part, model_pass.graph, None)
    return part
