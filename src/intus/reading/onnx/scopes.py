"""Find the module calls that the nodes of an ONNX file state to have run in.

torch's exporter writes the names and classes of modules beside every node, but not which call of a module it
was. Its older exporter, and others, give nodes names such as ``/features/features.0/Conv`` or
``model/dense/MatMul``, whose parts are modules. The older exporter numbers the calls of the innermost: of
``/a/fc_1/Gemm``, ``fc`` is called for the second time, in whichever call of ``a``.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from math import gcd

import onnx

from ...core.building import Scope
from ..bounds import DEEPEST

_NAMES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
#: The name that torch.export gives in place of a module to nodes that it inserted.
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"
_OF_TORCH = "torch.nn.modules."
_CALL = re.compile(r"(.+)_(\d+)")


def model_class(nodes: Collection[onnx.NodeProto]) -> str:
    """Return the class of the model; ``""`` if the file does not have it."""
    for node in nodes:
        if stated := _stated(node):
            return stated[0][1].rpartition(".")[2]
    return ""


def states_module(node: onnx.NodeProto) -> bool:
    """Return whether the metadata of a node has the module that it ran in."""
    return bool(_stated(node))


class Scopes:
    """The module calls that nodes state to have run in.

    Attributes:
        told: The addresses of modules of which the file tells the calls.

    Args:
        nodes: All nodes of the file.
        weights: The names of its weights. A second call of a module is told from another module by them:
            ``/fc_1/Gemm`` is a call of ``fc`` if that has parameters and ``fc_1`` has none of its own.
    """

    def __init__(self, nodes: Iterable[onnx.NodeProto], weights: Iterable[str]) -> None:
        nodes = list(nodes)
        self._single = _of_one_operation(nodes)
        self._owners = {owner for name in weights for owner in _around(name)}
        self._holders: set[str] = set()  # modules that use weights, and those around them
        self._uses: dict[str, set[str]] = {}  # the weights that modules use, by their addresses in names
        self._calls: dict[str, int] = {}  # how often modules are called, by the numbers in names
        self._inner: dict[str, int] = {}  # what divides the numbers of calls of all in a module
        named = [node for node in nodes if "/" in node.name and not _stated(node)]
        known = dict.fromkeys(weights, "") | {name: name for name in weights}
        known |= {one.output[0]: known[one.input[0]] for one in nodes if _renames(one, known)}
        uses: dict[str, set[str]] = defaultdict(set)
        for node in named:
            for address, _ in self._parts(node.name)[-1:]:
                uses[address].update(known[one] for one in node.input if one in known)
        holders = (owner for address, some in uses.items() if some for owner in (address, *_around(address)))
        self._uses, self._holders = dict(uses), self._owners.union(holders)
        names = [node.name for node in named]
        self._count_calls(names)
        counted = self._count_calls(names)  # now also modules without parameters, by those around
        numbered = {self._parts(name)[-1][0] for name in names if name.startswith("/") and self._parts(name)}
        self.told = self._single | {one for one in numbered if self._calls[one] == counted[one]}

    def of(self, node: onnx.NodeProto) -> tuple[Scope, ...] | None:
        """Return the calls around a node, outermost first, without the model's; None if it states none."""
        if stated := _stated(node):
            *modules, (operation, _) = stated
            scopes = [
                Scope(name.partition("@")[0], class_.rpartition(".")[2], name.partition("@")[2] or None)
                for name, class_ in modules
                if name
            ]
            if scopes and scopes[-1].address in self._single:
                scopes[-1] = scopes[-1]._replace(call=operation)
            return tuple(scopes)
        return self._from_name(node.name) if "/" in node.name else None

    def _from_name(self, name: str) -> tuple[Scope, ...]:
        found: list[Scope] = []
        inner, number = "", 0  # the nearest module inside of which calls are told, and the number of its call
        for address, given in reversed(self._parts(name)):
            calls = self._calls.get(address, 0)
            if not found:
                inner, number = address, given
            elif calls:
                inner, number = address, number * calls // max(1, self._calls.get(inner, 1))
            found.append(Scope(address, "", number if calls > 1 else None))
        return tuple(reversed(found))

    def _parts(self, name: str) -> list[tuple[str, int]]:
        """Return the modules in a name, each with the number of its call, from 0."""
        found: list[tuple[str, int]] = []
        before = ""
        for part in name.strip("/").split("/")[:-1]:
            if not part:
                continue
            around = found[-1][0] if found else ""
            # In a torch.nn.Sequential that is called, the names of children repeat its own.
            repeats = before and part.startswith(f"{before}.")
            address = f"{around.removesuffix(before) if repeats else f'{around}.'}{part}".lstrip(".")
            found.append(self._call(address, around))
            before = part
        return found

    def _call(self, address: str, around: str) -> tuple[str, int]:
        """Return the module of an address, whose end may be the number of the call, and that number."""
        again = _CALL.fullmatch(address)
        if again and address not in self._owners:
            module, number = again[1], int(again[2])
            shared = self._uses.get(module, set()) & self._uses.get(address, set())
            is_owned = module in self._holders and address not in self._holders
            within = max(self._calls.get(around, 1), self._inner.get(around, 1))
            if (
                shared
                or is_owned
                or (module in self._uses and address not in self._holders and number < within)
            ):
                return module, number
        return address, 0

    def _count_calls(self, names: Iterable[str]) -> dict[str, int]:
        """Count calls by the innermost modules of names, and return the counts.

        Every call of a module calls the same in it, so what is in it is called a multiple of its calls. If it
        is not, the numbers say something else, and the calls of the module are not told.
        """
        calls: dict[str, int] = {}
        inside: dict[str, set[str]] = defaultdict(set)
        for name in names:
            (address, number), *outer = reversed(self._parts(name) or [("", 0)])
            calls[address] = max(calls.get(address, 1), number + 1)
            for around, _ in outer:
                inside[around].add(address)
        self._inner = {
            around: gcd(*(calls[one] for one in some if one in self._holders or calls[one] > 1))
            for around, some in inside.items()
        }
        self._calls = {one: 1 if self._inner.get(one, 0) % many else many for one, many in calls.items()}
        return calls


def _around(address: str) -> Iterator[str]:
    """Return the addresses of the modules around an address.

    >>> list(_around("a.b.weight"))
    ['a', 'a.b']
    """
    return (address[: dot.start()] for dot in islice(re.finditer(r"\.", address), DEEPEST))


def _renames(node: onnx.NodeProto, weights: Collection[str]) -> bool:
    is_identity = node.op_type == "Identity" and not node.domain and node.input and node.output
    return bool(is_identity) and node.input[0] in weights


def _of_one_operation(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Return the modules of torch each of whose calls is one operation, of which a node has the name."""
    operations: dict[str, set[str]] = defaultdict(set)
    with_others: set[str] = set()  # modules with others inside, such as a TransformerEncoder
    for node in nodes:
        if stated := _stated(node):
            (*outer, (address, class_), (_, operation)) = stated
            with_others.update(name for name, _ in outer)
            if class_.startswith(_OF_TORCH):
                operations[address].add(operation)
    return {address for address, some in operations.items() if len(some) == 1} - with_others


def _stated(node: onnx.NodeProto) -> list[tuple[str, str]]:
    """Return the names and classes of the modules around a node and those of its operation; [] if unknown."""
    names, classes = _list(node, _NAMES), _list(node, _CLASSES)
    found = [pair for pair in zip(names, classes, strict=False) if pair[0] != _NO_MODULE]
    return found if len(names) == len(classes) and len(found) > 1 else []


def _list(node: onnx.NodeProto, key: str) -> list[str]:
    """Return a list of texts among the metadata of a node."""
    text = next((entry.value for entry in node.metadata_props if entry.key == key), "")
    if not text:
        return []
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(one) for one in found] if isinstance(found, list) else []
