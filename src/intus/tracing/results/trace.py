"""The Trace: one forward pass, its graph and the activations that were saved."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from ...core import walks
from ...core.address import split_units
from ...core.errors import AddressError, InputError, did_you_mean, require
from ...core.facts import WAYS, Facts
from ...core.graph import BUFFER, CONSTANT, CREATED, INPUT, OP, OUTPUT, Branch, Graph, Param
from ...core.selection import Selection, param_addresses, resolve, select
from ...core.table import NUMBERS, columns
from ...core.units import UnitAxes, index, needs_axis
from ...viewing.html import View
from ...viewing.outline import summary
from ...viewing.overlay import Column, Overlay, needs_values
from ..capture.saving.gradients import Gradients
from ..replaying.edits import Change, Edits, part_of
from ..replaying.replay import Replays
from ..replaying.rerun import rerun
from ..validation.offline import validate_trace
from ..validation.report import Report
from .files import save
from .module import Module, Modules
from .op import Op
from .value_summary import summarise

if TYPE_CHECKING:
    import networkx
    import pandas


class Conditional(NamedTuple):
    """A decision that a model took on a tensor.

    ``op`` is the tensor; ``kind`` what it decided: ``if``, ``elif``, ``while``, ``ternary``, ``assert``,
    ``comprehension``, ``guard``, or ``read`` where nothing is known; ``way`` True where the condition held,
    False where not, None where that cannot be told; ``how`` the method that asked (``bool``, ``item``);
    ``involved`` the ops that served the decision alone, ``starts`` those of them where it branches off.
    """

    op: Op
    kind: str
    way: bool | None
    how: str
    involved: list[Op]
    starts: list[Op]


class Trace:
    """One forward pass: its graph, and the activations that were saved.

    Index it with a label (``"conv2d_3_7"``, ``"conv2d_3"``, ``"conv2d_3:2"``), a module address
    (``"features.6"``, ``"features.6:2"``) or an ordinal (``7``, ``-1``; over the saved operations when only
    some were saved). A name that stands for several passes or outputs gives the first; ``find`` gives all.
    """

    def __init__(
        self,
        graph: Graph,
        values: MutableMapping[int, Tensor],
        maybe_modified: frozenset[int] = frozenset(),
        replays: Replays | None = None,
    ) -> None:
        self.graph = graph
        self.values: MutableMapping[int, Tensor] = values
        self.maybe_modified = maybe_modified
        self._replays = replays
        self.gradients: Gradients | None = None
        self._output: Any = None
        self.not_stored: dict[int, str] = {}  # rows that ``store`` had no place for, and why
        self._edits: Edits | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Functions and autograd's graph do not travel: a copy cannot be run again, nor be given gradients.
        return {**vars(self), "_replays": None, "_output": None, "_edits": None}

    @cached_property
    def _facts(self) -> Facts:
        return Facts(self.graph)

    def _handles(self, rows: Iterable[int]) -> list[Op]:
        return [Op(self, row) for row in rows]

    # -- what is in it ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The model's class, or the function's name."""
        return self.graph.model

    @property
    def ops(self) -> list[Op]:
        """The operations in the order they ran, inputs, buffers and outputs aside."""
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
        """The model's buffers that the pass read, as they were then; ``modules[""].buffers`` are all."""
        return self._handles(self.graph.rows_of(BUFFER))

    @property
    def constants(self) -> list[Op]:
        """Tensors that came from outside and are no input, parameter or buffer: a closure's."""
        return self._handles(self.graph.rows_of(CONSTANT))

    @property
    def factory_ops(self) -> list[Op]:
        """The ops that made a tensor out of nothing: torch.rand, torch.ones."""
        return [op for op in self.ops if self.graph.ops.flags[op.row] & CREATED]

    @property
    def terminal_bools(self) -> list[Op]:
        """The ops that hold one truth that Python asked for, and that nothing else was computed from."""
        return self._handles(self._facts.terminal_bools)

    @property  # kept, it would be a cycle: an op holds its trace
    def layers(self) -> dict[str, list[Op]]:
        """Every layer's label without its pass, with its passes in order."""
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
        """How many ops there are of each type, the most frequent first."""
        return dict(Counter(op.type for op in self.ops).most_common())

    @property
    def modules(self) -> dict[str, Module]:
        """The model's modules by address, called or not; ``""`` is the model itself. An unknown address
        raises AddressError."""
        numbered = enumerate(self.graph.modules)
        return Modules({m.address: Module(self, n) for n, m in numbered})

    # -- what kind of model it is ----------------------------------------------------------------------

    @property
    def is_recurrent(self) -> bool:
        """Whether any layer has several passes."""
        return self.max_passes > 1

    @property
    def max_passes(self) -> int:
        """How many passes the layer with the most of them has; 0 where nothing ran."""
        return int(self.graph.ops.passno.max(initial=0))

    @property
    def is_branching(self) -> bool:
        """Whether any tensor went into more than one operation."""
        return self._facts.is_branching

    @property
    def has_conditionals(self) -> bool:
        """Whether an if, while, ternary, guard or comprehension asked a tensor which way to go."""
        return any(branch.kind in WAYS for branch in self.graph.branches)

    # -- totals ----------------------------------------------------------------------------------------

    @property
    def num_tensors(self) -> int:
        """How many tensors there are: inputs, buffers, constants and what operations returned."""
        return int(self._facts.tensors.sum())

    @property
    def tensor_bytes(self) -> int:
        """Their size, views counted as if each had memory of its own."""
        return int(self._facts.nbytes[self._facts.tensors].sum())

    @property
    def num_saved(self) -> int:
        """How many of them have their value saved."""
        return sum(1 for row in self.values if self._facts.tensors[row])

    @property
    def saved_tensor_bytes(self) -> int:
        """The size of those, views counted as if each had memory of its own."""
        return sum(int(self._facts.nbytes[row]) for row in self.values if self._facts.tensors[row])

    @property
    def params(self) -> list[Param]:
        """The model's parameters, used or not."""
        return list(self.graph.params)

    @property
    def num_params(self) -> int:
        """How many numbers the model's parameters hold."""
        return sum(math.prod(param.shape) for param in self.graph.params)

    @property
    def num_trainable(self) -> int:
        """How many of them are trained."""
        return sum(math.prod(param.shape) for param in self.graph.params if param.trainable)

    @property
    def num_frozen(self) -> int:
        """How many of them are not trained."""
        return self.num_params - self.num_trainable

    @property
    def param_bytes(self) -> int:
        """The size of the model's parameters."""
        return sum(param.nbytes for param in self.graph.params)

    @property
    def flops(self) -> int:
        """The floating point operations of the forward pass, of the ops whose count is known."""
        return int(self._facts.flops.clip(0).sum())

    @property
    def macs(self) -> int:
        """The multiply-adds of its products."""
        return int(self._facts.macs.clip(0).sum())

    @property
    def flops_unknown(self) -> dict[str, int]:
        """The types of the ops that no rule counts, and how many of each there are."""
        types = self.graph.ops.type[self._facts.flops < 0]
        return dict(Counter(self.graph.types[type_] for type_ in types.tolist()).most_common())

    # -- time ------------------------------------------------------------------------------------------

    @property
    def seed(self) -> int | None:
        """The seed the pass was given; None where it had none."""
        seed = self.graph.facts.get("seed")
        return None if seed is None else int(seed)

    @property
    def started(self) -> float:
        """When the pass began, in seconds since 1970; NaN where that is not known."""
        return float(self.graph.facts.get("started", math.nan))

    @property
    def ended(self) -> float:
        """When the pass ended, in seconds since 1970."""
        return self.started + self.seconds

    @property
    def seconds(self) -> float:
        """How long the pass took while it was recorded; NaN where that is not known."""
        return float(self.graph.facts.get("seconds", math.nan))

    @property
    def op_seconds(self) -> float:
        """How long the operations alone took."""
        return int(self.graph.ops.time.sum()) / 1e9

    @property
    def overhead_seconds(self) -> float:
        """What the pass took besides its operations: the recorder's own time, and the model's Python."""
        return self.seconds - self.op_seconds

    # -- values, questions and files -------------------------------------------------------------------

    @property
    def output(self) -> Any:
        """What the model returned, with its autograd graph: call ``backward`` on a loss of it, and every op
        has its ``grad``. Raises InputError where the trace was taken without ``grads``, or copied."""
        if self.gradients is None or self._output is None:
            labels = [op.label for op in self.outputs]
            raise InputError(
                "This trace does not hold what the model returned, which is kept for backward alone. "
                f"Trace with grads=True, or take the values in trace.outputs: {labels}."
            )
        return self._output

    @cached_property
    def _ordinals(self) -> list[int]:
        rows = self.graph.rows_of(OP)
        saved = [row for row in rows if row in self.values]
        return saved if saved else rows

    @property
    def conditionals(self) -> list[Conditional]:
        """The tensors whose plain value Python asked for, with what that decided and which way it went."""
        ends = self.graph.rows_of(OUTPUT)
        leads = {*ends, *walks.ancestors(self.graph, ends)}
        return [self._conditional(branch, leads) for branch in self.graph.branches]

    def _conditional(self, branch: Branch, leads: set[int]) -> Conditional:
        rows = [branch.row, *walks.ancestors(self.graph, [branch.row])]
        involved = sorted(row for row in rows if row not in leads)
        starts = [row for row in involved if not set(self.graph.parents(row)) & set(involved)]
        return Conditional(
            Op(self, branch.row),
            branch.kind,
            branch.way,
            branch.how,
            [Op(self, row) for row in involved],
            [Op(self, row) for row in starts],
        )

    def __getitem__(self, key: str | int) -> Op:
        return Op(self, resolve(self.graph, key, ordinals=self._ordinals)[0])

    def value(self, address: str | int) -> Tensor:
        """Return the saved value that an address means: of an op, of some of its units, or a parameter.

        Args:
            address: As in ``trace[address]``, also with units (``"conv1[3,5:8]"``, ``"ln_f[-1@1]"``), or a
                parameter's address (``"fc.weight"``, ``"fc.weight[0]"``, whose units are its rows).

        Raises:
            AddressError: If there is no such place or unit, the value was not saved, or nothing tells the
                axis of the units.
            InputError: If it is a parameter's and the trace holds none: ``save="none"``, a copy, a file.

        Example:
            >>> from intus import trace
            >>> t = trace(torch.nn.Linear(2, 3), torch.ones(4, 2))
            >>> t.value("linear_1[0,2]").shape, t.value("weight[0]").shape
            (torch.Size([4, 2]), torch.Size([2]))
        """
        if not isinstance(address, str) or self.graph.rows(address) is not None:
            return self[address].value
        place, units = split_units(address)
        if self.graph.rows(place) is None and place in (params := param_addresses(self.graph)):
            whole, axis = self._parameter(self.graph.params[params[place]].address), 0
        else:
            op = self[place]
            whole = op.value
            axis = UnitAxes(self.graph).of(op.row, address) if needs_axis(units) else 0
        return part_of(whole, index(whole.shape, units, axis, address))[0]

    def _parameter(self, address: str) -> Tensor:
        """The value of a parameter, as it was before the pass."""
        if self._replays is None:
            raise InputError(
                f"This trace does not hold the value of {address!r}: it was taken with save='none', "
                "copied, or read from a file."
            )
        for param, (value, _) in zip(self.graph.params, self._replays.params, strict=True):
            if param.address == address:
                return value.detach()
        raise AddressError(f"The trace of {self.graph.model} has no parameter {address!r}.")

    def _select(self, selection: Selection) -> list[int]:
        return select(self.graph, selection, handle=lambda row: Op(self, row))

    def _known_module(self, address: str) -> None:
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
        return list(self.graph.names())

    def find(
        self,
        selection: Selection | None = None,
        *,
        type: str | None = None,
        after: Selection | None = None,
        before: Selection | None = None,
        inside: str | None = None,
    ) -> list[Op]:
        """All ops that a selection means: a name, a type, a glob, a predicate, or a list of these.

        ``type`` keeps those of one type; ``after`` those that take a tensor of another selection, ``before``
        those that give one to it; ``inside`` those that ran in a module, at any depth, by its address.

        >>> from intus import trace
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
        >>> [op.label for op in trace(net, torch.ones(1, 2)).find(type="linear", after="relu")]
        ['linear_2_3']
        """
        rows = self.graph.rows_of(OP) if selection is None else self._select(selection)
        found = [op for op in (Op(self, row) for row in rows) if type is None or op.type == type]
        if after is not None:
            fed = {child for row in self._select(after) for child in self.graph.children(row)}
            found = [op for op in found if op.row in fed]
        if before is not None:
            feeding = {parent for row in self._select(before) for parent in self.graph.parents(row)}
            found = [op for op in found if op.row in feeding]
        if inside is not None:
            self._known_module(inside)
            found = [op for op in found if any(_is_call_of(name, inside) for name in op.modules)]
        return found

    def validate(self, *, perturb: str = "alike") -> Report:
        """Prove the saved activations: every op, run again on its saved parents, must give what was saved,
        bit for bit (no tolerance), and something else when a parent is replaced by random values.

        With ``perturb="alike"`` random values are tried once on ops that are alike: the same function, the
        same plain arguments, tensors of the same shapes and dtypes; the Report says so op by op
        (``Check.alike``). ``"all"`` tries them on every op.

        An op whose result rightly stays the same, or that cannot be tested so (whole numbers, masks, shapes),
        is exempt with its reason. Raises InputError where the calls were not kept: ``save="none"``, a copy, a
        file.

        >>> from intus import trace
        >>> bool(trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).validate())
        True
        """
        self._unchanged("validated")
        return validate_trace(self, perturb)

    def rerun(
        self,
        changes: Mapping[str | int, Change] | None = None,
        *,
        swap: Mapping[str | int, Callable[..., Any]] | None = None,
        on_branch_change: str = "raise",
    ) -> Trace:
        """The trace of the same pass with something changed; only what lies downstream is computed again.

        ``changes`` maps an address to what its value becomes: a number, a tensor (broadcast as torch does), a
        function of the value, or another trace or op, whose value is taken. An address may name a parameter
        (``fc.weight``), several at once (``*.attn``, a class, a type), and parts: ``conv1[3]``,
        ``conv1[3,5:8]``, ``ln_f[-1@1]`` for the last along axis 1. Without ``@`` these are units: channels of
        what a convolution gave, else of the last axis; heads where there are four axes; rows of a parameter.
        ``swap`` maps an address to a function to run instead, which is given the op's tensors alone,
        parameters included. Noise is drawn as it was. A trace that was itself changed stays so: earlier
        changes are done again to what is computed again.

        Python is not run again. Where the model asked for a value that is another after the change, it might
        have gone another way: CaptureError, or with ``on_branch_change="ignore"`` the recorded way all the
        same.

        Raises AddressError for an unknown address, InputError where a shape or dtype would change, and
        CaptureError where something downstream cannot be run again. ``docs/changes.md`` has examples.

        >>> from intus import trace
        >>> net = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 1, bias=False))
        >>> float(trace(net, torch.ones(1, 2)).rerun({"0": 0})["output_1"].value)
        0.0
        """
        self._unchanged("run again")
        return rerun(self, changes or {}, swap or {}, on_branch_change)

    @property
    def saved_bytes(self) -> int | None:
        """How many bytes autograd keeps until the backward pass, parameters and buffers aside; see
        ``Op.saved_bytes``. None where the trace was taken without ``grads``."""
        noted = self.graph.facts.get("autograd")
        return None if noted is None else sum(size for _, size in noted.values())

    def _unchanged(self, what: str) -> None:
        if "form" in self.graph.facts:
            raise InputError(
                f"This trace cannot be {what}: its values were kept with {self.graph.facts['form']} and are "
                "not what the model computed with. Trace again without it."
            )

    def save(self, path: str | Path) -> None:
        """Write graph and saved values into one safetensors file; ``intus.load`` reads it back.

        Raises InputError for a value that has no plain array: sparse, nested, on ``meta``.
        """
        save(self, Path(path))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per tensor, one column per fact that is a number, a text or a short list.

        Bytes and seconds; whole numbers that may be missing (FLOPs, distances) are of pandas' ``Int64``. The
        columns are those of ``core/table.py``, and ``saved``.

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
        """A networkx MultiDiGraph whose nodes are labels and whose edges bear the argument's name.

        Nodes bear the facts of ``to_pandas`` but for their neighbours; those that are not known are left out.
        """
        nx = require("networkx", extra="graph", why="to turn a trace into a networkx graph")
        out, labels, edges = nx.MultiDiGraph(model=self.name), self.graph.labels, self.graph.edges
        found = columns(self._facts)
        for name in ("label", "parents", "num_consumers"):
            del found[name]
        for row, label in enumerate(labels):
            facts = {name: column[row] for name, column in found.items()}
            out.add_node(label, **{name: fact for name, fact in facts.items() if fact is not None})
        for src, dst, arg in zip(edges.src.tolist(), edges.dst.tolist(), edges.arg.tolist(), strict=True):
            out.add_edge(labels[src], labels[dst], arg=self.graph.args[arg])
        return out

    def summary(self, depth: int | None = None, *, most: int | None = 50) -> str:
        """What ran, as text: modules and operations with output shape, parameters, FLOPs and time; ``print``
        of a trace shows it.

        Neighbours that are alike are one line. ``depth`` is how many levels of modules stand open, as many as
        ``most`` lines hold by default; ``most=None`` shows everything. Raises InputError for a depth below 0
        or fewer than one line.
        """
        for name, number, least in (("depth", depth, 0), ("most", most, 1)):
            if number is not None and (not isinstance(number, int) or number < least):
                raise InputError(f"{name}={number!r} must be a whole number from {least} on, or None.")
        return summary(self.graph, depth=depth, most=most)

    def show(
        self, *, depth: int | str | None = None, overlay: Overlay = None, rolled: bool | None = None
    ) -> View:
        """The graph to walk in; in a notebook, a cell that ends with it shows it.

        ``rolled`` shows the passes of a recurrent layer as one box; by default where there are too many. The
        saved activations' figures and histograms travel with it. ``overlay="gradient"`` colours by the norm
        of each op's gradient, once ``backward`` was called.
        """
        values = summarise(self.values) if self.values else None
        return View(self.graph, depth=depth, overlay=self._overlay(overlay), rolled=rolled, values=values)

    def draw(
        self,
        path: str | Path,
        *,
        depth: int | str | None = None,
        rolled: bool | None = None,
        direction: str = "down",
        overlay: Overlay = None,
        dark: bool = False,
        scale: float = 2.0,
    ) -> Path:
        """Write the graph as a page (``.html``), a picture (``.svg``, ``.png``, ``.pdf``), Graphviz's text
        (``.dot``) or its scene (``.json``); ``View.save`` says what the options mean.

        >>> import tempfile, os
        >>> from intus import trace
        >>> path = os.path.join(tempfile.mkdtemp(), "net.svg")
        >>> trace(torch.nn.Linear(2, 1), torch.ones(1, 2)).draw(path).name
        'net.svg'
        """
        if Path(path).suffix in (".html", ".json") or needs_values(overlay):
            view = self.show(depth=depth, overlay=overlay)
        else:  # a still picture shows no values
            view = View(self.graph, depth=depth, overlay=self._overlay(overlay))
        return view.save(path, rolled=rolled, direction=direction, dark=dark, scale=scale)

    def _overlay(self, overlay: Overlay) -> Overlay:
        return self._gradient_norms() if isinstance(overlay, str) and overlay == "gradient" else overlay

    def _gradient_norms(self) -> dict[str, float]:
        """The norm of each op's gradient, by label and by the modules whose output it is."""
        norms: dict[str, float] = {}
        for op in self.ops:
            grad = op.grad
            if grad is not None:
                norm = float(grad.detach().double().norm())
                norms.update(dict.fromkeys((op.label, *op.output_of), norm))
        if not norms:
            raise InputError(
                "overlay='gradient' needs gradients: t = trace(model, x, grads=True), then backward() on a "
                "loss of t.output."
            )
        return Column("Gradient norm", norms)

    def widget(self, *, depth: int | str | None = None, overlay: Overlay = None) -> Any:
        """The graph as a notebook's widget: ``w.selected`` is the address selected on the page, ``None`` for
        none, and ``w.select("conv1")`` selects; needs ``intus[widget]``."""
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
    """Whether a call's address is the module's, or just that call's: ``fc:2`` is a call of ``fc``."""
    return name == address or name.rpartition(":")[0] == address
