"""The relations that a query selects from: models, units, hypotheses and inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...backends.base import Backend, for_model, modules_graph
from ...core.errors import AddressError, CaptureError, InputError, did_you_mean
from ...core.graph import Graph, elements
from ...core.units import UnitAxes
from ...hypotheses.columns import names_of, split
from ...hypotheses.declaration import Declaration, numbered
from ..alignment.axes import batch_axis
from ..behaviours import Records, reader, record_graph
from ..hypotheses import Source, as_hypotheses
from ..models import Checkpoint, as_checkpoints
from ..reading.data import Inputs
from ..units import UnitGroup, resolve

if TYPE_CHECKING:
    import pandas

#: The columns of each relation that there are without metadata, by type.
COLUMNS = {
    "models": {
        "mid": "str",
        "name": "str",
        "epoch": "float64",
        "class": "str",
        "n_parameters": "float64",
    },
    "units": {
        "mid": "str",
        "uid": "str",
        "layer": "str",
        "unit": "int64",
        "class": "str",
        "number": "float64",
        "n": "int64",
    },
    "hypotheses": {"hid": "str", "h": "str", "name": "str", "kind": "str"},
    "inputs": {"did": "int64", "seq": "str"},
}
#: The columns of models that are known before a model is loaded.
EAGER = ("mid", "name", "epoch")
#: The columns that say which row metadata belong to.
_KEYS = {
    "models": ["mid"],
    "units": ["mid", "uid", "layer", "unit"],
    "hypotheses": ["name"],
    "inputs": ["did"],
}


class Model(NamedTuple):
    """A model of the catalogue.

    Attributes:
        mid: Its identifier.
        key: Its key in a dict of models by epoch or by name.
        given: The model, or the function that loads it.
        checkpoint: How it is loaded.
    """

    mid: str
    key: Any
    given: Any
    checkpoint: Checkpoint


class Hypotheses:
    """The hypotheses by name. A function may return several, and is called for a record to know their names.

    Args:
        given: As for ``inspect``.
        records: The data.
        batch: The number of records that decide which names a function returns.
    """

    def __init__(self, given: Any, records: Records, batch: int) -> None:
        self._sources = as_hypotheses(given, len(records))
        self._keys = [_keys(source, records, batch) for source in self._sources]
        self._names = names_of(self._sources, self._keys)

    def kinds(self) -> dict[str, str | None]:
        """Return the declared kind of each hypothesis by name; None if none is declared."""
        return {
            name: source.kind or None
            for source, names in zip(self._sources, self._names, strict=True)
            for name in names.values()
        }

    def part(self, wanted: Collection[str], records: np.ndarray) -> tuple[list[Any], dict[str, str]]:
        """Return some of the hypotheses for some of the records, as ``inspect`` takes them.

        Args:
            wanted: Their names.
            records: The numbers of the records.

        Returns:
            Functions, and the names that ``inspect`` gives, by the names here.
        """
        chosen = [at for at, names in enumerate(self._names) if not set(wanted).isdisjoint(names.values())]
        sources = [self._sources[at] for at in chosen]
        there = names_of(sources, [self._keys[at] for at in chosen])
        renamed = {
            self._names[at][key]: name
            for at, names in zip(chosen, there, strict=True)
            for key, name in names.items()
        }
        functions = [_for_records(self._sources[at], self._keys[at], records) for at in chosen]
        return functions, renamed


def _keys(source: Source, records: Records, batch: int) -> tuple[str, ...]:
    """Return the names in what a hypothesis returns; ``("",)`` if it returns one."""
    if source.names:
        return source.names
    for count in (1, batch):  # a function that returns several is asked for as many records as in inspect
        numbers = np.arange(min(count, len(records)))
        answers = source.answers(numbers, records.block(numbers))
        keys = tuple(split(source, answers, numbers))
        if keys == ("",) and not (isinstance(answers, list) and answers[0] is None):
            break  # one hypothesis; None may be a record that has no labels of several
    return keys


def _for_records(source: Source, keys: tuple[str, ...], records: np.ndarray) -> Any:
    """Return a function for ``inspect`` that numbers records as in a part of the data."""

    def answers(numbers: np.ndarray, block: Sequence[Any]) -> Any:
        return source.answers(records[numbers], block)

    names = () if keys == ("",) else keys
    return numbered(answers, Declaration(source.name, source.kind, names=names))


class Catalogue:
    """The relations that can be queried.

    Args:
        models: As for ``inspect``.
        hypotheses: As for ``inspect``.
        data: As for ``inspect``, or a DataFrame: its rows as dicts are the records.
        inputs: As for ``inspect``.
        units: The layers whose units are listed, as for ``inspect``; None for all that can be read.
        metadata: Further columns by relation.
        batch: The number of records that decide which names a hypothesis returns.

    Attributes:
        models: The models by identifier.
        hypotheses: The hypotheses.
        records: The records.
    """

    def __init__(
        self,
        models: Any,
        hypotheses: Any,
        data: Any,
        inputs: Inputs | None,
        units: Any,
        metadata: Mapping[str, Any] | None,
        batch: int,
    ) -> None:
        self._metadata = _checked_metadata(metadata)
        if _is_frame(data):
            if "inputs" in self._metadata:
                raise InputError(
                    "metadata['inputs'] and a DataFrame as data both describe the inputs. Add the columns to "
                    "the DataFrame."
                )
            self._metadata["inputs"], data = data, data.to_dict("records")
        self.records = Records(data, inputs)
        self.models = _models(models)
        self.hypotheses = Hypotheses(hypotheses, self.records, batch)
        self._units = units
        self._layers: dict[tuple[str, str], _Layer] = {}

    def frames(self) -> dict[str, pandas.DataFrame]:
        """Return the relations as far as they are known before a model is loaded.

        ``units`` is empty, and the columns of ``models`` that follow ``EAGER`` are.
        """
        kinds = self.hypotheses.kinds()
        names = list(kinds)
        count = len(self.records)
        columns: dict[str, dict[str, Any]] = {
            "models": {
                "mid": list(self.models),
                "name": list(self.models),
                "epoch": [model.checkpoint.epoch for model in self.models.values()],
                "class": None,
                "n_parameters": np.nan,
            },
            "units": {name: [] for name in COLUMNS["units"]},
            "hypotheses": {"hid": names, "h": names, "name": names, "kind": list(kinds.values())},
            "inputs": {"did": np.arange(count), "seq": _texts(self.records.data)},
        }
        return {name: self._with_metadata(name, _frame(name, given)) for name, given in columns.items()}

    def measured(
        self, models: pandas.DataFrame, chosen: Sequence[str]
    ) -> tuple[pandas.DataFrame, pandas.DataFrame]:
        """Load models, and return the relations ``models`` and ``units`` of them.

        Args:
            models: The relation as ``frames`` returned it.
            chosen: The identifiers of the models to load, one after the other.
        """
        models = models[models.mid.isin(chosen)].reset_index(drop=True)
        classes, sizes = [], []
        units: dict[str, list[Any]] = {name: [] for name in COLUMNS["units"]}
        for mid in models.mid:
            _, model = self.models[mid].checkpoint.open()
            backend = for_model(model)
            graph = record_graph(model, backend, lambda: self.records.model_input(np.arange(1)))
            classes.append(type(model).__name__)
            sizes.append(_size(graph))
            for layer in _layers(model, backend, graph, self._units, self.records):
                earlier = self._layers.setdefault((mid, layer.address), layer)
                if earlier.axis != layer.axis:
                    raise InputError(
                        f"units names two axes of {layer.address!r}, so that {layer.address}[0] means two "
                        "units. Ask for one in each query."
                    )
                many = len(layer.units)
                units["mid"] += [mid] * many
                units["uid"] += [f"{layer.address}[{unit}]" for unit in layer.units]
                units["layer"] += [layer.address] * many
                units["unit"] += layer.units
                units["class"] += [layer.type] * many
                units["number"] += [layer.number] * many
                units["n"] += [layer.size] * many
            del model
        models = models.assign(n_parameters=sizes)
        models["class"] = _column(classes, "str")
        listed = _frame("units", units).drop_duplicates(["mid", "uid"], ignore_index=True)
        return models, self._with_metadata("units", listed)

    def written(self, mid: str, layer: str, units: Sequence[int]) -> tuple[str, str]:
        """Return units as ``inspect`` takes them: of one call of a layer, with the axis if it was named."""
        found = self._layers[mid, layer]
        axis = "" if found.axis is None else f"@{found.axis}"
        return found.written, ",".join(map(str, units)) + axis

    def part(self, chosen: np.ndarray) -> Any:
        """Return some of the records, as data for ``inspect``."""
        if len(chosen) == len(self.records):
            return self.records.data
        data = self.records.data
        return data[chosen] if hasattr(data, "shape") else _Part(data, chosen)

    def _with_metadata(self, name: str, frame: pandas.DataFrame) -> pandas.DataFrame:
        if name not in self._metadata:
            return frame
        return _join(name, frame, self._metadata[name])


class _Part(Sequence[Any]):
    """Some records of a sequence."""

    def __init__(self, data: Any, chosen: np.ndarray) -> None:
        self._data, self._chosen = data, chosen.tolist()

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self._data[number] for number in self._chosen[at]]
        return self._data[self._chosen[at]]


class _Layer(NamedTuple):
    address: str
    written: str
    axis: int | None
    units: list[int]
    size: int
    type: str
    number: float


def _is_frame(data: Any) -> bool:
    return type(data).__name__ == "DataFrame" and hasattr(data, "to_dict")


def _column(values: Any, kind: str) -> Any:
    import pandas

    return pandas.array(values, dtype="string") if kind == "str" else np.asarray(values, kind)


def _frame(name: str, columns: Mapping[str, Any]) -> pandas.DataFrame:
    import pandas

    rows = len(next(iter(columns.values())))
    made = {
        column: _column([columns[column]] * rows if np.ndim(columns[column]) == 0 else columns[column], kind)
        for column, kind in COLUMNS[name].items()
    }
    return pandas.DataFrame(made)


def _texts(data: Any) -> list[str]:
    """Return a text for every record: the record if it is text, and its type or shape otherwise."""
    if hasattr(data, "shape") or not isinstance(data, list | tuple):
        shape = tuple(getattr(data, "shape", ()))[1:]
        kind = str(getattr(data, "dtype", type(data).__name__)).removeprefix("torch.")
        return [f"{kind} {shape}" if shape else kind] * len(data)
    return [str(one) if isinstance(one, str | int | float) else type(one).__name__ for one in data]


def _models(given: Any) -> dict[str, Model]:
    checkpoints = as_checkpoints(given)
    if isinstance(given, Mapping):
        keys, parts = list(given), list(given.values())
    elif isinstance(given, Sequence) and not isinstance(given, str):
        keys, parts = list(range(len(given))), list(given)
    else:
        keys, parts = [None], [given]
    models: dict[str, Model] = {}
    for key, part, checkpoint in zip(keys, parts, checkpoints, strict=True):
        mid = checkpoint.name or (f"{checkpoint.epoch:g}" if checkpoint.epoch == checkpoint.epoch else "")
        mid = mid or ("model" if _is_loader(part) else type(part).__name__)
        if mid in models:
            raise InputError(f"Two models are called {mid!r}. Name them: models={{'a': net, 'b': other}}.")
        models[mid] = Model(mid, key, part, checkpoint)
    return models


def _is_loader(model: Any) -> bool:
    try:
        for_model(model)
    except InputError:
        return True
    return False


def _size(graph: Graph | None) -> float:
    """Return the number of elements of a graph's parameters; NaN if unknown."""
    number = None if graph is None else elements(graph.params)
    return np.nan if number is None else float(number)


def _layers(
    model: Any, backend: Backend, graph: Graph | None, units: Any, records: Records
) -> Iterator[_Layer]:
    """Yield the layers of a model whose units can be read."""
    operations = backend.operations(model)
    axes = None if graph is None else UnitAxes(graph)
    known = modules_graph(backend, type(model).__name__, operations) if graph is None else graph
    addresses = [known.call_address(call) for call in range(len(known.calls))]
    wanted = [address for address in addresses if address] or [""]
    groups = resolve(list(dict.fromkeys(wanted)) if units is None else units, known, operations, backend)
    numbered = {op.address: n for n, op in enumerate((o for o in operations if backend.parameters(o)), 1)}
    types = {module.address: module.type for module in known.modules}
    for group in groups:
        if group.basis is not None:
            raise InputError(
                f"A query lists the units of layers, but units has {group.shown!r}. Ask for directions and "
                "dictionaries by inspect(…, units=…)."
            )
        try:
            shape, axis, declared = _shape(group, model, backend, known, axes, records)
            batch_axis(group.address, shape, 1, axis, declared)
        except (AddressError, InputError, CaptureError):
            if units is None:
                continue  # its axes are not known, or it returns no tensor
            raise
        count = shape[axis] if len(shape) > 1 else 1
        address = group.address.partition(":")[0]
        again = f"{group.address}:2"  # an address without a call means all calls
        written = f"{group.address}:1" if again in addresses or known.rows(again) else group.address
        picked, type_ = group.pick(count).tolist(), types.get(address, "")
        number = float(numbered.get(address, np.nan))
        yield _Layer(group.address, written, group.axis, picked, count, type_, number)


def _shape(
    group: UnitGroup,
    model: Any,
    backend: Backend,
    graph: Graph,
    axes: UnitAxes | None,
    records: Records,
) -> tuple[tuple[int, ...], int, int | None]:
    """Return the shape of a layer's output for one record, its axis of units, and of records if declared."""
    if axes is not None and group.row >= 0:
        shape = tuple(graph.metas[int(graph.ops.meta[group.row])].shape)
        return shape, group.unit_axis(axes, None, shape), None
    with reader(model, backend, [group.address]) as read:
        found = read(records.model_input(np.array([0])), np.array([0]))
    if group.address not in found:
        raise CaptureError(f"{group.address!r} did not run for the first record, or returned no tensor.")
    output = found[group.address]
    shape = output.array.shape
    axis = group.unit_axis(axes, backend.unit_axis(output.operation, shape), shape)
    return shape, axis, output.batch_axis


def _checked_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping):
        raise InputError(
            "metadata must be a dict by relation, such as {'models': {'net1': {'lr': 0.1}}}, got a "
            f"{type(metadata).__name__}."
        )
    for name in metadata:
        if name not in COLUMNS:
            raise InputError(f"metadata names the relation {name!r}. {did_you_mean(str(name), COLUMNS)}")
    return dict(metadata)


def _join(name: str, frame: pandas.DataFrame, given: Any) -> pandas.DataFrame:
    """Add the columns of metadata to a relation; a value for a column that it has replaces the old one."""
    import pandas

    keys = _KEYS[name]
    extra, on = _metadata_frame(name, frame, given)
    own = set(extra.columns) - set(on)
    if taken := own & (set(keys) | {"did", "hid", "h"}):
        raise InputError(f"metadata[{name!r}] has the column {taken.pop()!r}, which names a row of {name}.")
    if extra.duplicated(on).any():
        twice = extra[extra.duplicated(on)].iloc[0]
        raise InputError(f"metadata[{name!r}] has two rows for {', '.join(f'{k}={twice[k]!r}' for k in on)}.")
    if len(on) == 1 and len(frame):
        known = set(frame[on[0]])
        if strange := [key for key in extra[on[0]] if key not in known]:
            raise InputError(
                f"metadata[{name!r}] is about {strange[0]!r}, which is no {on[0]} of {name}. "
                f"{did_you_mean(str(strange[0]), map(str, known))}"
            )
    joined = frame.merge(extra, on=on, how="left", suffixes=("", "__given"))
    for column in own & set(frame.columns):
        replaced = joined.pop(f"{column}__given")
        given_values = replaced.where(replaced.notna(), joined[column].astype(object))
        kind = COLUMNS[name].get(column, "str")
        joined[column] = (
            _column([None if pandas.isna(v) else str(v) for v in given_values], "str")
            if kind == "str"
            else given_values.astype("float64")
        )
    return joined


def _metadata_frame(name: str, frame: pandas.DataFrame, given: Any) -> tuple[pandas.DataFrame, list[str]]:
    """Return metadata as a DataFrame, and its columns that say which rows it belongs to."""
    import pandas

    keys = _KEYS[name]
    if _is_frame(given):
        extra = given.copy()
    elif isinstance(given, Mapping) and all(isinstance(row, Mapping) for row in given.values()):
        extra = pandas.DataFrame.from_dict(dict(given), orient="index")
    elif isinstance(given, Mapping) and name == "inputs":
        extra = pandas.DataFrame(dict(given))
    else:
        raise InputError(
            f"metadata[{name!r}] must be a DataFrame, or a dict of dicts by {keys[0]}, got a "
            f"{type(given).__name__}."
        )
    on = [key for key in keys if key in extra.columns]
    if name == "inputs" and not on:
        if len(extra) != len(frame):
            raise InputError(
                f"metadata['inputs'] has {len(extra)} rows for {len(frame)} records. Give one for each, in "
                "their order, or a column did with the numbers of records."
            )
        extra["did"], on = np.arange(len(extra)), ["did"]
    elif not on:
        extra[keys[0]], on = extra.index, [keys[0]]
    for key in on:
        if COLUMNS[name][key] == "str":
            extra[key] = _column([_as_id(value) for value in extra[key]], "str")
    plain = [c for c in extra.columns if c in on or _is_plain(extra[c])]
    extra = extra[plain].reset_index(drop=True).rename(columns=str)
    for column in extra.columns:
        if pandas.api.types.infer_dtype(extra[column], skipna=True) == "string":
            extra[column] = extra[column].astype("string")  # its type is known without rows too
    return extra, on


def _as_id(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float | np.number) else str(value)


def _is_plain(column: pandas.Series) -> bool:
    """Return whether a column has scalars, which DuckDB can compare."""
    import pandas

    present = column.dropna()
    return present.empty or bool(pandas.api.types.is_scalar(present.iloc[0]))
