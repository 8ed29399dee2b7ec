"""A small graph made by hand, which needs no framework."""

import numpy as np
import pytest

from intus.core.graph import (
    CREATED,
    INPUT,
    OP,
    OUTPUT,
    Calls,
    Edges,
    Graph,
    Meta,
    ModuleInfo,
    Ops,
    Param,
    Source,
)


def ints(*values):
    return np.array(values, dtype=np.int64)


@pytest.fixture(scope="session")
def graph():
    """Return input -> conv2d -> relu -> conv2d (same layer, second pass) -> relu -> rand + -> output.

    ``body`` is called twice and contains conv2d and relu; ``body.conv`` is the conv2d.
    """
    #            input    conv     relu     conv:2   relu:2   rand     add      output
    kind = ints(INPUT, OP, OP, OP, OP, OP, OP, OUTPUT)
    type_ = ints(0, 1, 2, 1, 2, 3, 4, 5)
    layer = ints(0, 1, 2, 1, 2, 3, 4, 5)
    passno = ints(1, 1, 1, 2, 2, 1, 1, 1)
    call = ints(-1, 2, 1, 4, 3, 0, 0, -1)
    flags = np.zeros(8, dtype=np.int64)
    flags[5] = CREATED
    return Graph(
        model="Net",
        types=("input", "conv2d", "relu", "rand", "add", "output"),
        metas=(Meta((1, 3), "float32", "cpu", 12),),
        sites=(Source("net.py", 7, "Net.forward"),),
        args=("0", "1"),
        params=(Param("body.conv.weight", (3, 3), "float32", 36, True),),
        modules=(
            ModuleInfo("", "Net", ""),
            ModuleInfo("body", "Body", ""),
            ModuleInfo("body.conv", "Conv2d", "3, 3"),
        ),
        ops=Ops(
            8,
            kind=kind,
            type=type_,
            layer=layer,
            passno=passno,
            call=call,
            flags=flags,
            site=ints(*[0] * 8),
            event=np.arange(8),
        ),
        edges=Edges(ints(0, 1, 2, 3, 4, 5, 6), ints(1, 2, 3, 4, 6, 6, 7), ints(0, 0, 0, 0, 0, 1, 0)),
        calls=Calls(
            module=ints(0, 1, 2, 1, 2),
            passno=ints(1, 1, 1, 2, 2),
            parent=ints(-1, 0, 1, 0, 3),
            start=ints(1, 1, 1, 3, 3),
            stop=ints(7, 3, 2, 5, 4),
        ),
        op_params=np.array([[1, 0], [3, 0]]),
        exits=np.array([[1, 2], [2, 1], [3, 4], [4, 3], [6, 0]]),
    )
