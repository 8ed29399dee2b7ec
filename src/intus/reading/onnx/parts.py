"""Run some operations of an ONNX file on other tensors than those of the pass."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx

from ...core.errors import require
from .inlining import nested
from .running import Runner


class Parts:
    """The operations of a file that ran, to be run again.

    Args:
        model: The model as it ran.
        path: Its file.
        names: The name of the tensor of each row of the graph.
        values: The values of the pass by name.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        path: Path,
        names: Mapping[int, str],
        values: Mapping[str, np.ndarray],
    ) -> None:
        self._model, self._path, self._names, self._values = model, path, names, values
        self._nodes = {name: node for node in model.graph.node for name in node.output if name}
        self._weights = {tensor.name: tensor for tensor in model.graph.initializer}

    def computed(self, rows: Collection[int], row: int, given: Mapping[int, np.ndarray]) -> np.ndarray | None:
        """Return what operations compute for one of their rows; None if they cannot be run so.

        Args:
            rows: The rows of the operations.
            row: One of them.
            given: Arrays in the place of rows that they begin at. Others are as in the pass.
        """
        feeds = {self._names[one]: array for one, array in given.items() if one in self._names}
        inside = {self._names[one] for one in rows if one in self._names}
        if len(feeds) < len(given) or row not in self._names:
            return None
        if self._names[row] in feeds:  # an output, which has the name of what it returns
            return feeds[self._names[row]]
        needed = {node.name: node for node in self._needed(self._names[row], inside, feeds)}
        if any(nested(node) for node in needed.values()):
            return None
        made = {name for node in needed.values() for name in node.output}
        read = {name for node in needed.values() for name in node.input if name} - made
        feeds |= {name: self._values[name] for name in read - feeds.keys() if name in self._values}
        part = onnx.ModelProto(ir_version=self._model.ir_version, opset_import=self._model.opset_import)
        part.graph.name = "part"
        part.graph.node.extend(node for node in self._model.graph.node if node.name in needed)
        part.graph.initializer.extend(self._weights[name] for name in read & self._weights.keys())
        for name in read & feeds.keys() - self._weights.keys():
            dtype = onnx.helper.np_dtype_to_tensor_dtype(feeds[name].dtype)
            part.graph.input.append(onnx.helper.make_tensor_value_info(name, dtype, None))
        runtime = require("onnxruntime", extra="onnx", why="to compute the values of an ONNX file")
        try:
            return Runner(runtime, self._path).run(part, feeds).get(self._names[row])
        except Exception:  # of a type for each cause, which onnxruntime does not document
            return None

    def _needed(self, name: str, inside: Collection[str], given: Collection[str]) -> Iterator[onnx.NodeProto]:
        """Yield the operations that a tensor is computed with, and those of constants before them."""
        waiting, seen = [name], {name}
        while waiting:
            node = self._nodes.get(waiting.pop())
            if node is None:
                continue
            yield node
            before = [one for one in node.input if one and one not in seen and one not in given]
            seen.update(before)
            waiting += (one for one in before if one in inside or one not in self._values)
