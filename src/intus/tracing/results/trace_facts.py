"""What follows from the graph about a pass as a whole; ``Trace`` adds values, questions and files."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cached_property

from ...core.facts import WAYS, Facts
from ...core.graph import BUFFER, CONSTANT, CREATED, INPUT, OP, OUTPUT, Graph, Param
from .module import Module, Modules
from .op import Op


class TraceFacts:
    """A graph's facts. ``values`` holds what was saved, by row, for what is said of it."""

    graph: Graph
    values: Mapping[int, object]

    @cached_property
    def _facts(self) -> Facts:
        return Facts(self.graph)

    def _handles(self, rows: Iterable[int]) -> list[Op]:
        return [Op(self, row) for row in rows]  # type: ignore[arg-type]

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
    def created(self) -> list[Op]:
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
        return Modules({m.address: Module(self, n) for n, m in numbered})  # type: ignore[arg-type]

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
