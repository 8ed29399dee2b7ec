"""Damage files at random: truncate them, or flip some of their bits."""

import random

from intus.core.errors import CodecError, InputError
from intus.reading import read
from intus.viewing.outline import outline
from intus.viewing.scene import scene


def damaged(data, times, seed=0):
    """Yield damaged copies of some bytes."""
    draw = random.Random(seed)
    for _ in range(times):
        copy = bytearray(data)
        if draw.random() < 0.3:
            del copy[draw.randrange(len(copy)) :]
        else:
            for _ in range(draw.choice([1, 1, 2, 5, 20])):
                copy[draw.randrange(len(copy))] ^= 1 << draw.randrange(8)
        yield bytes(copy)


def is_read(path, inputs=()):
    """Return whether a file is read; otherwise it must be refused in one line."""
    message = ""
    try:
        graph = read(path, inputs).graph
        assert outline(graph)
        assert scene(graph)
    except (CodecError, InputError) as error:
        message = str(error)
    assert "\n" not in message
    return not message


def outcomes(path, data, times, inputs=()):
    """Read damaged copies of a file; return how many were read and how many refused."""
    done = 0
    for copy in damaged(data, times):
        path.write_bytes(copy)
        done += is_read(path, inputs)
    return done, times - done
