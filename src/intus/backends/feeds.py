"""The protocol by which a framework tells where a batch comes from: an optional part of a Backend."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any, NamedTuple, Protocol

import numpy as np


class Origin(NamedTuple):
    """The origin of a batch.

    Attributes:
        iteration: The number of the iteration over its loader, different for each.
        dataset: The number of the dataset; two with one number are known to hold the same rows.
        name: The loader in words, such as "the DataLoader over TensorDataset of 60 items".
        loader: What the loader is made of: one that is made anew for each epoch has an equal value.
        length: How many batches the loader gives; infinity if that is not known.
        part: What tells parts of one dataset apart, such as a validation and a test split.
        drawn_from: The number of what it draws from: its part of the dataset, or the whole. An equal part
            that is made anew may have another.
        came: The number of its newest batch among all that came.
        was_under_way: Whether it had begun before it was observed, so that earlier calls may be of it.
    """

    iteration: int
    dataset: int
    name: str
    loader: Hashable
    length: float
    part: Hashable = ()
    came: int = 0
    was_under_way: bool = False
    drawn_from: int = 0

    def has_rows_of(self, other: Origin) -> bool:
        """Return whether its rows are those of another iteration, as far as known."""
        is_same_part = self.part == other.part or self.drawn_from == other.drawn_from
        return self.dataset == other.dataset and is_same_part


class Items(NamedTuple):
    """The rows of a batch.

    Attributes:
        iteration: The number of the iteration over its loader.
        dataset: The number of the dataset; two with one number are known to hold the same rows.
        name: The loader in words.
        ids: The ids of the rows in the dataset, shape (rows,); None if unknown.
        reason: Why they are unknown; "" if they are known.
        is_reordered: Whether the rows are known to be in another order than that of the dataset.
        tensors: The numbers of the batch's tensors that the call has, in the order of its arguments.
        contents: The hashes of the rows as the loader gave them, uint64 of shape (rows,); None if unknown.
        form: A number of the form of the rows; those of another form have other hashes.
        rows_of: The dataset that the ids are of, in words.
    """

    iteration: int
    dataset: int
    name: str
    ids: np.ndarray | None
    reason: str
    is_reordered: bool = False
    tensors: tuple[int, ...] = ()
    contents: np.ndarray | None = None
    form: int = 0
    rows_of: str = "its dataset"


class Backward(Protocol):
    """The backward passes through one call of a model.

    Attributes:
        has_come: Whether one came.
    """

    has_come: bool

    def may_come(self) -> bool:
        """Return whether one may still come, because what the call computed is still in use."""


class Moment(NamedTuple):
    """The state of a training at a call.

    Attributes:
        stepped: The number of steps of optimizers before it.
        arrivals: The batches that had come, as the framework keeps them.
        items: The rows of the call; empty if they were not looked for.
    """

    stepped: int
    arrivals: Any
    items: list[Items | None]


class Undecided(NamedTuple):
    """The signs by which a call in evaluation mode is known to train the model, or not.

    Attributes:
        backward: The backward passes through it.
        at: The state of the training at the call.
    """

    backward: Backward
    at: Moment


class Judged(NamedTuple):
    """The facts that are known by now of a call of before.

    Attributes:
        trains: Whether it trains the model.
        at: The state of the training at the call.
    """

    trains: bool
    at: Moment


class Feed(Protocol):
    """The source of a model's batches, observed until ``remove``.

    Attributes:
        judged: What is known of the call that is looked at, if it is one of before; None of that in progress.
        on_end: Called with the number of an iteration once it is over and its last batch was used; or None.
        on_step: Called before each step of an optimizer that has parameters of the model, with whether a
            closure makes its gradients; or None.
        on_stepped: Called after each of those with a closure; or None.
    """

    judged: Judged | None
    on_end: Callable[[int], None] | None
    on_step: Callable[[bool], None] | None
    on_stepped: Callable[[], None] | None

    def origin(self, inputs: Any, trained: Collection[int], *, guesses: bool, since: int) -> Origin | None:
        """Return where the batch in a call's arguments comes from; None if nothing is known.

        Args:
            inputs: The arguments of the call.
            trained: Iterations whose batches are known to train the model. A batch that is not recognized is
                taken to be the newest one, if that is of such an iteration.
            guesses: Whether it is also taken to be the newest if that is of another iteration which is under
                way. Of one that has ended, as for validation, it must have come after the last call, and
                others must have been recognized: that may be read into a list.
            since: The number of batches that had come at the last call.
        """

    def source(self, inputs: Any, since: int | None) -> tuple[list[Origin], bool]:
        """Return where the batch of a call comes from, and whether it was recognized, not guessed.

        The call is not counted among those of its iteration.

        Args:
            inputs: The arguments of the call.
            since: If it is not recognized, all iterations are returned that gave a batch after so many, and
                that the rows of the call may be of by their number; None for all batches that are kept.
        """

    def outers(self, origin: Origin, before: Origin | None = None, *, since: int) -> list[Origin]:
        """Return the iterations within which that of a call may be under way, the first to begin first.

        A loop draws from its own loader before its body draws from others, whatever the model takes first.
        So does a script that looks at a batch and keeps the iterator, which later batches show.

        Args:
            origin: That of the call.
            before: That of the loop before, over whose rows one may also have begun after the batch came.
            since: The number of batches that had come at the last call that trains: a loop in whose body it
                is has begun since then.
        """

    def items(self, inputs: Any) -> Items | None:
        """Return the rows of the batch in a call's arguments; None if nothing is known. It may take time."""

    def is_gone(self, dataset: int) -> bool:
        """Return whether a dataset, or the part of one that an iteration draws from, no longer exists."""

    def is_open(self, iteration: int) -> bool:
        """Return whether an iteration may still give batches."""

    def is_over(self, iteration: int) -> bool:
        """Return whether an iteration has given all batches of its loader."""

    def batches(self, iteration: int) -> int | None:
        """Return how many batches an iteration gave that went on to the end; None of others."""

    def given(self, iteration: int) -> int:
        """Return how many batches an iteration has given so far."""

    def rounds(self, iteration: int) -> float | None:
        """Return how many times the rows of its dataset an iteration has given; None if that is not known."""

    def is_training(self) -> bool:
        """Return whether the call in progress trains the model: in training mode, with gradients."""

    def undecided(self) -> Undecided | None:
        """Return what tells whether the call that begins trains the model; None if its mode does."""

    def expects_step(self) -> bool | None:
        """Return whether an optimizer may step the model; None if one may be new since none was found."""

    def has_optimizer(self) -> bool:
        """Return whether an optimizer has the model's parameters. It may take some milliseconds."""

    def steps(self) -> int:
        """Return the number of steps of optimizers so far that have parameters of the model."""

    def stepped(self) -> int:
        """Return what ``steps`` does, at no cost: layers that were replaced since then do not count."""

    def stepped_by(self) -> int:
        """Return a number of the optimizer that made the last step; 0 if that is not known."""

    def came(self) -> int:
        """Return the number of batches that came so far of any loader."""

    def sources(self, since: int) -> set[int]:
        """Return the iterations that gave a batch after the first ``since`` batches, as far as kept."""

    def are_buffers_written(self) -> bool:
        """Return whether buffers, such as the statistics of batch normalization, were written to."""

    def version(self) -> int:
        """Return a number that changes if the parameters change."""

    def gradients(self) -> int:
        """Return a number that changes with each backward pass, while gradients are kept; 0 if none are."""

    def remember(self) -> None:
        """Remember the values of the parameters, for ``is_restored``. It reads them all."""

    def is_restored(self) -> bool:
        """Return whether the parameters are known to have the remembered values."""

    def first_values(self, inputs: Any) -> tuple[Any, ...] | None:
        """Return a few values of a call's arguments, to recognize a batch; None if that is not cheap."""

    def row_contents(self, inputs: Any, *, by_all: bool) -> tuple[np.ndarray, bool] | None:
        """Return a hash of each row of a call's arguments, uint64, and whether it is of all of its values.

        Args:
            inputs: The arguments of the call.
            by_all: Whether it must be, and not only of some values, which other rows may have too.

        Returns:
            None if it is not cheap.
        """

    def before_load(self, call: Callable[[], None]) -> None:
        """Call a function before the script loads a state into the model, or into a part of it."""

    def remove(self) -> None:
        """Stop observing."""


class Feeds(Protocol):
    """The optional part of a Backend."""

    feed: Callable[[Any], Feed]
