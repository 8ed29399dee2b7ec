"""Say how the epochs of a model are found."""

from __future__ import annotations

from ..search_log import SearchLog
from ..warn_once import WarningLog


class EpochLog(SearchLog):
    """The words for how epochs are found, and what sentences about them depend on.

    Args:
        troubles: Gets the sentences for the page.

    Attributes:
        epoch: The present epoch.
        are_passes_recorded: Whether the passes themselves are recorded, and not a probe set instead, which
            shows the model at the end of each epoch.
    """

    def __init__(self, troubles: WarningLog) -> None:
        super().__init__("epochs", troubles)
        self.epoch, self.are_passes_recorded = 0.0, True
