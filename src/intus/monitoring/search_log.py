"""Say how the epochs of a model, or the ids of its rows, are found."""

from __future__ import annotations

from .warn_once import WarningLog

NOT_FOUND = "not found"


class SearchLog:
    """The words for how something is found, and the sentences about it that were said.

    Args:
        code: What is found: "epochs" or "items".
        troubles: Gets the sentences for the page.

    Attributes:
        how: How it is found.

    Example:
        >>> log = SearchLog("epochs", WarningLog())
        >>> log.found("from the loader."), log.add("One was left out."), log.how
        (None, None, 'from the loader. One was left out.')
    """

    def __init__(self, code: str, troubles: WarningLog) -> None:
        self._code, self._troubles = code, troubles
        self._said: set[str] = set()
        self.how = NOT_FOUND

    @property
    def is_found(self) -> bool:
        """True if something was found, or is set."""
        return self.how != NOT_FOUND

    def found(self, how: str) -> None:
        """Say how it is found, if nothing was found before."""
        if not self.is_found:
            self.state(how)

    def state(self, how: str, level: str = "info") -> None:
        """Say how it is found from now on."""
        self.how = how
        self._troubles.inform(self._code, how, level)

    def add(self, text: str, level: str = "info") -> None:
        """Say a sentence, which also belongs to how it is found."""
        self.how = f"{self.how} {text}" if self.is_found else text
        self._troubles.inform(self._code, text, level)

    def say(self, text: str, level: str = "info") -> None:
        """Say a sentence once; "" says nothing."""
        if text and self.is_new(text):
            self._troubles.inform(self._code, text, level)

    def warn(self, text: str) -> None:
        """Say a sentence once, as a warning; "" says nothing."""
        self.say(text, "warning")

    def is_new(self, text: str) -> bool:
        """Return whether a sentence, or a kind of them, is asked for the first time."""
        is_new = text not in self._said
        self._said.add(text)
        return is_new
