"""Make a ``Graph`` of a symbol: of a Gluon block, of which symbols can be made, or of a Module."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import Block, HybridBlock, Parameter
from mxnet.gluon.utils import _check_same_symbol_type
from mxnet.module import Module
from mxnet.ndarray import CachedOp, NDArray
from mxnet.symbol import Symbol

from ...core.address import Address
from ...core.building import GraphBuilder, Scope
from ...core.errors import CaptureError, InputError
from ...core.graph import Graph
from ...core.nested import leaves
from ...core.shortest import shortest_in_text
from ...core.traced import Traced
from . import module
from .arrays import replaced, to_numpy
from .blocks import parameter_address
from .hybrid import inside, run_with_symbols
from .randomness import drawing
from .symbols import entries, identity, nodes

_SCOPE = "__intus_scope__"
_NOT_RESTORED = (
    "the random numbers of MXNet, whose state it does not give: the pass drew some in {}, so that later ones "
    "differ. Call mxnet.random.seed after the trace, or trace outside of autograd.record()."
)


class Variable(NamedTuple):
    """A parameter or buffer of a symbol.

    Attributes:
        address: Its address.
        owner: The address of its module.
        array: Its values.
        trainable: Whether it is trained.
        is_buffer: Whether it is a state of an operation, such as running statistics, and no parameter.
    """

    address: str
    owner: str
    array: NDArray
    trainable: bool
    is_buffer: bool


def trace(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Traced:
    """Run a model once, in the mode that autograd has; see ``backends.tracing.Traces``."""
    if isinstance(model, Block):
        if kwargs:
            raise InputError(f"Gluon blocks have no keyword arguments, got {next(iter(kwargs))!r}.")
        return _of_block(model, _forward_arguments(model, args)).run()
    given = kwargs or (args[0] if len(args) == 1 and isinstance(args[0], Mapping) else args)
    module.check_bound(model)
    if not model.params_initialized:
        raise InputError("The Module has no parameters yet. Call init_params() or set_params() on it first.")
    return _of_module(model, module.as_dict(model, given)).run()


class Recorder:
    """Makes the graph of one call from its arguments, without running it; see ``GraphRecorder``."""

    def __init__(self) -> None:
        self._source: tuple[Any, Any] | None = None

    def begin(self, model: Any, inputs: Any) -> None:
        """Keep the arguments of a call."""
        self._source = model, inputs

    def end(self, output: Any) -> Graph | None:
        """Return the graph of the call; None if it raised, or if no symbol can be made of the model."""
        if self._source is None or output is None:
            return None
        (model, (args, _)), self._source = self._source, None
        if not isinstance(model, Block):
            return _of_module(model, module.as_dict(model, tuple(args))).graph()
        return _of_block(model, args).graph() if isinstance(model, HybridBlock) else None


class _Returned(NamedTuple):
    """A symbol that a call of a block returned.

    Attributes:
        call: The call, in the calls around it.
        scope: The calls that the symbol's operation ran in, as its attribute has them.
        output: The name of the output of that operation.
    """

    call: list[Scope]
    scope: str
    output: str


class _Program:
    """A symbol with all that it reads.

    Args:
        name: The model's name.
        symbol: The symbol.
        inputs: The arrays that are inputs, by variable.
        parameters: The parameters, by variable.
        scope: Returns the module calls that a node ran in.
        returned: What the calls of blocks returned, in order.
    """

    def __init__(
        self,
        name: str,
        symbol: Symbol,
        inputs: Mapping[str, NDArray],
        parameters: Mapping[str, Variable],
        scope: Callable[[dict[str, Any]], list[Scope]],
        returned: Sequence[_Returned] = (),
    ) -> None:
        self._name, self._symbol, self._returned = name, symbol, returned
        self._inputs, self._parameters, self._scope = inputs, parameters, scope
        self._nodes = nodes(symbol)
        self._entries = entries(symbol, self._nodes)

    def graph(self) -> Graph:
        """Return the graph with inferred shapes."""
        arrays = {**self._inputs, **{name: one.array for name, one in self._parameters.items()}}
        internals = self._symbol.get_internals()
        _, shapes, _ = internals.infer_shape_partial(**{name: one.shape for name, one in arrays.items()})
        _, types, _ = internals.infer_type_partial(**{name: one.dtype for name, one in arrays.items()})
        metas = [
            (tuple(shape or ()), np.dtype(type_).name if type_ is not None else "")
            for shape, type_ in zip(shapes, types, strict=True)
        ]
        return self._build(metas)[0]

    def run(self) -> Traced:
        """Run the program, and return its graph with the value of every operation."""
        arrays = {**self._inputs, **{name: one.array for name, one in self._parameters.items()}}
        internals = self._symbol.get_internals()
        ops = [at for at, (node, _) in enumerate(self._entries) if self._nodes[node]["op"] != "null"]
        if not ops:
            raise CaptureError(f"{self._name} runs no operation.")
        whole = mx.symbol.Group(
            [internals[at] for at in ops], _check_same_symbol_type([internals[at] for at in ops])
        )
        state = {name: arrays[name].copy() for name in whole.list_auxiliary_states()}
        with autograd.pause(train_mode=autograd.is_training()):
            found = CachedOp(whole)(*(state.get(name, arrays[name]) for name in whole.list_inputs()))
        found = found if isinstance(found, list) else [found]
        values = {at: to_numpy(one) for at, one in zip(ops, found, strict=True)}
        for at, (node, _) in enumerate(self._entries):
            if at not in values:
                values[at] = to_numpy(arrays[self._nodes[node]["name"]])
        metas = [(values[at].shape, values[at].dtype.name) for at in range(len(self._entries))]
        graph, rows = self._build(metas, drawn=", ".join(drawing(self._symbol)))
        read = {self._nodes[node]["name"]: values[at] for at, (node, _) in enumerate(self._entries)}
        params = {
            one.address: read[name] if name in read else to_numpy(one.array)
            for name, one in self._parameters.items()
            if not one.is_buffer
        }
        return Traced(graph, {row: values[at] for at, row in rows.items()}, params)

    def _build(
        self, metas: list[tuple[tuple[int, ...], str]], *, drawn: str = ""
    ) -> tuple[Graph, dict[int, int]]:
        """Return the graph, and the row of each entry that has one.

        Args:
            metas: The shape and dtype of each entry.
            drawn: The names of the operations that drew random numbers.
        """
        builder = GraphBuilder(self._name)
        for one in self._parameters.values():
            shape, dtype = one.array.shape, np.dtype(one.array.dtype).name
            if one.is_buffer:
                builder.buffer_of(one.address, shape, dtype, owner=one.owner)
            else:
                builder.param(one.address, shape, dtype, trainable=one.trainable, owner=one.owner)
        parameters = {name: one.address for name, one in self._parameters.items() if not one.is_buffer}
        rows: dict[tuple[int, int], int] = {}
        numbers: dict[int, int] = {}
        events: dict[int, int] = {}
        count = Counter(node for node, _ in self._entries)
        is_double = any(dtype == "float64" for _, dtype in metas)
        for at, (number, output) in enumerate(self._entries):
            node, (shape, dtype) = self._nodes[number], metas[at]
            if node["op"] == "null":
                if node["name"] in self._inputs:
                    rows[number, output] = numbers[at] = builder.input(node["name"], shape, dtype)
                continue
            sources = [tuple(source[:2]) for source in node["inputs"]]
            read = [self._nodes[source]["name"] for source, _ in sources]
            for source, name in zip(sources, read, strict=True):
                if source not in rows and name in self._parameters and name not in parameters:
                    address, place = self._parameters[name].address, self._entries.index(source)
                    rows[source] = builder.buffer(address, *metas[place], self._scope(node))
                    numbers[place] = rows[source]
            rows[number, output] = numbers[at] = builder.op(
                node["op"].strip("_"),
                shape,
                dtype,
                scope=self._scope(node),
                parents=[(rows[one], str(arg)) for arg, one in enumerate(sources) if one in rows],
                params=[parameters[name] for name in read if name in parameters],
                setting=_setting(node, is_double=is_double),
                event=events.setdefault(number, len(builder)),
                output=output if count[number] > 1 else -1,
            )
        names = self._symbol.get_internals().list_outputs()
        places = {
            (self._nodes[number].get("attrs", {}).get(_SCOPE), names[at]): rows[number, output]
            for at, (number, output) in enumerate(self._entries)
            if (number, output) in rows
        }
        for end in self._returned:
            if (row := places.get((end.scope, end.output))) is not None:
                builder.returns(row, end.call)
        for node_, output, *_ in json.loads(self._symbol.tojson())["heads"]:
            if (node_, output) in rows:
                builder.output("", rows[node_, output])
        facts: dict[str, Any] = {"framework": "mxnet", "version": mx.__version__}
        if drawn:
            facts["not_restored"] = [_NOT_RESTORED.format(drawn)]
        graph, placed = builder.graph(facts)
        found = {at: int(placed[row]) for at, row in numbers.items()}
        return graph, found


def _setting(node: dict[str, Any], *, is_double: bool) -> str:
    """Return the settings of an operation as text, and whether it trains if that changes what it does.

    Args:
        node: The operation.
        is_double: Whether something is computed in float64, so that no number is shortened.
    """
    settings = {key: value for key, value in node.get("attrs", {}).items() if key[:2] != "__"}
    if node["op"] in ("BatchNorm", "Dropout"):
        settings["training"] = autograd.is_training()
    text = ", ".join(f"{key}={value}" for key, value in settings.items())
    return text if is_double else shortest_in_text(text)


def _of_block(block: Block, args: tuple[Any, ...]) -> _Program:
    if not isinstance(block, HybridBlock):
        raise CaptureError(
            f"{type(block).__name__} is a Block, whose operations MXNet does not report. Derive it from "
            "HybridBlock, or trace a HybridBlock inside of it."
        )
    if any(parameter._data is None for parameter in block.collect_params().values()):
        with autograd.pause():
            block(*args)
    arrays = leaves(args, NDArray)
    names = ["data"] if len(arrays) == 1 else [f"data{at}" for at in range(len(arrays))]
    symbols = [mx.symbol.var(name) for name in names]
    symbols = [
        symbol.as_np_ndarray() if isinstance(array, mx.np.ndarray) else symbol
        for symbol, array in zip(symbols, arrays, strict=True)
    ]
    addresses = _addresses(block)
    calls: dict[str, int] = {}
    stack: list[tuple[str, str, int]] = []
    returned: list[_Returned] = []

    def around(part: Block, stood: Any, own: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        address = addresses[id(part)]
        calls[address] = calls.get(address, 0) + 1
        stack.append((address, type(part).__name__, calls[address]))
        try:
            with mx.AttrScope(**{_SCOPE: json.dumps(stack)}):
                result = own(*given)
                # What the block was given and returns has a place in the block too.
                for one in leaves(result, Symbol):
                    if len(one.list_outputs()) == 1 and not _is_inside(one, stack):
                        result = replaced(result, one, identity(one))
            call = [Scope(*one) for one in stack]
            for one in leaves(result, Symbol):
                scope = one.list_attr().get(_SCOPE, "")
                returned.extend(_Returned(call, scope, output) for output in one.list_outputs())
            return result
        finally:
            stack.pop()

    symbol = run_with_symbols(block, args, symbols, around)
    parameters: dict[str, Variable] = {}
    read, states = set(symbol.list_inputs()), set(symbol.list_auxiliary_states())
    for part in [block, *inside(block)]:
        for name, parameter in part._reg_params.items():
            owner, trainable = addresses[id(part)], parameter.grad_req != "null"
            # Only the operation that reads it says what it is; of one that did not run, the block does.
            is_buffer = parameter.name in states if parameter.name in read else not parameter._differentiable
            place = parameter_address(owner, name)
            variable = Variable(place, owner, _array(parameter), trainable, is_buffer)
            parameters.setdefault(parameter.name, variable)
    inputs = dict(zip(names, arrays, strict=True))
    return _Program(type(block).__name__, symbol, inputs, parameters, _recorded_scope, returned)


def _is_inside(symbol: Symbol, stack: Sequence[tuple[str, str, int]]) -> bool:
    """Return whether the operation of a symbol ran in the calls of a stack."""
    if symbol.get_children() is None:  # a variable
        return False
    calls = json.loads(symbol.list_attr().get(_SCOPE, "[]"))
    return bool(calls[: len(stack)] == [list(one) for one in stack])


def _forward_arguments(block: Block, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of ``forward``, to which a block such as a recurrent layer adds in its call."""
    found: list[tuple[Any, ...]] = []
    stood = vars(block).get("forward")
    if type(block).__call__ is Block.__call__:
        return args

    def forward(*given: Any) -> Any:
        found.append(given)
        return given

    vars(block)["forward"] = forward
    try:
        block(*args)
    finally:
        if stood is None:
            del vars(block)["forward"]
        else:
            vars(block)["forward"] = stood
    return found[0]


def _array(parameter: Parameter) -> NDArray:
    return parameter.list_data()[0]


def _addresses(block: Block) -> dict[int, str]:
    """Return the first address of every block, by id."""
    found = {id(block): ""}

    def walk(one: Block, at: str) -> None:
        for key, child in one._children.items():
            if id(child) not in found:
                own = str(Address(str(key)))
                found[id(child)] = f"{at}.{own}" if at else own
                walk(child, found[id(child)])

    walk(block, "")
    return found


def _recorded_scope(node: dict[str, Any]) -> list[Scope]:
    calls = json.loads(node.get("attrs", {}).get(_SCOPE, "[]"))
    return [Scope(address, type_, call) for address, type_, call in calls]


def _of_module(model: Module, data: Mapping[str, Any]) -> _Program:
    (executor,) = model._exec_group.execs
    given = {name: one if isinstance(one, NDArray) else mx.nd.array(one) for name, one in data.items()}
    arrays = {**module.arguments(model, given), **executor.aux_dict}
    states = {*model._param_names, *model._aux_names}
    inputs = {name: one for name, one in arrays.items() if name not in states}
    parameters: dict[str, Variable] = {}
    for operation in module.operations(model)[1:]:
        for short, name in operation.module.parameters.items():
            place = f"{operation.address}.{Address(short)}"
            trainable = executor._grad_req.get(name, "null") != "null"
            is_buffer = name in executor.aux_dict
            variable = Variable(place, operation.address, arrays[name], trainable, is_buffer)
            parameters.setdefault(name, variable)
    return _Program(type(model).__name__, model.symbol, inputs, parameters, _scope_by_name)


def _scope_by_name(node: dict[str, Any]) -> list[Scope]:
    return [Scope(str(Address(node["name"])), node["op"])]
