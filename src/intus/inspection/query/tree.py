"""Functions of DuckDB's syntax trees, which are nested dicts (``json_serialize_sql``)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

Node = dict[str, Any]


def walk(node: Any, *, within: Collection[str] = ()) -> Iterator[Node]:
    """Yield all nodes of a tree.

    Args:
        node: A node, or a list of nodes.
        within: Classes whose children are left out, such as ``SUBQUERY``.
    """
    if isinstance(node, list):
        for part in node:
            yield from walk(part, within=within)
    elif isinstance(node, dict):
        yield node
        if node.get("class") not in within:
            for part in node.values():
                yield from walk(part, within=within)


def columns(node: Any) -> list[tuple[str, ...]]:
    """Return the columns that an expression names, outside subqueries and lambda functions."""
    found = walk(node, within=("SUBQUERY", "LAMBDA"))
    return [tuple(n["column_names"]) for n in found if n.get("class") == "COLUMN_REF"]


def functions(node: Any) -> set[str]:
    """Return the functions that an expression calls outside subqueries; a window function is none."""
    found = walk(node, within=("SUBQUERY",))
    return {str(n["function_name"]).lower() for n in found if n.get("class") == "FUNCTION"}


def conjuncts(condition: Node | None) -> list[Node]:
    """Return the conditions that AND joins."""
    if condition is None:
        return []
    if condition.get("type") == "CONJUNCTION_AND":
        return [one for child in condition["children"] for one in conjuncts(child)]
    return [condition]


def flatten(table: Node) -> tuple[list[Node], list[Node]]:
    """Return the relations of a FROM clause, and the conditions of its inner joins.

    A join of another kind (LEFT, NATURAL, USING …) is kept as one relation.
    """
    inner = table.get("type") == "JOIN" and table.get("join_type") == "INNER"
    crossed = table.get("ref_type") in ("CROSS", "REGULAR") and not table.get("using_columns")
    if not (inner and crossed) or table.get("alias") or table.get("sample"):
        return [table], []
    left, on_left = flatten(table["left"])
    right, on_right = flatten(table["right"])
    return left + right, on_left + on_right + conjuncts(table.get("condition"))


def tables(relation: Node) -> dict[str, str]:
    """Return the names under which a relation's columns can be written, each with its table or ``""``."""
    if relation.get("type") == "JOIN" and not relation.get("alias"):
        return tables(relation["left"]) | tables(relation["right"])
    name = str(relation.get("table_name") or "")
    alias = str(relation.get("alias") or name)
    return {alias: name} if alias else {}
