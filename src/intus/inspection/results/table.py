"""The table that ``inspect`` returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...core.errors import InputError
from ...core.followup import UnitExamples, UnitVerification
from ...scores import ScoreColumns
from ...scores.multiple import false_discovery_rates
from ..followup.best import best_rows
from ..followup.examples import examples_of
from ..followup.pictures import draw, saved
from ..followup.summaries import check_count, stored_examples
from ..followup.unit_picture import draw_unit
from ..followup.unit_row import UnitRow, read_row
from ..followup.verification import Verification, verify
from ..models import Checkpoint
from .part import Part
from .store import Store

if TYPE_CHECKING:
    from ..plan import Plan

#: The columns of the table.
COLUMNS = (
    *("run", "model", "epoch", "address", "unit", "target", "score"),
    *("value", "low", "high", "baseline", "p", "q", "n", "note"),
)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """The question that a table answers, and what it found besides the rows.

    It is not pickled with the table, because models and data may be large.

    Attributes:
        checkpoints: The models.
        plan: What was asked of them.
        parts: The rows of each model.
        store: The database of the rows, a path or URL; None for none.
        run: The name of the run in the database.
    """

    checkpoints: Sequence[Checkpoint]
    plan: Plan
    parts: Sequence[Part]
    store: str | Path | None = None
    run: str = ""

    def check_store(self) -> None:
        """Raise InputError if the rows are in no database."""
        if self.store is None:
            raise InputError(
                "store=True writes into the database of the inspection, and this one has none. Pass store=, "
                "a path or URL, to inspect(…)."
            )

    def keep(self, row: UnitRow, model: str, content: UnitExamples | UnitVerification) -> None:
        """Store the examples or the verification of a unit; an error of the database is a warning."""
        assert self.store is not None
        with Store(self.store, self.run) as store:
            store.keep(model, row.checkpoint.epoch, row, content)

    def __reduce__(self) -> Any:
        return _nothing, ()


def _nothing() -> None:
    """Return None, which takes the place of an unpickled ``Asked``."""


class Inspection(pd.DataFrame):  # type: ignore[misc]  # pandas has no types
    """A DataFrame of scores that remembers the models, the data and the hypotheses.

    It is a DataFrame in every respect: selections, sorted tables and copies are Inspections as well. What
    was read from a file, and the result of ``concat`` or ``merge``, no longer knows its models.
    """

    _metadata = ["_asked"]  # noqa: RUF012  pandas copies these attributes to selections
    _asked: Asked | None = None

    @property
    def _constructor(self) -> Any:
        return Inspection

    def asked(self) -> Asked:
        """Return the question that the table answers.

        Raises:
            InputError: If the table no longer knows its models.
        """
        if self._asked is None:
            raise InputError(
                "This table does not know its models any more, because it was read from a file, pickled or "
                "joined with another. Use the table that inspect(…) returned, or a selection of it."
            )
        return self._asked

    def confusion(self, row: Any) -> pd.DataFrame:
        """Return which classes a classifier takes for which, on held-out rows.

        If ``inspect`` was given ``splits=``, it is that of the first split alone, and so is the F1 of each
        class: their mean is not the value of the row, which is the mean over the splits.

        Args:
            row: A row of the table: its label in the index, a Series or a mapping with ``model``, ``epoch``,
                ``address``, ``score`` and ``target``.

        Returns:
            A DataFrame with one row per true class and one column per predicted class, which count rows, and
            the columns ``f1``, ``low`` and ``high``: the F1 of the class with its 95 % interval.
            ``attrs["split"]`` is ``"1 of 5"`` if there were five splits.

        Raises:
            InputError: If the row is not that of a classifier, or the table no longer knows its models.
        """
        wanted = self.loc[row] if np.isscalar(row) else row
        for part in self.asked().parts:
            same_epoch = part.epoch == wanted["epoch"] or (
                part.epoch != part.epoch and wanted["epoch"] != wanted["epoch"]
            )
            key = wanted["address"], wanted["score"], wanted["target"]
            if part.model == wanted["model"] and same_epoch and key in part.confusions:
                found = part.confusions[key]
                names = [str(one) for one in found.classes]
                frame = pd.DataFrame(found.matrix, index=pd.Index(names, name="true"), columns=names)
                frame.columns.name = "predicted"
                frame = frame.assign(f1=found.f1, low=found.low, high=found.high)
                frame.attrs["split"] = f"1 of {self.asked().plan.splits}"
                return frame
        raise InputError(
            f"The score {wanted['score']!r} of {wanted['address']!r} is not one of a classifier that was "
            "trained, so there is no confusion table. Choose a row such as that of 'linear_f1'."
        )

    def examples(self, row: Any, k: int = 5, *, seed: int | None = None, store: bool = False) -> pd.DataFrame:
        """Return records on which a unit is largest, and records that speak against its hypothesis.

        The model runs over the data once. Symbols that the hypothesis does not annotate are left out, and
        each record is listed once per kind.

        Args:
            row: A row of the table: ``table.iloc[0]``, a dict with its columns, or its label in the
                index.
            k: The number of examples of each kind. Default: 5.
            seed: The seed of the random examples. Default: that of the inspection.
            store: Whether to write them into the database of the inspection (``store=`` of ``inspect``), so
                that the page shows them: the texts around the symbols, or images of at most 96 × 96 pixels.
                It is the only way in which parts of the data get there. At most 10 of each kind.
                Default: False.

        Returns:
            A DataFrame with the columns ``kind``, ``record`` (its number in the data), ``position`` (the
            index of the symbol among the labels; None if there is one label per record), ``behavior`` (of the
            unit there) and ``label``. If records are texts or lists of words, ``text`` is what is around the
            symbol, which is marked »so«. The kinds are ``"top"``, where the unit is largest; ``"active
            without the hypothesis"``, where it is largest among labels of 0; ``"silent with it"``, where it
            is smallest among labels of 1; and ``"random"``. Of the second and third kind are only records
            where the unit is nearer to its mean over the other label than to that over their own; a kind
            without such a record is left out. A unit that correlates negatively with labels that are numbers
            is read upside down: its top are its smallest. If labels are not 0 and 1, there are only the
            first and the last kind.

        Raises:
            InputError: If the row is about a whole layer, the table no longer knows its models, or the
                examples cannot be stored.

        Example:
            >>> from intus import inspect
            >>> net, data = torch.nn.Sequential(torch.nn.Identity()), np.array([[1.0], [5.0], [2.0], [7.0]])
            >>> table = inspect(net, {"odd": [1, 1, 0, 0]}, "correlation", data, "0")
            >>> table.examples(0, k=1)[["kind", "record", "behavior"]].values.tolist()[0]
            ['top', 0, 1.0]
        """
        asked, unit = self.asked(), read_row(self, row)
        if store:
            asked.check_store()
            check_count(k)
        found = examples_of(asked.plan, unit, k, seed)
        if store:
            asked.keep(unit, *stored_examples(asked.plan, unit, found))
        return found

    def verify(
        self,
        row: Any,
        *,
        tests: str | tuple[str, ...] = ("perturbation", "ablation"),
        change: Callable[[Any, np.random.Generator], Any] | None = None,
        metric: Callable[[Any, list[Any]], Any] | None = None,
        records: int = 200,
        patch: int | None = None,
        seed: int | None = None,
        store: bool = False,
    ) -> Verification:
        """Verify that a unit follows its hypothesis, and that the model's output uses it.

        A correlation does not say that a unit responds to a hypothesis, nor that anything depends on the
        unit.

        *Perturbation* replaces one symbol of a record twice by one of another record: so that a label
        changes, and so that none does. The symbol is a character, a token, an element, or a patch of an
        image. The unit is read where the label changed. A unit that follows the hypothesis changes in the
        first case only; one that follows something else which goes with the hypothesis in the data changes in
        the second too. If a label is rare, symbols of other records with that label are put in.

        *Ablation* replaces the unit by its mean over the data, at all positions, and runs the rest of the
        pass again (``Trace.rerun``). The effect on the output is compared between where the hypothesis holds
        and where it does not, and with that of 20 random other units of the layer. If the hypothesis holds in
        half of the symbols, the mean is as far from both, so that ``anywhere`` tells more than the
        difference. It needs PyTorch and labels of 0 and 1; if it is not possible, ``notes`` says why. The
        model is not changed.

        Args:
            row: A row of the table: ``table.iloc[0]``, a dict with its columns, or its label in the
                index.
            tests: ``"perturbation"``, ``"ablation"`` or both. Default: both.
            change: Returns a changed record: a function ``(record, random)``, where ``random`` is numpy's
                generator. It is called up to 40 times per record, until one change flips a label and one does
                not. Both should change the same place. Default: replace a symbol.
            metric: A function ``(output, records)`` that returns one number per record, such as the
                probability of the right answer, or one per symbol. The effect is its change. ``output`` is
                the array that the model returns, or a list of them. Default: the Euclidean length of the
                change of the first output, divided by the mean length of that output; per symbol if it has
                the positions of the labels.
            records: The number of records for each test. Default: 200.
            patch: The height and width of the patch of an image, in pixels. Default: an eighth of the image.
            seed: The seed of all choices. Default: that of the inspection.
            store: Whether to write the result into the database of the inspection (``store=`` of
                ``inspect``), so that the page shows it. Default: False.

        Returns:
            The verification, which prints as a table. ``perturbation`` has ``flips``, ``baseline`` and
            ``excess`` with 95 % intervals over records (or groups), ``silhouette`` and ``rank`` among the
            units of the layer. ``ablation`` has ``effect`` (the difference), ``holds``, ``lacks`` and
            ``anywhere`` with intervals, ``others``, ``p`` and ``p_anywhere``.

        Raises:
            InputError: If the row is about a whole layer, the hypothesis is an array of labels, symbols of
                such records are not known, too few changes flip a label, or there is no database to store
                the result in.

        References:
            Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks", SIGMOD: verification.
            Rousseeuw (1987), "Silhouettes", Journal of Computational and Applied Mathematics 20.
        """
        asked, unit = self.asked(), read_row(self, row)
        if store:
            asked.check_store()
        found = verify(
            asked.plan,
            unit,
            tests=tests,
            change=change,
            metric=metric,
            records=records,
            patch=patch,
            seed=seed,
        )
        if store:
            asked.keep(unit, found.model, found.summary())
        return found

    def best(self, by: str | Sequence[str] = ("model", "target"), score: str | None = None) -> Inspection:
        """Return the row of the strongest unit of each group, such as of each model and hypothesis.

        It answers whether another model has such a unit too: inspect several models, and compare the values,
        intervals and ``q`` of their best units. The best of many units is high by chance: the value is not
        that of a unit that was chosen before.

        Args:
            by: The columns that make the groups. Default: each model and hypothesis.
            score: The score. Default: the only one of units in the table.

        Returns:
            One row per group, in the order of the table. The strongest is the one with the largest value, or
            the largest absolute value for a score whose range is symmetric around 0, such as a correlation.

        Raises:
            InputError: If ``by`` names no column, or the table has several scores of units.
        """
        return best_rows(self, by, score)

    def draw(
        self, kind: str = "bars", *, score: str | None = None, k: int = 10, path: str | Path | None = None
    ) -> Any:
        """Draw the values of units with matplotlib.

        Args:
            kind: ``"bars"``: the strongest units of each hypothesis at the last epoch, with intervals and
                baselines. ``"curves"``: the units that are strongest at the last epoch, over epochs; at most
                six. ``"heatmap"``: units × hypotheses at the last epoch; at most 60 units.
            score: The score. Default: the only one of units in the table.
            k: The number of units of each hypothesis. Default: 10.
            path: Also write the figure to this file (``.png``, ``.svg``, ``.pdf``). Default: no.

        Returns:
            A ``matplotlib.figure.Figure``.

        Raises:
            InputError: If an argument has an impossible value, or there are no such values.
            MissingExtraError: If matplotlib is not installed (extra ``draw``).
        """
        return draw(self, kind, score, k, path)

    def draw_unit(self, row: Any, record: int, *, path: str | Path | None = None) -> Any:
        """Draw a unit over one record, with matplotlib.

        Over an image: the record and the unit's map at the places of its pixels, both with the outline of
        where the hypothesis holds. Over a text or a list of tokens: each symbol is shaded by the unit, and
        underlined where the hypothesis holds.

        Args:
            row: A row of the table: ``table.iloc[0]``, a dict with its columns, or its label in the
                index.
            record: The number of the record in the data.
            path: Also write the figure to this file. Default: no.

        Returns:
            A ``matplotlib.figure.Figure``.

        Raises:
            InputError: If the layer has no positions that fit the record, or there is no such record.
            MissingExtraError: If matplotlib is not installed (extra ``draw``).
        """
        return saved(draw_unit(self.asked().plan, read_row(self, row), record), path)


def as_table(asked: Asked, run: str) -> Inspection:
    """Return the rows of all models; those of newly initialized twins are no findings and have no q-value."""
    parts = asked.parts
    columns = ScoreColumns.concat(part.columns for part in parts)
    sizes = [len(part.columns) for part in parts]
    new = np.repeat([part.new for part in parts], sizes)
    facts = {
        "run": np.full(len(columns), run, dtype=object),
        "model": np.repeat(np.array([part.model for part in parts], dtype=object), sizes),
        "epoch": np.repeat(np.array([part.epoch for part in parts], dtype=float), sizes),
        "address": np.concatenate([part.addresses for part in parts]),
        "q": false_discovery_rates(np.where(new, np.nan, columns.p)),
    }
    table = Inspection({name: facts.get(name, getattr(columns, name, None)) for name in COLUMNS})
    table._asked = asked
    return table
