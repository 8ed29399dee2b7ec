"""Find the instruction of the user's code that runs an operation."""

from __future__ import annotations

from types import CodeType
from typing import Any

from ...core.graph import Source
from .libraries import LIBRARIES
from .recording import Recording

_USER, _LIBRARY, _ENTRY = range(3)


class Sites:
    """Assigns numbers to instructions of user code.

    Args:
        recording: Where the instructions are stored.
        entry: The code through which modules are called. The search through the frames ends there, because
            the call site of the module was already found when its call began.

    Attributes:
        numbers: The numbers of the instructions met so far, by the id of the code and ``f_lasti``. The hot
            path reads it directly.
    """

    def __init__(self, recording: Recording, entry: CodeType | None) -> None:
        self._recording = recording
        self._kinds: dict[int, int] = {} if entry is None else {id(entry): _ENTRY}
        self._codes: list[CodeType | None] = [entry]  # kept alive so that their ids are not reused
        self.numbers: dict[tuple[int, int], int] = {}

    def number(self, frame: Any) -> int:
        """Return the number of the innermost instruction of user code from ``frame`` outwards; -1 if none.

        Operations that torch's own modules run are attributed to the code that called the module.
        """
        kinds = self._kinds
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = kinds[id(code)] = _LIBRARY if code.co_filename.startswith(LIBRARIES) else _USER
                self._codes.append(code)
            if kind == _USER:
                key = (id(code), frame.f_lasti)
                number = self.numbers.get(key)
                return self._add(key, code) if number is None else number
            if kind == _ENTRY and self._recording.stack[-1] >= 0:
                return self._recording.call_site(self._recording.stack[-1])
            frame = frame.f_back
        return -1

    def is_user_code(self, frame: Any) -> bool:
        """Return whether a frame runs user code rather than library code."""
        self.number(frame)
        return self._kinds[id(frame.f_code)] == _USER

    def _add(self, key: tuple[int, int], code: CodeType) -> int:
        number = self.numbers[key] = len(self._recording.sites)
        self._recording.sites.append((code, key[1]))
        return number


def source_of(code: CodeType, instruction: int) -> Source:
    """Return the source line of an instruction, given as ``f_lasti`` of its frame; line 0 if unknown."""
    line = 0
    if instruction >= 0:
        for start, stop, number in code.co_lines():
            if start <= instruction < stop:
                line = number or 0
                break
    return Source(code.co_filename, line, code.co_qualname)
