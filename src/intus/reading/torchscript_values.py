"""Compute the values inside a method of TorchScript: run it with every tensor as an output.

torch itself runs the method's graph, so the values are those that the model computes. Each is copied where it
is made, before something writes into it. A method that this one calls is run by itself, on the arguments of
the call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

#: Returns a context in which a model and torch's random generators have the state from before the pass.
Restored = Callable[[], AbstractContextManager[Any]]


class Values(NamedTuple):
    """The values of one call of a method.

    Attributes:
        tensors: Tensors by the name of the value in the method's graph.
        calls: The arguments of each call inside, by the name of what it returns.
        results: What each call inside returned, by its name.
        result: What the method returned.
    """

    tensors: dict[str, Tensor]
    calls: dict[str, list[Any]]
    results: dict[str, Any]
    result: Any


def values_of(script: Any, graph: Any, arguments: Sequence[Any], restored: Restored) -> Values:
    """Run a method once, and return its values; those inside of branches and loops are not among them.

    Args:
        script: The module: ``torch._C.ScriptModule``.
        graph: The graph of the method.
        arguments: Its arguments without the module.
        restored: Returns the context to run in.

    Raises:
        RuntimeError: If torch cannot run the method in this way.
    """
    program: Any = graph.copy()
    names: list[tuple[str, str]] = []  # what each value is that is added to the outputs
    for node, twin in list(zip(graph.nodes(), list(program.nodes()), strict=True)):
        if node.kind() == "prim::CallMethod":
            copies: dict[str, Any] = {}  # one tensor remains one: attention tests whether query and key are
            for given in list(twin.inputs())[1:]:
                names.append((node.output().debugName(), "argument"))
                if given.debugName() not in copies:
                    copies[given.debugName()] = _copied(program, given, twin, before=True)
                program.registerOutput(copies[given.debugName()])
        for value, made in zip(node.outputs(), list(twin.outputs()), strict=True):
            is_tensor, is_call = value.type().kind() == "TensorType", node.kind() == "prim::CallMethod"
            if is_tensor or is_call:
                names.append((value.debugName(), "result" if is_call else "tensor"))
                program.registerOutput(_copied(program, made, twin, before=False))
    if names:
        program.makeMultiOutputIntoTuple()
    function: Any = torch._C._create_function_from_graph("forward", program)
    clones = {id(t): t.clone() for t in tree_leaves(list(arguments)) if isinstance(t, Tensor)}
    given = tree_map_only(Tensor, lambda t: clones[id(t)], list(arguments))
    with restored():
        results = function(script, *given)
    if not names:
        return Values({}, {}, {}, results)
    values = Values({}, {}, {}, results[0])
    for (name, what), one in zip(names, results[-len(names) :], strict=True):
        if what == "argument":
            values.calls.setdefault(name, []).append(one)
        elif what == "result":
            values.results[name] = one
        if what != "argument" and isinstance(one, Tensor):
            values.tensors[name] = one.detach()
    return values


def _copied(program: Any, value: Any, node: Any, *, before: bool) -> Any:
    """Return a copy of a tensor that is taken before or after a node; anything else as it is."""
    if value.type().kind() != "TensorType":
        return value
    none = program.create("prim::Constant")
    none.output().setType(torch._C.NoneType.get())
    copy = program.create("aten::clone", [value, none.output()], 1)
    if before:
        none.insertBefore(node)
    else:
        none.insertAfter(node)
    copy.insertAfter(none)
    return copy.output()


def same(a: Any, b: Any) -> bool:
    """Return whether two results have the same bits; not-a-number equals itself."""
    ours, theirs = tree_leaves(a), tree_leaves(b)
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _same(a: Any, b: Any) -> bool:
    if not (isinstance(a, Tensor) and isinstance(b, Tensor)):
        return bool(type(a) is type(b) and a == b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool(((a == b) | ((a != a) & (b != b))).all())
