"""The optional part of the backend protocol for models that several processes share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, runtime_checkable


class Together(Protocol):
    """An agreement of the processes that share a model, which can run it only all at once.

    Attributes:
        sends: Whether this process sends the records of their common passes; exactly one does.
    """

    sends: bool

    def agree(self, number: float) -> bool:
        """Return whether all processes run a common pass now; each gets the same answer.

        It waits for the others, for a limited time. If one does not come, no process runs the pass.

        Args:
            number: The epoch or step of the pass, which is the same in every process.
        """


@runtime_checkable
class Shards(Protocol):
    """A backend whose models may be split over several processes."""

    def class_name(self, model: Any) -> str:
        """Return the name of the class of a model, not that of a wrapper around it."""

    def refusal(self, model: Any, kinds: Collection[str]) -> str | None:
        """Return the reason why this process cannot record tensors of these kinds; None if it can.

        It is asked for at ``probe`` and before each recorded pass, since a script may split a model later.

        Args:
            model: The model.
            kinds: The kinds of tensors, of ``core.record.KINDS``.
        """

    def is_shared(self, model: Any) -> bool:
        """Return whether several processes can run a model only together."""

    def job(self) -> str | None:
        """Return a name that the processes of one training share, and no other training.

        Returns:
            The name; "" if there are no other processes, None if it cannot be found.
        """

    def together(self, model: Any, about: str) -> Together | None:
        """Agree with the other processes that share a model to run common passes.

        Args:
            model: The model.
            about: A text that must be the same in every process: what is run, and when.

        Returns:
            The agreement; None if this process can run the model alone.

        Raises:
            InputError: If not every process agrees within a limited time. Then each of them raises it.
        """
