"""Accept the kinds of data that training scripts have: DataLoaders, Datasets and pandas tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ...core.errors import InputError

Inputs = Callable[[list[Any]], Any]


def as_records(data: Any, inputs: Inputs | None) -> tuple[Any, Inputs | None]:
    """Return data as a sequence of records, and the function that makes the model's input of them.

    Args:
        data: An array, a tensor, a sequence of records, a DataLoader or Dataset of torch, or a DataFrame or
            Series of pandas.
        inputs: The caller's function; None if records are stacked.

    Raises:
        InputError: If ``data`` is of another kind, can be read only once, or differs from call to call.
    """
    name = type(data).__name__
    if _is_a(data, "DataLoader", "torch.utils.data"):
        if not hasattr(data.dataset, "__getitem__") or not hasattr(data.dataset, "__len__"):
            raise InputError(
                "data is a DataLoader of an IterableDataset, which has no records by number. Pass a list of "
                "its records."
            )
        if inputs is None and not _is_default(data.collate_fn):
            inputs = _Collated(data.collate_fn)
            return Items(data.dataset, whole=True), inputs
        data = data.dataset
    if _is_a(data, "Dataset", "torch.utils.data") and hasattr(data, "__len__"):
        return Items(data), inputs
    if _is_a(data, "DataFrame", "pandas"):
        return Rows(data), inputs
    if _is_a(data, "Series", "pandas"):
        return (data.to_numpy() if data.dtype.kind in "fiub" else data.tolist()), inputs
    if isinstance(data, Mapping):
        raise InputError(
            f"data is a {name} with the keys {', '.join(map(repr, list(data)[:4]))}, not a sequence of "
            "records. Pass the records, and inputs=, a function that makes the model's input of a list."
        )
    if hasattr(data, "tocsr") or str(getattr(data, "layout", "torch.strided")) != "torch.strided":
        raise InputError(f"data is sparse ({name}). Pass a dense array or tensor, such as data.toarray().")
    if isinstance(data, str | bytes) or not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        once = isinstance(data, Iterable) and not isinstance(data, str | bytes)
        raise InputError(
            "data must be an array, a tensor, a sequence of records, a DataLoader, a Dataset or a DataFrame, "
            f"got a {name}" + (", whose records have no numbers. Write list(…) around it." if once else ".")
        )
    return data, inputs


def _is_a(value: Any, name: str, package: str) -> bool:
    """Return whether a value is of a class of a package, which is not imported for it."""
    return any(c.__name__ == name and c.__module__.startswith(package) for c in type(value).__mro__)


def as_pixels(record: Any) -> Any:
    """Return an image of Pillow as an array, (height, width) or (height, width, 3), and others unchanged."""
    if not _is_a(record, "Image", "PIL"):
        return record
    return np.asarray(record if record.mode in ("1", "L", "I", "F", "I;16") else record.convert("RGB"))


def _is_default(collate: Any) -> bool:
    return getattr(collate, "__name__", "") in ("default_collate", "default_convert")


class Items:
    """The records of a torch Dataset: the first of each item ``(x, y, …)``. Labels are not used.

    Args:
        dataset: The dataset.
        whole: Whether records are whole items, for a ``collate_fn``; hypotheses still get the first.

    Raises:
        InputError: If an item differs when it is read again, as with random augmentation.
    """

    def __init__(self, dataset: Any, whole: bool = False) -> None:
        self.dataset, self.whole = dataset, whole
        if len(dataset) and not _same(_first(dataset[0]), _first(dataset[0])):
            raise InputError(
                f"Item 0 of the {type(dataset).__name__} differs when it is read again, so hypotheses and "
                "the model would see different records. Leave out random augmentation."
            )

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, number: int) -> Any:
        return _first(self.dataset[number])

    def item(self, number: int) -> Any:
        """Return what the model's input is made of."""
        return self.dataset[number] if self.whole else self[number]


class _Collated:
    """Makes the model's input with the ``collate_fn`` of a DataLoader: the first of its batch."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: list[Any]) -> Any:
        return _first(self.collate(items))


class Rows:
    """The rows of a DataFrame: hypotheses get a Series each, and the model a matrix if all are numbers."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, number: int) -> Any:
        return self.frame.iloc[number]

    def matrix(self, numbers: np.ndarray) -> np.ndarray:
        """Return rows as the model's input.

        Raises:
            InputError: If a column does not hold numbers.
        """
        part = self.frame.iloc[numbers]
        for name, column in part.items():
            if column.dtype.kind not in "fiub":
                raise InputError(
                    f"The column {name!r} of the DataFrame does not hold numbers, so its rows cannot be "
                    "stacked. Choose the columns, or pass inputs=, a function of a list of rows."
                )
        return np.stack([column.to_numpy() for _, column in part.items()], axis=1)


def _first(item: Any) -> Any:
    return item[0] if isinstance(item, tuple | list) and len(item) else item


def _same(one: Any, other: Any) -> bool:
    if hasattr(one, "detach"):
        one, other = one.detach().cpu().numpy(), other.detach().cpu().numpy()
    if isinstance(one, np.ndarray):
        return one.shape == other.shape and bool(((one == other) | ((one != one) & (other != other))).all())
    return not isinstance(one, int | float | str | bytes) or one == other
