"""Say of which layers the rows are in another order than in the batch, and doubt what was sent of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...backends.base import CapturedTensor
from ...core.address import without_call
from ...core.doubt import Doubt
from ..row_check import listed
from ..warn_once import WarningLog
from .doubts import Doubts
from .pass_tags import PassTags

_MOVED = (
    "Layer {!r} of {} does not keep the order of rows: its rows are those of an earlier layer in another "
    "order, seen in epoch {}. {} A probe_set tests the order of all layers."
)
_REFUSED = "It has no scores with labels from then on, and earlier ones are withdrawn."
_OF_OTHERS = "Its scores with labels are withdrawn."
_MOVED_NOTE = "withdrawn: in epoch {}, the layer had its rows in another order than the batch"
_UNPROVEN = (
    "The order of rows in {} of {} is not proven: in epoch {}, another layer had its rows in another order, "
    "or got a PackedSequence with enforce_sorted=True. {} no scores with labels from then on, and earlier "
    "ones are withdrawn. Pack with enforce_sorted=False, or pass a probe_set, which tests the order of all "
    "layers."
)
_UNPROVEN_NOTE = (
    "withdrawn: in epoch {}, another layer had its rows in another order than the batch, or packed as sorted "
    "ones, and that of this layer is not proven"
)
_OTHER_CALL = (
    "Layer {!r} of {} has no scores with labels: it ran in a call of the model with other inputs than the "
    "first of its step, as on generated rows after real ones, and ids of items and the order of arrival are "
    "those of the first call."
)
_OTHER_CALL_NOTE = "withdrawn: in epoch {}, the layer ran on other inputs than the first call of its step"


class _Moved(NamedTuple):
    """A layer whose rows are not those of the batch in their order.

    Attributes:
        tags: The tags of the pass that shows it.
        address: The layer.
        note: The note on its scores.
        are_others: Whether other layers were such before.
    """

    tags: PassTags
    address: str
    note: str
    are_others: bool


class MovedRows:
    """The layers of one model whose rows are not those of the batch in their order, or may not be.

    Args:
        name: The name of the model.
        doubts: Receives doubts of what was sent of them.
        troubles: Receives the notices.
    """

    def __init__(self, name: str, doubts: Doubts, troubles: WarningLog) -> None:
        self._name, self._doubts, self._troubles = name, doubts, troubles
        self._layers: set[str] = set()
        self._new: list[_Moved] = []  # of passes that have not ended
        self._passes = 0

    def is_due(self) -> bool:
        """Count a recorded pass of the training, and return whether its rows shall be followed.

        These are the first, second, fourth … of them.
        """
        self._passes += 1
        return self._passes & (self._passes - 1) == 0

    def look_again(self) -> None:
        """Follow the rows of the next passes as those of the first, because the model has changed."""
        self._passes = 0

    def add(self, address: str, tags: PassTags, *, is_known: bool) -> None:
        """Register that the rows of a layer are in another order than in the batch.

        Args:
            address: The layer.
            tags: The tags of the pass that shows it.
            is_known: Whether that is known; otherwise they may be, since others before are.
        """
        self._add(address, tags, _MOVED_NOTE if is_known else _UNPROVEN_NOTE)

    def add_others(self, address: str, tags: PassTags) -> None:
        """Register that the rows of a layer are not known to be those that the ids of the pass are for."""
        self._add(address, tags, _OTHER_CALL_NOTE)

    def _add(self, address: str, tags: PassTags, note: str) -> None:
        if address not in self._layers:
            self._new.append(_Moved(tags, address, note, bool(self._layers)))
            self._layers.add(address)

    def has(self, tensor: CapturedTensor) -> bool:
        """Return whether a tensor is of such a layer."""
        if tensor.kind.startswith("grad_"):  # whose number may say which of several gradients it is
            return without_call(tensor.address) in map(without_call, self._layers)
        return tensor.address in self._layers

    def end_pass(self, waits: Callable[[PassTags], bool]) -> None:
        """Say which layers were shown by passes of which epoch and ids are known, and doubt their items.

        Args:
            waits: Returns whether those of a pass are not known yet.
        """
        if not self._new:
            return
        new = [one for one in self._new if not waits(one.tags)]
        self._new = [one for one in self._new if waits(one.tags)]
        for one in new:
            self._say(one)
            # of the rows so far, and by order of arrival also of later ones
            epoch, until = f"{one.tags.epoch:g}", None if _is_by_order(one.tags) else one.tags.epoch
            self._doubts.add(Doubt(one.note.format(epoch), True, until=until, address=one.address))
        if unproven := [one for one in new if one.note is _UNPROVEN_NOTE]:
            scores = "They have" if len(unproven) > 1 else "It has"
            addresses, epoch = listed([one.address for one in unproven]), f"{unproven[0].tags.epoch:g}"
            self._troubles.inform("rows", _UNPROVEN.format(addresses, self._name, epoch, scores), "warning")

    def _say(self, one: _Moved) -> None:
        """Say of a layer that its rows are others; see ``end_pass`` for those of which it is not proven."""
        if one.note is _MOVED_NOTE:
            consequence = _OF_OTHERS if _is_by_order(one.tags) else _REFUSED
            text = _MOVED.format(one.address, self._name, f"{one.tags.epoch:g}", consequence)
        elif one.note is _OTHER_CALL_NOTE:
            text = _OTHER_CALL.format(one.address, self._name)
        else:
            return
        self._troubles.inform("rows", text, "warning", is_logged=one.are_others)


def _is_by_order(tags: PassTags) -> bool:
    """Return whether the rows of a pass are identified by their order of arrival."""
    return tags.items is None and tags.ordered
