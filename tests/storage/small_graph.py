"""A graph made by hand, for tests of storage."""

from __future__ import annotations

import numpy as np

from intus.core.graph import Calls, Edges, Graph, Meta, ModuleInfo, Ops


def small_graph() -> Graph:
    """Return a graph of an input, then fc.a twice and act inside fc: calls model, fc, fc.a, act, fc.a."""
    return Graph(
        model="Net",
        types=("linear", "relu"),
        metas=(Meta((2, 3), "float32", "cpu", 24),),
        sites=(),
        args=("0",),
        params=(),
        modules=tuple(ModuleInfo(name, "Module", "") for name in ("", "fc", "fc.a", "act")),
        ops=Ops(4, kind=[1, 0, 0, 0], type=[0, 0, 1, 0], layer=[0, 1, 2, 3], call=[0, 2, 3, 4]),
        edges=Edges(*(np.array(c, dtype=np.int64) for c in ([0, 1, 2], [1, 2, 3], [0, 0, 0]))),
        calls=Calls(
            module=np.array([0, 1, 2, 3, 2]), passno=np.array([1, 1, 1, 1, 2]),
            parent=np.array([-1, 0, 1, 1, 1]),
            start=np.array([0, 1, 1, 2, 3]), stop=np.array([4, 4, 2, 3, 4]),
        ),
        op_params=np.empty((0, 2), dtype=np.int64),
        exits=np.array([[1, 2], [2, 3], [3, 4], [3, 1], [3, 0]]),
        facts={"framework": "torch"},
    )  # fmt: skip
