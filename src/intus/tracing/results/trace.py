"""The Trace: one forward pass, its graph and the activations that were saved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, overload

import numpy as np

from ...core.address import split_units
from ...core.analysis import walks
from ...core.analysis.facts import WAYS, Facts
from ...core.errors import AddressError, InputError, did_you_mean, require
from ...core.graph import (
    BUFFER,
    CONSTANT,
    CREATED,
    INPUT,
    OP,
    OUTPUT,
    Branch,
    Graph,
    Param,
    elements,
    size_in_bytes,
)
from ...core.selection import Selection, main_rows, param_addresses, resolve, select
from ...core.table import NUMBERS, columns
from ...core.units import UnitAxes, index, needs_axis
from ...viewing.html import View
from ...viewing.outline import dimensions, summary
from ...viewing.overlay import Column, Overlay, needs_values
from ..capture.saving.stored import Value
from .arrays import float64, numbers, part
from .files import TORCH, save
from .module import Module, Modules
from .op import Op
from .value_summary import summarize, summarize_params

if TYPE_CHECKING:
    import networkx
    import pandas

    from ...core.traced import Parts
    from ..capture.saving.gradients_by_row import Gradients
    from ..replaying.edits import Change, Edits
    from ..replaying.replay import Replays
    from ..validation.report import Report
    from .first_nan import Origin


class Conditional(NamedTuple):
    """A decision that the model's Python code took on the value of a tensor.

    Attributes:
        op: The tensor whose value was read.
        kind: What was decided: ``"if"``, ``"elif"``, ``"while"``, ``"ternary"``, ``"assert"``,
            ``"comprehension"``, ``"guard"``, or ``"read"`` if unknown.
        way: Whether the condition was true; None if unknown.
        how: The method that read the value: ``"bool"``, ``"item"``, ``"tolist"``, ``"equal"``,
            ``"contains"``, ``"format"``, ``"repr"``, ``"numpy"``.
        involved: The ops that were computed for this decision alone.
        starts: Those of ``involved`` that depend on no other of them: where the condition branches off.
    """

    op: Op
    kind: str
    way: bool | None
    how: str
    involved: list[Op]
    starts: list[Op]


class Trace:
    """One forward pass: its graph, and the activations that were saved.

    ``trace`` and ``load`` return traces. Index one with a label (``"conv2d_3_7"``, ``"conv2d_3"``,
    ``"conv2d_3:2"``), a module's address (``"features.6"``, ``"features.6:2"``) or an ordinal (``7``,
    ``-1``), which counts the saved operations if only some were saved; ``t[1:3]`` is a list of ops. A name
    that means several passes or outputs gives the first; ``find`` returns all. Iteration yields the
    operations, ``len`` counts them, ``print`` shows the summary, and a notebook shows the graph.

    Attributes:
        graph: The graph of the pass, without values; needs no torch.
        values: The saved activations by row of the graph: torch tensors in a trace of PyTorch, numpy arrays
            in one of another framework or of a model file.
        maybe_modified: The rows whose saved value may be wrong, because something that was not recorded wrote
            to its memory.
        gradients: The gradients by row; None if the trace was taken without ``grads``.
        not_stored: The rows that ``store`` could not hold, each with the reason.

    Example:
        >>> from intus import trace
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
        >>> t = trace(net, torch.ones(2, 4))
        >>> t
        <Trace of Sequential: 2 operations, 4 values saved>
        >>> t["relu_1"] == t["1"] == t[-1], t["0"].shape
        (True, (2, 3))

    References:
        Taylor and Kriegeskorte (2023), TorchLens, sections "Layer nomenclature" and "The ModelHistory
        object", Supplementary Table 1 (see ``docs/names.md``).
    """

    def __init__(
        self,
        graph: Graph,
        values: MutableMapping[int, Value],
        maybe_modified: frozenset[int] = frozenset(),
        replays: Replays | None = None,
        params: Mapping[str, Value] | None = None,
        parts: Parts | None = None,
    ) -> None:
        self.graph = graph
        self._param_values = params or {}
        self.values: MutableMapping[int, Value] = values
        self.maybe_modified = maybe_modified
        self._replays = replays
        self._parts = parts
        self.gradients: Gradients | None = None
        self._output: Any = None
        self.not_stored: dict[int, str] = {}
        self._edits: Edits | None = None

    def why_not_stored(self, row: int) -> str:
        """Return why the value of a selected row is missing, as a predicate; ``""`` if that is unknown."""
        if self._is_overwritten(row):
            return (
                "was overwritten after the pass, because it shares memory with a parameter, a buffer, an "
                "input or an output. Trace with copy=True to keep it"
            )
        return self.not_stored.get(row, "")

    def _is_overwritten(self, row: int) -> bool:
        check = getattr(self.values, "is_overwritten", None)  # of ``Kept``, the values that are in memory
        return check is not None and check(row)

    def changed_since(self) -> list[str]:
        """Return the labels of values and addresses of parameters that were overwritten since the pass."""
        rows = filter(self._is_overwritten, range(len(self.graph.ops)))
        numbers = () if self._replays is None else filter(self._replays.is_changed, range(len(self.params)))
        return [
            *(self.graph.label(row) for row in rows),
            *(self.graph.params[number].address for number in numbers),
        ]

    def __getstate__(self) -> dict[str, Any]:
        # Functions and the autograd graph cannot be copied: a copy cannot be rerun, nor receive gradients.
        return {**vars(self), "_replays": None, "_parts": None, "_output": None, "_edits": None}

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError; for the name of a module or op, with how to index the trace."""
        message = f"{type(self).__name__!r} object has no attribute {name!r}."
        if "graph" in vars(self) and not name.startswith("_") and self.graph.rows(name) is not None:
            message += f" Write trace[{name!r}]."
        raise AttributeError(message, name=name, obj=self)

    @cached_property
    def _facts(self) -> Facts:
        return Facts(self.graph)

    def _handles(self, rows: Iterable[int]) -> list[Op]:
        return [Op(self, row) for row in rows]

    @property
    def not_restored(self) -> list[str]:
        """The changes of the pass that could not be undone, each as a sentence; usually empty."""
        return list(self.graph.facts.get("not_restored", ()))

    # -- contents --------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The class of the model, or the name of the function."""
        return self.graph.model

    @property
    def framework(self) -> str:
        """The framework that ran the pass (``"torch"``), or the format of a model file (``"onnx"``)."""
        return str(self.graph.facts.get("framework", TORCH))

    @property
    def ops(self) -> list[Op]:
        """The operations in order of execution, without inputs, buffers, constants and outputs."""
        return self._handles(self.graph.rows_of(OP))

    @property
    def inputs(self) -> list[Op]:
        """The input tensors."""
        return self._handles(self.graph.rows_of(INPUT))

    @property
    def outputs(self) -> list[Op]:
        """The output tensors."""
        return self._handles(self.graph.rows_of(OUTPUT))

    @property
    def buffers(self) -> list[Op]:
        """The buffers that the pass read, with their values at that time; ``modules[""].buffers`` has all."""
        return self._handles(self.graph.rows_of(BUFFER))

    @property
    def constants(self) -> list[Op]:
        """The tensors from outside that are no input, parameter or buffer, such as those of a closure."""
        return self._handles(self.graph.rows_of(CONSTANT))

    @property
    def factory_ops(self) -> list[Op]:
        """The operations that created a tensor without tensor arguments: ``torch.rand``, ``torch.ones``."""
        return [op for op in self.ops if self.graph.ops.flags[op.row] & CREATED]

    @property
    def terminal_bools(self) -> list[Op]:
        """The boolean scalars that Python read (``if t:``) and that no op takes."""
        return self._handles(self._facts.terminal_bools)

    @property  # not cached: an op refers to its trace, so that a cache would be a reference cycle
    def layers(self) -> dict[str, list[Op]]:
        """The passes of every layer in order, by the label of the layer."""
        found: dict[str, list[Op]] = {}
        for op in self.ops:
            found.setdefault(op.layer, []).append(op)
        return found

    @property
    def layers_with_params(self) -> list[str]:
        """The labels of the layers that use parameters."""
        rows = sorted(self.graph.row_params)
        return list(dict.fromkeys(self.graph.layer_label(int(self.graph.ops.layer[row])) for row in rows))

    @property
    def ops_per_type(self) -> dict[str, int]:
        """The number of operations of each type, the most frequent first."""
        return dict(Counter(op.type for op in self.ops).most_common())

    @property
    def modules(self) -> dict[str, Module]:
        """The modules of the model by address, called or not; ``""`` is the model itself.

        Raises:
            AddressError: If it is indexed with an unknown address.
        """
        numbered = enumerate(self.graph.modules)
        return Modules({m.address: Module(self, n) for n, m in numbered})

    # -- structure -------------------------------------------------------------------------------------

    @property
    def is_recurrent(self) -> bool:
        """Return whether the model runs a part of itself again on what that part computed before.

        A loop, weights shared over depth or ``nn.LSTM`` do; a layer that is only used several times
        (``a + b + c + d``, towers that share weights) does not: see ``has_repeated_layers``. An operation
        that is a loop (``lax.scan``, ``tf.while_loop``, ONNX's ``Loop``) counts whatever it computes.
        """
        return self._facts.is_recurrent

    @property
    def has_repeated_layers(self) -> bool:
        """True if any layer has several passes, by the rules of the TorchLens paper."""
        return self.max_passes > 1

    @property
    def max_passes(self) -> int:
        """The largest number of passes of a layer; 0 if nothing ran."""
        return int(self.graph.ops.passno.max(initial=0))

    @property
    def is_branching(self) -> bool:
        """True if any tensor is an argument of more than one operation; parameters do not count."""
        return self._facts.is_branching

    @property
    def has_conditionals(self) -> bool:
        """True if the model's control flow depends on the value of a tensor.

        This covers ``if``, ``elif``, ``while``, ternary, guard and comprehension, but not ``assert`` or a
        plain read.
        """
        return any(branch.kind in WAYS for branch in self.graph.branches)

    # -- totals ----------------------------------------------------------------------------------------

    @property
    def num_tensors(self) -> int:
        """The number of tensors: inputs, buffers, constants and the results of operations."""
        return int(self._facts.tensors.sum())

    @property
    def tensor_bytes(self) -> int:
        """The size of those tensors in bytes; a view counts as if it had its own memory."""
        return int(self._facts.nbytes[self._facts.tensors].sum())

    @property
    def num_saved(self) -> int:
        """The number of those tensors whose value was saved."""
        return sum(1 for row in self.values if self._facts.tensors[row])

    @property
    def saved_tensor_bytes(self) -> int:
        """The size of the saved ones in bytes; a view counts as if it had its own memory."""
        return sum(int(self._facts.nbytes[row]) for row in self.values if self._facts.tensors[row])

    @property
    def params(self) -> list[Param]:
        """The parameters of the model, used or not."""
        return list(self.graph.params)

    @property
    def num_params(self) -> int | None:
        """The number of elements of the parameters; None if a length of one is unknown."""
        return elements(self.graph.params)

    @property
    def num_trainable(self) -> int | None:
        """The number of elements of the parameters that require gradients; None if unknown."""
        return elements(param for param in self.graph.params if param.trainable)

    @property
    def num_frozen(self) -> int | None:
        """The number of elements of the parameters that do not require gradients; None if unknown."""
        return elements(param for param in self.graph.params if not param.trainable)

    @property
    def param_bytes(self) -> int | None:
        """The size of the parameters in bytes; None if unknown."""
        return size_in_bytes(self.graph.params)

    @property
    def flops(self) -> int:
        """The floating-point operations of the pass; operations in ``flops_unknown`` count as 0."""
        return int(self._facts.flops.clip(0).sum())

    @property
    def macs(self) -> int:
        """The multiply-adds of all products (linear, matmul, convolution, attention)."""
        return int(self._facts.macs.clip(0).sum())

    @property
    def flops_unknown(self) -> dict[str, int]:
        """The number of operations without a FLOP rule, by type."""
        types = self.graph.ops.type[self._facts.flops < 0]
        return dict(Counter(self.graph.types[type_] for type_ in types.tolist()).most_common())

    # -- time ------------------------------------------------------------------------------------------

    @property
    def seed(self) -> int | None:
        """The seed of the pass; None if it had none."""
        seed = self.graph.facts.get("seed")
        return None if seed is None else int(seed)

    @property
    def started(self) -> float:
        """The time when the pass began, in seconds since 1970; NaN if unknown."""
        return float(self.graph.facts.get("started", math.nan))

    @property
    def ended(self) -> float:
        """The time when the pass ended, in seconds since 1970; NaN if unknown."""
        return self.started + self.seconds

    @property
    def seconds(self) -> float:
        """The duration of the pass while it was recorded, in seconds; NaN if unknown."""
        return float(self.graph.facts.get("seconds", math.nan))

    @property
    def op_seconds(self) -> float:
        """The duration of the operations alone, in seconds."""
        return int(self.graph.ops.time.sum()) / 1e9

    @property
    def overhead_seconds(self) -> float:
        """The rest of the duration, in seconds: the recorder and the Python code of the model."""
        return self.seconds - self.op_seconds

    # -- values, analyses and files --------------------------------------------------------------------

    @property
    def output(self) -> Any:
        """The output of the model, with its autograd graph.

        Call ``backward`` on a loss of it, and every op has its ``grad``.

        Raises:
            InputError: If the trace was taken without ``grads``, or copied.
        """
        if self.gradients is None or self._output is None:
            labels = [op.label for op in self.outputs]
            raise InputError(
                "This trace does not hold what the model returned, which is kept only for backward. "
                f"Trace with grads=True, or read the values of trace.outputs: {labels}."
            )
        return self._output

    @cached_property
    def _ordinals(self) -> list[int]:
        rows = self.graph.rows_of(OP)
        saved = [row for row in rows if row in self.values]
        return saved if saved else rows

    @property
    def conditionals(self) -> list[Conditional]:
        """The tensors whose value Python read, with what that decided and whether it was true."""
        outputs = self.graph.rows_of(OUTPUT)
        used_by_outputs = {*outputs, *walks.ancestors(self.graph, outputs)}
        return [self._conditional(branch, used_by_outputs) for branch in self.graph.branches]

    def _conditional(self, branch: Branch, used_by_outputs: set[int]) -> Conditional:
        rows = [branch.row, *walks.ancestors(self.graph, [branch.row])]
        involved = sorted(row for row in rows if row not in used_by_outputs)
        starts = [row for row in involved if not set(self.graph.parents(row)) & set(involved)]
        return Conditional(
            Op(self, branch.row),
            branch.kind,
            branch.way,
            branch.how,
            [Op(self, row) for row in involved],
            [Op(self, row) for row in starts],
        )

    @overload
    def __getitem__(self, key: str | int) -> Op: ...
    @overload
    def __getitem__(self, key: slice) -> list[Op]: ...
    def __getitem__(self, key: str | int | slice) -> Op | list[Op]:
        if isinstance(key, slice):
            try:
                return self._handles(self._ordinals[key])
            except TypeError:
                raise InputError(f"A slice of a trace needs ordinals, as in t[1:3], got {key!r}.") from None
        return Op(self, resolve(self.graph, key, ordinals=self._ordinals)[0])

    def value(self, address: str | int) -> Value:
        """Return the saved value of an op, of some of its units, or of a parameter.

        Args:
            address: As in ``trace[address]``, also with units (``"conv1[3,5:8]"``, ``"ln_f[-1@1]"``), or the
                address of a parameter (``"fc.weight"``, ``"fc.weight[0]"``: the weights of unit 0).

        Returns:
            The value; an axis of which one unit is selected is removed, as in ``tensor[3]``.

        Raises:
            AddressError: If there is no such op or unit, the value was not saved, or the axis of the units is
                unknown (``@`` then names it).
            InputError: If it is a parameter and the trace has no parameter values: ``save="none"``, a copy, a
                file.

        Example:
            >>> from intus import trace
            >>> t = trace(torch.nn.Linear(2, 3), torch.ones(4, 2))
            >>> t.value("linear_1[0,2]").shape, t.value("weight[0]").shape
            (torch.Size([4, 2]), torch.Size([2]))
        """
        if not isinstance(address, str) or self.graph.rows(address) is not None:
            return self[address].value
        place, units = split_units(address)
        axes, axis = UnitAxes(self.graph), 0
        if self.graph.rows(place) is None and place in (params := param_addresses(self.graph)):
            whole = self._parameter(self.graph.params[params[place]].address)
            axis = axes.of_parameter(params[place], address) if needs_axis(units) else 0
        else:
            row = (main_rows(self.graph, place) or [self[place].row])[0]
            whole = self._handles([row])[0].value
            axis = axes.of(row, address) if needs_axis(units) else 0
        return part(whole, index(whole.shape, units, axis, address))

    def _parameter(self, address: str) -> Value:
        """Return the value that a parameter had before the pass."""
        if address in self._param_values:
            return self._param_values[address]
        if self._replays is None:
            raise InputError(
                f"This trace does not hold the value of {address!r}: it was taken with save='none', "
                "copied, or read from a file. Trace the model again with save='all'."
            )
        from ..replaying.replay import UnprovenError

        for number, param in enumerate(self.graph.params):
            if param.address == address:
                try:
                    return self._replays.param(number).detach()
                except UnprovenError as error:
                    raise InputError(f"{error}. Trace the model again for its present value.") from None
        raise AddressError(f"The trace of {self.graph.model} has no parameter {address!r}.")

    def _select(self, selection: Selection) -> list[int]:
        return select(self.graph, selection, handle=lambda row: Op(self, row))

    def _check_module(self, address: str) -> None:
        names = {self.graph.call_address(call) for call in range(len(self.graph.calls))}
        names |= set(self.modules)
        if address not in names:
            raise AddressError(f"No module {address!r} ran. {did_you_mean(address, sorted(names - {''}))}")

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.graph.rows(key) is not None

    def __len__(self) -> int:
        return len(self.graph)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def _ipython_key_completions_(self) -> list[str]:
        """Return what to offer after ``t["``: the modules that ran, then the label of every tensor."""
        modules = [address for address in self.modules if address and self.graph.rows(address)]
        return list(dict.fromkeys([*modules, *self.graph.ends, *self.graph.labels]))

    def find(
        self,
        selection: Selection | None = None,
        *,
        type: str | None = None,
        after: Selection | None = None,
        before: Selection | None = None,
        inside: str | None = None,
    ) -> list[Op]:
        """Return all ops that a selection means and that pass the filters, in order of execution.

        Args:
            selection: A name, an operation type, a module class, a pattern, an ordinal, a slice, a predicate
                on the op, or a list of these. Default: all operations.
            type: Keep only ops of this type.
            after: Keep only ops with a parent in this selection.
            before: Keep only ops with a child in this selection.
            inside: Keep only ops that ran in this module, at any depth; an address, or one call of it
                (``"cell:2"``).

        Returns:
            The ops.

        Raises:
            AddressError: If a name or pattern means nothing, or the module did not run.
            InputError: If a selection is not valid.

        Example:
            >>> from intus import trace
            >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
            >>> t = trace(net, torch.ones(1, 2))
            >>> [op.label for op in t.find(type="linear", after="relu")]
            ['linear_2_3']
            >>> len(t.find(lambda op: op.has_params))
            2
        """
        rows = self.graph.rows_of(OP) if selection is None else self._select(selection)
        found = [op for op in (Op(self, row) for row in rows) if type is None or op.type == type]
        if after is not None:
            consumers = {child for row in self._select(after) for child in self.graph.children(row)}
            found = [op for op in found if op.row in consumers]
        if before is not None:
            producers = {parent for row in self._select(before) for parent in self.graph.parents(row)}
            found = [op for op in found if op.row in producers]
        if inside is not None:
            self._check_module(inside)
            found = [op for op in found if any(_is_call_of(name, inside) for name in op.modules)]
        return found

    def first_nan(self) -> Origin | None:
        """Find the operation that made the first NaN or infinity of the pass.

        The search has this order: what made the first NaN, or the infinity that it came from; what made an
        infinity that an output has; what made the first NaN or infinity of the backward pass, if gradients
        were saved; what made an infinity that disappeared again. An infinity that the model's code places on
        purpose (``masked_fill``, ``where``, an attention mask) does not count. ``intus.why_nan`` runs and
        searches a model in one call.

        Returns:
            The operation, its line, the ranges of what it took, and the rows that are affected; None if
            every number is finite. If the data had it before, the input, buffer or constant.

        Raises:
            InputError: If a value is missing: trace with ``save="all"``, without ``to`` and ``transform``.

        Example:
            >>> from intus import trace
            >>> t = trace(lambda x: (x - 1).log() * 2, torch.tensor([[2.0], [1.0], [0.0]]))
            >>> print(t.first_nan())  # doctest: +ELLIPSIS
            log_1_2 made 1 NaN, 1 infinite of 3 numbers, in rows 1, 2.
              ...
              from sub_1_1 (3×1): -1 to 1
        """
        self._require_torch("searched for NaN")
        from .first_nan import first_nan

        return first_nan(self)

    def validate(self, *, perturb: str = "alike") -> Report:
        """Validate the saved activations: run each operation again and compare bit for bit.

        Each operation runs again on the saved values of its parents and must return what was saved, without
        any tolerance. With random values in place of a parent it must return something else, unless an
        exemption rule explains why it need not (the report gives the reason). ``intus.validate`` does the
        same while the model runs, without saving activations.

        Args:
            perturb: ``"alike"`` (default) tries random values once for operations that are alike: same
                function, same non-tensor arguments, same shapes and dtypes; ``Check.alike`` names the op on
                which they were tried. ``"all"`` tries them on every operation.

        Returns:
            The report; it is true if nothing failed and nothing is unproven.

        Raises:
            InputError: If the trace has no calls to run again (``save="none"``, a copy, a file), or its
                values are not those of the pass (``to``, ``transform``).

        Example:
            >>> from intus import trace
            >>> print(trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).validate())
            valid: 2 of 2 ops proven

        References:
            Taylor and Kriegeskorte (2023), TorchLens, section "Validating the accuracy of saved activations".
        """
        self._require_torch("validated")
        self._require_unchanged_values("validated")
        from ..validation.offline import validate_trace

        return validate_trace(self, perturb)

    def rerun(
        self,
        changes: Mapping[str | int, Change] | None = None,
        *,
        swap: Mapping[str | int, Callable[..., Any]] | None = None,
        on_branch_change: str = "raise",
    ) -> Trace:
        """Return a trace of the same pass with changes; only what depends on them is computed again.

        The model's Python code does not run again, and random operations draw the same numbers as before. A
        trace that was itself changed stays changed: earlier changes are applied to whatever is computed
        again. ``docs/changes.md`` has examples.

        Args:
            changes: What each address becomes: a number; a tensor of the same dtype, which is broadcast; a
                function of the value that returns either; or another trace or op, whose value is taken. An
                address may name an op, a module, an input, a parameter (``"fc.weight"``), or several by a
                pattern (``"**.attn"``), a class or a type; and units of it: ``"conv1[3]"``,
                ``"conv1[3,5:8]"``, or ``"ln_f[-1@1]"`` for the last element along axis 1. Without ``@`` the
                operation determines the axis: the channels of a convolution, the features of a linear layer,
                the heads of a fused attention, the rows of a parameter.
            swap: A function for each address to run instead of its own; it receives the op's tensors as
                positional arguments, parameters included.
            on_branch_change: What to do if a tensor whose value the model read (``if t:``, ``t.item()``,
                ``t.numpy()``, ``str(t)``) has another value after the change, or one that leads to no output
                has another shape, so that the model might have run other operations. ``"raise"``
                (default) raises CaptureError; ``"ignore"`` follows the recorded operations.

        Returns:
            The changed trace. It can be compared, validated and rerun.

        Raises:
            AddressError: If an address means nothing, or the axis of its units is unknown.
            InputError: If a change does not fit, would change a shape or dtype, or the trace has no calls to
                run again (``save="none"``, a copy, a file, ``to``, ``transform``).
            CaptureError: If an affected operation cannot be run again, or a read value changed
                (``on_branch_change``).

        Example:
            >>> from intus import trace
            >>> net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 1, bias=False))
            >>> float(trace(net, torch.ones(1, 2)).rerun({"0": 0})["output_1"].value)
            0.0
        """
        self._require_torch("run again")
        self._require_unchanged_values("run again")
        from ..replaying.rerun import rerun

        return rerun(self, changes or {}, swap or {}, on_branch_change)

    @property
    def saved_bytes(self) -> int | None:
        """The number of bytes that autograd keeps for the backward pass, without parameters and buffers.

        The sum of ``Op.saved_bytes``; None if the trace was taken without ``grads``.
        """
        nodes = self.graph.facts.get("autograd")  # by row: (name, bytes)
        return None if nodes is None else sum(size for _, size in nodes.values())

    def _require_torch(self, what: str) -> None:
        if self.framework != TORCH:
            raise InputError(
                f"This trace cannot be {what}: it is of {self.framework}, and only a trace of PyTorch can."
            )
        require("torch", extra="torch", why="to run operations of a trace again")

    def _require_unchanged_values(self, what: str) -> None:
        if "form" in self.graph.facts:
            raise InputError(
                f"This trace cannot be {what}: its values were kept with {self.graph.facts['form']} and are "
                "not those that the model computed. Trace again without it."
            )

    def save(self, path: str | Path) -> None:
        """Write the graph, the saved values and the gradients into one safetensors file.

        ``intus.load`` reads it back. Functions are not written: a trace that was loaded cannot be validated
        or rerun. Nor are strides: loaded values are contiguous. An existing file is replaced as a whole.

        Args:
            path: The file to write.

        Raises:
            InputError: If a value cannot be stored in such a file: sparse, nested, quantized, complex128, on
                ``meta``.

        Example:
            >>> import os, tempfile
            >>> from intus import load, trace
            >>> path = os.path.join(tempfile.mkdtemp(), "net.trace")
            >>> trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).save(path)
            >>> load(path).num_saved
            2
        """
        save(self, Path(path))

    def to_pandas(self) -> pandas.DataFrame:
        """Convert the trace to a pandas DataFrame.

        Returns:
            One row per tensor; the columns are those of ``core/table.py``, and ``saved``. Sizes are in bytes,
            durations in seconds. Integer columns that may lack an entry (FLOPs, distances) have the pandas
            dtype ``Int64``. Durations and FLOPs of a call that returned several tensors are in the row of
            the first, so that sums are right.

        Raises:
            MissingExtraError: If pandas is not installed.

        Example:
            >>> from intus import trace
            >>> table = trace(torch.nn.Linear(4, 3), torch.ones(2, 4)).to_pandas()
            >>> table["label"].tolist(), table["flops"].tolist()
            (['input_1', 'linear_1_1', 'output_1'], [0, 48, 0])
        """
        pd = require("pandas", extra="inspect", why="to turn a trace into a DataFrame")
        found = columns(self._facts)
        numbers = {name: pd.array(found[name], dtype="Int64") for name in NUMBERS}
        saved = [row in self.values for row in range(len(self.graph.ops))]
        return pd.DataFrame({**found, **numbers, "saved": saved})

    def to_networkx(self) -> networkx.MultiDiGraph:
        """Convert the trace to a networkx MultiDiGraph.

        Returns:
            A graph with a node per tensor and an edge per argument. Nodes are labels, with the columns of
            ``to_pandas`` as attributes; unknown ones are left out, and so are the parents and the number of
            consumers, which the edges show. Shapes and lists are texts (``"2×3"``), so that every writer of
            networkx can write the graph (GraphML, GEXF, GML). An edge has the argument's name as ``arg``.

        Raises:
            MissingExtraError: If networkx is not installed.

        Example:
            >>> from intus import trace
            >>> graph = trace(torch.nn.Linear(4, 3), torch.ones(2, 4)).to_networkx()
            >>> list(graph.edges(data="arg"))
            [('input_1', 'linear_1_1', '0'), ('linear_1_1', 'output_1', '0')]
        """
        nx = require("networkx", extra="graph", why="to turn a trace into a networkx graph")
        out, labels, edges = nx.MultiDiGraph(model=self.name), self.graph.labels, self.graph.edges
        found = columns(self._facts)
        for name in ("label", "parents", "num_consumers"):
            del found[name]
        found["shape"] = [dimensions(shape) for shape in found["shape"]]
        found["output_of"] = [", ".join(filter(None, addresses)) for addresses in found["output_of"]]
        for row, label in enumerate(labels):
            facts = {name: column[row] for name, column in found.items()}
            out.add_node(label, **{name: fact for name, fact in facts.items() if fact is not None})
        for src, dst, arg in zip(edges.src.tolist(), edges.dst.tolist(), edges.arg.tolist(), strict=True):
            out.add_edge(labels[src], labels[dst], arg=self.graph.args[arg])
        return out

    def summary(self, depth: int | None = None, *, most: int | None = 50) -> str:
        """Return a table of modules and operations, with shapes, parameters, FLOPs and time, as text.

        Neighbors that are alike are one line. ``print(trace)`` shows the summary.

        Args:
            depth: How many levels of modules to show. Default: as many as fit in ``most`` lines.
            most: The largest number of lines; None for all. Default: 50.

        Returns:
            The table.

        Raises:
            InputError: If ``depth`` is below 0 or ``most`` below 1.

        Example:
            >>> from intus import trace
            >>> text = trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).summary()
            >>> text.splitlines()[0]  # doctest: +ELLIPSIS
            'Linear: 1 operation, 0 modules, 3 parameters (12 B), ...'
        """
        for name, number, least in (("depth", depth, 0), ("most", most, 1)):
            if number is not None and (not isinstance(number, int) or number < least):
                raise InputError(f"{name}={number!r} must be a whole number from {least} on, or None.")
        return summary(self.graph, depth=depth, most=most)

    def show(
        self,
        *,
        depth: int | str | None = None,
        overlay: Overlay = None,
        rolled: bool | None = None,
        details: str | None = None,
    ) -> View:
        """Return the graph as an interactive page; a notebook cell that ends with it displays it.

        The statistics, histograms and pictures of the saved activations are part of the page.

        Args:
            depth: As in ``intus.view``.
            overlay: As in ``intus.view``.
            rolled: As in ``intus.view``.
            details: As in ``intus.view``.

        Returns:
            The view, which ``View.save`` writes to a file.

        Raises:
            InputError: If an option has an impossible value, or the overlay cannot be computed.
        """
        values = summarize(self.values) | {"params": self._param_figures()} if self.values else None
        return View(
            self.graph,
            depth=depth,
            overlay=self._overlay(overlay),
            rolled=rolled,
            details=details,
            values=values,
        )

    def draw(
        self,
        path: str | Path,
        *,
        depth: int | str | None = None,
        rolled: bool | None = None,
        details: str | None = None,
        direction: str = "down",
        overlay: Overlay = None,
        dark: bool = False,
        scale: float = 2.0,
    ) -> Path:
        """Write the graph as a page or a picture, in the format of the file extension.

        Args:
            path: The file: ``.html`` (an interactive page), ``.svg``, ``.png``, ``.pdf``, ``.dot``
                (Graphviz) or ``.json`` (the scene). Pictures need QuickJS, which ``intus[torch]`` and
                ``intus[draw]`` install; PNG and PDF also need matplotlib, from ``intus[draw]``.
            depth: How many levels of modules are open; ``"all"`` for every level. Default: as many as stay
                readable.
            rolled: Whether the passes of a recurrent layer are shown as one box. Default: if there are too
                many to read.
            details: ``"full"`` to write on every box its labels, the shape and size of its values, the shapes
                of its parameters and its address, so that the picture is an index: what can be read there
                is what ``save=`` takes. ``"parameters"`` also draws every parameter that an operation reads
                as a box. Default: only names.
            direction: Where the data flows in a picture: ``"down"`` (default) or ``"right"``.
            overlay: What colors the boxes, as in ``intus.view``.
            dark: Whether a picture has the dark theme. Default: False.
            scale: The number of pixels of a PNG per pixel of the picture. Default: 2.0.

        Returns:
            The path.

        Raises:
            InputError: If an option has an impossible value, or the extension is unknown.
            MissingExtraError: If QuickJS or matplotlib is needed and not installed.

        Example:
            >>> import tempfile, os
            >>> from intus import trace
            >>> path = os.path.join(tempfile.mkdtemp(), "net.svg")
            >>> trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).draw(path).name
            'net.svg'

        References:
            Taylor and Kriegeskorte (2023), TorchLens, section "Visualization".
        """
        if Path(path).suffix in (".html", ".json") or needs_values(overlay):
            view = self.show(depth=depth, overlay=overlay, details=details)
        else:  # a picture shows no values
            view = View(self.graph, depth=depth, overlay=self._overlay(overlay), details=details)
        return view.save(path, rolled=rolled, direction=direction, dark=dark, scale=scale)

    def _param_figures(self) -> dict[str, list[Any]]:
        """Return figures of the parameters that still have the values of the pass."""
        replays = self._replays
        params = [] if replays is None else replays.params
        return summarize_params(
            p if replays is not None and not replays.is_changed(number) else None
            for number, p in enumerate(params)
        )

    def _overlay(self, overlay: Overlay) -> Overlay:
        return self._gradient_norms() if isinstance(overlay, str) and overlay == "gradient" else overlay

    def _gradient_norms(self) -> dict[str, float]:
        """Return the norm of each op's gradient, by label and by the modules whose output it is."""
        norms: dict[str, float] = {}
        for op in self.ops:
            grad = op.grad
            if grad is not None:
                plain: Any = numbers(grad)
                norm = float(grad.double().norm() if plain is None else np.linalg.norm(float64(plain)))
                norms.update(dict.fromkeys((op.label, *op.output_of), norm))
        if not norms:
            raise InputError(
                "overlay='gradient' needs gradients: t = trace(model, x, grads=True), then backward() on a "
                "loss of t.output."
            )
        return Column("Gradient norm", norms)

    def widget(self, *, depth: int | str | None = None, overlay: Overlay = None) -> Any:
        """Return the graph as a notebook widget.

        ``w.selected`` is the address of the selected box, None if none is selected; ``w.select("conv1")``
        selects one.

        Args:
            depth: As in ``intus.view``.
            overlay: As in ``intus.view``.

        Returns:
            The widget.

        Raises:
            InputError: If an option has an impossible value, or the overlay cannot be computed.
            MissingExtraError: If anywidget is not installed (``intus[widget]``).
        """
        return self.show(depth=depth, overlay=overlay).widget()

    def _repr_html_(self) -> str:
        return self.show()._repr_html_()

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        error = f", stopped by {self.graph.error}" if self.graph.error else ""
        return (
            f"<Trace of {self.graph.model}: {len(self)} operations, {len(self.values)} values saved{error}>"
        )


def _is_call_of(name: str, address: str) -> bool:
    """Return whether ``name`` is the module's address or one of its calls: ``fc:2`` is a call of ``fc``."""
    return name == address or name.rpartition(":")[0] == address
