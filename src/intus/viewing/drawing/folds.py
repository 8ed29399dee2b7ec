"""Boxes that gather others, so that few stand in sight: many inputs or outputs, equal modules in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tree import Tree

GROUP_FROM = 7  # so many inputs or outputs are one box that opens
FOLD_FROM = 3  # so many equal modules in a row are one box that opens


def group_ends(tree: Tree, kind: str) -> None:
    """Put many inputs, or many outputs, into one box: twenty-four cached keys must not hide the model."""
    ends = [id for id in tree.nodes[0].children if tree.nodes[id].kind == kind]
    if len(ends) >= GROUP_FROM:
        _wrap(tree, ends, f"{len(ends)} {kind}s", kind)


def _wrap(tree: Tree, members: list[int], title: str, subtitle: str) -> None:
    nodes = tree.nodes
    parent = nodes[nodes[members[0]].parent]
    group = tree.new("group", -1, nodes[members[0]].order)
    group.parent = parent.id
    at, rest = parent.children.index(members[0]), set(members)
    parent.children = [id for id in parent.children if id not in rest]
    parent.children.insert(at, group.id)
    group.children, group.title, group.subtitle = members, title, subtitle
    for id in members:
        nodes[id].parent = group.id


def fold_repeats(tree: Tree) -> None:
    """Fold structurally equal modules that follow one another into one box."""
    nodes = tree.nodes
    shape = _signatures(tree)
    for parent in nodes[:]:
        children = parent.children[:]
        if parent.kind == "group":
            continue
        start = 0
        while start < len(children):
            stop = start + 1
            while stop < len(children) and shape[children[stop]] == shape[children[start]]:
                stop += 1
            first = nodes[children[start]]
            covers_all = start == 0 and stop == len(children) and parent.id != 0
            foldable = first.kind == "module" and first.children
            if foldable and stop - start >= FOLD_FROM and not covers_all:
                _wrap(tree, children[start:stop], "", "")
            start = stop


def unite(tree: Tree) -> dict[int, int]:
    """Let the first member of every fold stand for all, inside as it is itself; returns the folds by their
    first members. Edges that the count tells are hidden: those between members, and inside the others."""
    nodes = tree.nodes
    member: dict[int, dict[int, int]] = {}  # by row and fold: which of its members it is in
    stands_for: dict[int, int] = {}  # by box: the one that is shown in its place
    firsts = {}
    for group in nodes[:]:  # the outer folds first
        if group.kind != "group" or nodes[group.children[0]].kind != "module":
            continue
        walks = [list(tree.preorder(id)) for id in group.children]
        for number, walk in enumerate(walks):
            for node, same in zip(walk, walks[0], strict=True):
                for row in (*node.rows, *node.buffers):
                    member.setdefault(row, {})[group.id] = number
                if number:
                    stands_for[node.id] = same.id
                    same.names += node.names
        first = nodes[group.children[0]]
        firsts[first.id] = group.id
        first.title, first.subtitle = group.title, f"{len(walks)} × {group.subtitle}"
        around = nodes[group.parent]
        around.children[around.children.index(group.id)] = first.id
        first.parent = around.id
    for row in member:
        while tree.box_of[row] in stands_for:
            tree.box_of[row] = stands_for[tree.box_of[row]]
    _hide(tree, member)
    tree.set_depths()
    return firsts


def _hide(tree: Tree, member: dict[int, dict[int, int]]) -> None:
    edges = tree.scene["edges"]
    for edge, (src, dst) in enumerate(zip(edges["src"], edges["dst"], strict=True)):
        ours, theirs = member.get(src, {}), member.get(dst, {})
        if any(ours[fold] or theirs[fold] for fold in ours.keys() & theirs.keys()):
            tree.hidden.add(edge)


def _signatures(tree: Tree) -> list[int]:
    """A number per box, equal where class and everything inside are equal, shapes too."""
    scene, nodes = tree.scene, tree.nodes
    types, metas = scene["ops"]["type"], scene["ops"]["meta"]
    known: dict[tuple[object, ...], int] = {}
    out = [0] * len(nodes)
    children: list[list[int]] = [[] for _ in nodes]
    for node in reversed(nodes):
        cls = scene["modules"][scene["calls"]["module"][node.call]][1] if node.call >= 0 else ""
        rows = tuple((types[row], metas[row]) for row in node.rows)
        key = (node.kind, cls, rows, tuple(reversed(children[node.id])))
        out[node.id] = known.setdefault(key, len(known))
        if node.parent >= 0:
            children[node.parent].append(out[node.id])
    return out
