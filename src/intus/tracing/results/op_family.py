"""What an op was computed from, and what was computed from it."""

from __future__ import annotations

from typing import Self

from ...core import walks
from ...core.graph import OUTPUT
from .op_row import OpRow, known


class Family(OpRow):
    """Parents, children, and who else is related to an op, how near, and to what end."""

    __slots__ = ()

    @property
    def parents(self) -> list[Self]:
        """The ops whose tensors went in."""
        return self._ops(self._graph.parents(self.row))

    @property
    def children(self) -> list[Self]:
        """The ops that took this tensor."""
        return self._ops(self._graph.children(self.row))

    @property
    def ancestors(self) -> list[Self]:
        """Everything it was computed from, in order of execution."""
        return self._ops(walks.ancestors(self._graph, [self.row]))

    @property
    def descendants(self) -> list[Self]:
        """Everything computed from it, in order of execution."""
        return self._ops(walks.descendants(self._graph, [self.row]))

    @property
    def siblings(self) -> list[Self]:
        """The ops that share a parent with it."""
        return self._ops(walks.siblings(self._graph, self.row))

    @property
    def spouses(self) -> list[Self]:
        """The ops that share a child with it."""
        return self._ops(walks.spouses(self._graph, self.row))

    @property
    def roots(self) -> list[Self]:
        """The ancestors without parents: inputs, buffers, constants and tensors made inside."""
        return self._ops(self._facts.roots(self.row))

    @property
    def has_input_ancestor(self) -> bool:
        """Whether it is an input or computed from one."""
        return bool(self._facts.from_input[0][self.row] >= 0)

    @property
    def min_distance_from_input(self) -> int | None:
        """The fewest steps that lead to it from an input; None where none does."""
        return known(self._facts.from_input[0][self.row])

    @property
    def max_distance_from_input(self) -> int | None:
        """The most steps that lead to it from an input; None where none does."""
        return known(self._facts.from_input[1][self.row])

    @property
    def is_output_ancestor(self) -> bool:
        """Whether it is an output or an output is computed from it."""
        return bool(self._facts.to_output[0][self.row] >= 0)

    @property
    def output_descendants(self) -> list[Self]:
        """The model's outputs that are computed from it."""
        below = walks.descendants(self._graph, [self.row])
        return self._ops(row for row in below if self._graph.ops.kind[row] == OUTPUT)

    @property
    def min_distance_from_output(self) -> int | None:
        """The fewest steps that lead from it to an output; None where none does."""
        return known(self._facts.to_output[0][self.row])

    @property
    def max_distance_from_output(self) -> int | None:
        """The most steps that lead from it to an output; None where none does."""
        return known(self._facts.to_output[1][self.row])

    @property
    def created_parents(self) -> list[Self]:
        """The parents that were made out of nothing inside the model."""
        return self._ops(self._facts.made_inside(self._graph.parents(self.row)))

    @property
    def created_ancestors(self) -> list[Self]:
        """The ancestors that were made out of nothing inside the model."""
        return self._ops(self._facts.made_inside(walks.ancestors(self._graph, [self.row])))

    @property
    def is_terminal(self) -> bool:
        """Whether nothing was computed from it and it is no output: it ends inside the model."""
        return bool(self._facts.childless[self.row])

    @property
    def is_terminal_bool(self) -> bool:
        """Whether it is one truth that Python asked for and that nothing was computed from."""
        return self.row in self._facts.terminal_bools

    @property
    def in_condition(self) -> bool:
        """Whether it served the evaluation of an if, while or the like alone."""
        return self.row in self._facts.deciding

    @property
    def writers(self) -> list[Self]:
        """The ops that later wrote into this very tensor, in order: the history of a buffer."""
        return self._ops(self._facts.writers(self.row))
