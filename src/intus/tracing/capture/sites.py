"""Which line of the user's code runs an operation."""

from __future__ import annotations

from pathlib import Path
from types import CodeType
from typing import Any

import torch

from ...core.graph import Source
from .recording import Recording

#: Whose lines are never the user's: torch's, and ours where one trace runs inside another.
LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<__array_function__")
_USER, _LIBRARY, _ENTRY = range(3)


class Sites:
    """Numbers instructions. ``entry`` is the code through which modules are called: what lies beyond it
    is its caller's, and was found when the module's call began. ``numbers`` is open to the recorder: it holds
    the user's instructions met so far, by the code's id and the place in it."""

    def __init__(self, recording: Recording, entry: CodeType | None) -> None:
        self._recording = recording
        self._kinds: dict[int, int] = {} if entry is None else {id(entry): _ENTRY}
        self._held: list[CodeType | None] = [entry]  # so that ids stay their own
        self.numbers: dict[tuple[int, int], int] = {}

    def number(self, frame: Any) -> int:
        """The nearest frame outside torch: what torch's own modules run counts as their caller's."""
        kinds = self._kinds
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = kinds[id(code)] = _LIBRARY if code.co_filename.startswith(LIBRARIES) else _USER
                self._held.append(code)
            if kind == _USER:
                key = (id(code), frame.f_lasti)
                number = self.numbers.get(key)
                return self._learn(key, code) if number is None else number
            if kind == _ENTRY and self._recording.stack[-1] >= 0:
                return self._recording.site_of(self._recording.stack[-1])
            frame = frame.f_back
        return -1

    def is_users(self, frame: Any) -> bool:
        """Whether a frame runs code of the user's, not of torch."""
        self.number(frame)
        return self._kinds[id(frame.f_code)] == _USER

    def _learn(self, key: tuple[int, int], code: CodeType) -> int:
        number = self.numbers[key] = len(self._recording.sites)
        self._recording.sites.append((code, key[1]))
        return number


def source_of(code: CodeType, at: int) -> Source:
    """The line of an instruction: what ``f_lasti`` pointed at."""
    line = 0
    if at >= 0:
        for start, stop, number in code.co_lines():
            if start <= at < stop:
                line = number or 0
                break
    return Source(code.co_filename, line, code.co_qualname)
