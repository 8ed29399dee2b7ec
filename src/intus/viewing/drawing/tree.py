"""From the scene's columns to a tree of boxes: calls of modules, operations, inputs, outputs, buffers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ...core.graph import BUFFER, CONSTANT, FAILED, OP, OP_KINDS, end_names
from .folds import fold_repeats, group_ends

Scene = dict[str, Any]


@dataclass(slots=True, eq=False)
class Node:
    """A box. ``names`` are all addresses that mean it, its own first: a module that runs one operation has
    two; ``rows`` the scene's rows it stands for, ``buffers`` those that only it reads; ``call`` its module
    call, -1 for none; ``passes`` how many passes it stands for in a rolled scene."""

    id: int
    kind: str
    parent: int
    order: float
    depth: int = 0
    children: list[int] = field(default_factory=list)
    address: str = ""
    names: list[str] = field(default_factory=list)
    title: str = ""
    subtitle: str = ""
    call: int = -1
    rows: list[int] = field(default_factory=list)
    buffers: list[int] = field(default_factory=list)
    flags: int = 0
    has_params: bool = False
    passes: int = 1

    @property
    def is_boxed(self) -> bool:
        """Modules and folds are boxes; what is no module is a pill."""
        return self.kind in ("module", "group")


@dataclass(slots=True, eq=False)
class Tree:
    """``box_of`` is the box each row of the scene belongs to, -1 for a row that is not drawn; ``hidden`` are
    edges that are not drawn."""

    scene: Scene
    nodes: list[Node]
    box_of: list[int]
    hidden: set[int] = field(default_factory=set)

    def new(self, kind: str, parent: int, order: float) -> Node:
        node = Node(len(self.nodes), kind, parent, order)
        self.nodes.append(node)
        if parent >= 0:
            self.nodes[parent].children.append(node.id)
        return node

    def set_depths(self) -> None:
        for node in self.preorder():
            node.depth = self.nodes[node.parent].depth + 1 if node.parent >= 0 else 0

    def preorder(self, root: int = 0) -> Iterator[Node]:
        """Boxes from the root, or another box, downwards, each before what it holds."""
        stack = [root]
        while stack:
            node = self.nodes[stack.pop()]
            yield node
            stack += reversed(node.children)


def build_tree(scene: Scene) -> Tree:
    """The boxes of a scene; box 0 is the model itself."""
    tree = Tree(scene, [], [-1] * len(scene["ops"]["kind"]))
    tree.new("root", -1, 0)
    call_box = _place_rows(tree)
    _place_sources(tree)
    group_ends(tree, "input")
    group_ends(tree, "output")
    fold_repeats(tree)
    _name(tree, call_box)
    _blame_module(tree, call_box)
    tree.set_depths()
    return tree


def operations_inside(scene: Scene) -> list[int]:
    """Operations that ran inside each call, at any depth; several tensors of one function count once."""
    ops, parents = scene["ops"], scene["calls"]["parent"]
    inside = [0] * len(parents)
    for row, (kind, call) in enumerate(zip(ops["kind"], ops["call"], strict=True)):
        if kind == OP and call >= 0 and not is_later_tensor(scene, row):
            inside[call] += 1
    for call in range(len(parents) - 1, -1, -1):
        if parents[call] >= 0:
            inside[parents[call]] += inside[call]
    return inside


def is_later_tensor(scene: Scene, row: int) -> bool:
    """Whether the row is a further tensor of the function call the row before it came from."""
    ops = scene["ops"]
    return bool(row and ops["kind"][row - 1] == OP and 0 <= ops["event"][row] == ops["event"][row - 1])


def _place_rows(tree: Tree) -> list[int]:
    """Make the boxes of all rows but buffers and constants, and of the module calls around them; returns the
    box of each call."""
    scene, nodes = tree.scene, tree.nodes
    ops, calls = scene["ops"], scene["calls"]
    inside = operations_inside(scene)
    call_box = [
        0 if parent < 0 and address == "" else -1
        for parent, address in zip(calls["parent"], calls["address"], strict=True)
    ]
    for row, kind in enumerate(ops["kind"]):
        if kind in (BUFFER, CONSTANT):
            continue
        if kind == OP and is_later_tensor(scene, row):
            tree.box_of[row] = tree.box_of[row - 1]
            nodes[tree.box_of[row]].rows.append(row)
            continue
        if kind == OP:
            home = _box_for_call(tree, call_box, inside, row)
            atomic = home != 0 and inside[ops["call"][row]] == 1
            box = nodes[home] if atomic else tree.new("op", home, row)
        else:
            box = tree.new(OP_KINDS[kind], 0, row)
        box.rows.append(row)
        box.flags |= ops["flags"][row]
        tree.box_of[row] = box.id
    for row in scene["opParams"]["op"]:
        if tree.box_of[row] >= 0:
            nodes[tree.box_of[row]].has_params = True
    return call_box


def _box_for_call(tree: Tree, call_box: list[int], inside: list[int], row: int) -> int:
    """The box of the row's innermost call, made with those around it; calls of one operation are one."""
    parents = tree.scene["calls"]["parent"]
    missing = []
    call = tree.scene["ops"]["call"][row]
    while call >= 0 and call_box[call] < 0:
        missing.append(call)
        call = parents[call]
    box = call_box[call] if call >= 0 else 0
    for call in reversed(missing):
        parent_is_atomic = parents[call] >= 0 and box != 0 and inside[parents[call]] == 1
        if not parent_is_atomic:
            box = tree.new("module", box, row).id
        tree.nodes[box].call = call
        call_box[call] = box
    return box


def _place_sources(tree: Tree) -> None:
    """A buffer or constant stands in the smallest container around its readers, a buffer in its only one."""
    scene, nodes = tree.scene, tree.nodes
    kinds = scene["ops"]["kind"]
    readers: dict[int, list[int]] = {}
    for src, dst in zip(scene["edges"]["src"], scene["edges"]["dst"], strict=True):
        if kinds[src] in (BUFFER, CONSTANT) and tree.box_of[dst] >= 0:
            readers.setdefault(src, []).append(tree.box_of[dst])
    touched: dict[int, Node] = {}
    for row, boxes in readers.items():
        home = boxes[0]
        for box in boxes[1:]:
            home = _common_parent(nodes, home, box)
        if not nodes[home].children and home != 0 and kinds[row] == BUFFER:
            tree.box_of[row] = home
            nodes[home].buffers.append(row)
            continue
        if not nodes[home].children and home != 0:
            home = nodes[home].parent
        source = tree.new(OP_KINDS[kinds[row]], home, min(nodes[box].order for box in boxes) - 0.5)
        source.rows.append(row)
        tree.box_of[row] = source.id
        touched[home] = nodes[home]
    for node in touched.values():
        node.children.sort(key=lambda id: nodes[id].order)


def _common_parent(nodes: list[Node], a: int, b: int) -> int:
    above = set()
    while a >= 0:
        above.add(a)
        a = nodes[a].parent
    while b not in above:
        b = nodes[b].parent
    return b


def _name(tree: Tree, call_box: list[int]) -> None:
    scene, nodes = tree.scene, tree.nodes
    ops, calls, modules = scene["ops"], scene["calls"], scene["modules"]
    root_call = call_box.index(0) if 0 in call_box else -1
    nodes[0].title, nodes[0].call = scene["model"], root_call
    ends = end_names(ops["kind"], scene.get("facts", {}))
    nodes[0].subtitle = modules[calls["module"][root_call]][1] if root_call >= 0 else ""
    for node in nodes:
        labels = [ops["label"][row] for row in node.rows]
        if node.kind == "module":
            node.address = calls["address"][node.call]
            node.names = [node.address]
            node.subtitle = modules[calls["module"][node.call]][1]
            node.title = below(node.address, _address_around(nodes, node))
            call = calls["parent"][node.call]
            while call >= 0 and call_box[call] == node.id:
                node.names.append(calls["address"][call])
                call = calls["parent"][call]
            node.names += labels
        elif labels:
            node.address, node.names = labels[0], labels
            kind = scene["types"][ops["type"][node.rows[0]]]
            around = _address_around(nodes, node)
            titles = {"op": kind, "buffer": below(kind, around)}
            node.title = titles.get(node.kind) or ends.get(node.rows[0]) or labels[0]
        node.names += [ops["label"][row] for row in node.buffers]
    for node in nodes:
        if node.kind == "group" and not node.title:
            first, last = nodes[node.children[0]], nodes[node.children[-1]]
            node.title, node.subtitle = f"{first.title} … {last.title}", first.subtitle


def _blame_module(tree: Tree, call_box: list[int]) -> None:
    """Where no operation raised but the code of a module did, that module has failed."""
    scene = tree.scene
    module = (scene.get("facts", {}).get("raised") or {}).get("module")
    if not scene.get("error") or not module or any(flags & FAILED for flags in scene["ops"]["flags"]):
        return
    addresses = [re.sub(r":\d+$", "", address) for address in scene["calls"]["address"]]
    boxes = [box for box, address in zip(call_box, addresses, strict=True) if address == module]
    if boxes and boxes[-1] > 0:
        tree.nodes[boxes[-1]].flags |= FAILED


def _address_around(nodes: list[Node], node: Node) -> str:
    parent = nodes[node.parent]
    while parent.kind == "group":
        parent = nodes[parent.parent]
    return re.sub(r":\d+$", "", parent.address) if parent.kind == "module" else ""


def below(address: str, around: str) -> str:
    """The part of an address below a container's. A bare number says too little, so ``features.0`` stays as
    it is inside ``features``.

    >>> below("transformer.h.0", "transformer"), below("features.0", "features")
    ('h.0', 'features.0')
    """
    rest = address[len(around) + 1 :] if around and address.startswith(around + ".") else address
    return f"{around.rpartition('.')[2]}.{rest}" if around and re.fullmatch(r"\d+(:\d+)?", rest) else rest
