"""Groups of runs whose configurations are equal but for the seed, and means over the runs of a group."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..core.results import COLUMNS, Results
from ..core.score_info import ScoreInfo

#: The entries of a configuration in which the runs of a group may differ.
SEEDS = ("seed",)
_KEY = ("model", "epoch", "step", "address", "unit", "kind", "mode", "target", "score")


def label(config: Mapping[str, Any], by: Collection[str] | None = None) -> str:
    """Return the name of the group of a configuration; ``""`` if it is in none.

    Args:
        config: The configuration of a run.
        by: The entries that must be equal. By default all but ``seed``.

    Example:
        >>> label({"seed": 3, "lr": 0.1, "layers": [2, 4]})
        'layers=[2, 4], lr=0.1'
        >>> label({"seed": 3, "lr": 0.1}, by=["layers"])
        ''
        >>> label({"seed": 3}), label({}), label({}, by=[])
        ('seed=*', '', 'all runs')
    """
    names = [name for name in config if name not in SEEDS] if by is None else list(by)
    if not all(name in config for name in names):
        return ""
    if not names:
        return "all runs" if by is not None else ", ".join(f"{name}=*" for name in config)
    return ", ".join(f"{name}={json.dumps(config[name], sort_keys=True)}" for name in sorted(names))


def mean_over_runs(
    tables: Sequence[Results], name: str, infos: Mapping[str, ScoreInfo] | None = None
) -> Results:
    """Return the mean of each score over runs.

    Args:
        tables: The scores of each run.
        name: The name of the group, for the column ``run``.
        infos: The descriptions of scores, by name: no mean is outside of a score's range.

    Returns:
        A row per score, epoch and layer in the order of their first appearance. ``value`` and ``baseline``
        are means over the runs that have the value, ``low`` and ``high`` the bounds of the mean's 95 %
        interval (Student's t, within the range of the score; NaN for a single run), ``n`` is the number of
        these runs. The note says if other runs have no value. ``kind`` is without the mode, which has its
        own column: scores of different modes have a row each, whatever came first in a run.

    Example:
        >>> row = {"model": "m", "epoch": 0, "address": "fc1", "score": "linear_f1"}
        >>> runs = [Results.from_rows([row | {"value": value}]) for value in (0.5, 0.7, 0.9)]
        >>> mean = mean_over_runs(runs, "lr=0.1")
        >>> [round(float(mean[name][0]), 3) for name in ("value", "low", "high", "n")]
        [0.7, 0.203, 1.197, 3.0]
    """
    from scipy.special import stdtrit  # the list of runs, which needs labels alone, should not wait for it

    places: dict[tuple[Any, ...], int] = {}
    cells: list[tuple[int, int]] = []
    for number, table in enumerate(tables):
        columns = [table[column].tolist() for column in _KEY]
        kinds = _KEY.index("kind")
        columns[kinds] = [kind.partition("@")[0] for kind in columns[kinds]]
        for key in zip(*columns, strict=True):
            # an unknown epoch is NaN, which is not equal to itself
            plain = tuple(None if part != part else part for part in key)
            cells.append((places.setdefault(plain, len(places)), number))
    shape = len(places), len(tables)
    row, run = np.array(cells, dtype=np.int64).reshape(-1, 2).T
    numbers = {}
    for column in ("value", "baseline"):
        grid = np.full(shape, np.nan)
        grid[row, run] = Results.concat(tables)[column]
        numbers[column] = np.where(np.isfinite(grid), grid, np.nan)
    known = np.isfinite(numbers["value"])
    count = known.sum(axis=1)
    mean = _mean(numbers["value"])
    squares = np.where(known, numbers["value"] - mean[:, None], 0.0) ** 2
    several = np.maximum(count - 1, 1)
    half = stdtrit(several, 0.975) * np.sqrt(squares.sum(axis=1) / several / np.maximum(count, 1))
    half[count < 2] = np.nan
    infos = infos or {}
    known_infos = [infos.get(place[-1]) for place in places]
    lowest, highest = (
        np.array(
            [limit if (limit := getattr(info, end, None)) is not None else other for info in known_infos]
        )
        for end, other in (("low", -np.inf), ("high", np.inf))
    )
    found = dict(zip(_KEY, zip(*places, strict=True), strict=True)) if places else {}
    return Results(
        {
            column: [COLUMNS[column] if part is None else part for part in parts]
            for column, parts in found.items()
        }
        | {"run": [name] * len(places), "value": mean, "n": count}
        | {"low": np.maximum(mean - half, lowest), "high": np.minimum(mean + half, highest)}
        | {"baseline": _mean(numbers["baseline"])}
        | {"note": ["" if c == len(tables) else f"mean of {c} of {len(tables)} runs" for c in count.tolist()]}
    )


def _mean(grid: np.ndarray) -> np.ndarray:
    """Return the mean of each row over the values that are not NaN; NaN if there is none."""
    known = np.isfinite(grid)
    total = np.where(known, grid, 0.0).sum(axis=1)
    mean: np.ndarray = np.where(known.any(axis=1), total / np.maximum(known.sum(axis=1), 1), np.nan)
    return mean
