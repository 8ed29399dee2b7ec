"""Read MXNet's symbol files, ``net-symbol.json``, with the parameters in ``net-0000.params`` beside them.

The graph is read without MXNet. Values need it: with inputs, the symbol runs with every tensor as an output.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import CodecError, InputError
from ...core.traced import Traced
from ..inputs import Expected, as_array, bind
from .graph import Program, Symbol, symbol_of
from .params import Array, headers

ENDING = "-symbol.json"
#: Operators that call what a text of the file names: an address, a function, or the name of a file.
_UNSAFE = frozenset(
    {"_Native", "_NDArray", "_CustomFunction", "Custom", "_npi_Custom", "_cvimread", "_npi_cvimread"}
)


def read(path: Path, inputs: tuple[Any, ...] | None, named: Mapping[str, Any]) -> Traced:
    """Return the graph of a symbol file and, if inputs are given, values; see ``reading.read``."""
    symbol = symbol_of(path)
    file, arrays = _parameters(path)
    program = Program(
        symbol, path.name.removesuffix(ENDING), {name: one.meta for name, one in arrays.items()}
    )
    notes = list(program.notes)
    if file is None:
        notes.append("There is no file of parameters beside it: shapes are those that the graph states.")
    facts: dict[str, Any] = {"format": "MXNet symbol", "version": symbol.version}
    values: dict[tuple[int, int], np.ndarray] = {}
    if inputs or named:
        values = _values(path, symbol, file, program.inputs, inputs or (), named)
    if notes:
        facts["notes"] = notes
    graph, rows = program.graph(facts, values)
    known = {row: values[entry] for row, entry in rows.items() if entry in values}
    params = {program.parameters[name]: arrays[name] for name in program.parameters.keys() & arrays.keys()}
    return Traced(graph, known, _Weights(params))


class _Weights(dict[str, Any]):
    """The values of parameters by address, which are read on access."""

    def __getitem__(self, address: str) -> Any:
        return super().__getitem__(address).read()


def _parameters(path: Path) -> tuple[Path | None, dict[str, Array]]:
    """Return the newest file of parameters beside a symbol, and what is in it."""
    name = path.name.removesuffix(ENDING)
    files = sorted(
        one
        for one in path.parent.iterdir()
        if one.name.startswith(f"{name}-")
        and one.name.endswith(".params")
        and one.stem[-4:].isdecimal()
        and one.is_file()
    )
    if not files:
        return None, {}
    return files[-1], headers(files[-1])


def _values(
    path: Path,
    symbol: Symbol,
    file: Path | None,
    names: list[str],
    inputs: tuple[Any, ...],
    named: Mapping[str, Any],
) -> dict[tuple[int, int], np.ndarray]:
    """Return the values of the tensors of a symbol by node and output."""
    unsafe = sorted(_UNSAFE & set(_operators(symbol.graph)))
    if unsafe:
        raise CodecError(
            f"{path.name} is not run: its operator {unsafe[0]} takes an address in memory, a function of "
            "Python or the name of another file. Without inputs it can be read."
        )
    if find_spec("mxnet") is None:
        raise InputError(
            f"{path.name} is a symbol of MXNet, which is not installed here, so intus reads its graph but "
            "computes no values. Leave the inputs out, or read it where MXNet is installed."
        )
    if file is None:
        raise InputError(
            f"{path.name} cannot run without its parameters. Copy "
            f"{path.name.removesuffix(ENDING)}-0000.params beside it, or leave the inputs out."
        )
    expected = [Expected(name) for name in names]
    given = bind(path.name, expected, inputs, named)
    arrays = {one.name: as_array(path.name, one, given[one.name]) for one in expected}
    from .running import run

    try:
        return run(symbol, file, arrays)
    except Exception as error:  # MXNetError, and what its Python part raises
        lines = str(error).splitlines() or [type(error).__name__]
        text = next((line for line in lines if "Error in operator" in line), lines[-1])[:300]
        raise InputError(f"{path.name} cannot run on these inputs: {text.rstrip('.')}.") from None


def _operators(part: Any) -> Iterator[str]:
    """Yield the names of all operators in a part of a symbol, also in the symbols inside of operators."""
    if isinstance(part, dict):
        yield str(part.get("op", ""))
    for one in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from _operators(one)
