"""Find the modules that the nodes of an ONNX file ran in.

torch's exporter writes the names and classes of modules beside every node. Other exporters give nodes names
such as ``/features/features.0/Conv`` or ``model/dense/MatMul``, whose parts are modules.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

import onnx

from ...core.building import Scope

_NAMES, _CLASSES = "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.class_hierarchy"
_CALL = re.compile(r"(.+)_(\d+)")


def model_class(nodes: Collection[onnx.NodeProto]) -> str:
    """Return the class of the model; ``""`` if the file does not have it."""
    for node in nodes:
        classes = _list(node, _CLASSES)
        if len(classes) > 1:
            return classes[0].rpartition(".")[2]
    return ""


def scope_of(node: onnx.NodeProto, owners: Collection[str] = ()) -> tuple[Scope, ...]:
    """Return the modules that a node ran in, outermost first, without the model itself.

    Args:
        node: The node.
        owners: The addresses of modules that have parameters. A second call of such a module is told from
            another module by them: ``/fc_1/Gemm`` is a call of ``fc`` if that has parameters and ``fc_1``
            has none.
    """
    names, classes = _list(node, _NAMES), _list(node, _CLASSES)
    if names and len(names) == len(classes):
        return tuple(
            Scope(name.partition("@")[0], class_.rpartition(".")[2], name.partition("@")[2] or None)
            for name, class_ in zip(names[:-1], classes[:-1], strict=True)
            if name
        )
    return _from_name(node.name, owners)


def _from_name(name: str, owners: Collection[str]) -> tuple[Scope, ...]:
    scopes: list[Scope] = []
    before = ""
    for part in name.strip("/").split("/")[:-1]:
        if not part:
            continue
        address = scopes[-1].address if scopes else ""
        # In a torch.nn.Sequential that is called, the names of children repeat its own.
        address = address.removesuffix(before) if before and part.startswith(f"{before}.") else f"{address}."
        address = f"{address}{part}".lstrip(".")
        again = _CALL.fullmatch(address)
        if again and again[1] in owners and address not in owners:
            scopes.append(Scope(again[1], "", int(again[2])))
        else:
            scopes.append(Scope(address))
        before = part
    return tuple(scopes)


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
