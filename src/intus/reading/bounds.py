"""Bounds on what a small file can ask for: memory, and modules inside of modules."""

from __future__ import annotations

import zipfile

from ..core.errors import CodecError

#: Members that are compressed may unpack to so many times their size; the code in TorchScript has about 10.
_RATIO = 100
#: Members that unpack to fewer bytes than this in all are read whatever their ratio is.
_SMALL = 1 << 25
#: Tensors that a model makes of its inputs and weights may have so many times their bytes.
_CREATED = 1000
#: Tensors of fewer bytes than this in all are made whatever their ratio is.
_FEW = 1 << 31
#: While a model runs, each tensor may be in memory so often: where it was computed, and as an array.
_COPIES = 3
#: Loops may run so often if nothing that they compute ends them.
_ITERATIONS = 10_000_000
#: More modules inside of each other than a model has; a page, and Python's stack, have their limits.
DEEPEST = 200


def check_depth(file: str, name: str, depth: int) -> None:
    """Raise CodecError if a name in a file is inside of more modules than any model has."""
    if depth > DEEPEST:
        raise CodecError(
            f"{file!r} is not read: {name[:50]!r} is inside of {depth:,} modules, more than {DEEPEST}."
        )


def check_unpacked(archive: zipfile.ZipFile, size: int, file: str) -> None:
    """Raise CodecError if the members of an archive are more than its bytes can hold.

    torch stores weights and graphs as they are and compresses only the code of TorchScript. The sizes are
    those in the directory of the archive: nothing is unpacked, and no more than these is read later.

    Args:
        archive: The archive.
        size: Its size in bytes.
        file: The file, for messages.
    """
    members = archive.infolist()
    if sum(one.compress_size for one in members) > size:
        raise CodecError(f"{file!r} is damaged: its members are longer than the whole file.")
    packed, unpacked = 0, 0
    for one in members:
        if one.compress_type != zipfile.ZIP_STORED:
            packed, unpacked = packed + one.compress_size, unpacked + one.file_size
        elif one.file_size != one.compress_size:
            raise CodecError(
                f"{file!r} is damaged: {one.filename!r} is stored with another size than its own."
            )
    if unpacked > max(_SMALL, packed * _RATIO):
        raise CodecError(
            f"{file!r} is not read: {packed:,} bytes in it unpack to {unpacked:,}, more than {_RATIO} times "
            "as many, which no model does."
        )


def check_created(file: str, given: int, created: int) -> None:
    """Raise CodecError if the operations of a file ask for far more memory than it and its inputs have.

    Args:
        file: The file, for messages.
        given: The bytes of its weights and inputs.
        created: The bytes of the tensors that it makes of them, as far as their shapes are known.
    """
    if created > _most(given):
        raise CodecError(
            f"{file!r} is not run: its operations make tensors of {created:,} bytes of {given:,}, more than "
            f"{_CREATED:,} times as many. Without inputs it can be read: read({file!r})."
        )


def check_grown(file: str, given: int, grown: int) -> None:
    """Raise CodecError if the process grows too much while a file runs, whose shapes were not known before.

    Args:
        file: The file, for messages.
        given: The bytes of its weights and inputs.
        grown: The bytes by which the process has grown.
    """
    if grown > _COPIES * _most(given):
        raise CodecError(
            f"{file!r} was stopped: its operations took {grown:,} bytes of memory for {given:,} of "
            f"weights and inputs. Without inputs it can be read: read({file!r})."
        )


def check_iterations(file: str, loop: str, count: int | None) -> None:
    """Raise CodecError if a loop is sure to run more often than anyone waits for.

    Args:
        file: The file, for messages.
        loop: The name of the loop.
        count: How often it runs, at the least; None for a loop that never ends.
    """
    if count is None or count > _ITERATIONS:
        often = "without end" if count is None else f"{count:,} times, more than {_ITERATIONS:,}"
        raise CodecError(
            f"{file!r} is not run: its loop {loop!r} runs {often}. Without inputs it can be read: "
            f"read({file!r})."
        )


def _most(given: int) -> int:
    return max(_FEW, given * _CREATED)
