"""Regressions on all units of a layer at once, with a coefficient for each unit.

These are the joint measures of DeepBase (Sellam et al. 2019): a score of the layer, which says whether its
units together predict a hypothesis, and a coefficient of each unit, which says how much it contributes. With
an L1 penalty most coefficients are zero, and the units that remain are a small set that suffices.

Units are standardised, so that coefficients can be compared. Everything is fitted to the training rows, and
the score of the layer is that of the held-out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from ...core.errors import InputError, require
from ...core.notes import joined
from ...core.score_info import ScoreInfo
from ..base import NAN, Need, Score, ScoreResult, add_score
from ..probes.judging import CHANCE, INTERVAL, ConfusionCounts, judge
from ..probes.labelled import CLASSES, complete, too_few
from ..statistics.concentration import least_groups, of_columns
from ..statistics.jackknife import jackknife
from ..statistics.labels import MISSING
from ..statistics.moments import Gram
from ..statistics.ridge import factorise, penalty, regress
from ..statistics.split import Places
from ..statistics.statistics import Statistics
from ..units.affinity import MOVED
from .regression import explained

MOST_ROWS = 16_384  #: most rows of the sample that these regressions read, a quarter of them held out
MOST_UNITS = 1024  #: with more units, coefficients have no interval
_STEPS = 1000  # most steps of a regression with an L1 penalty
_TOLERANCE = 1e-6  # largest step at which it ends
_CONSTANT = "the unit is constant"
_THIN = "no interval, no p: the unit or the hypothesis varies in too few groups of items"
Regul = Literal["L1", "L2"]


class Fit(NamedTuple):
    """A linear model of standardised units.

    Attributes:
        coef: Coefficients, shape (units, outputs).
        intercept: Shape (outputs,).
        without: Coefficients without each group of items, shape (groups, units); None if they are not known.
        penalty: The penalty, as it was given or chosen; None for the default.
    """

    coef: np.ndarray
    intercept: np.ndarray
    without: np.ndarray | None = None
    penalty: float | None = None


class Rows(NamedTuple):
    """The rows that a regression reads: places, standardised units (rows, units), labels, constant units."""

    places: Places
    z: np.ndarray
    y: np.ndarray
    constant: np.ndarray

    @property
    def trained(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The units, the labels and the groups of the training rows."""
        kept = ~self.places.held
        return self.z[kept], self.y[kept], self.places.group[kept]


def LogRegressionScore(  # noqa: N802
    regul: Regul = "L2",
    score: str = "F1",
    C: float | None = None,  # noqa: N803
) -> Score:
    """Return the score of a logistic regression on all units, with a coefficient for each.

    Args:
        regul: The penalty of the coefficients, "L1" or "L2".
        score: What to compute of the held-out rows: "F1" (macro) or "accuracy".
        C: The inverse of the penalty's strength, as in scikit-learn's LogisticRegression on standardised
            units. By default 1 for "L2". For "L1" by default the strength is such that labels that do not
            depend on the units rarely give any coefficient other than zero: ``sqrt(2 rows p (1 - p) log(2
            units))`` for a class of frequency p.

    Returns:
        A score that gives a row for the layer (unit -1), and rows named ``….coef`` for its units.

    Raises:
        InputError: If an argument is none of these.

    Example:
        >>> LogRegressionScore("L1").name, LogRegressionScore("L2", "accuracy", C=0.1).name
        ('logistic_l1', 'logistic_l2_accuracy_0.1')

    References:
        Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks", SIGMOD.
    """
    if regul not in ("L1", "L2"):
        raise InputError(f"regul must be 'L1' or 'L2', got {regul!r}.")
    if score not in ("F1", "accuracy"):
        raise InputError(f"score must be 'F1' or 'accuracy', got {score!r}.")
    _check("C", C)
    name = f"logistic_{regul.lower()}" + "_accuracy" * (score == "accuracy") + (f"_{C:g}" if C else "")
    strength = (
        f"C = {C or 1:g}" if C or regul == "L2" else "λ = sqrt(2 n p (1 - p) log(2 units)), p a class's share"
    )
    what = "macro F1" if score == "F1" else "accuracy"
    info = ScoreInfo(
        name=name,
        label=f"Logistic regression on all units, {regul} penalty, {what}",
        needs_target=True,
        about=f"{what[0].upper()}{what[1:]} of a logistic regression with an {regul} penalty on all units "
        "of the layer, on held-out rows; a row for each unit has its coefficient.",
        formula=f"{what} on held-out rows of scikit-learn's LogisticRegression; {strength}; at most "
        f"{MOST_ROWS:,} rows",
        low=0.0,
        high=1.0,
        baseline=CHANCE,
        interval=INTERVAL,
        requires=CLASSES,
        source="Sellam et al. 2019 (DeepBase)",
    )
    beside = _coefficients(
        name, regul, "of one class against the other; for more classes, the norm over the classes"
    )
    measure: Literal["f1", "accuracy"] = "f1" if score == "F1" else "accuracy"
    compute, judged = partial(_logistic_score, name, regul, measure, C), partial(_counts, regul, C)
    needs: frozenset[Need] = frozenset({"sample", "classes"})
    return Score(
        name, compute, needs, "unit", False, info=info, beside=(beside,), judged=judged, measure=measure
    )


def LinRegressionScore(regul: Regul = "L2", alpha: float | None = None) -> Score:  # noqa: N802
    """Return the score of a linear regression on all units, with a coefficient for each.

    Args:
        regul: The penalty of the coefficients: "L1" (lasso) or "L2" (ridge).
        alpha: The penalty per row, as in scikit-learn's Lasso(alpha) and Ridge(alpha * rows) of standardised
            units and labels. By default generalised cross-validation chooses that of "L2"; that of "L1" is
            ``sqrt(2 log(2 units) / rows)``, so that labels that do not depend on the units rarely give any
            coefficient other than zero.

    Returns:
        A score that gives a row for the layer (unit -1), and rows named ``….coef`` for its units.

    Raises:
        InputError: If an argument is none of these.

    Example:
        >>> LinRegressionScore("L1").name
        'linear_l1'

    References:
        Sellam et al. (2019), "DeepBase: Deep Inspection of Neural Networks", SIGMOD.
    """
    if regul not in ("L1", "L2"):
        raise InputError(f"regul must be 'L1' or 'L2', got {regul!r}.")
    _check("alpha", alpha)
    name = f"linear_{regul.lower()}" + (f"_{alpha:g}" if alpha else "")
    kind = "lasso" if regul == "L1" else "ridge regression"
    chosen = "sqrt(2 log(2 units) / rows)" if regul == "L1" else "chosen by generalised cross-validation"
    info = ScoreInfo(
        name=name,
        label=f"Linear regression on all units, {regul} penalty, R²",
        needs_target=True,
        about=f"Fraction of a number's variance that a {kind} on all units of the layer explains, on "
        "held-out rows; a row for each unit has its coefficient.",
        formula="1 - Σ (y - ŷ)² / Σ (y - mean of the training rows)², on held-out rows; penalty per row "
        f"{alpha or chosen}; at most {MOST_ROWS:,} rows",
        high=1.0,
        baseline="0, which the mean of the training rows gives, or what labels of other items give if that "
        "is higher",
        interval="95 %, by the influence of each held-out item (Student's t); what was trained is held fixed",
        requires="labels that are numbers",
        source="Sellam et al. 2019 (DeepBase); scikit-learn's Lasso and Ridge",
    )
    beside = _coefficients(name, regul, "of standardised labels")
    needs = frozenset({"sample", "values"})
    compute = partial(_linear_score, name, regul, alpha)
    return Score(name, compute, needs, "unit", False, info=info, beside=(beside,))  # type: ignore[arg-type]


def _check(name: str, value: float | None) -> None:
    if value is not None and not (isinstance(value, int | float) and 0 < value < np.inf):
        raise InputError(f"{name} must be a positive number, got {value!r}.")


def _coefficients(name: str, regul: Regul, what: str) -> ScoreInfo:
    """Return the description of the rows of units."""
    interval = (
        "95 %, jackknife over groups of items (one Newton step), of the penalized coefficient; none for more "
    )
    return ScoreInfo(
        center=0.0,
        name=f"{name}.coef",
        label=f"Coefficient in {name}",
        level="unit",
        needs_target=True,
        about=f"Coefficient of a standardised unit in the regression of {name} on all units.",
        formula=f"the coefficient {what}",
        baseline=MOVED,
        interval=interval if regul == "L2" else "",
        requires="units that vary",
    )


# -- rows ---------------------------------------------------------------------------------------------


def _rows(statistics: Statistics, y: np.ndarray, labelled: np.ndarray) -> Rows:
    """Return the rows of the sample with a label, their units standardised by the training rows."""
    places, x, _, _ = statistics.drawn()
    kept = np.flatnonzero(labelled & complete(x))[:MOST_ROWS]
    places, x = places.take(kept), x[kept].astype(np.float64)
    trained = x[~places.held]
    mean = trained.mean(axis=0) if len(trained) else np.zeros(x.shape[1])
    scale = trained.std(axis=0) if len(trained) else np.zeros(x.shape[1])
    constant = scale <= 1e-6 * np.abs(trained).max(axis=0, initial=0)
    return Rows(places, (x - mean) / np.where(constant, np.inf, scale), y[kept], constant)


def moved(places: Places, seed: int) -> np.ndarray:
    """Return for each row the number of the row in the same position of another item, -1 if there is none."""
    items, which = np.unique(places.item, return_inverse=True)
    if len(items) < 2:
        return np.full(len(which), -1)
    rank = np.random.default_rng(seed).permutation(len(items))[which]
    place = {key: row for row, key in enumerate(zip(rank.tolist(), places.position.tolist(), strict=True))}
    other = zip(((rank + 1) % len(items)).tolist(), places.position.tolist(), strict=True)
    return np.array([place.get(key, -1) for key in other])


def _with_labels_of_others(rows: Rows, seed: int) -> Rows:
    """Return the rows with the labels of other items, as a control."""
    other = moved(rows.places, seed)
    kept = other >= 0
    return Rows(rows.places.take(kept), rows.z[kept], rows.y[other[kept]], rows.constant)


# -- logistic -----------------------------------------------------------------------------------------


def fit_logistic(
    z: np.ndarray, codes: np.ndarray, regul: Regul, inverse: float | None, groups: np.ndarray | None = None
) -> Fit:
    """Return a logistic regression on standardised rows, with a column for each class but two have one.

    Args:
        z: Standardised units, shape (rows, units).
        codes: Classes, numbered from 0 without gaps, shape (rows,).
        regul: The penalty.
        inverse: C; None for the default.
        groups: The group of each row, to give the coefficients without each group.
    """
    if regul == "L1":
        return _lasso_logistic(z, codes, inverse)
    linear = require("sklearn.linear_model", extra="server", why="to fit logistic regressions")
    found = linear.LogisticRegression(C=inverse or 1.0, max_iter=1000).fit(z, codes)
    coef, intercept = np.asarray(found.coef_.T), np.asarray(found.intercept_)
    if groups is None or coef.shape[1] > 1:
        return Fit(coef, intercept)
    likely = 1 / (1 + np.exp(-(z @ coef[:, 0] + intercept[0])))
    design = np.column_stack([z, np.ones(len(z))])
    ridge = np.r_[np.full(z.shape[1], 1 / (inverse or 1.0)), 0.0]
    change = _without(design, likely * (1 - likely), codes - likely, ridge, groups)
    return Fit(coef, intercept, None if change is None else coef[:, 0] + change[:, :-1])


def _without(
    z: np.ndarray, weight: np.ndarray, residual: np.ndarray, ridge: np.ndarray, groups: np.ndarray
) -> np.ndarray | None:
    """Return the change of the coefficients if a group is left out, (groups, coefficients), by a Newton step.

    For a linear regression the step is exact. It is None for more than MOST_UNITS units, as it takes too
    long.
    """
    if z.shape[1] > MOST_UNITS + 1:
        return None
    curvature = z.T @ (z * weight[:, None]) + np.diag(ridge)
    out = []
    for group in np.unique(groups):
        part = z[groups == group]
        less = part.T @ (part * weight[groups == group, None])
        gradient = residual[groups == group] @ part
        out.append(-np.linalg.lstsq(curvature - less, gradient, rcond=None)[0])
    return np.array(out)


def _lasso_logistic(z: np.ndarray, codes: np.ndarray, inverse: float | None) -> Fit:
    """Fit with an L1 penalty by accelerated proximal gradient steps (FISTA, Beck and Teboulle 2009).

    Momentum restarts when it points uphill (O'Donoghue and Candès 2015). scikit-learn's solvers for this
    penalty either penalize the intercept as well or take many times as long.
    """
    rows, units = z.shape
    share = np.bincount(codes) / rows
    binary = len(share) == 2
    truth = (codes == 1)[:, None].astype(float) if binary else np.eye(len(share))[codes]
    share = share[1:] if binary else share
    level = (
        1 / inverse if inverse else np.sqrt(2 * rows * share * (1 - share) * np.log(2 * units * len(share)))
    )
    bias = np.log(share / (1 - share)) if binary else np.log(share)
    at = np.vstack([np.zeros((units, len(share))), bias])
    level = np.vstack([np.broadcast_to(level, (units, len(share))), np.zeros(len(share))]) / rows
    design = np.column_stack([z, np.ones(rows)])
    bound = (0.25 if binary else 0.5) * float(np.linalg.eigvalsh(design.T @ design / rows)[-1])
    ahead, momentum = at, 1.0
    for _ in range(_STEPS):
        logits = design @ ahead
        if binary:
            likely = 1 / (1 + np.exp(-logits))
        else:
            likely = np.exp(logits - logits.max(axis=1, keepdims=True))
            likely /= likely.sum(axis=1, keepdims=True)
        down = ahead - design.T @ (likely - truth) / rows / bound
        new = np.sign(down) * np.maximum(np.abs(down) - level / bound, 0)
        step = new - at
        uphill = float(((ahead - new) * step).sum()) > 0
        next_momentum = 1.0 if uphill else (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new if uphill else new + (momentum - 1) / next_momentum * step
        at, momentum = new, next_momentum
        if float(np.abs(step).max()) < _TOLERANCE:
            break
    return Fit(at[:-1], at[-1])


class Fitted(NamedTuple):
    """A logistic regression of one target.

    Attributes:
        rows: The rows that it reads.
        fit: The fit; None if it could not be trained.
        counts: The counts of its predictions on held-out rows; None likewise.
        note: Why it could not be trained.
    """

    rows: Rows
    fit: Fit | None
    counts: ConfusionCounts | None
    note: str = ""


def _fitted(regul: Regul, inverse: float | None, statistics: Statistics, target: str) -> Fitted:
    """Train and judge a logistic regression, once for its score and its table of classes."""
    key = "penalized", regul, inverse, target
    return statistics.once(key, lambda: _train(regul, inverse, statistics, target))


def _train(regul: Regul, inverse: float | None, statistics: Statistics, target: str) -> Fitted:
    number = statistics.targets.index(target)
    column = statistics.drawn()[2][:, number] if len(statistics.drawn()[1]) else np.empty(0, np.int64)
    order = statistics.classes[target].order()
    rank = np.empty(len(order) + 1, dtype=np.int64)
    rank[order], rank[-1] = np.arange(len(order)), MISSING
    rows = _rows(statistics, rank[column], column != MISSING)
    held = rows.places.held
    if note := too_few(statistics, target, rows.y, held):
        return Fitted(rows, None, None, note)
    fit, classes = _fit(rows, regul, inverse, interval=True)
    logits = rows.z[held] @ fit.coef + fit.intercept
    guess = (logits[:, 0] > 0).astype(int) if logits.shape[1] == 1 else logits.argmax(axis=1)
    return Fitted(rows, fit, judge(rows.y[held], classes[guess], rows.places.cluster[held]))


def _fit(rows: Rows, regul: Regul, inverse: float | None, *, interval: bool) -> tuple[Fit, np.ndarray]:
    """Return the fit to the training rows, and the classes that these have."""
    z, codes, groups = rows.trained
    classes, codes = np.unique(codes, return_inverse=True)
    return fit_logistic(z, codes, regul, inverse, groups if interval else None), classes


def _counts(
    regul: Regul, inverse: float | None, statistics: Statistics, target: str
) -> ConfusionCounts | None:
    return _fitted(regul, inverse, statistics, target).counts


def _logistic_score(
    name: str, regul: Regul, what: str, inverse: float | None, statistics: Statistics
) -> Iterable[ScoreResult]:
    for target in statistics.targets:
        rows, fit, counts, note = _fitted(regul, inverse, statistics, target)
        n = int(rows.places.held.sum())
        if fit is None or counts is None:
            yield ScoreResult(name, NAN, target, n=n, note=note)
            continue
        value, low, high, chance, p = counts.judgement(what)
        yield ScoreResult(name, value, target, -1, low, high, chance, n, p=p)
        control = _with_labels_of_others(rows, statistics.seed)
        several = len(np.unique(control.trained[1])) > 1
        other = _fit(control, regul, inverse, interval=False)[0] if several else None
        yield from _of_units(name, target, rows, fit, other)


# -- linear -------------------------------------------------------------------------------------------


def fit_linear(
    z: np.ndarray, y: np.ndarray, regul: Regul, alpha: float | None, groups: np.ndarray | None = None
) -> Fit:
    """Return a linear regression of standardised labels on standardised rows; see ``fit_logistic``."""
    level, scale = y.mean(), y.std()
    goal = (y - level) / scale
    if regul == "L1":
        linear = require("sklearn.linear_model", extra="server", why="to fit regressions")
        alpha = alpha or float(np.sqrt(2 * np.log(2 * z.shape[1]) / len(z)))
        coef = linear.Lasso(alpha, max_iter=10_000).fit(z, goal).coef_
        return Fit(coef[:, None] * scale, np.array([level]))
    gram = Gram(z.shape[1])
    gram.add(z)
    factor = factorise(gram, z)
    turned = factor.turn((z / factor.scale).T @ goal[:, None])
    alpha = alpha or penalty(factor, turned, float((goal**2).sum()))
    coef = regress(factor, turned, alpha) / factor.scale[:, None]
    found = Fit(coef * scale, np.array([level]), penalty=alpha)
    if groups is None:
        return found
    ridge = alpha * len(z) * factor.scale**2
    change = _without(z, np.ones(len(z)), goal - z @ coef[:, 0], ridge, groups)
    return found if change is None else found._replace(without=(coef[:, 0] + change) * scale)


def _linear_score(
    name: str, regul: Regul, alpha: float | None, statistics: Statistics
) -> Iterator[ScoreResult]:
    for number, target in enumerate(statistics.targets):
        if target in statistics.not_numbers:
            yield ScoreResult(name, NAN, target, note="the labels are not numbers")
            continue
        values = statistics.drawn()[3]
        column = values[:, number] if values.size else np.empty(0)
        rows = _rows(statistics, column, np.isfinite(column))
        held = rows.places.held
        n = int(held.sum())
        if n < 2 or (~held).sum() < 2 or not rows.y[held].std() or not rows.trained[1].std():
            note = "no spread among the rows" if n > 1 else "too few rows to hold any out"
            yield ScoreResult(name, NAN, target, n=n, note=note)
            continue
        found, value, low, high, p = _explained(rows, regul, alpha, interval=True)
        control = _with_labels_of_others(rows, statistics.seed)
        other, base = None, 0.0
        if control.places.held.sum() > 1 and len(control.trained[1]) > 1 and control.trained[1].std():
            other, base, *_ = _explained(control, regul, found.penalty, interval=False)
        yield ScoreResult(name, value, target, -1, low, high, max(0.0, base), n, p=p)
        spread = rows.trained[1].std()
        yield from _of_units(name, target, rows, _scaled(found, spread), other and _scaled(other, spread))


def _explained(rows: Rows, regul: Regul, alpha: float | None, *, interval: bool) -> tuple[Any, ...]:
    z, y, groups = rows.trained
    found = fit_linear(z, y, regul, alpha, groups if interval else None)
    held = rows.places.held
    guess = rows.z[held] @ found.coef[:, 0] + found.intercept[0]
    return found, *explained(rows.y[held], guess, float(y.mean()), rows.places.cluster[held])


def _scaled(fit: Fit, spread: float) -> Fit:
    """Return the fit with coefficients of labels in units of their standard deviation."""
    without = None if fit.without is None else fit.without / spread
    return fit._replace(coef=fit.coef / spread, without=without)


# -- units --------------------------------------------------------------------------------------------


def _of_units(name: str, target: str, rows: Rows, fit: Fit, control: Fit | None) -> Iterator[ScoreResult]:
    """Yield the coefficient of each unit."""
    value, note = _sizes(fit), "" if fit.coef.shape[1] == 1 else "the norm over the classes"
    base = float(np.abs(_sizes(control)).max(initial=0)) if control else NAN
    low = high = p = np.full(len(value), NAN)
    if fit.without is not None:
        low, high, p = jackknife(value, fit.without)
    z, y, groups = rows.trained
    least = least_groups(len(np.unique(groups)))
    thin = of_columns(z, groups) < least
    thin |= of_columns(y[:, None], groups) < least
    low, high, p = (np.where(thin, NAN, part) for part in (low, high, p))
    n = int((~rows.places.held).sum())
    for unit in range(len(value)):
        if rows.constant[unit]:
            yield ScoreResult(f"{name}.coef", NAN, target, unit, n=n, note=_CONSTANT)
            continue
        bounds = float(low[unit]), float(high[unit])
        reason = _THIN if fit.without is not None and thin[unit] else ""
        notes = joined(note, reason)
        yield ScoreResult(
            f"{name}.coef", float(value[unit]), target, unit, *bounds, base, n, notes, float(p[unit])
        )


def _sizes(fit: Fit) -> np.ndarray:
    """Return the coefficient of each unit, the norm over the outputs if there are several."""
    if fit.coef.shape[1] == 1:
        return fit.coef[:, 0]
    return np.asarray(np.linalg.norm(fit.coef - fit.coef.mean(axis=1, keepdims=True), axis=1))


_REGISTERED: tuple[Callable[[], Score], ...] = (
    partial(LogRegressionScore, "L1"),
    partial(LogRegressionScore, "L2"),
    partial(LinRegressionScore, "L1"),
    partial(LinRegressionScore, "L2"),
)
for _make in _REGISTERED:
    add_score(_make())
