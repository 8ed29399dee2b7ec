"""A DuckDB in this process that sees only the relations given to it, and writes nothing."""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any

from ...core.errors import InputError, require
from .tree import Node, functions, walk

_CONFIG = {
    "enable_external_access": "false",  # no files, no network, no extensions
    "python_enable_replacements": "false",  # a table that does not exist is not a Python variable
    "temp_directory": "",  # nothing is written to disk
    "threads": "1",
}


class RefusedError(InputError):
    """Raised if DuckDB refuses a statement.

    Args:
        message: DuckDB's sentence, without the text of the statement.
        kind: The name of DuckDB's exception.
    """

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class Session:
    """An in-process DuckDB; close it after use."""

    def __init__(self) -> None:
        self._duckdb = require("duckdb", extra="query", why="to answer queries")
        self._connection = self._duckdb.connect(config=_CONFIG)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def register(self, name: str, frame: Any) -> None:
        """Make a DataFrame a relation, in place of an earlier one of that name."""
        self._connection.register(name, frame)

    def _run(self, sql: str, values: list[Any] | None = None) -> Any:
        try:
            return self._connection.execute(sql, values)
        except self._duckdb.Error as error:
            sentence = str(error).split("\n\nLINE")[0]
            raise RefusedError(re.sub(r"^[\w ]*Error: ", "", sentence), type(error).__name__) from error

    def frame(self, sql: str) -> Any:
        """Run a statement and return a DataFrame."""
        result = self._run(sql)
        try:
            return result.df()
        except self._duckdb.Error as error:  # a conversion that fails in a later row
            raise RefusedError(str(error).split("\n\nLINE")[0], type(error).__name__) from error

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows."""
        result = self._run(sql)
        try:
            return [tuple(row) for row in result.fetchall()]
        except self._duckdb.Error as error:
            raise RefusedError(str(error).split("\n\nLINE")[0], type(error).__name__) from error

    def columns(self, sql: str) -> list[str]:
        """Return the columns of a statement without running it.

        Raises:
            RefusedError: If a name in it does not exist, or it is wrong in another way.
        """
        return [str(row[0]) for row in self._run(f"DESCRIBE {sql}").fetchall()]

    def binds(self, sql: str) -> bool:
        """Return whether all names in a statement exist."""
        try:
            self.columns(sql)
        except RefusedError:
            return False
        return True

    def parse(self, sql: str) -> Node:
        """Return the syntax tree of a SELECT.

        Raises:
            RefusedError: If it is no SELECT.
        """
        answer = json.loads(self._run("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()[0])
        if answer["error"]:
            raise RefusedError(answer["error_message"], answer["error_type"])
        return dict(answer["statements"][0]["node"])

    def unparse(self, node: Node) -> str:
        """Return the text of a syntax tree."""
        tree = json.dumps({"error": False, "statements": [{"node": node}]})
        return str(self._run("SELECT json_deserialize_sql(?::JSON)", [tree]).fetchone()[0])

    @cached_property
    def _empty(self) -> Node:
        return self.parse("SELECT 1")

    def select(self, expressions: list[Node], table: Node | None, conditions: list[Node], base: Node) -> str:
        """Return the text of a SELECT.

        Args:
            expressions: What is selected; empty for the number 1.
            table: The FROM clause; None for none.
            conditions: The WHERE clause, joined by AND.
            base: The query whose WITH clause is kept.
        """
        node = self._empty | {"cte_map": base["cte_map"], "where_clause": self.all_of(conditions)}
        if expressions:
            node["select_list"] = expressions
        if table is not None:
            node["from_table"] = table
        return self.unparse(node)

    def expression(self, sql: str) -> Node:
        """Return the tree of an expression."""
        return dict(self.parse(f"SELECT {sql}")["select_list"][0])

    def text(self, expression: Node) -> str:
        """Return the text of an expression."""
        return self.unparse(self._empty | {"select_list": [expression]}).removeprefix("SELECT ")

    def table(self, sql: str) -> Node:
        """Return the tree of a relation."""
        return dict(self.parse(f"SELECT 1 FROM {sql}")["from_table"])

    @cached_property
    def _and(self) -> Node:
        return self.expression("1 AND 2")

    @cached_property
    def _cross(self) -> Node:
        return self.table("a CROSS JOIN b")

    def all_of(self, conditions: list[Node]) -> Node | None:
        """Return the conditions joined by AND; None if there are none."""
        if len(conditions) < 2:
            return conditions[0] if conditions else None
        return self._and | {"children": conditions}

    def cross(self, relations: list[Node]) -> Node | None:
        """Return the product of relations; None if there are none."""
        product: Node | None = None
        for relation in relations:
            product = relation if product is None else self._cross | {"left": product, "right": relation}
        return product

    @cached_property
    def _aggregates(self) -> set[str]:
        names = {
            str(name)
            for (name,) in self.rows(
                "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate'"
            )
        }
        macros = self.rows(
            "SELECT function_name, macro_definition FROM duckdb_functions() WHERE function_type = 'macro'"
        )
        called = re.compile(r"(\w+)\s*\(")
        return names | {str(m) for m, body in macros if names & set(called.findall(str(body).lower()))}

    def aggregates(self, node: Any) -> bool:
        """Return whether an expression aggregates rows."""
        return not self._aggregates.isdisjoint(functions(node))

    @cached_property
    def _volatile(self) -> set[str]:
        return {
            str(name)
            for (name,) in self.rows(
                "SELECT DISTINCT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
            )
        }

    def volatile(self, node: Any) -> str:
        """Return a function in a tree that gives another value in each call; ``""`` if none does."""
        called = {str(n.get("function_name", "")).lower() for n in walk(node)}
        return next(iter(self._volatile & called), "")


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL.

    Example:
        >>> quoted('a"b')
        '"a""b"'
    """
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
