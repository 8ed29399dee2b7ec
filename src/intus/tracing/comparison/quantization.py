"""Tell what the quantization of an exported file explains of its differences, and what it does not."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...core.graph import INPUT, OP
from ...viewing.repr_text import listed
from ..read import read
from ..results.trace import Trace
from .compare import compare
from .first import first_of, joined, place
from .pairing.modules import pair_modules
from .parameters.coverage import missing_parameters
from .parameters.parameters import changed_parameters, is_folded
from .unseen.stated import different_stated
from .values.elements import plain, value_of
from .values.settings import arguments, common, number_of

if TYPE_CHECKING:
    from .check_export import ExportCheck

#: A tensor whose range in the file is so many times that of its values, or of which this fraction is outside
#: of its range, is named; neither is a proof of a fault, because a range is chosen on other data.
_WIDE, _OUTSIDE, _FEW = 4.0, 0.05, 64


#: Operations that onnxruntime leaves out if the range of what follows has their ends.
_CLAMPS = {"relu6", "hardtanh", "clamp", "clip"}


class Quantization(NamedTuple):
    """A quantized file without its quantization.

    Attributes:
        weights: The parameters that the file holds as whole numbers.
        faults: Differences that the quantization does not explain, as sentences.
        unknown: Why that cannot be told, as sentences.
        ranges: Tensors whose range does not fit their values, as sentences.
        differences: The relative difference by module, the largest first.
        first: The first operation that makes a difference which the quantization does not explain, as in
            ``ExportCheck``; None if there is none.
    """

    weights: list[str]
    faults: list[str]
    unknown: list[str]
    ranges: list[str]
    differences: dict[str, float]
    first: dict[str, Any] | None = None

    @property
    def verdict(self) -> str:
        """``"differs"``, ``"not proven"`` or ``"quantized"``."""
        return "differs" if self.faults else "not proven" if self.unknown else "quantized"

    def sentences(self, model: str, file: str) -> list[str]:
        """Return the result as text.

        Args:
            model: The name of the model.
            file: The name of the file.
        """
        of_weights = f"{len(self.weights)} weights are whole numbers"
        first = {
            "differs": f"{file} does not compute what {model} does: its quantization does not explain all.",
            "not proven": f"Not proven that {file} is {model} quantized.",
            "quantized": f"{file} is {model} quantized: {of_weights}, each within the rounding that its "
            "scale states, and without rounding it computes what the model does.",
        }[self.verdict]
        lines = [first, *(f"{one}." for one in self.faults), *self.unknown, *self.ranges]
        if self.differences:
            module, most = next(iter(self.differences.items()))
            lines.append(
                f"Differences are up to {most:.2g} of the norm, the largest in {module or 'the model'}."
            )
        return lines


def quantization(check: ExportCheck, model: Trace, exported: Trace, path: Path) -> Quantization | None:
    """Return what the quantization of a file explains; None if it is not quantized.

    Args:
        check: The comparison of the model with the file.
        model: The trace of the model.
        exported: The trace of the file.
        path: The file.
    """
    from ...reading.onnx.quantized import twin

    params, users = _parameters(model, exported)
    found = twin(path, params)
    if found is None:
        return None
    modules = check.table.modules
    # Of an embedding the file may have the whole numbers alone, which are not compared by value.
    whole = {
        row.module_a for row in check.table.itertuples() if "float" in row.dtype_a and "int" in row.dtype_b
    }
    relative = {
        row.a or row.b: float(row.relative)
        for row in modules.itertuples()
        if row.relative > 0 and row.a not in whole
    }
    differences = dict(sorted(relative.items(), key=lambda one: -one[1]))
    misplaced = [one.removesuffix(".") for one in check.table.attrs["misplaced"]]
    faults, unknown = [*misplaced, *found.faults, *check.parameters], list(found.unknown)
    changed = dict(check.changed)
    for address, sentence in found.wrong.items():
        changed.setdefault(users[address], []).append(sentence)
    first = first_of(model, None, dict(sorted(changed.items())))
    if found.model:
        unrounded = _run(found.model, exported)
        table = compare(model, unrounded)
        stated = different_stated(model, unrounded, table.pairs)
        faults += [sentence for sentences in stated.values() for sentence in sentences]
        changed = joined(changed, stated)
        first = first_of(model, None, changed)
        source = table.attrs["first"]
        types = {model.graph.type_of(row) for row in model.graph.rows_of(OP)}
        if source is not None and found.unmatched:
            unknown += found.unmatched
        elif source is not None and types & _CLAMPS:
            unknown.append("An operation that clamps may be part of a range in the file: it is not compared.")
        elif source is not None:
            first = first_of(model, source, dict(sorted(changed.items())), table.pairs[table.attrs["at"]][0])
            faults.append(
                f"Without rounding the first difference is {place(source)}: {listed(source['why'])}"
            )
        elif not table.attrs["outputs_agree"]:
            unknown.append("Without rounding, not every output could be compared.")
        else:
            pairs = pair_modules(model.graph, unrounded.graph, table.pairs)
            compared = {*found.weights, *changed_parameters(model, unrounded, pairs).compared}
            missing = missing_parameters(model, unrounded, table, compared).missing
            unknown += [f"{one.sentence}." for one in missing]
    return Quantization(found.weights, faults, unknown, _ranges(exported), differences, first)


def _parameters(model: Trace, exported: Trace) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Return the parameters of a model as arrays, with batch norms folded, and the rows that use them.

    Where a file has a convolution without the batch norm after it, its weight and bias are computed as an
    exporter computes them; a bias that the convolution lacks is under the address it would have.
    """
    graph = model.graph
    known = {param.address for param in exported.graph.params}
    arrays = {param.address: _array(model, param.address) for param in model.params}
    users: dict[str, int] = {}
    for row, numbers in sorted(graph.row_params.items()):
        for number in numbers:
            users.setdefault(graph.params[number].address, row)
    for row, numbers in graph.row_params.items():
        if not is_folded(model, row, known):
            continue
        addresses = [graph.params[number].address for number in numbers]
        own = {address.rpartition(".")[2]: address for address in addresses}
        norms = [child for child in graph.children(row) if graph.type_of(child) == "batch_norm"]
        folded = _folded(model, norms[0], {name: arrays[address] for name, address in own.items()})
        prefix = next(iter(own.values())).rpartition(".")[0]
        combined = [*own.values(), *(graph.params[n].address for n in graph.row_params.get(norms[0], ()))]
        arrays |= dict.fromkeys(combined)
        for name, array in folded.items():
            arrays[f"{prefix}.{name}"] = array
            users.setdefault(f"{prefix}.{name}", norms[0])
    return {address: array for address, array in arrays.items() if array is not None}, users


def _array(model: Trace, address: str) -> np.ndarray | None:
    value = plain(model._parameter(address))
    return None if value is None else np.asarray(value.array)


def _folded(model: Trace, norm: int, own: dict[str, np.ndarray | None]) -> dict[str, np.ndarray]:
    """Return the weight and bias of a layer with the batch norm after it; empty if that is not known.

    Args:
        model: The trace of the model.
        norm: The row of the batch norm.
        own: The layer's weight, and its bias if it has one.
    """
    graph, calls = model.graph, model.graph.enclosing_calls(norm)
    eps = number_of(common(graph, norm, arguments(graph.setting(norm))).get("eps", ""))
    weight = own.get("weight")
    if not calls or eps is None or weight is None:
        return {}
    module = graph.modules[int(graph.calls.module[calls[-1]])].address
    names = ("running_mean", "running_var", "weight", "bias")
    mean, var, gain, shift = (_state(model, f"{module}.{name}") for name in names)
    if mean is None or var is None or weight.shape[0] != len(mean):  # a transposed one has its outputs second
        return {}
    factor = (1.0 if gain is None else gain) / np.sqrt(var + eps)
    bias = own.get("bias")
    moved = ((0.0 if bias is None else bias) - mean) * factor + (0.0 if shift is None else shift)
    scaled = np.asarray(weight, np.float64) * factor.reshape(-1, *[1] * (weight.ndim - 1))
    return {"weight": scaled, "bias": moved}


def _state(model: Trace, address: str) -> np.ndarray | None:
    """Return a parameter or buffer of a model in double precision; None if it is not known."""
    value = value_of(model, address)
    return None if value is None else np.asarray(value.array, np.float64)


def _run(model: bytes, exported: Trace) -> Trace:
    """Run a model on the inputs that the file was run on."""
    inputs: list[Any] = [exported.values[row] for row in exported.graph.rows_of(INPUT)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "unrounded.onnx")
        path.write_bytes(model)
        return read(path, *inputs)


def _ranges(exported: Trace) -> list[str]:
    """Return the tensors whose range in the file does not fit their values, as sentences."""
    graph, values, sentences = exported.graph, exported.values, []
    for row in graph.rows_of(OP):
        rows = [*graph.parents(row)[:1], row, *graph.children(row)[:1]]
        if graph.type_of(row) != "quantize_linear" or len(rows) < 3 or not values.keys() >= set(rows):
            continue
        own, whole, back = (np.asarray(values[one]).astype(np.float64) for one in rows)
        used = float(whole.max(initial=0) - whole.min(initial=0))
        if whole.size < _FEW or not used or back.shape != own.shape:
            continue
        limits = np.iinfo(np.asarray(values[row]).dtype)
        if back.min() >= 0:  # the range takes the place of a ReLU
            own = own.clip(0)
        step = (back.max() - back.min()) / used
        outside = float((np.abs(own - back) > step).mean())
        label = graph.label(rows[0])
        if outside > _OUTSIDE:
            sentences.append(f"{outside:.0%} of the elements of {label} are outside of its range.")
        elif (limits.max - limits.min) / used > _WIDE:
            sentences.append(
                f"The range of {label} is {(limits.max - limits.min) / used:.2g} times that of its values."
            )
    return sentences
