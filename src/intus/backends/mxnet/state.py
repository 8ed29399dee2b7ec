"""Hash all that decides the output of a model of MXNet besides its input."""

from __future__ import annotations

from typing import Any

import mxnet
from mxnet.gluon import Block, Parameter
from mxnet.ndarray import NDArray
from mxnet.symbol import Symbol

from ..content import Content
from . import module
from .arrays import to_numpy
from .blocks import FORWARD, Forward

#: Attributes of blocks that are hashed by other means, or that no call depends on: names, and built graphs.
_LEFT_OUT = frozenset(
    {
        *("_prefix", "_name", "_scope", "_params", "_empty_prefix", "_children", "_reg_params"),
        *("_cached_graph", "_cached_op", "_cached_op_args", "_in_format", "_out_format"),
        *("_callback", "_monitor_all", "_counter", "_init_counter"),
    }
)


def model_state(model: Any) -> str | None:
    """Return a hash of all that decides the output of a model; None if it cannot be known.

    Args:
        model: A block, or a bound Module.
    """
    content = _MXNetContent()
    try:
        content.tag("mxnet", mxnet.__version__)
        if isinstance(model, Block):
            content.add(model)
        else:
            content.tag(model.symbol.tojson())
            content.add_named("values", module.values(model))
    except Exception:  # whatever the objects of the caller raise when they are read
        return None
    return content.digest()


class _MXNetContent(Content):
    """The content of objects among which there are blocks, parameters and arrays."""

    def special(self, value: Any) -> bool:
        """Add an object of MXNet; return whether it was one."""
        if isinstance(value, Block):
            self._block(value)
        elif isinstance(value, Parameter):
            self.tag("parameter", value._data is not None)
            if value._data is not None:
                self.add(value.list_data()[0])
        elif isinstance(value, NDArray):
            self.tag("array", str(value.dtype), tuple(value.shape), str(value.stype))
            self.update(to_numpy(value).tobytes())
        elif isinstance(value, Symbol):
            self.tag(value.tojson())
        else:
            return False
        return True

    def _block(self, block: Block) -> None:
        parts = {*_LEFT_OUT, *vars(block)["_children"], *vars(block)["_reg_params"]}
        if isinstance(vars(block).get(FORWARD), Forward):
            parts.add(FORWARD)
        self.instance(block, frozenset(parts))
        for name in ("_children", "_reg_params"):
            self.tag(name)
            for key, part in vars(block)[name].items():  # in the order in which containers run them
                self.tag(key)
                self.add(part)
