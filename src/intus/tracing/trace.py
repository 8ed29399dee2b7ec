"""``trace``: run a model once and keep what happened."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..core.errors import AddressError, CodecError, InputError, require
from ..core.graph import (
    CREATED,
    FAILED,
    INPLACE,
    INPUT,
    OP,
    OP_KINDS,
    OUTPUT,
    Graph,
    Meta,
    Module,
    Param,
    Source,
)
from ..core.selection import Selection, resolve, select
from ..storage.codec import decode_graph, encode_graph
from ..viewing.html import View
from ..viewing.overlay import Overlay
from ..viewing.text import outline
from .assemble import assemble
from .interpose import Capture
from .values import Values, wanted

if TYPE_CHECKING:
    import networkx
    import pandas

_FRAMEWORK = {"framework": "torch", "version": torch.__version__}


def trace(
    model: Callable[..., Any],
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    save: Selection = "all",
    seed: int | None = None,
    on_error: str = "raise",
) -> Trace:
    """Run ``model`` once and record every operation; model, torch and random state are left as they were.

    ``inputs`` is a tensor, a tuple of positional arguments, or a mapping passed as keywords (a tokenizer's
    output); any other object is passed as the one argument. ``save`` chooses the activations to keep:
    ``"all"``, ``"none"``, or one or many of label, module address, type, glob, ordinal and predicate on the
    op. ``seed`` seeds torch for this pass alone. An exception of the model is raised unchanged, with the
    partial trace as its ``intus_trace``; with ``on_error="keep"`` the partial trace is returned instead.

    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    >>> t = trace(net, torch.ones(2, 4))
    >>> [op.label for op in t.ops], tuple(t["1"].shape)
    (['linear_1_1', 'relu_1_2'], (2, 3))
    """
    if not callable(model):
        raise InputError(f"trace needs a module or a function to run, got {model!r}.")
    if on_error not in ("raise", "keep"):
        raise InputError(f"on_error={on_error!r} is not one of 'raise', 'keep'.")
    args, keywords = _arguments(inputs, kwargs)
    owner = _owner(model)
    names = [name for name, _ in owner.named_modules()] if owner is not None else []
    capture = Capture(owner, Values(wanted(save, names)), restore=True)
    began = time.perf_counter_ns()
    failure: BaseException | None = None
    with _same_random_state(seed):
        try:
            capture.inputs((args, keywords))
            with capture:
                capture.outputs(model(*args, **keywords))
        except BaseException as error:
            failure = error
    facts = {
        "seed": seed,
        "training": bool(owner.training) if owner is not None else False,
        "seconds": (time.perf_counter_ns() - began) / 1e9,
        **_FRAMEWORK,
    }
    result = _finish(capture, _name(model, owner), facts, save)
    try:
        if failure is None or (on_error == "keep" and isinstance(failure, Exception)):
            return result
        with suppress(Exception):  # an exception may refuse attributes; it is the model's, not ours
            failure.intus_trace = result  # type: ignore[attr-defined]
        raise failure
    finally:
        del failure  # it holds this frame, which would hold it: a cycle


@contextmanager
def _same_random_state(seed: int | None) -> Iterator[None]:
    """Leave torch's, numpy's and Python's random state as they were; ``seed`` holds for torch inside."""
    cuda = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    ours, theirs = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if cuda else []):
        if seed is not None:
            torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(ours)
            np.random.set_state(theirs)


def load(path: str | Path) -> Trace:
    """Read a trace that ``Trace.save`` wrote.

    >>> import tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "net.trace")
    >>> trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).save(path)
    >>> load(path)["linear_1"].value.shape
    torch.Size([1, 1])
    """
    graph, arrays = decode_graph(Path(path).read_bytes())
    unverified = frozenset(arrays.pop("unverified", np.zeros(0, int)).tolist())
    values = {}
    for name, array in arrays.items():
        if not name.isdecimal() or int(name) >= len(graph.ops):
            raise CodecError(f"{str(path)!r} holds a value for row {name!r}, which its graph has not.")
        dtype = getattr(torch, graph.metas[int(graph.ops.meta[int(name)])].dtype, None)
        if not isinstance(dtype, torch.dtype):
            raise CodecError(f"{str(path)!r} holds a value of an unknown dtype at row {name}.")
        values[int(name)] = torch.from_numpy(array.copy()).view(dtype)
    return Trace(graph, values, unverified)


def view(
    model_or_trace: Callable[..., Any] | Trace | Graph,
    inputs: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    depth: int | None = None,
    overlay: Overlay = None,
) -> View:
    """The model's graph as a page to walk in: a model is traced once, with nothing saved.

    ``depth`` is how many levels of modules stand open at first; ``overlay`` colours the boxes: ``"time"``,
    ``"memory"``, ``"parameters"``, a dict from address to number, or Results of one score.

    >>> view(torch.nn.Linear(2, 1), torch.ones(1, 2))  # doctest: +ELLIPSIS
    <View of Linear: 1 operation, 0 modules, 3 parameters (12 B), ...>
    """
    if isinstance(model_or_trace, Graph):
        graph = model_or_trace
    elif isinstance(model_or_trace, Trace):
        graph = model_or_trace.graph
    else:
        graph = trace(model_or_trace, inputs, kwargs, save="none").graph
    return View(graph, depth=depth, overlay=overlay)


def structure(capture: Capture, model: Callable[..., Any]) -> Graph:
    """The graph of what a finished capture saw, without values."""
    owner = _owner(model)
    return assemble(capture.recording, _name(model, owner), _FRAMEWORK)[0]


class Op:
    """One tensor of the pass: which operation made it, from what, where and when.

    ``value`` is the saved activation; asking for one that was not saved raises AddressError.
    """

    __slots__ = ("_trace", "row")

    def __init__(self, trace: Trace, row: int) -> None:
        self._trace = trace
        self.row = row

    @property
    def _graph(self) -> Graph:
        return self._trace.graph

    @property
    def label(self) -> str:
        """``conv2d_3_7``, or ``conv2d_3_7:2`` for the second pass of a recurrent layer."""
        return self._graph.label(self.row)

    @property
    def type(self) -> str:
        """The function's name: ``conv2d``."""
        return self._graph.types[int(self._graph.ops.type[self.row])]

    @property
    def kind(self) -> str:
        """``op``, ``input``, ``output``, ``buffer`` or ``constant``."""
        return OP_KINDS[int(self._graph.ops.kind[self.row])]

    @property
    def pass_number(self) -> int:
        """Which pass of its layer this is, from 1."""
        return int(self._graph.ops.passno[self.row])

    @property
    def value(self) -> Tensor:
        """The activation as it was when the operation returned it, detached."""
        try:
            return self._trace.values[self.row]
        except KeyError:
            raise AddressError(
                f"{self.label!r} was not saved. Trace again with save='all', or save={self.label!r}."
            ) from None

    @property
    def saved(self) -> bool:
        """Whether ``value`` is there."""
        return self.row in self._trace.values

    @property
    def meta(self) -> Meta:
        """Shape, dtype, device and bytes, known whether the value was saved or not."""
        return self._graph.metas[int(self._graph.ops.meta[self.row])]

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return self.meta.shape

    @property
    def dtype(self) -> str:
        """The tensor's dtype, as ``"float32"``."""
        return self.meta.dtype

    @property
    def nbytes(self) -> int:
        """The tensor's size in bytes."""
        return self.meta.nbytes

    @property
    def seconds(self) -> float:
        """How long the function took."""
        return int(self._graph.ops.time[self.row]) / 1e9

    @property
    def parents(self) -> list[Op]:
        """The ops whose tensors went in."""
        return [Op(self._trace, row) for row in self._graph.parents(self.row)]

    @property
    def children(self) -> list[Op]:
        """The ops that took this tensor."""
        return [Op(self._trace, row) for row in self._graph.children(self.row)]

    @property
    def params(self) -> list[Param]:
        """The parameters that went in."""
        return [self._graph.params[p] for p in self._graph.row_params.get(self.row, ())]

    @property
    def module(self) -> str | None:
        """Address of the innermost module it ran in, ``""`` for the model itself, None outside any."""
        call = int(self._graph.ops.call[self.row])
        return self._graph.call_address(call) if call >= 0 else None

    @property
    def modules(self) -> list[str]:
        """Addresses of all modules it ran in, from the model inwards."""
        return [self._graph.call_address(call) for call in self._graph.enclosing_calls(self.row)]

    @property
    def output_of(self) -> list[str]:
        """Addresses of the modules whose output it is, innermost first."""
        return [self._graph.call_address(call) for call in self._graph.row_exits.get(self.row, ())]

    @property
    def source(self) -> Source | None:
        """The line of the user's code that ran it."""
        site = int(self._graph.ops.site[self.row])
        return self._graph.sites[site] if site >= 0 else None

    @property
    def in_place(self) -> bool:
        """Whether it wrote into one of its arguments."""
        return bool(self._graph.ops.flags[self.row] & INPLACE)

    @property
    def created(self) -> bool:
        """Whether it made a tensor out of nothing, as torch.rand does."""
        return bool(self._graph.ops.flags[self.row] & CREATED)

    @property
    def failed(self) -> bool:
        """Whether it is the operation that raised."""
        return bool(self._graph.ops.flags[self.row] & FAILED)

    @property
    def unverified(self) -> bool:
        """Whether something unseen wrote to the saved value's memory, so that it may not be what was."""
        return self.row in self._trace.unverified

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Op) and other._trace is self._trace and other.row == self.row

    def __hash__(self) -> int:
        return hash((id(self._trace), self.row))

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape)) or "scalar"
        where = f" in {self.module}" if self.module else ""
        return f"<Op {self.label}: {shape} {self.dtype}{where}{'' if self.saved else ', not saved'}>"


class Trace:
    """One forward pass: its graph, and the activations that were saved.

    Index it with a label (``"conv2d_3_7"``, ``"conv2d_3"``, ``"conv2d_3:2"``), a module address
    (``"features.6"``, ``"features.6:2"``) or an ordinal (``7``, ``-1``; over the saved operations when only
    some were saved). A name that stands for several passes or outputs gives the first; ``find`` gives all.
    """

    def __init__(
        self, graph: Graph, values: dict[int, Tensor], unverified: frozenset[int] = frozenset()
    ) -> None:
        self.graph = graph
        self.values = values
        self.unverified = unverified

    @cached_property
    def _ordinals(self) -> list[int]:
        rows = self.graph.rows_of(OP)
        saved = [row for row in rows if row in self.values]
        return saved if saved else rows

    @property
    def ops(self) -> list[Op]:
        """The operations in the order they ran, inputs, buffers and outputs aside."""
        return [Op(self, row) for row in self.graph.rows_of(OP)]

    @property
    def inputs(self) -> list[Op]:
        """The input tensors."""
        return [Op(self, row) for row in self.graph.rows_of(INPUT)]

    @property
    def outputs(self) -> list[Op]:
        """The output tensors."""
        return [Op(self, row) for row in self.graph.rows_of(OUTPUT)]

    @property  # kept, it would be a cycle: an op holds its trace
    def layers(self) -> dict[str, list[Op]]:
        """Every layer's label without its pass, with its passes in order."""
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            found.setdefault(op.label.partition(":")[0], []).append(op)
        return found

    @property
    def modules(self) -> dict[str, Module]:
        """The modules that ran, by address; ``""`` is the model."""
        return {module.address: module for module in self.graph.modules}

    def __getitem__(self, key: str | int) -> Op:
        return Op(self, resolve(self.graph, key, ordinals=self._ordinals)[0])

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.graph.rows(key) is not None

    def __len__(self) -> int:
        return len(self.graph)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self.graph.names())

    def find(self, selection: Selection | None = None, *, type: str | None = None) -> list[Op]:
        """All ops that a selection means: a name, a type, a glob, a predicate, or a list of these.

        >>> layers = [torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2), torch.nn.ReLU()]
        >>> [op.label for op in trace(torch.nn.Sequential(*layers), torch.ones(1, 2)).find(type="relu")]
        ['relu_1_2', 'relu_2_4']
        """
        rows = (
            self.graph.rows_of(OP)
            if selection is None
            else select(self.graph, selection, handle=lambda row: Op(self, row))
        )
        found = [Op(self, row) for row in rows]
        return [op for op in found if type is None or op.type == type]

    def save(self, path: str | Path) -> None:
        """Write graph and saved values into one safetensors file; ``intus.load`` reads it back.

        Raises InputError for a value that has no plain array: sparse, nested, on ``meta``.
        """
        arrays = {str(row): _array(value, self.graph.label(row)) for row, value in self.values.items()}
        if self.unverified:
            arrays["unverified"] = np.array(sorted(self.unverified), dtype=np.int64)
        Path(path).write_bytes(encode_graph(self.graph, arrays))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per tensor: label, type, kind, shape, dtype, bytes, seconds, module, parents, source."""
        pd = require("pandas", extra="inspect", why="to turn a trace into a DataFrame")
        return pd.DataFrame(
            [
                {
                    "label": op.label,
                    "type": op.type,
                    "kind": op.kind,
                    "shape": op.shape,
                    "dtype": op.dtype,
                    "bytes": op.nbytes,
                    "seconds": op.seconds,
                    "module": op.module,
                    "parameters": sum(int(np.prod(p.shape)) for p in op.params),
                    "parents": [parent.label for parent in op.parents],
                    "source": f"{op.source.file}:{op.source.line}" if op.source else "",
                    "saved": op.saved,
                }
                for op in (Op(self, row) for row in range(len(self.graph.ops)))
            ]
        )

    def to_networkx(self) -> networkx.MultiDiGraph:
        """A networkx MultiDiGraph whose nodes are labels and whose edges bear the argument's name."""
        nx = require("networkx", extra="graph", why="to turn a trace into a networkx graph")
        out, labels, edges = nx.MultiDiGraph(), self.graph.labels, self.graph.edges
        for row, label in enumerate(labels):
            op = Op(self, row)
            out.add_node(label, type=op.type, kind=op.kind, shape=op.shape, dtype=op.dtype, module=op.module)
        for src, dst, arg in zip(edges.src.tolist(), edges.dst.tolist(), edges.arg.tolist(), strict=True):
            out.add_edge(labels[src], labels[dst], arg=self.graph.args[arg])
        return out

    def show(self, *, depth: int | None = None, overlay: Overlay = None) -> View:
        """The graph to walk in; in a notebook, a cell that ends with it shows it."""
        return View(self.graph, depth=depth, overlay=overlay)

    def draw(self, path: str | Path, *, depth: int | None = None, overlay: Overlay = None) -> Path:
        """Write the graph as one self-contained page that works offline; ``path`` ends in ``.html``."""
        if Path(path).suffix != ".html":
            raise InputError(f"draw writes .html files, got {str(path)!r}.")
        return self.show(depth=depth, overlay=overlay).save(path)

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    def __str__(self) -> str:
        return outline(self.graph)

    def __repr__(self) -> str:
        error = f", stopped by {self.graph.error}" if self.graph.error else ""
        return (
            f"<Trace of {self.graph.model}: {len(self)} operations, {len(self.values)} values saved{error}>"
        )


def _finish(capture: Capture, name: str, facts: dict[str, Any], save: Selection) -> Trace:
    graph, where = assemble(capture.recording, name, facts)
    capture.recording.failure = None  # it holds frames, and they hold the recording: a cycle
    kept = capture.values.kept
    values = {int(where[row]): kept[row] for row in sorted(kept) if where[row] >= 0}
    unverified = frozenset(int(where[row]) for row in capture.values.unverified() if where[row] >= 0)
    result = Trace(graph, values, unverified)
    if save != "all" and save != "none":
        chosen = set(select(graph, save, handle=lambda row: Op(result, row)))
        result.values = {row: value for row, value in values.items() if row in chosen}
    return result


def _arguments(inputs: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, tuple) and not hasattr(inputs, "_fields"):
        args, keywords = inputs, {}
    elif isinstance(inputs, Mapping):
        args, keywords = (), {str(name): value for name, value in inputs.items()}
    else:
        args, keywords = (inputs,), {}
    twice = set(keywords) & set(kwargs or {})
    if twice:
        raise InputError(f"{sorted(twice)} are given in both inputs and kwargs.")
    return args, {**keywords, **(kwargs or {})}


def _owner(model: Callable[..., Any]) -> torch.nn.Module | None:
    """The module whose parameters and submodules give names: the model, or what a bound method belongs to."""
    for candidate in (model, getattr(model, "__self__", None)):
        if isinstance(candidate, torch.nn.Module):
            return candidate
    return None


def _name(model: Callable[..., Any], owner: torch.nn.Module | None) -> str:
    if owner is model:
        return type(model).__name__
    return getattr(model, "__qualname__", type(model).__name__)


def _array(value: Tensor, label: str) -> np.ndarray:
    """A tensor as numpy; a dtype numpy lacks (bfloat16) travels as integers of its width."""
    if value.layout != torch.strided or value.is_meta or value.is_quantized:
        kind = "meta" if value.is_meta else "quantized" if value.is_quantized else value.layout
        raise InputError(f"The value of {label} is {kind} and cannot be written; save others, or none.")
    plain = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
    try:
        return plain.numpy()
    except TypeError:
        width: Sequence[torch.dtype] = (torch.int8, torch.int16, torch.int32, torch.int64)
        return plain.view(width[plain.element_size().bit_length() - 1]).numpy()
