"""Check that an exported file computes what the model computes: the function ``check_export``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.errors import CodecError, InputError, require
from ...core.graph import INPUT, Graph
from ...viewing.repr_text import listed
from ..read import read
from ..results.trace import Trace
from .compare import compare
from .elements import plain

if TYPE_CHECKING:
    from .table import Comparison


class ExportCheck:
    """The result of ``check_export``; true if the file computes what the model computes.

    Attributes:
        table: The comparison of the model (a) with the file (b), tensor by tensor; see ``compare``.
        agree: Whether every output was compared, and nothing differs by more than rounding explains.
        first: The first operation that makes a difference, as a dict of ``a``, ``b``, ``module`` and ``why``;
            None if there is none.
    """

    def __init__(self, table: Comparison, model: Trace, path: Path) -> None:
        self.table, self._model, self._path = table, model, path
        self.agree: bool = table.agree
        self.first: dict[str, Any] | None = table.attrs["first"]

    def __bool__(self) -> bool:
        return self.agree

    def __repr__(self) -> str:
        name, file = self._model.name, self._path.name
        modules = self.table.modules
        compared = modules[modules.verdict != "not saved"]
        if self.agree:
            inside = f" Of {len(compared)} modules that both have, all agree." if len(compared) > 1 else ""
            return (
                f"{file} computes what {name} does: nothing differs that rounding does not explain.{inside}"
            )
        if self.first is None:
            verdict = f"Not proven that {file} computes what {name} does: not every output could be compared."
        else:
            where = f" in {self.first['module']}" if self.first["module"] else ""
            verdict = f"{file} does not compute what {name} does. The first difference is{where}."
        notes = (
            [f"The model is in training mode{_in_training(self._model.graph)}."]
            if self._is_training()
            else []
        )
        return "\n".join([verdict, *notes, str(self.table)])

    def _is_training(self) -> bool:
        return bool(self._model.graph.facts.get("training"))


def check_export(
    model: Callable[..., Any], path: str | Path, *args: Any, kwargs: Mapping[str, Any] | None = None
) -> ExportCheck:
    """Check that an exported file computes what the model computes, module by module.

    The model is traced on the inputs, and the file is run on the same; their tensors are compared as
    ``compare`` does. A file of a lower precision is compared within the rounding of that precision.

    Args:
        model: The model that was exported, in the mode it was exported in, which usually is evaluation mode.
            Or a ``Trace`` of it with all values; then no inputs are given.
        path: The file: ONNX.
        *args: The model's positional arguments, as in ``trace``. The file's inputs take the same tensors, by
            name if the names are the same and else in order.
        kwargs: The model's keyword arguments.

    Returns:
        The result, which is true if nothing differs by more than rounding explains. Print it for the first
        module that differs, with the reason.

    Raises:
        InputError: If the file takes other inputs than the model, or the model has none.
        CodecError: If the file cannot be read.
        MissingExtraError: If a package that is needed to run the file is not installed.
        Exception: Whatever the model raised.

    Example:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
        >>> x = torch.randn(2, 4)
        >>> torch.onnx.export(net, (x,), "net.onnx")  # doctest: +SKIP
        >>> check_export(net, "net.onnx", x)  # doctest: +SKIP
        net.onnx computes what Sequential does: nothing differs that rounding does not explain.
    """
    require("pandas", extra="inspect", why="to compare the model with its export")
    file = Path(path)
    if isinstance(model, Trace):
        if args or kwargs:
            raise InputError(
                "A trace is of a pass that ran already. Leave the inputs out, or pass the model."
            )
        traced = model
    else:
        from ..run import trace

        traced = trace(model, *args, kwargs=kwargs)
    exported = read(file, _inputs(traced, read(file).graph, file))
    if not exported.values:
        raise CodecError(f"{str(file)!r} has no operations that can be run, so nothing can be compared.")
    return ExportCheck(compare(traced, exported), traced, file)


def _inputs(trace: Trace, file: Graph, path: Path) -> dict[str, np.ndarray]:
    """Return the inputs of a traced pass by the names of the file's inputs."""
    names = list(file.facts.get("inputs", ()))
    values = {row: plain(trace.values[row]) for row in trace.graph.rows_of(INPUT) if row in trace.values}
    rows = trace.graph.rows_of(INPUT)
    if not rows or any(values.get(row) is None for row in rows):
        raise InputError("The model's inputs have no saved values. Trace it with save='all', on tensors.")
    own = _named(trace.graph, rows)
    arrays = {name: _array(values[row]) for name, row in own.items()}
    if set(names) <= set(own):
        return {name: arrays[name] for name in names}
    if len(names) == len(rows):
        return dict(zip(names, arrays.values(), strict=True))
    raise InputError(
        f"{path.name} takes {len(names)} inputs ({listed(names)}), and the model was called with "
        f"{len(rows)} tensors ({listed(list(own))}). Call it with the inputs that it was exported with."
    )


def _named(graph: Graph, rows: Sequence[int]) -> dict[str, int]:
    """Return the rows of inputs by name, or by label if they have none."""
    names = list(graph.facts.get("inputs", ())) or [""] * len(rows)
    return {name or graph.label(row): row for name, row in zip(names, rows, strict=True)}


def _array(value: Any) -> np.ndarray:
    return np.ascontiguousarray(value.array)


def _in_training(graph: Graph) -> str:
    """Return the classes of a model's modules that behave otherwise in training, in brackets."""
    classes = {module.type for module in graph.modules}
    found = sorted(name for name in classes if "Dropout" in name or "BatchNorm" in name)
    return f" ({listed(found)})" if found else ""
