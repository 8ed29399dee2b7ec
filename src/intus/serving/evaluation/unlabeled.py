"""Tell which layers have no scores of a target: of each kind and mode apart, as a layer has its scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from ...core.errors import did_you_mean
from ..data_point import Key
from ..messages import Notice


class Unlabeled:
    """The layers that targets do and do not fit, among data points of one epoch of a (run, model).

    A series is a kind in a mode (``Key.series``). A target may fit all layers in one mode and none in
    another, as of an evaluation whose rows have no ids.

    Attributes:
        fitted: The series with scores, by target.
    """

    def __init__(self) -> None:
        self.fitted: dict[str, set[str]] = {}
        self._layers: dict[str, dict[str, None]] = {}  # that were recorded, by series
        self._without: dict[str, dict[str, dict[str, str]]] = {}  # reasons by target, series and layer
        self._matched: set[str] = set()  # targets whose patterns match a layer
        self._elsewhere: dict[str, tuple[str, dict[str, None]]] = {}  # patterns, and layers they do not match

    def add(
        self, key: Key, fitted: Iterable[str], misfits: Mapping[str, str], elsewhere: Mapping[str, str]
    ) -> None:
        """Add a data point.

        Args:
            key: Its key.
            fitted: The targets that it was scored on.
            misfits: The reason why a target that is for it was not, by the target's name.
            elsewhere: The patterns of targets that are for other layers, by the target's name.
        """
        self._layers.setdefault(key.series, {})[key.address] = None
        for name in fitted:
            self.fitted.setdefault(name, set()).add(key.series)
        for name, reason in misfits.items():
            of_series = self._without.setdefault(name, {}).setdefault(key.series, {})
            of_series.setdefault(key.address, reason)
        self._matched |= {*fitted, *misfits}
        for name, pattern in elsewhere.items():
            self._elsewhere.setdefault(name, (pattern, {}))[1][key.address] = None

    def notices(
        self, run: str, model: str, earlier: Mapping[str, Set[str]], is_new: Callable[[str, str], bool]
    ) -> list[Notice]:
        """Return what is to be said of targets.

        Args:
            run: The run.
            model: The model.
            earlier: What ``fitted`` was of data points before, of this epoch and others.
            is_new: Called as ``is_new(target, subject)``: whether nothing was said of that before. It counts
                as said then.
        """
        out = []
        for name, (pattern, layers) in self._elsewhere.items():
            if name not in self._matched and is_new(name, "layers"):
                text = (
                    f"The target {name!r} has layer_pattern {pattern!r}, which matches none of the "
                    f"{len(layers)} layers. {did_you_mean(pattern, layers)}"
                )
                out.append(Notice("target_unused", text, "warning", run, model))
        for name, of_target in self._without.items():
            others = earlier.get(name, set()) - of_target.keys()
            if name in self.fitted or others:
                new = [series for series in of_target if is_new(name, f"partly: {series}")]
                texts = self._of_some(name, {series: of_target[series] for series in new})
                out += [Notice("target_partly", text, "info", run, model) for text in texts]
            else:
                new = [series for series in of_target if is_new(name, f"misfit: {series}")]
                for series in new:
                    is_new(name, f"partly: {series}")  # said with this
                if new:
                    text = _of_none(new, next(iter(of_target[new[0]].values())))
                    out.append(Notice("target_misfit", text, "warning", run, model))
        return out

    def _of_some(self, name: str, of_target: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Return sentences on a target with scores elsewhere; series share one that lack the same layers."""
        together: dict[str, list[str]] = {}
        for series, reasons in of_target.items():
            together.setdefault(self._where(name, series, list(reasons)), []).append(series)
        return [
            f"The target {name!r} has no scores of the {' and the '.join(found)}{where}. "
            + next(iter(of_target[found[0]].values()))
            for where, found in together.items()
        ]

    def _where(self, name: str, series: str, without: list[str]) -> str:
        """Return the words for the layers of a series without scores; "" if none has any."""
        if series not in self.fitted.get(name, ()):
            return ""
        more = f" and {len(without) - 3} more" if len(without) > 3 else ""
        named = ", ".join(map(repr, without[:3]))
        return f" at {len(without)} of {len(self._layers[series])} layers: {named}{more}"


def _of_none(new: list[str], reason: str) -> str:
    """Return a reason that holds for the first of these series, and that the others have no scores."""
    others = f" It has no scores of the {' and the '.join(new[1:])} either." if new[1:] else ""
    return reason + others
