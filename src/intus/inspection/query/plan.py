"""Plan a query: which records, units and hypotheses WHERE leaves, before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from ...core.errors import InputError, did_you_mean
from . import tree
from .clauses import Inspect
from .session import RefusedError, Session, quoted
from .tree import Node

#: The relation of scores, and its columns by type.
SCORES = "intus_scores"
SCORE_COLUMNS = {
    **dict.fromkeys(("mid", "uid", "hid", "h", "layer"), "str"),
    "unit": "int64",
    **dict.fromkeys(("measure", "score"), "str"),
    **dict.fromkeys(("value", "unit_score", "group_score", "low", "high", "baseline", "p", "q"), "float64"),
    "n": "int64",
    "note": "str",
}


class Block(NamedTuple):
    """Units of one layer, all of which are scored for the same hypotheses.

    Attributes:
        mid: The model.
        layer: The layer.
        units: The numbers of the units.
        hypotheses: The names of the hypotheses.
    """

    mid: str
    layer: str
    units: tuple[int, ...]
    hypotheses: tuple[str, ...]

    @property
    def pairs(self) -> int:
        """The number of pairs of a unit and a hypothesis."""
        return len(self.units) * len(self.hypotheses)


class Plan:
    """A query, with what each of its conditions is about.

    Args:
        session: A session in which the relations are registered, with their columns.
        clause: The INSPECT clause.
        rest: The query without it.

    Raises:
        InputError: If the query names something that does not exist, or is not one SELECT.
    """

    def __init__(self, session: Session, clause: Inspect, rest: str) -> None:
        self._session, self._clause = session, clause
        try:
            self._node = session.parse(rest)
        except RefusedError as error:
            raise InputError(f"The query cannot be read: {error}") from error
        if self._node["type"] != "SELECT_NODE":
            raise InputError("A query with INSPECT is one SELECT. Ask each part in a call of its own.")
        relations, joined = tree.flatten(self._node["from_table"])
        self._scores = session.table(f"{SCORES} AS {quoted(clause.alias)}")
        self._relations = [*relations, self._scores]
        self._names = [{a.lower(): t for a, t in tree.tables(r).items()} for r in self._relations]
        self._inputs = self._place(clause.inputs, "OVER", "inputs D")
        self._place(clause.units, "INSPECT", "units U")
        self._place(clause.hypotheses[0], "INSPECT", "hypotheses H")
        if any(clause.alias.lower() in names for names in self._names[:-1]):
            raise InputError(f"INSPECT … AS {clause.alias} takes a name that FROM has too. Choose another.")
        if len(self._names[self._inputs]) > 1:
            raise InputError(
                f"FROM joins the inputs {clause.inputs} with JOIN … USING, LEFT JOIN or NATURAL JOIN. Write "
                "them after a comma, and what is asked of them in WHERE."
            )
        self._check_constant()
        self._conditions = joined + tree.conjuncts(self._node["where_clause"])
        self._plain = not session.aggregates([self._node[part] for part in ("select_list", "having")])
        if self._plain:  # as in the paper: GROUP BY makes groups of units, and HAVING filters rows
            self._conditions += tree.conjuncts(self._node["having"])
        self._check_names()
        self._sort_conditions()
        self._keys = self._group_keys()
        if not session.binds(self._answer()):
            raise self._no_inputs()

    # What the query names

    def _place(self, alias: str, clause: str, example: str) -> int:
        """Return the number of the relation with that alias."""
        for number, names in enumerate(self._names[:-1]):
            if alias.lower() in names:
                return number
        known = [name for relation in self._relations[:-1] for name in tree.tables(relation)]
        raise InputError(
            f"{clause} names {alias!r}, but FROM has no relation of that name. {did_you_mean(alias, known)} "
            f"Write FROM …, {example}."
        )

    def _check_constant(self) -> None:
        """Raise an error if a relation may have other rows when it is read again."""
        for clause, part in {"FROM": self._node["from_table"], "WITH": self._node["cte_map"]}.items():
            if name := self._session.volatile(part):
                raise self._changing(clause, f"{name}()")
            if any(node.get("sample") for node in tree.walk(part)):
                raise self._changing(clause, "a SAMPLE")

    def _changing(self, clause: str, what: str) -> InputError:
        return InputError(
            f"{clause} has {what}, which is another one each time that it is read. Only conditions in WHERE "
            f"on the inputs {self._clause.inputs} alone may have that."
        )

    def _check_names(self) -> None:
        """Raise an error that names the clause if a name does not exist."""
        grouped = {} if self._plain else {"having": self._node["having"]}
        node = self._node | {
            "from_table": self._session.cross(self._relations),
            "where_clause": self._session.all_of(self._conditions),
            **(self._ungrouped if self._plain else grouped),
        }
        try:
            self._session.columns(self._session.unparse(node))
        except RefusedError as error:
            raise self._explained(error) from error

    @property
    def _ungrouped(self) -> Node:
        return {
            "group_expressions": [],
            "group_sets": [],
            "having": None,
            "aggregate_handling": "STANDARD_HANDLING",
        }

    def _explained(self, error: RefusedError) -> InputError:
        """Return an error that names the clause, if it is about a column that does not exist."""
        node = self._node
        parts = {
            "SELECT": node["select_list"],
            "FROM": node["from_table"],
            "WHERE": node["where_clause"],
            "GROUP BY": node["group_expressions"],
            "HAVING": node["having"],
            "QUALIFY": node["qualify"],
            "ORDER BY": node["modifiers"],
        }
        aliases = {str(item.get("alias", "")).lower() for item in node["select_list"]}
        known = self._columns
        everything = [column for columns in known.values() for column in columns]
        listed = "; ".join(f"{name} has {', '.join(columns)}" for name, columns in known.items())
        for clause, part in parts.items():
            for path in tree.columns(part):
                lower = [name.lower() for name in path]
                if len(path) == 1 and lower[0] not in {c.lower() for c in everything} | aliases:
                    near = did_you_mean(path[0], everything)
                    text = f"If it is a text, write it in single quotes: '{path[0]}'. "
                    return InputError(f"{clause} names the column {path[0]!r}. {near} {text}{listed}.")
                columns = next((c for name, c in known.items() if name.lower() == lower[0]), None)
                if len(path) == 2 and columns is None:
                    return InputError(
                        f"{clause} names {'.'.join(path)}, but no relation is called {path[0]!r}. "
                        f"{did_you_mean(path[0], known)}"
                    )
                if len(path) == 2 and columns and lower[1] not in {c.lower() for c in columns}:
                    return InputError(
                        f"{clause} names {'.'.join(path)}, but {path[0]} has the columns "
                        f"{', '.join(columns)}. {did_you_mean(path[1], columns)}"
                    )
        alias = self._clause.alias
        if f"Table with name {alias} does not exist" in str(error):
            return InputError(
                f"A subquery reads the scores {alias}, which are known outside subqueries only. Compare "
                f"scores by a window function: QUALIFY {alias}.unit_score = max({alias}.unit_score) OVER ()."
            )
        return InputError(f"The query cannot be answered: {str(error).splitlines()[0]}")

    @cached_property
    def _columns(self) -> dict[str, list[str]]:
        """The columns of each relation of FROM, by its name."""
        found: dict[str, list[str]] = {}
        for relation in self._relations:
            for name in tree.tables(relation):
                star = self._session.expression(f"{quoted(name)}.*")
                sql = self._session.select([star], relation, [], self._node)
                if self._session.binds(sql):
                    found[name] = self._session.columns(sql)
        return found

    # What each condition is about

    def _needs(self, expression: Node) -> frozenset[int] | None:
        """Return the relations that an expression is about; None if it is not about relations alone."""
        for size in range(len(self._relations) + 1):
            for chosen in combinations(range(len(self._relations)), size):
                table = self._session.cross([self._relations[number] for number in chosen])
                if self._session.binds(self._session.select([expression], table, [], self._node)):
                    return frozenset(chosen)
        return None

    def _sort_conditions(self) -> None:
        """Sort conditions by what they select: records, pairs of units and hypotheses, or scores."""
        scores = len(self._relations) - 1
        self._of_records: list[Node] = []
        self._of_pairs: list[tuple[Node, frozenset[int]]] = []
        self._of_scores: list[Node] = []
        for condition in self._conditions:
            needs = self._needs(condition)
            if needs is None or scores in needs:
                self._of_scores.append(condition)
            elif needs == {self._inputs}:
                self._of_records.append(condition)
            elif self._inputs not in needs:
                if name := self._session.volatile(condition):
                    raise self._changing("WHERE", f"{name}()")
                self._of_pairs.append((condition, needs))
            if needs is not None and self._inputs in needs and len(needs) > 1:
                raise InputError(
                    f"WHERE compares the inputs {self._clause.inputs} with something else: "
                    f"{self._session.text(condition)}. All scores of a query use the same records, so give "
                    "conditions on the inputs alone, and ask about other records in another call."
                )

    def _group_keys(self) -> list[Node]:
        """Return the expressions of GROUP BY that make groups of units."""
        units = self._place(self._clause.units, "INSPECT", "units U")
        items = self._node["select_list"]
        written = self._node["group_expressions"]
        if self._node["aggregate_handling"] == "FORCE_AGGREGATES":  # GROUP BY ALL
            written = [item for item in items if not self._session.aggregates(item)]
        keys = []
        for expression in written:
            meant = self._meant(expression, items)
            needs = self._needs(meant)
            if needs is None:
                raise self._explained(RefusedError(f"GROUP BY {self._session.text(expression)}", ""))
            if self._inputs in needs:
                raise self._no_inputs()
            if units in needs and len(self._relations) - 1 not in needs:
                keys.append(meant | {"alias": ""})
        if keys and len(self._node["group_sets"]) > 1:
            raise InputError(
                "GROUP BY with ROLLUP, CUBE or GROUPING SETS would put a unit into several groups. Name one "
                f"set of columns of {self._clause.units}."
            )
        return keys

    def _meant(self, expression: Node, items: Sequence[Node]) -> Node:
        """Return the expression that a number or an alias in GROUP BY means."""
        text = self._session.text(expression)
        if expression.get("class") == "CONSTANT" and text.isdigit() and 1 <= int(text) <= len(items):
            return items[int(text) - 1]
        if expression.get("class") == "COLUMN_REF" and self._needs(expression) is None:
            name = str(expression["column_names"][-1]).lower()
            return next((i for i in items if str(i.get("alias", "")).lower() == name), expression)
        return expression

    def _no_inputs(self) -> InputError:
        return InputError(
            f"A score is computed over all records that WHERE leaves, so columns of the inputs "
            f"{self._clause.inputs} may be used in WHERE only."
        )

    # What is left

    def models(self) -> list[str]:
        """Return the identifiers of the models that may be needed, without loading any.

        These are all if the query reads models or units elsewhere too, such as in a subquery.
        """
        everything = [str(mid) for (mid,) in self._session.rows("SELECT mid FROM models")]
        alias = self._models_alias()
        read = [str(node["table_name"]).lower() for node in tree.walk(self._node) if node.get("table_name")]
        if alias is None or read.count("models") > 1 or read.count("units") > 1:
            return everything
        number = next(n for n, names in enumerate(self._names) if alias.lower() in names)
        known = self._session.table(
            f"(SELECT * EXCLUDE (class, n_parameters) FROM models) AS {quoted(alias)}"
        )
        conditions = [condition for condition, needs in self._of_pairs if needs == {number}]
        known_now = [c for c in conditions if self._session.binds(self._select("1", [known], [c]))]
        sql = self._select(f"DISTINCT {quoted(alias)}.mid", [known], known_now)
        left = {str(mid) for (mid,) in self._session.rows(sql)}
        if not left:
            raise self._empty("model", [known], known_now)
        return [mid for mid in everything if mid in left]

    def records(self) -> np.ndarray:
        """Return the numbers of the records that are left, int64."""
        relation = [self._relations[self._inputs]]
        name = quoted(self._clause.inputs)
        try:
            rows = self._session.rows(
                self._select(f"DISTINCT {name}.did AS did", relation, self._of_records) + " ORDER BY 1"
            )
        except RefusedError as error:
            raise self._mistyped(error) from error
        if not rows:
            raise self._empty("record", relation, self._of_records)
        return np.array([did for (did,) in rows], np.int64)

    def blocks(self) -> list[Block]:
        """Return what is to be computed.

        Each pair of a unit and a hypothesis that is left is in one block. Units of a block are those of one
        layer that have equal values of the columns of units in GROUP BY.
        """
        relations, conditions = self._relations_of_pairs(), self._conditions_of_pairs()
        unit, (hypothesis, column) = quoted(self._clause.units), self._clause.hypotheses
        keys = "".join(f", {self._session.text(key)} AS k{n}" for n, key in enumerate(self._keys))
        names = "".join(f", k{n}" for n in range(len(self._keys)))
        pairs = self._select(
            f"DISTINCT {unit}.mid AS mid, {unit}.uid AS uid, {quoted(hypothesis)}.{quoted(column)} AS hid"
            f"{keys}",
            relations,
            conditions,
        )
        located = (
            f"SELECT p.*, c.layer, c.unit, c.place FROM ({pairs}) AS p JOIN intus_places AS c "
            "ON c.mid = p.mid AND c.uid = p.uid"
        )
        grouped = (
            f"SELECT mid, layer, hid{names}, list(unit ORDER BY unit) AS units, min(place) AS place "
            f"FROM ({located}) AS l GROUP BY mid, layer, hid{names}"
        )
        blocks = (
            f"SELECT mid, layer, units, list(hid ORDER BY hid) FROM ({grouped}) AS g "
            f"GROUP BY mid, layer, units{names} ORDER BY min(place), units"
        )
        try:
            found = [Block(m, a, tuple(u), tuple(h)) for m, a, u, h in self._session.rows(blocks)]
            (pairs_left,) = self._session.rows(
                f"SELECT count(*) FROM (SELECT DISTINCT mid, uid, hid FROM ({pairs}) AS p) AS d"
            )[0]
        except RefusedError as error:
            raise self._mistyped(error) from error
        if not found:
            raise self._empty("pair of a unit and a hypothesis", relations, conditions)
        if sum(block.pairs for block in found) != pairs_left:
            raise InputError("GROUP BY puts a unit into several groups. Name columns of units alone.")
        return found

    def _relations_of_pairs(self) -> list[Node]:
        return [r for n, r in enumerate(self._relations[:-1]) if n != self._inputs]

    def _conditions_of_pairs(self) -> list[Node]:
        """Return the conditions on pairs, and that units are those of the model of their row."""
        conditions = [condition for condition, _ in self._of_pairs]
        if (alias := self._models_alias()) is not None:
            same = f"{quoted(alias)}.mid = {quoted(self._clause.units)}.mid"
            conditions.append(self._session.expression(same))
        return conditions

    def _models_alias(self) -> str | None:
        """Return the name of the relation ``models`` in FROM; None if it is not there once."""
        found = [
            alias
            for relation in self._relations
            for alias, table in tree.tables(relation).items()
            if table.lower() == "models" and relation.get("type") == "BASE_TABLE"
        ]
        return found[0] if len(found) == 1 else None

    def _select(self, what: str, relations: list[Node], conditions: list[Node]) -> str:
        """Return the text of a SELECT from the product of relations."""
        items = self._session.parse(f"SELECT {what}")
        node = items | {
            "cte_map": self._node["cte_map"],
            "from_table": self._session.cross(relations),
            "where_clause": self._session.all_of(conditions),
        }
        return self._session.unparse(node)

    def _mistyped(self, error: RefusedError) -> InputError:
        text = "mid, uid, layer, h and name are text: write U.layer = '0', or U.number = 1 to count layers."
        hint = f" The columns {text}" if "Conversion" in error.kind else ""
        return InputError(f"WHERE cannot be evaluated: {str(error).rstrip('.')}.{hint}")

    def _empty(self, what: str, relations: list[Node], conditions: list[Node]) -> InputError:
        """Return the error that WHERE leaves nothing, with the condition after which nothing was left."""
        for count, condition in enumerate(conditions, 1):
            if self._session.rows(self._select("1", relations, conditions[:count]) + " LIMIT 1"):
                continue
            alone = not self._session.rows(self._select("1", relations, [condition]) + " LIMIT 1")
            after = "" if alone or count == 1 else " together with the conditions before it"
            text = self._session.text(condition)
            return InputError(f"WHERE leaves no {what}: no row meets {text}{after}.{self._values(condition)}")
        return InputError(f"There is no {what} to choose from.")

    def _values(self, condition: Node) -> str:
        """Return the nearest values that a column has, if a condition compares it with a text."""
        sides = [condition.get("left"), condition.get("right")]
        column = next((s for s in sides if s and s.get("class") == "COLUMN_REF"), None)
        constant = next((s for s in sides if s and s.get("class") == "CONSTANT"), None)
        if condition.get("type") != "COMPARE_EQUAL" or column is None or constant is None:
            return ""
        wanted = self._session.text(constant)
        needs = self._needs(column)
        if not wanted.startswith("'") or not needs:
            return ""
        relations = [self._relations[number] for number in needs]
        sql = self._select(f"DISTINCT {self._session.text(column)}", relations, [])
        known = [str(value) for (value,) in self._session.rows(sql)]
        return f" {did_you_mean(wanted[1:-1], sorted(known))}"

    # The answer

    def _answer(self) -> str:
        """Return the query for DuckDB: scores joined to their units and hypotheses, without the inputs."""
        score, unit = quoted(self._clause.alias), quoted(self._clause.units)
        hypothesis, column = map(quoted, self._clause.hypotheses)
        same = [f"{score}.mid = {unit}.mid", f"{score}.uid = {unit}.uid"]
        same.append(f"{score}.hid = {hypothesis}.{column}")
        joins = [self._session.expression(text) for text in same]
        node = self._node | {
            "from_table": self._session.cross([*self._relations_of_pairs(), self._scores]),
            "where_clause": self._session.all_of([*self._conditions_of_pairs(), *joins, *self._of_scores]),
            **(self._ungrouped if self._plain else {}),
        }
        return self._session.unparse(node)

    def answer(self) -> Any:
        """Return the answer as a DataFrame, after the scores were registered."""
        try:
            return self._session.frame(self._answer())
        except RefusedError as error:
            raise InputError(
                f"The scores were computed, but the query cannot be answered: {error}"
            ) from error
