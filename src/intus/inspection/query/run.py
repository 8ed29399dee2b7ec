"""The function ``query``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import InputError, require
from ...scores.multiple import false_discovery_rates
from ...scores.registry import get
from ...scores.registry import scores as registered
from ..arguments import check_index
from ..execute import inspect
from ..reading import tcav
from .catalogue import Catalogue
from .clauses import split
from .plan import SCORE_COLUMNS, SCORES, Block, Plan
from .session import Session

if TYPE_CHECKING:
    import pandas

#: Options of ``inspect`` with an entry for each record.
_PER_RECORD = ("groups", "types", "symbols", "output")
#: Names of scores in the paper.
_PAPER = {"corr": "correlation"}
#: How the name of a regression's coefficients ends.
_COEFFICIENT = ".coef"
_TYPES = {"str": "string"}


def query(
    text: str,
    *,
    models: Any,
    hypotheses: Any,
    data: Any,
    metadata: Mapping[str, Any] | None = None,
    **options: Any,
) -> pandas.DataFrame:
    """Answer a question about units, written in SQL with the clause INSPECT.

    ``INSPECT U.uid AND H.h USING correlation, iou OVER D.seq AS S`` makes ``S`` the relation of scores of the
    units ``U`` for the hypotheses ``H`` on the inputs ``D``. WHERE runs before anything is computed: only the
    pairs of a unit and a hypothesis that it leaves are scored, in one pass over the records that it leaves,
    and only models that it leaves are loaded. All else is DuckDB's SQL: joins, aggregates, window functions,
    QUALIFY, ORDER BY, WITH. DuckDB runs in this process, reads no files and writes nothing.

    The relations are:

    - ``models``: ``mid`` (the name, or the epoch as text), ``name``, ``epoch``, ``class``, ``n_parameters``.
    - ``units``: ``mid``, ``uid`` (``'encoder.0[14]'``), ``layer`` (the address), ``unit`` (its number),
      ``class`` (of the layer), ``number`` (counts the layers with parameters from 1), ``n`` (the number of
      units in the layer).
    - ``hypotheses``: ``hid``, ``h`` and ``name`` (all the name) and ``kind`` (if declared).
    - ``inputs``: ``did`` (the number of the record), ``seq`` (the record if it is text), and the columns of a
      DataFrame given as data.
    - The scores: ``mid``, ``uid``, ``hid``, ``h``, ``layer``, ``unit``, ``measure`` and ``score`` (both the
      name of the score), ``value``, ``unit_score`` (the value of a score of single units, or the coefficient
      of the unit in a regression), ``group_score`` (of a score of all units of a group together), ``low``,
      ``high``, ``baseline``, ``p``, ``q``, ``n`` and ``note``, as in the table of ``inspect``. ``q`` is over
      all that was computed, ``baseline`` over the units of a layer that were.

    A group is the units of one layer that WHERE leaves. Columns of ``units`` in GROUP BY divide it further.
    Where neither SELECT nor HAVING has an aggregate, as in the paper, HAVING filters rows and GROUP BY only
    makes groups.

    Args:
        text: The query.
        models: The models, as for ``inspect``.
        hypotheses: The hypotheses, as for ``inspect``.
        data: The records, as for ``inspect``; or a DataFrame, whose rows are the records, as dicts, and whose
            columns are columns of ``inputs``.
        metadata: Further columns of the relations: a dict by relation of dicts by row
            (``{"models": {"net1": {"lr": 0.1}}}``), or of DataFrames with a column ``mid``, ``uid``,
            ``layer``, ``name`` or ``did`` that says which rows they belong to. One of ``inputs`` may also
            have a row for each record. An ``epoch`` given for models counts. Default: none.
        options: Options of ``inspect``: ``inputs``, ``batch``, ``groups``, ``units`` (the layers that are
            listed, by default all that can be read) and so on.

    Returns:
        A DataFrame with the columns that SELECT names. ``attrs["computed"]`` is the number of pairs of a unit
        and a hypothesis that were scored, ``attrs["pairs"]`` the number of all pairs in the models that were
        loaded, ``attrs["records"]`` the number of records used.

    Raises:
        InputError: If the query cannot be read, names what does not exist, or WHERE leaves nothing.
        MissingExtraError: If duckdb or pandas is not installed.
        Exception: Whatever ``inspect`` raises.

    Example:
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3))
        >>> data = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [3.0, 0.0]])
        >>> table = query(
        ...     "SELECT S.uid, S.h INSPECT U.uid AND H.h USING correlation OVER D.seq AS S "
        ...     "FROM units U, hypotheses H, inputs D WHERE U.layer = '0' AND U.unit > 0 ORDER BY S.uid",
        ...     models=net, hypotheses={"first": lambda record: record[0]}, data=data)
        >>> table.uid.tolist(), table.attrs["computed"]
        (['0[1]', '0[2]'], 2)

    References:
        Sellam, Lin, Huang, Yang, Vondrick and Wu (2019), "DeepBase: Deep Inspection of Neural Networks",
        SIGMOD: the clause INSPECT.
    """
    require("pandas", extra="inspect", why="to return a DataFrame")
    if "scores" in options:
        raise InputError(
            f"scores={options['scores']!r} is not taken: USING names the scores. A score of your own gets a "
            "name by intus.scores.register."
        )
    check_index(data, hypotheses, **{name: options.get(name) for name in _PER_RECORD})
    clause, rest = split(text)
    measures = dict(_measure(name) for name in clause.scores)
    session = Session()
    try:
        catalogue = Catalogue(
            models,
            hypotheses,
            data,
            options.get("inputs"),
            options.pop("units", None),
            metadata,
            options.get("batch", 256),
        )
        frames = catalogue.frames()
        for name, frame in frames.items():
            session.register(name, frame)
        session.register(SCORES, _scores([], None))
        plan = Plan(session, clause, rest)
        records = plan.records()
        known, units = catalogue.measured(frames["models"], plan.models())
        session.register("models", known)
        session.register("units", units)
        places = units[["mid", "uid", "layer", "unit"]].assign(place=np.arange(len(units)))
        session.register("intus_places", places)
        blocks = plan.blocks()
        session.register(SCORES, _scores(blocks, _computed(catalogue, measures, records, blocks, options)))
        answer = plan.answer()
    finally:
        session.close()
    answer.attrs["computed"] = sum(block.pairs for block in blocks)
    answer.attrs["pairs"] = len(units) * len(frames["hypotheses"])
    answer.attrs["records"] = len(records)
    return answer


def _measure(written: str) -> tuple[str, str]:
    """Return the name of a measure in the table, and that of the score that returns it.

    Raises:
        InputError: If there is none; the message has the nearest names.
    """
    plain = _PAPER.get(written.lower(), written)
    if plain.lower() == tcav.NAME:
        return tcav.NAME, tcav.NAME
    for name in (plain, plain.lower()):
        for score in registered():
            if name in {info.name for info in score.infos}:
                return name, score.name
    try:
        score = get(plain)  # another name of a score
    except InputError as error:
        raise InputError(f"USING names {written!r}. {error}") from None
    return score.infos[0].name, score.name


def _computed(
    catalogue: Catalogue,
    measures: Mapping[str, str],
    records: np.ndarray,
    blocks: Sequence[Block],
    options: Mapping[str, Any],
) -> pandas.DataFrame:
    """Return the rows of ``inspect`` for the measures that the query names, with the number of their block.

    Models with the same blocks share a call of ``inspect``, and so their labels.
    """
    import pandas

    options = dict(options)
    if len(records) < len(catalogue.records):
        options |= {
            name: _part(name, options[name], catalogue, records) for name in _PER_RECORD & options.keys()
        }
    if options.get("store") is not None:
        options.setdefault("run", time.strftime("query %Y-%m-%d %H:%M:%S"))
    by_model: dict[str, list[int]] = {}
    for number, block in enumerate(blocks):
        by_model.setdefault(block.mid, []).append(number)
    alike: dict[tuple[Any, ...], list[str]] = {}
    for mid, numbers in by_model.items():
        alike.setdefault(tuple(blocks[number][1:] for number in numbers), []).append(mid)
    given = options.get("given", ())
    confounders = [given] if isinstance(given, str) else list(given)
    tables = []
    for mids in alike.values():
        first = [blocks[number] for number in by_model[mids[0]]]
        wanted = {*(h for block in first for h in block.hypotheses), *confounders}
        functions, names = catalogue.hypotheses.part(wanted, records)
        table = inspect(
            _chosen(catalogue, mids),
            functions,
            list(dict.fromkeys(measures.values())),
            catalogue.part(records),
            [
                (*catalogue.written(*block[:3]), [names[hypothesis] for hypothesis in block.hypotheses])
                for block in first
            ],
            **options | ({"given": [names.get(name, name) for name in confounders]} if confounders else {}),
        )
        parts = list(zip(mids, table.asked().parts, strict=False))  # without those after an interruption
        if lost := [
            (mid, part.columns.note[0]) for mid, part in parts if part.columns.score.tolist() == [""]
        ]:
            warnings.warn(f"The answer lacks the model {lost[0][0]!r}, which {lost[0][1]}", stacklevel=3)
        numbers = [np.array([*by_model[mid], -1])[part.groups] for mid, part in parts]
        here = {name: hypothesis for hypothesis, name in names.items()}
        rows = pandas.DataFrame(table).assign(
            block=np.concatenate(numbers), target=[here.get(target, target) for target in table.target]
        )
        tables.append(rows[rows.block >= 0])  # other rows are of no block: a failure, a comparison
    rows = pandas.concat(tables, ignore_index=True)
    whole = rows.score.str.removesuffix(_COEFFICIENT)  # coefficients are the unit scores of a regression
    rows["score"] = rows.score.where(~whole.isin(list(measures)), whole)
    return rows[rows.score.isin(list(measures))]


def _chosen(catalogue: Catalogue, mids: Sequence[str]) -> Any:
    """Return models as ``inspect`` takes them."""
    models = [catalogue.models[mid] for mid in mids]
    return models[0].given if models[0].key is None else {model.key: model.given for model in models}


def _part(name: str, given: Any, catalogue: Catalogue, records: np.ndarray) -> Any:
    """Return an option for some of the records."""
    if given is None or callable(given) or not hasattr(given, "__len__"):
        return given
    if len(given) != len(catalogue.records):
        raise InputError(f"{name} has {len(given)} entries for {len(catalogue.records)} records.")
    if hasattr(given, "iloc"):
        return given.iloc[records]
    return given[records] if hasattr(given, "shape") else [given[record] for record in records.tolist()]


def _scores(blocks: Sequence[Block], rows: pandas.DataFrame | None) -> pandas.DataFrame:
    """Return the relation of scores: a row for each unit, hypothesis and score of each block.

    Args:
        blocks: The blocks.
        rows: Rows of ``inspect`` with the number of their block; None for the empty relation.
    """
    import pandas

    if rows is None:
        nothing = pandas.DataFrame({name: [] for name in SCORE_COLUMNS})
        return nothing.astype({name: _TYPES.get(kind, kind) for name, kind in SCORE_COLUMNS.items()})
    rows = rows.assign(q=false_discovery_rates(rows.p.to_numpy(float)))
    single = rows[rows.unit >= 0].assign(unit_score=lambda part: part.value, group_score=np.nan)
    joint = rows[rows.unit < 0].assign(unit_score=np.nan, group_score=lambda part: part.value)
    joint = joint.drop(columns="unit").merge(_members(blocks, "unit", "units"), on="block")
    bare = joint[joint.target == ""].drop(columns="target")  # a score that needs no hypothesis
    bare = bare.merge(_members(blocks, "target", "hypotheses"), on="block")
    both = ["block", "target", "score"]  # a score of the group may also have a coefficient of each unit
    of_group = joint.drop_duplicates(both)[[*both, "group_score"]]
    single = single.drop(columns="group_score").merge(of_group, on=both, how="left")
    joint = joint.merge(single[both].drop_duplicates(), on=both, how="left", indicator="found")
    joint = joint[joint.found == "left_only"]
    parts = [part for part in (single, joint[joint.target != ""], bare) if len(part)]
    table = pandas.concat(parts, ignore_index=True) if parts else single
    own = [blocks[number] for number in table.block]
    table = table.assign(
        mid=[block.mid for block in own],
        layer=[block.layer for block in own],
        uid=[f"{block.layer}[{unit}]" for block, unit in zip(own, table.unit, strict=True)],
        hid=[_hypothesis(target, block) for block, target in zip(own, table.target, strict=True)],
        h=table.target,
        measure=table.score,
    )
    return table[list(SCORE_COLUMNS)].astype(
        {name: _TYPES.get(kind, kind) for name, kind in SCORE_COLUMNS.items()}
    )


def _members(blocks: Sequence[Block], name: str, field: str) -> pandas.DataFrame:
    """Return the units or hypotheses of every block, one per row."""
    import pandas

    members = [getattr(block, field) for block in blocks]
    number = np.repeat(np.arange(len(blocks)), [len(part) for part in members])
    return pandas.DataFrame({"block": number, name: [one for part in members for one in part]})


def _hypothesis(target: str, block: Block) -> str:
    """Return the hypothesis of a target, which may name one of its classes."""
    if target in block.hypotheses:
        return target
    return max((h for h in block.hypotheses if target.startswith(h)), key=len, default=target)
