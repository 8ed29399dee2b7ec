"""Whether a glob could mean a label whose numbers are not known yet."""

from __future__ import annotations

import re
from functools import cache


@cache
def may_match(pattern: str, stem: str) -> bool:
    """Whether ``fnmatch`` of ``pattern`` holds for any label of ``stem``: ``conv2d_3``, ``conv2d_3_7:2``.

    Both are regular languages; a walk over pairs of places, one in the pattern and one in the label, finds
    whether they share a word.

    >>> may_match("conv*", "conv2d"), may_match("*attn*", "linear"), may_match("linear_?_*:2", "linear")
    (True, False, True)
    """
    parts = re.findall(r"\[!?\]?[^\]]*\]|.", pattern, re.DOTALL)
    label = [*stem, "_", "0+", "_?", "0*", ":?", "0*"]
    seen, todo = set[tuple[int, int]](), [(0, 0)]
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        p, q = at
        if p == len(parts) and _may_end(label, q):
            return True
        if p < len(parts) and parts[p] == "*":
            todo.append((p + 1, q))
        for letters, after in _steps(label, q):
            if p < len(parts) and (parts[p] == "*" or any(_takes(parts[p], c) for c in letters)):
                todo.append((p if parts[p] == "*" else p + 1, after))
    return False


def _takes(part: str, letter: str) -> bool:
    if part == "?":
        return True
    if len(part) > 1 and part.startswith("[") and part.endswith("]"):
        inside = part[1:-1]
        negative = inside.startswith("!")
        body = (inside[1:] if negative else inside).replace("\\", r"\\").replace("^", r"\^")
        return bool(re.fullmatch(f"[{'^' if negative else ''}{body}]", letter, re.DOTALL))
    return part == letter


def _may_end(label: list[str], q: int) -> bool:
    return all(step in ("_?", "0*", ":?") for step in label[q:])


def _steps(label: list[str], q: int) -> list[tuple[str, int]]:
    """The letters that may come next at a place of the label, and the place after each."""
    found = []
    while q < len(label):
        step = label[q]
        if step == "0*":
            found.append(("0123456789", q))
        elif step == "0+":
            found += [("0123456789", q), ("0123456789", q + 1)]
        else:
            found.append((step[0], q + 1))
        if step not in ("_?", "0*", ":?"):
            break
        q += 1
    return found
