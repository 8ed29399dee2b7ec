"""Find transactions in SQLite's write-ahead log that are damaged.

SQLite stops reading a log at the first frame whose checksum is wrong, and forgets the rest without a word.
Usually that frame was not finished when the machine crashed; but if whole frames of the same log follow,
transactions that were committed are lost. https://sqlite.org/fileformat2.html#walformat has the format.
"""

from __future__ import annotations

import struct
import time
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

_HEADER = struct.Struct(">IIIIIIII")  # magic, version, page size, sequence number, two salts, two checksums
_FRAME = (
    24  #: bytes before a page: its number, pages of the database if it ends a transaction, salts, checksums
)
_LEAST_PAGE = 512  #: the least size of a page in bytes
_BLOCK = 256  #: frames to read at once
_WORD = 0xFFFFFFFF
_MAGIC = 0x377F0682  # plus 1 if checksums are of big-endian words
#: Tries to read a log that another process may be writing, and seconds between them.
TRIES, PAUSE_S = 3, 0.1


def damage(path: Path) -> str:
    """Return what is damaged in a write-ahead log, as a clause; "" if nothing is, or there is no log.

    Raises:
        OSError: If it cannot be read.
    """
    found = ""
    for left in reversed(range(TRIES)):
        try:
            with path.open("rb") as file:
                found = _damage(file, path.with_name(path.name.removesuffix("-wal")))
        except FileNotFoundError:
            return ""
        if not found:
            break
        if left:
            time.sleep(PAUSE_S)
    return found


def _damage(file: BinaryIO, database: Path) -> str:
    begin = file.read(_HEADER.size)
    if len(begin) < _HEADER.size or not any(begin):
        return ""  # it was just begun
    magic, _, size, _, *salts, first, second = _HEADER.unpack(begin)
    order = ">u4" if magic & 1 else "<u4"
    (own,) = zip(*_own_sums(np.frombuffer(begin[:24], order)[None]), strict=True)
    if magic & ~1 != _MAGIC or own != (first, second):
        if _is_in_database(file, database):
            return ""
        return "its first bytes are damaged, so that no transaction in it can be read"
    sums, broken, lost = (first, second), False, 0
    while frames := len(block := file.read(_BLOCK * (_FRAME + size))) // (_FRAME + size):
        table = np.frombuffer(block, "u1", frames * (_FRAME + size)).reshape(frames, -1)
        heads = np.ascontiguousarray(table[:, :_FRAME]).view(">u4").tolist()
        words = np.concatenate([table[:, :8], table[:, _FRAME:]], axis=1).view(order)
        for (_, _, *of_frame), own in zip(heads, zip(*_own_sums(words), strict=True), strict=True):
            same = of_frame[:2] == salts  # else it is of an earlier log, whose place this one takes
            if broken:
                lost += same
                continue
            sums = _after(sums, *own, words.shape[1])
            broken = not same or sums != tuple(of_frame[2:])
    return f"{lost + 1} pages in it cannot be read" if lost else ""


def _is_in_database(log: BinaryIO, database: Path) -> bool:
    """Return whether a database has all transactions of a log whose first bytes are damaged.

    Once it has, SQLite writes the first bytes anew, to begin the log again. A crash then loses nothing.
    """
    try:
        with database.open("rb") as file:
            size = int.from_bytes(file.read(18)[16:], "big")
            size = 1 << 16 if size == 1 else size
            if size < _LEAST_PAGE:  # the database is empty
                return False
            pages, written, salts = dict[int, int](), dict[int, int](), b""
            while len(frame := log.read(_FRAME + size)) == _FRAME + size:
                salts = salts or frame[8:16]
                if frame[8:16] != salts:  # of an even earlier log
                    break
                number, ends = struct.unpack(">II", frame[:8])
                written[number] = log.tell() - size
                if ends:
                    pages, written = pages | written, {}
            return bool(pages) and all(
                _at(file, (number - 1) * size, size) == _at(log, place, size)
                for number, place in pages.items()
            )
    except (FileNotFoundError, ValueError):  # no database, or no page of that number
        return False


def _at(file: BinaryIO, place: int, size: int) -> bytes:
    file.seek(place)
    return file.read(size)


def _own_sums(words: np.ndarray) -> tuple[list[int], list[int]]:
    """Return the two checksums of each row of words, as if nothing came before.

    For each pair of words ``a``, ``b``: ``first += a + second``, ``second += b + first``, modulo 2**32. So
    each word adds to the sum of the two sums before it, and a sum is a product with the Fibonacci numbers.
    """
    count = words.shape[1]
    weights = np.array(_fibonacci(count + 2), np.uint64)
    wide = words.astype(np.uint64)
    first = (wide[:, :-1] * weights[count - 1 : 0 : -1]).sum(1)
    second = (wide * weights[count:0:-1]).sum(1)
    return (first & _WORD).tolist(), (second & _WORD).tolist()


def _after(before: tuple[int, int], first: int, second: int, count: int) -> tuple[int, int]:
    """Return the checksums of ``count`` words, of which the own ones are given, after others."""
    numbers = _fibonacci(count + 2)
    return (
        (first + before[1] * numbers[count] + before[0] * numbers[count - 1]) & _WORD,
        (second + before[1] * numbers[count + 1] + before[0] * numbers[count]) & _WORD,
    )


@lru_cache(maxsize=4)
def _fibonacci(count: int) -> list[int]:
    """Return the first Fibonacci numbers modulo 2**32.

    >>> _fibonacci(7)
    [0, 1, 1, 2, 3, 5, 8]
    """
    numbers = [0, 1]
    while len(numbers) < count:
        numbers.append((numbers[-1] + numbers[-2]) & _WORD)
    return numbers
