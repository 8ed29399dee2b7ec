"""Find the ids of the rows of a training that does not name them.

Ids are the indices that the sampler of the DataLoader gave, for the dataset of the training alone: in another
one, for validation, the same indices are other items. A dataset that is made anew in each epoch, and not
known to be the same, is another one: labels stay with the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from ..backends.feeds import Feed, Items, Origin
from ..core.notes import Facts
from .contents import Contents
from .search_log import NOT_FOUND, SearchLog
from .warn_once import WarningLog

_FIRST_ONLY = (
    "Items are found from the sampler of {} for its first iteration alone: its batches were kept and used "
    "again, as by itertools.cycle, and which rows they have then is not known. Later epochs have no labels. "
    "Iterate over the DataLoader in each epoch, set watch.items = ids before each call, or pass a probe_set."
)
_BY_SAMPLER = "Items are found from the sampler of {}: label i belongs to row i of {}."
_BY_ORDER = (
    "Items are not found from the sampler of {}, because {}. Set watch.items = ids, or pass a probe_set."
)
_OTHER = (
    "Rows of {} (mode {}) have no labels: they are of another dataset than the rows of {}, which labels are "
    "for. Set watch.items = ids, or pass a probe_set."
)
_BESIDE = (
    "Rows of {} have no labels, although they train the model: they are of another dataset than the rows of "
    "{}, which labels are for. An epoch with rows of both has no scores with labels, and its other scores "
    "are of both. Set watch.items = ids before each call, or pass a probe_set."
)
_NOT_TRAINED_ON = (
    "Labels are for the rows of {}, which train the model. Before, it was called with rows of {}, and these "
    "were taken to be the rows of the labels. Scores with labels of that time are withdrawn."
)
_ARRIVED = (
    "Scores with labels of rows that came before the training are withdrawn: labels were matched to these "
    "rows by order of arrival, and are for the rows of {}, by its sampler."
)
_NOT_BY_ORDER = "withdrawn: matched by order of arrival, and labels are for the rows of {} by its sampler"
_NOT_OF_LABELS = "withdrawn: labels are for the rows of {}, and these were rows of {}"
_ANEW = (
    "Rows of {} have no labels: its dataset was made anew, and is not known to hold the rows of the first, "
    "{}, which labels are for. Make the dataset once, before the epochs, or set watch.items = ids."
)
_OTHER_TENSOR = (
    "Items are found from the sampler for some calls only: a call took {} of a batch of {}, and the first "
    "took {}. Which rows another tensor of the batch has (another view, a pair) is not known, so these "
    "calls have no ids, and epochs with both have no labels. The rows of {} are still taken to be the "
    "sampler's. Set watch.items = ids before each call, or pass a probe_set."
)
_REORDERED = (
    "Items are not found from the sampler of {}, because its dataset changes its order: items are now what "
    "others were before. Earlier scores are of the order at that time, perhaps not that of the labels, and "
    "have a note. Set watch.items = ids before each call, or pass a probe_set."
)
_CHANGED = (
    "Items are found from the sampler of {}, and not verified: its dataset gives other values for an item "
    "than before. With random augmentation label i still belongs to item i; with a dataset that changes its "
    "order it does not. A probe_set is free of this doubt."
)
_COPIES = (
    "Many items of {} are exact copies of others. Labels fitted on a row and tested on its copy show only "
    "that the row is recognized, so their scores have a note. Register them with groups=, one for all copies."
)


class ItemFinder:
    """Finds the ids of the rows of one model's batches.

    Args:
        feed: What gives the batches; None if the framework does not tell.
        troubles: Gets the sentences for the page.
        on_doubt: Called as ``on_doubt(note, modes, withdraw)`` if rows with labels in these modes were
            perhaps other items, or with ``withdraw`` were not those of the labels.
        on_other_inputs: Called if items have other inputs than before.

    Attributes:
        is_searching: Whether ids are to be found, and the script does not name them.
        has_ids: Whether the ids of recorded rows are found.
        has_copies: Whether many items are known to be exact copies of others.
        is_refused: Whether labels cannot be for the rows of the last call without ids, not even in their
            order: they are of another dataset than the labels, or were reordered.
    """

    def __init__(
        self,
        feed: Feed | None,
        troubles: WarningLog,
        on_doubt: Callable[[str, Iterable[str], bool], None],
        on_other_inputs: Callable[[], None],
    ) -> None:
        self._feed, self._troubles, self._log = feed, troubles, SearchLog("items", troubles)
        self._on_doubt, self._on_other_inputs = on_doubt, on_other_inputs
        self.is_searching = feed is not None
        self.has_ids = self.has_copies = self.is_refused = False
        self._dataset: int | None = None  # that labels are for
        self._name = ""  # of its loader
        self._is_of_evaluation = False  # whether it is of a model without an optimizer, called before any
        self._is_certain = False  # whether a batch of the training was found among those of the dataset
        self._named_modes: dict[str, None] = {}  # the modes of calls whose rows have ids
        self._ordered_modes: dict[str, None] = {}  # those whose rows are known by their order alone
        self._tensors: tuple[int, ...] = ()  # of a batch, that the first call with ids had
        self._contents = Contents()
        self._is_reordered = False  # the dataset gave an item for another

    @property
    def how(self) -> str:
        """The way in which ids are found, in words."""
        return self._log.how

    def are_set(self, how: str) -> None:
        """Register that ids are known otherwise, so that none are looked for."""
        self._log.how, self.is_searching = how, False

    @property
    def has_no_dataset(self) -> bool:
        """True if ids are to be found, and no dataset is known that labels are for."""
        return self.is_searching and self._dataset is None

    def trains(self, origin: Origin) -> None:
        """Register where a batch that trains the model comes from."""
        if self._dataset is None:
            self._dataset, self._name = origin.dataset, origin.name

    def evaluates(self, origin: Origin) -> None:
        """Register where a batch of a model comes from that no optimizer trains."""
        if self._dataset is None:
            self._dataset, self._name, self._is_of_evaluation = origin.dataset, origin.name, True

    def ids_of(
        self, inputs: Any, mode: str, trained: Collection[int], *, are_kept: bool
    ) -> np.ndarray | None:
        """Return the ids of the rows of a call that is about to be recorded; None if they are not known.

        Args:
            inputs: The arguments of the call.
            mode: The mode of the call.
            trained: The iterations whose batches train the model.
            are_kept: Whether the batches of the training were kept from an iteration that is over.
        """
        self.is_refused = False
        feed, log = self._feed, self._log
        if feed is None or not self.is_searching:
            return None
        training, found = feed.is_training(), feed.items(inputs)
        if found is None:
            return None
        if self._dataset is None:
            # it is not known yet of which dataset labels are for the rows
            self.is_refused = found.ids is not None or found.is_reordered or not training
            if training and found.ids is None:
                log.state(_BY_ORDER.format(found.name, found.reason))
            return None
        if training and found.ids is not None and not self._is_certain:
            self._begin_training_on(found)
        is_known = found.ids is None or self._is_certain or self._is_of_evaluation
        if found.dataset != self._dataset or not is_known:
            self.is_refused = True
            if not training or found.ids is not None or found.iteration in trained:
                self._say_other(feed, found.name, mode, training=training)
            return None
        if training and are_kept:
            if self._is_certain and log.is_new(_FIRST_ONLY):
                log.state(_FIRST_ONLY.format(found.name), "warning")
        elif found.ids is None or self._are_as_before(found):
            return self._given(found, mode)
        self.has_ids, self.is_refused = False, True
        return None

    def _given(self, found: Items, mode: str) -> np.ndarray | None:
        """Register what is known of the rows of a call, and return their ids."""
        if found.ids is None:
            self._log.found(_BY_ORDER.format(found.name, found.reason))
            self._ordered_modes[mode] = None
        else:
            self._log.found(_BY_SAMPLER.format(found.name, found.rows_of))
            self._named_modes[mode] = None
        self.has_ids, self.is_refused = found.ids is not None, found.is_reordered
        return found.ids

    def _begin_training_on(self, found: Items) -> None:
        """Register the dataset of the training, and withdraw labels that other rows had before."""
        if self._is_of_evaluation and found.dataset != self._dataset:
            self._tensors, self._contents, self._log.how = (), Contents(), NOT_FOUND
            self._on_doubt(_NOT_OF_LABELS.format(found.name, self._name), self._named_modes, True)
            self._named_modes = {}
            self._log.warn(_NOT_TRAINED_ON.format(found.name, self._name))
        if self._ordered_modes:
            self._on_doubt(_NOT_BY_ORDER.format(found.name), self._ordered_modes, True)
            self._log.warn(_ARRIVED.format(found.name))
        self._dataset, self._name, self._is_certain = found.dataset, found.name, True

    def _say_other(self, feed: Feed, name: str, mode: str, *, training: bool) -> None:
        """Say once for each mode that rows are of another dataset."""
        if not self._log.is_new(mode):
            return
        if training:
            is_gone = self._dataset is not None and feed.is_gone(self._dataset)
            self._log.add((_ANEW if is_gone else _BESIDE).format(name, self._name), "warning")
        else:
            self._log.say(_OTHER.format(name, mode, self._name))

    def _are_as_before(self, found: Items) -> bool:
        """Return whether the rows of a call are those that the ids were for before; if not, say so."""
        self._tensors = self._tensors or found.tensors
        if not _are_same_rows(self._tensors, found.tensors):
            if self._log.is_new(_OTHER_TENSOR):
                now, first = map(_named, (found.tensors, self._tensors))
                self._log.state(_OTHER_TENSOR.format(now, found.name, first, first), "warning")
            return False
        self._look_at_contents(found)
        return not self._is_reordered

    def _look_at_contents(self, found: Items) -> None:
        """Say what the values of the rows show: another order of the dataset, other values, or copies."""
        if found.ids is None or found.contents is None or self._is_reordered:
            return
        match self._contents.see(found.ids, found.contents, found.form):
            case "reordered":
                self._is_reordered = True
                doubt = Facts(doubts=("the order of the dataset changed",))
                self._on_doubt(doubt.note, self._named_modes, False)
                self._log.state(_REORDERED.format(found.name), "warning")
            case "changed":
                self._on_other_inputs()
                self._log.state(_CHANGED.format(found.name))
            case "copies":
                self.has_copies = True
                self._troubles.inform("copies", _COPIES.format(found.name))


def _are_same_rows(first: tuple[int, ...], now: tuple[int, ...]) -> bool:
    """Return whether a call has the rows of the first one, by the numbers of the tensors of a batch.

    Tensors of one call belong together, such as ids and their mask. A later call may have fewer or more of
    them, but not others: ``(anchor, mask)`` and ``(positive, mask)`` are different rows.

    Example:
        >>> _are_same_rows((0, 1), (0,)), _are_same_rows((0, 2), (1, 2)), _are_same_rows((0, 1), (1,))
        (True, False, False)
    """
    return not first or (first[0] in now and (set(first) <= set(now) or set(first) >= set(now)))


def _named(tensors: tuple[int, ...]) -> str:
    """Return the numbers of tensors in words.

    Example:
        >>> _named((0,)), _named((0, 2))
        ('tensor 0', 'tensors 0 and 2')
    """
    return f"tensor{'s' * (len(tensors) > 1)} {' and '.join(map(str, tensors))}"
