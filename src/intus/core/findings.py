"""Findings: sentences that follow from the scores of a training and their intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .notes import Facts
from .record import EVALUATION_MODE, PROBE_SET_MODE, TRAINING_MODE
from .results import COLUMNS, Results

#: The scores that findings on a target of classes are about: the first that has values.
CLASSIFIERS = ("linear_f1", "lda_f1", "logistic_f1")
#: The score that findings on a target of numbers are about.
REGRESSION = "r2"
#: The scores that findings are about.
SCORES = (*CLASSIFIERS, REGRESSION, "nonfinite", "nonfinite_step")
#: How far a score must be above its baseline, in multiples of the distance from the score to the lower bound
#: of its 95 % interval. A run has hundreds of intervals, so the plain bound would be passed by chance.
MARGIN = 1.5
#: How many points in a row, up to the newest, must agree.
STREAK = 2
#: By how much the upper bound of a later layer may be above the score of a layer over which it adds nothing.
TOLERANCE = 0.02

#: What the note of the first step with NaN says if the pass before it was not recorded.
NONE_BEFORE = "no earlier pass of the epoch in this mode was recorded"
LAST_BEFORE = "step {:,}, the last one recorded before, had none"

#: What is said of points whose rows are each of other weights, or may be where the script names the mode, and
#: what would look the same as a change.
_CHANGING = "The rows of an epoch of training are recorded while the weights change"
_MAY_CHANGE = "Passes of mode {} may train the model, and then rows are recorded while the weights change"
_CHANGE_LESS, _CHANGE_MORE = "weights that change less", "weights that change more"
_IN_ORDER = "rows in the order of their labels"

#: The modes that findings are about, if a model was scored in several; "" if it is not known.
_TRAINING = ("", TRAINING_MODE, PROBE_SET_MODE)
#: The modes of which all rows of a point are of one state of the model, or it is not known.
_OF_ONE_STATE = ("", EVALUATION_MODE, PROBE_SET_MODE)


class Finding(NamedTuple):
    """A sentence about a run, and what it is about.

    Attributes:
        kind: ``"nonfinite"``, ``"learned"``, ``"risen"`` (what would be ``"learned"`` if weights that change
            within an epoch were ruled out), ``"decodable"``, ``"fell"``, ``"idle"`` or ``"logged"``.
        text: The sentence.
        target: The target; ``""`` if none.
        address: The layer; of ``"logged"`` the name of the value.
        epoch: The epoch in which it began; NaN if unknown.
        step: The step in which it began; -1 for a whole epoch.
        model: The model of the run; ``""`` if it was not said.
    """

    kind: str
    text: str
    target: str
    address: str
    epoch: float
    step: int
    model: str = ""

    def __str__(self) -> str:
        return self.text


class _Grid:
    """The points of one score of one target, by layer in network order and by time.

    Args:
        table: The points.
        addresses: The layers, in network order.
        others: Whether the target had other labels in points that are not among these.
    """

    def __init__(self, table: Results, addresses: Sequence[str], *, others: bool = False) -> None:
        rank = {address: place for place, address in enumerate(addresses)}
        names, epochs, steps = (table[name].tolist() for name in ("address", "epoch", "step"))
        self.addresses = sorted(set(names), key=lambda name: (rank.get(name, len(rank)), name))
        self.times = sorted(set(zip(epochs, steps, strict=True)))
        self.ordered = sum(name in rank for name in self.addresses)
        row = {address: place for place, address in enumerate(self.addresses)}
        column = {time: place for place, time in enumerate(self.times)}
        at = (
            np.array([row[name] for name in names], dtype=np.int64),
            np.array([column[time] for time in zip(epochs, steps, strict=True)], dtype=np.int64),
        )
        grids = {
            name: np.full((len(row), len(column)), np.nan)
            for name in ("value", "low", "high", "baseline", "n")
        }
        for name, grid in grids.items():
            grid[at] = table[name]
        self.value, self.low, self.high, self.baseline, self.rows = grids.values()
        self.has_other_inputs, self.is_untrained, self.is_of_many_states = (
            np.zeros(self.value.shape, bool) for _ in range(3)
        )
        facts = _facts(table)
        self.has_other_inputs[at] = [each.has_other_inputs for each in facts]
        self.is_untrained[at] = [each.is_untrained for each in facts]
        self.known = np.isfinite(self.value)
        # rows of training passes are each of the weights at that time: a classifier that is fitted to those
        # of an epoch scores low where the weights change much, and can tell by the weights when a row came
        self._mode = str(table["mode"][0])  # all rows are of one
        self.is_of_many_states[at] = (table["step"] < 0) & (self._mode not in _OF_ONE_STATE)
        self.is_of_many_states &= self.known & ~self.is_untrained
        self.score = str(table["score"][0])
        self._first_scored = ", the first scored" + " on these labels" * others

    def above(self) -> np.ndarray:
        """Return where the score is above its baseline by ``MARGIN`` times the width to its lower bound."""
        above: np.ndarray = self.value - self.baseline > MARGIN * np.maximum(self.value - self.low, 0)
        return above

    def reach(self) -> np.ndarray:
        """Return the upper bounds, or where no score can be higher than 1, what they would be without this.

        Of 1.00 [0.67, 1.00] the upper bound says nothing on how much better another layer may be.
        """
        reach: np.ndarray = np.maximum(self.high, 2 * self.value - self.low)
        return reach

    def risen(self, *, at_least: bool = True) -> np.ndarray:
        """Return where the interval is above that of the layer's first value.

        Args:
            at_least: Whether it has to be above by more than what more rows alone may give.
        """
        layers, first = np.arange(len(self.high)), self.known.argmax(axis=1)
        value, high, baseline, rows = (
            grid[layers, first, None] for grid in (self.value, self.high, self.baseline, self.rows)
        )
        more = np.maximum(_ratio(self.rows, rows) - 1, 0) if at_least else 0
        # a value below its baseline is so by chance, and tells no more than its interval is wide
        is_as_before = self.is_untrained & self.is_untrained[layers, first, None]
        risen: np.ndarray = (self.low > high + more * (high - np.minimum(value, baseline))) & ~is_as_before
        return risen

    def lost(self, layer: int, time: int) -> np.ndarray:
        """Return where the interval of a layer is below its value at a time, also with as few rows."""
        value, baseline, rows = (grid[layer, time] for grid in (self.value, self.baseline, self.rows))
        fewer = np.maximum(_ratio(rows, self.rows[layer]), 1)
        is_as_before = self.is_untrained[layer] & self.is_untrained[layer, time]
        lost: np.ndarray = (self.high[layer] < baseline + (value - baseline) / fewer) & ~is_as_before
        return lost

    def counted(self, layer: int, time: int, other: int, has_more: str = "") -> str:
        """Return a sentence on the rows of two points, the earlier one first; "" if there are as many.

        Args:
            layer: The layer.
            time: The later point.
            other: The earlier one.
            has_more: What to say besides if the later one has more. Without, nothing is said of fewer rows.
        """
        rows, before = self.rows[layer, [time, other]]
        if not (rows > before if has_more else rows != before):
            return ""
        return (
            f" {self.when(other).capitalize()} has {before:,.0f} held-out rows, {self.when(time)} "
            f"{rows:,.0f}{has_more}."
        )

    def compared(self, layer: int, time: int, other: int, which: str) -> str:
        """Return a sentence on what differs between two points beside the model; "" if nothing does.

        Args:
            layer: The layer.
            time: The later point, at which something begins that more points confirm.
            other: The earlier one.
            which: Which inputs would look the same.
        """
        if time <= other:
            return ""
        if self.is_untrained[layer, [time, other]].all():
            return (
                f" The parameters are those of {self.when(other)}, so that no training made the difference."
            )
        if not self.has_other_inputs[layer, time : time + STREAK].any():
            return ""
        return (
            f" The same rows had other inputs in earlier epochs, as of random augmentation: {which} inputs "
            "would look the same, which a probe_set rules out."
        )

    def mixed(self, layers: Sequence[int], time: int, which: str) -> str:
        """Return a sentence on points from a time on whose rows are of weights that changed; "" without any.

        Args:
            layers: The layers.
            time: The earliest point that is compared.
            which: What else would look the same.
        """
        if not self.is_of_many_states[layers, time:].any():
            return ""
        changing = _CHANGING if self._mode == TRAINING_MODE else _MAY_CHANGE.format(self._mode)
        return f" {changing}: {which} would look the same, which a probe_set rules out."

    def mixed_since_first(self, layers: Sequence[int]) -> str:
        """Return the sentence of ``mixed`` on a rise over the first values of layers."""
        firsts = [self.first(layer) for layer in layers]
        is_first_mixed = self.is_of_many_states[layers, firsts].any()
        return self.mixed(layers, min(firsts), _CHANGE_LESS if is_first_mixed else _IN_ORDER)

    def first(self, layer: int) -> int:
        """Return the time of a layer's first value."""
        return int(self.known[layer].argmax())

    def last_before(self, layer: int, time: int) -> int:
        """Return the time of a layer's last value before one; that one itself if it is the first."""
        return int(np.flatnonzero(self.known[layer, :time]).max(initial=self.first(layer)))

    def when(self, time: int) -> str:
        """Return the words for a time: ``epoch 3`` or ``step 4,210``."""
        epoch, step = self.times[time]
        return when(epoch, step)

    def since(self, layer: int, time: int) -> str:
        """Return the words for a time, which say if the layer had no value before."""
        return self.when(time) + (self._first_scored if time == self.first(layer) else "")

    def interval(self, layer: int, time: int) -> str:
        """Return a value with its interval, in words."""
        value, low, high = (grid[layer, time] for grid in (self.value, self.low, self.high))
        return f"{value:.2f} [{low:.2f}, {high:.2f}]"

    def bounds(self, layer: int, time: int) -> str:
        """Return a value with its interval and its baseline, in words."""
        return f"{self.score} {self.interval(layer, time)}, baseline {self.baseline[layer, time]:.2f}"

    def finding(self, kind: str, text: str, target: str, layer: int, time: int) -> Finding:
        """Return a finding about a layer that began at a time."""
        return Finding(kind, text, target, self.addresses[layer], *self.times[time])


def findings(
    results: Results,
    addresses: Sequence[str],
    log: Iterable[tuple[str, int, float | None, float]] = (),
    model: str = "",
) -> list[Finding]:
    """Return what follows from the scores of a training, each as a sentence with its numbers.

    - *NaN began*: the first layer that has NaN or infinite values, in the first pass and of it in network
      order (gradients from the end). It began there if the pass before was recorded; else it was first
      recorded there. Of a point of several passes whose steps are unknown, as of a probe set, the layer is
      named only if it is the only one. Also the first logged value of each name that is NaN or infinite.
    - *A target is learned*: a layer's score is above its baseline by 1.5 times the width to its lower
      bound, and its interval is above that of its first value, from some point on and at the two newest
      points at least. Without the second, the target is only *decodable*, as it can be from an untrained
      layer.
    - *A target fell to its baseline*: it was above as before at two points in a row, and at the newest two or
      more points the interval contains the baseline, or is below, and its upper bound is below the earlier
      value.
    - *Layers add nothing*: at the newest two or more points no later layer's upper bound is above the layer's
      score by more than 0.02, and the layer's score is above its baseline as before. The bound is as far from
      the score as the lower one, where that is farther. Few rows have wide intervals, so then it is not said.
      The numbers are those of the point at which a later layer comes closest.

    A classifier knows more from more rows, also of a model that does not change: what its score is above the
    baseline then grows, at most in proportion to the rows. Only a rise beyond that counts as one, and only a
    fall beyond what so many times fewer rows may take. Layers add nothing over one only where all have as
    many rows. A sentence names the numbers of rows of the points that it compares, if they differ.

    Points of other labels do not compare either: of a target whose labels were registered again, what follows
    from the newest ones is told, and of rows that lack classes, from those of the same classes.

    A classifier knows more from easier inputs, too. So where the items had other inputs in earlier epochs, as
    of random augmentation, a sentence on a change says so, and of a model that a training has not changed by
    then, none is learned or fell.

    Of the passes of a training, the rows of an epoch are each of the weights at that time, and all are
    scored together. Where the weights change much, the classifier knows less than of any one state of them;
    where the rows come in the order of their labels, it knows more, because it tells by the weights when a
    row came. So of such points a target is not *learned*: its score has *risen*, and this sentence, and those
    on a fall and on layers that add nothing, name what else would look the same. A probe set is of one state.

    A sentence holds at each point that it covers. Where it begins at a layer's first score, it says so: what
    came before is not known.

    A target is judged by one score: of labels that are not whole numbers R², where it was computed, else a
    classifier's. Of more than 50 whole numbers, which may be numbered classes or counts, both are computed,
    and the one counts by whose intervals layers know more of what there is to know. A score without values
    says nothing.

    Of a model that was scored in several modes, sentences about targets are about its training passes, or its
    probe set. Scores of rows of which many are copies show only that rows are recognized, those in doubt
    are perhaps of other labels, and those of classifiers that were fitted to few rows depend on which these
    were, of which their intervals know nothing. So nothing follows from them. All this is in their notes
    (see ``Facts``).

    Args:
        results: The scores of one run and model: all rows, or those of ``SCORES``. Of several trainings
            under its name, those of the newest count.
        addresses: Its layers, in network order.
        log: The logged values of the newest training as (name, step, epoch, value), ordered by step.
        model: The name of the model, which each finding gets.

    Returns:
        The findings, ordered by target. They may change with every new point: what no longer holds is left
        out.

    Example:
        >>> rows = [
        ...     {"address": "fc1", "target": "digit", "score": "linear_f1", "epoch": epoch, "value": value,
        ...      "low": value - 0.05, "high": value + 0.05, "baseline": 0.1}
        ...     for epoch, value in enumerate([0.1, 0.6, 0.8])
        ... ]
        >>> print(*findings(Results.from_rows(rows), ["fc1"]))
        digit is learned in fc1 from epoch 1: linear_f1 0.60 [0.55, 0.65], baseline 0.10; fc1 had 0.10 ...
    """
    results = _of_newest(results)
    found = _nonfinite(results.where(score="nonfinite"), results.where(score="nonfinite_step"), addresses)
    outputs = _of_training(results.where(unit=-1))
    keep = np.array(
        [not (facts.has_copies or facts.few_fitted or facts.doubts) for facts in _facts(outputs)], bool
    )
    outputs = Results({name: outputs[name][keep] for name in COLUMNS})
    for target in sorted(set(outputs["target"].tolist()) - {""}):
        for of_labels, others in _of_newest_labels(outputs.where(target=target)):
            judged = _judged(of_labels)
            if judged is not None:
                grid = _Grid(judged, addresses, others=others)
                found += [*_learned(grid, target), *_fell(grid, target), *_idle(grid, target)]
    return [each._replace(model=model) for each in found + _logged(log)]


def _of_newest_labels(of_target: Results) -> list[tuple[Results, bool]]:
    """Return the scores by the labels that they are of, for those that the newest point has.

    Layers may have labels of their own. With each table is whether there are points of other labels.
    """
    facts = _facts(of_target)
    numbers = {
        each: number for number, each in enumerate(dict.fromkeys((f.number, f.classes) for f in facts))
    }
    labels = np.array([numbers[each.number, each.classes] for each in facts])
    times = np.stack([np.nan_to_num(of_target["epoch"], nan=-np.inf), of_target["step"]], axis=1)
    known = np.unique(labels[(times == max(times.tolist())).all(axis=1)])
    tables = [Results({name: of_target[name][labels == one] for name in COLUMNS}) for one in known]
    return [(table, len(table) < len(of_target)) for table in tables]


def _judged(of_target: Results) -> Results | None:
    """Return the points of the score that a target is judged by; None if none has a value."""
    by_score = [of_target.where(score=name) for name in CLASSIFIERS]
    classified = next((each for each in by_score if _has_values(each)), None)
    regressed = of_target.where(score=REGRESSION)
    if len(regressed) and any(facts.are_numbers for each in by_score for facts in _facts(each)):
        classified = None
    known = [each for each in (classified, regressed) if each is not None and _has_values(each)]
    return max(known, key=_most_known, default=None)


def _facts(table: Results) -> list[Facts]:
    return [Facts.of(note) for note in table["note"].tolist()]


def _has_values(table: Results) -> bool:
    return bool(np.isfinite(table["value"]).any())


def _most_known(table: Results) -> float:
    """Return how much of what there is above the baseline some lower bound is certain of."""
    low, baseline = table["low"], table["baseline"]
    with np.errstate(all="ignore"):
        certain = (low - baseline) / (1 - baseline)
    return float(certain[np.isfinite(certain)].max(initial=-math.inf))


def _of_newest(results: Results) -> Results:
    """Return the scores of the newest training; another under the same name may have left some in place."""
    trainings = results["training"]
    known = trainings[np.isfinite(trainings)]
    if not len(known):
        return results
    earlier = trainings < known.max()
    return Results({name: results[name][~earlier] for name in COLUMNS})


def _of_training(results: Results) -> Results:
    """Return the scores of outputs in one mode: that of the training or of its probe set, if there is one.

    A run may begin with an evaluation, whose ``kind`` is then plain, as the sanity check of Lightning.
    """
    kinds, modes = results["kind"].tolist(), results["mode"].tolist()
    of_kind = dict(zip(kinds, modes, strict=True))
    outputs = sorted(kind for kind in of_kind if kind.partition("@")[0] == "output")  # the plain one first
    trained = [kind for kind in outputs if of_kind[kind] in _TRAINING]
    return results.where(kind=next(iter(trained or outputs), "output"))


def when(epoch: float, step: int) -> str:
    """Return the words for a point in time.

    >>> when(3, -1), when(0.5, -1), when(0, 4210), when(math.nan, -1)
    ('epoch 3', 'epoch 0.5', 'step 4,210', 'an unknown epoch')
    """
    if step >= 0:
        return f"step {step:,}"
    return f"epoch {epoch:g}" if epoch == epoch else "an unknown epoch"


def streak_start(holds: np.ndarray, least: int = STREAK) -> int | None:
    """Return where the run of True that reaches the end begins; None if it is shorter than ``least``.

    >>> streak_start(np.array([True, False, True, True])), streak_start(np.array([False, True]))
    (2, None)
    """
    false = np.flatnonzero(~holds)
    start = int(false[-1]) + 1 if len(false) else 0
    return start if len(holds) - start >= least else None


def _ratio(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return how many times as many rows there are as others; 1 where one number is unknown."""
    known = (rows > 0) & (others > 0)
    with np.errstate(all="ignore"):
        return np.where(known, rows / others, 1.0)


def _name(address: str) -> str:
    return address or "the model's output"


def _others(count: int) -> str:
    return f" and {count} more layer{'s' * (count != 1)}" if count else ""


#: The order in a step of a training of what may hold NaN: what is not named is of the forward pass.
_BACKWARD = 2
_STAGES = {
    "parameter": 0,
    "grad_output": _BACKWARD,
    "grad_input": _BACKWARD,
    "parameter_grad": 3,
    "update": 4,
}


class _Bad(NamedTuple):
    """A layer with NaN or infinite values at some point in time; the smallest had them first.

    Attributes:
        epoch: The epoch, -inf if it is unknown.
        point: The step of the point, -1 for a whole epoch.
        step: The step in which they were first recorded; inf if it is unknown.
        stage: The place of its kind in a step.
        place: Its place in that stage.
        kind: The kind of array.
        address: The layer.
        values: The number of these values.
        note: What is known of the pass before.
    """

    epoch: float
    point: int
    step: float
    stage: int
    place: int
    kind: str
    address: str
    values: int
    note: str


def _nonfinite(table: Results, steps: Results, addresses: Sequence[str]) -> list[Finding]:
    rank = {address: place for place, address in enumerate(addresses)}
    known = {_origin(row): (row["value"], row["note"] or "") for row in steps}
    bad, times = [], set[tuple[float, int]]()
    for row in table:
        if row["value"] is None:
            continue
        origin = epoch, point, kind, address = _origin(row)
        times.add((epoch, point))
        if row["value"] > 0:
            step, note = known.get(origin, (math.inf if point < 0 else float(point), ""))
            stage = _STAGES.get(kind.partition("@")[0].partition(".")[0], 1)
            place = rank.get(address, len(rank))
            of_pass = stage, -place if stage == _BACKWARD else place, kind, address
            bad.append(_Bad(epoch, point, step, *of_pass, int(row["value"]), note))
    if not bad:
        return []
    first = min(bad)
    earlier = max((point for _, point in times if point < first.point), default=-1)
    if -1 < earlier < first.point - 1:
        first = first._replace(note=LAST_BEFORE.format(earlier))
    epoch = math.nan if first.epoch == -math.inf else first.epoch
    at = when(epoch, first.point) + ", the first scored" * (first[:2] == min(times))
    text = _words_for_nonfinite(first, [each for each in bad if each[:2] == first[:2]], at)
    step = int(first.step) if math.isfinite(first.step) else -1
    return [Finding("nonfinite", text, "", first.address, epoch, step)]


def _words_for_nonfinite(first: _Bad, together: Sequence[_Bad], at: str) -> str:
    """Return the sentence on where values that are not finite began.

    Args:
        first: The layer that had them first, as far as known.
        together: All layers that have them at the same point in time.
        at: The words for this.
    """
    name, values = _name(first.address), f"{first.values:,} value{'s' * (first.values != 1)}"
    of = "" if first.kind == "output" else f" ({first.kind.replace('_', ' ')})"
    others = len({each.address for each in together} - {first.address})
    if others and not math.isfinite(first.step):
        return (
            f"NaN or infinite values began at {at}, in {name}{of}{_others(others)}: {values} in {name}. In "
            "which layer they began is not known, for a point of a whole epoch does not tell."
        )
    of += _others(sum(each[2:5] == first[2:5] for each in together) - 1)  # in no known order
    began = "were first recorded" if first.note else "began"
    note = f" {first.note[0].upper()}{first.note[1:]}." if first.note else ""
    if first.point < 0 and math.isfinite(first.step):
        at, values = f"step {int(first.step):,} of {at}", f"{values} in the epoch"
    return f"NaN or infinite values {began} in {name}{of} at {at}: {values}.{note}"


def _origin(row: Mapping[str, Any]) -> tuple[float, int, str, str]:
    epoch = -math.inf if row["epoch"] is None else row["epoch"]
    return epoch, -1 if row["step"] is None else row["step"], row["kind"] or "", row["address"] or ""


def _learned(grid: _Grid, target: str) -> list[Finding]:
    above, risen = grid.above(), grid.risen()
    for kind, holds in (("learned", above & risen), ("decodable", above)):
        starts = [
            (start, start > grid.first(layer), layer)
            for layer, row in enumerate(holds)
            if (start := streak_start(row)) is not None
        ]
        if not starts:
            continue
        *beginning, layer = min(starts)
        layers = [each for *other, each in starts if other == beginning]
        start, name = beginning[0], _name(grid.addresses[layer])
        where, bounds = name + _others(len(layers) - 1), grid.bounds(layer, start)
        if kind == "learned":
            first = grid.first(layer)
            mixed = grid.mixed_since_first(layers)
            kind, verb = (
                ("risen", f"{grid.score} of {target} rises") if mixed else (kind, f"{target} is learned")
            )
            numbers = bounds.removeprefix(f"{grid.score} ") if mixed else bounds
            text = (
                f"{verb} in {where} from {grid.when(start)}: {numbers}; {name} had "
                f"{grid.interval(layer, first)} at {grid.since(layer, first)}."
                + grid.counted(layer, start, first)
                + grid.compared(layer, start, first, "easier")
                + mixed
            )
        else:
            before = grid.last_before(layer, start)
            text = (
                f"{target} can be decoded from {where} since {grid.since(layer, start)}: {bounds}"
                + (f" in {name}" if len(layers) > 1 else "")
                + "."
                + grid.counted(layer, start, before, ", which alone may show it")
                + grid.compared(layer, start, before, "easier")
                + f" {_newest(grid, layers)}"
                + grid.mixed_since_first(layers) * bool(before < start or grid.risen()[layers, -1].any())
            )
        return [grid.finding(kind, text, target, layer, start)]
    return []


def _newest(grid: _Grid, layers: Sequence[int]) -> str:
    """Return the sentence on which of some layers have risen at the newest point, which may be by chance."""
    is_above = grid.risen()[:, -1]
    risen = [grid.addresses[each] for each in layers if is_above[each]]
    if not risen:
        by_rows = grid.risen(at_least=False)[layers, -1].any()
        more = " by more than its rows may give" * bool(by_rows)
        return f"No interval of the newest point is above that of the first{more}."
    where = _name(risen[0]) + _others(len(risen) - 1)
    return f"At the newest point the interval of {where} is above that of the first."


def _fell(grid: _Grid, target: str) -> list[Finding]:
    above, within = grid.above(), grid.low <= grid.baseline
    fallen = []
    for layer in range(len(grid.addresses)):
        twice = np.flatnonzero(above[layer, 1:] & above[layer, :-1])
        if not len(twice):
            continue
        last = int(twice[-1]) + 1
        start = streak_start(within[layer])
        if start is not None and start > last and grid.lost(layer, last)[start:].all():
            fallen.append((start, layer, last))
    if not fallen:
        return []
    start, layer, last = min(fallen)
    together = [each for at, each, _ in fallen if at == start]
    below = grid.high[together, start] < grid.baseline[together, start]
    side = "below" if below.all() else "to or below" if below.any() else "to"
    name = _name(grid.addresses[layer])
    text = (
        f"{target} fell {side} its baseline in {name}{_others(len(together) - 1)} at {grid.when(start)}: "
        f"{grid.bounds(layer, start)}; {name} had {grid.value[layer, last]:.2f} at {grid.when(last)}."
        + grid.counted(layer, start, last)
        + grid.compared(layer, start, last, "harder")
        + grid.mixed(together, start, _CHANGE_MORE)
    )
    return [grid.finding("fell", text, target, layer, start)]


def _idle(grid: _Grid, target: str) -> list[Finding]:
    above, reach = grid.above(), grid.reach()
    scored = np.flatnonzero(grid.known[: grid.ordered].any(axis=1))
    # the highest reach, and the most and fewest rows, of each scored layer and all after it; NaN where one of
    # them has no score, and then nothing is said
    highest, most = (np.maximum.accumulate(each[scored][::-1], axis=0)[::-1] for each in (reach, grid.rows))
    fewest = np.minimum.accumulate(grid.rows[scored][::-1], axis=0)[::-1]
    for layer in range(grid.ordered - 1):
        later = scored[np.searchsorted(scored, layer, side="right") :]
        if not len(later):
            break
        adds_nothing = highest[-len(later)] <= grid.value[layer] + TOLERANCE
        alike = (most[-len(later)] == grid.rows[layer]) & (fewest[-len(later)] == grid.rows[layer])
        start = streak_start(above[layer] & adds_nothing & alike)
        if start is None:
            continue
        bound = grid.high[later].max(axis=0)
        closest = start + int((bound - grid.value[layer])[start:].argmax())
        names = [_name(grid.addresses[each]) for each in later]
        which = (
            f"{names[0]} adds"
            if len(names) == 1
            else f"The {len(names)} layers from {names[0]} to {names[-1]} add"
        )
        text = (
            f"{which} nothing about {target} over {_name(grid.addresses[layer])} since "
            f"{grid.since(layer, start)}, or {TOLERANCE} at most: {grid.bounds(layer, closest)}, and "
            f"{bound[closest]:.2f} as the highest upper bound of later layers, at {grid.when(closest)}, "
            "where they come closest."
            + grid.mixed([layer, *later], start, "later layers whose outputs change more")
        )
        return [grid.finding("idle", text, target, layer, start)]
    return []


def _logged(log: Iterable[tuple[str, int, float | None, float]]) -> list[Finding]:
    first: dict[str, Finding] = {}
    last: dict[str, str] = {}
    for name, step, epoch, value in log:
        if name in first:
            continue
        if math.isfinite(value):
            last[name] = f" It was {value:.4g} at step {step:,}."
        else:
            text = (
                f"{name} is {'NaN' if value != value else 'infinite'} at step {step:,}.{last.get(name, '')}"
            )
            at = math.nan if epoch is None else epoch
            first[name] = Finding("logged", text, "", name, at, step)
    return list(first.values())
