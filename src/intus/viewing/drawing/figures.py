"""Figures of boxes, summed over what is inside them, and how figures are written on a box."""

from __future__ import annotations

import math
from typing import NamedTuple

from ...core.graph import OP
from .tree import Tree


class Figures(NamedTuple):
    """Nanoseconds, bytes of the tensors made, distinct parameters, and FLOPs as far as known, by box."""

    time: list[float]
    memory: list[float]
    parameters: list[float]
    flops: list[float]


def figures(tree: Tree) -> Figures:
    """What every box holds, those inside it included."""
    scene, nodes = tree.scene, tree.nodes
    ops, metas = scene["ops"], scene["metas"]
    time, memory, parameters, flops = ([0.0] * len(nodes) for _ in range(4))
    held: list[set[int]] = [set() for _ in nodes]
    for node in nodes:
        for row in node.rows:
            time[node.id] += ops["time"][row]
            flops[node.id] += ops["flops"][row] or 0
            memory[node.id] += metas[ops["meta"][row]][3] if ops["kind"][row] == OP else 0
    for row, param in zip(scene["opParams"]["op"], scene["opParams"]["param"], strict=True):
        if tree.box_of[row] >= 0:
            held[tree.box_of[row]].add(param)
    sizes = [math.prod(param[1]) for param in scene["params"]]
    for node in reversed(list(tree.preorder())):
        parameters[node.id] = sum(sizes[param] for param in held[node.id])
        if node.parent >= 0:
            time[node.parent] += time[node.id]
            memory[node.parent] += memory[node.id]
            flops[node.parent] += flops[node.id]
            held[node.parent] |= held[node.id]
            if node.children:
                held[node.id].clear()
    return Figures(time, memory, parameters, flops)


def count(number: float) -> str:
    """A number in few characters.

    >>> count(640), count(4_832), count(124_439_808)
    ('640', '4.8K', '124M')
    """
    for unit, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if number >= scale:
            value = number / scale
            return f"{value:.0f}{unit}" if value >= 100 else f"{value:.1f}".removesuffix(".0") + unit
    return f"{number:.0f}"


def value(number: float) -> str:
    """A value of an overlay in three digits.

    >>> value(0.91234), value(0), value(2.5e-7), value(12345.0)
    ('0.912', '0', '2.5e-07', '12300')
    """
    if number == 0:
        return "0"
    if not 1e-3 <= abs(number) < 1e5:
        return f"{number:.1e}"
    return f"{float(f'{number:.3g}'):.6f}".rstrip("0").rstrip(".")
