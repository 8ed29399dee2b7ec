"""Record the parameters of an epoch at its end."""

from __future__ import annotations

from collections.abc import Callable

from ..sender import Sender
from ..warn_once import WarningLog

_GONE = (
    "intus: the parameters of %s are not recorded as they were at the end of epoch %s, because they do not "
    "exist any more. Keep the model until the next epoch, or call flush() or Probe.remove() before."
)


class EpochParameters:
    """The parameters of one model that wait for the end of the epoch.

    Args:
        name: The name of the model.
        sender: Posts the records.
        on_error: Called with an error by which one is missing.
        troubles: Receives a warning.
    """

    def __init__(
        self, name: str, sender: Sender, on_error: Callable[[Exception], None], troubles: WarningLog
    ) -> None:
        self._name, self._sender, self._on_error, self._troubles = name, sender, on_error, troubles
        self._waiting: dict[tuple[str, str], Callable[[], bool]] = {}  # by mode and address
        self._shown_at = -1  # the steps of optimizers when they were shown, as at the end of the data

    def add(self, mode: str, address: str, show: Callable[[], bool]) -> None:
        """Let a parameter wait for the end of the epoch.

        Args:
            mode: The mode of the pass.
            address: The parameter.
            show: Records it, and returns False if it no longer exists.
        """
        self._waiting[mode, address] = show
        self._shown_at = -1

    @property
    def are_waiting(self) -> bool:
        """True if there are any."""
        return bool(self._waiting)

    def show(self, epoch: float, steps: int) -> None:
        """Record the parameters as they are now, unless no step came since that was done.

        The script may load others after the end of its data, which are not those of the epoch.

        Args:
            epoch: The epoch.
            steps: The number of steps of optimizers; 0 if not known.
        """
        if not self._waiting or (steps and steps == self._shown_at):
            return
        self._shown_at = steps
        for show in self._waiting.values():
            try:
                if not show():
                    self._troubles.warn_once(_GONE, self._name, f"{epoch:g}")
            except Exception as error:
                self._on_error(error)
        self._sender.post()

    def end_epoch(self) -> None:
        """Forget the parameters."""
        self._waiting = {}
