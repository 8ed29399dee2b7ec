"""The scanner of queries: quotes, comments, brackets, dollar quotes, and the clause INSPECT."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intus.core.errors import InputError
from intus.inspection.query.clauses import clauses, scan, split

#: Text that contains no keyword to the eye of DuckDB, although it spells one.
HIDDEN = st.sampled_from(
    [
        *("'FROM'", "'it''s INSPECT'", "E'a\\' WHERE'", '"GROUP BY"', '"a"" FROM"', "$$ ' INSPECT $$"),
        *("$q$ $$ FROM ' $q$", "/* FROM */ 1", "/* a /* INSPECT ' */ b */ 2", "-- it's FROM (\n3"),
        *("(SELECT 1 FROM (SELECT 2) x WHERE 1=1)", "[1, 2]", "{'FROM': 1}", "U.inspect", "1.5e3"),
        *("a IS DISTINCT FROM b", "a IS NOT DISTINCT FROM 'b'", "sum(x) FILTER (WHERE y)", "é", "x$y$z"),
    ]
)
SPACE = st.sampled_from([" ", "\n", "\t ", " /* ' */ ", ' -- "\n'])


@given(st.text(alphabet="aFROM'\"$/*-.()[]{};\\ \n1é", max_size=40))
def test_scan_loses_no_character(text):
    try:
        tokens = scan(text)
    except InputError:
        return
    assert "".join(token.text for token in tokens) == text
    assert "".join(clause.text for clause in clauses(tokens)) == text


@given(st.lists(HIDDEN, min_size=4, max_size=4), st.lists(SPACE, min_size=12, max_size=12))
def test_clauses_begin_at_keywords_alone(parts, spaces):
    s = iter(spaces)
    words = ["select", parts[0], "from", "t", "where", parts[1], "group by", parts[2], "ORDER BY", parts[3]]
    text = "".join(word + next(s) for word in words)
    found = clauses(scan(text))
    assert [clause.keyword for clause in found] == ["SELECT", "FROM", "WHERE", "GROUP", "ORDER"]
    assert parts[1] in found[2].text
    assert "".join(clause.text for clause in found) == text


@given(st.lists(HIDDEN, min_size=2, max_size=2), st.lists(SPACE, min_size=4, max_size=4))
def test_split_leaves_what_duckdb_reads(parts, spaces):
    a, b, c, d = spaces
    before, after = f"SELECT{a}{parts[0]}{b}", f"FROM t{c}WHERE{d}{parts[1]}"
    clause, rest = split(f"{before}INSPECT u.uid AND h.h USING iou, correlation OVER d.seq AS s\n{after}")
    assert clause == ("u", ("h", "h"), ("iou", "correlation"), "d", "s")
    assert rest.replace(" ", "") == f"{before}\n{after}".replace(" ", "")
    serialized = duckdb.execute("SELECT json_serialize_sql(?::VARCHAR)", [rest]).fetchone()[0]
    assert '"error":false' in serialized


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELECT 'a", 'a quote without an end: line 1, "\'a"'),
        ("SELECT 1\n/* a /* b */", "a comment without an end: line 2"),
        ("SELECT (1", "a bracket without an end"),
        ("SELECT 1)", "closes a bracket that is not open"),
        ("SELECT (1]", "closes a bracket that is not open"),
        (
            "SELECT 1 FROM units",
            "has no INSPECT. Write, between SELECT and FROM: INSPECT U.uid AND H.h USING",
        ),
        ("SELECT * FROM (SELECT 1 INSPECT x FROM y) z", "It stands in brackets"),
        ("INSPECT U.uid AND H.h USING iou OVER D.seq AS S FROM units U", "has no SELECT"),
        ("SELECT 1 INSPECT U.uid AND H.h USING iou OVER D.seq AS S", "has no FROM"),
        ("SELECT 1 INSPECT U.uid AND H.h OVER D.seq AS S FROM t", "USING is missing before 'OVER'"),
        ("SELECT 1 INSPECT U.uid AND H.h USING OVER D.seq AS S FROM t", "Expected a score, got 'OVER'"),
        ("SELECT 1 INSPECT U.uid AND H.h USING iou, OVER D.seq AS S FROM t", "Expected a score, got 'OVER'"),
        ("SELECT 1 INSPECT U.uid, H.h USING iou OVER D.seq AS S FROM t", "AND is missing before ','"),
        ("SELECT 1 INSPECT U.uid AND H.h USING iou AS S FROM t", "OVER is missing before 'AS'"),
        ("SELECT 1 INSPECT U.uid AND H.h USING iou OVER D.seq FROM t", "Expected a name for the scores"),
        ("SELECT 1 INSPECT U AND H.h USING iou OVER D.seq AS S FROM t", "got 'U' without a column"),
        ("SELECT 1 INSPECT U.layer AND H.h USING iou OVER D.seq AS S FROM t", "takes the column uid"),
        ("SELECT 1 INSPECT U.uid AND H.kind USING iou OVER D.seq AS S FROM t", "takes the column h of"),
        ("SELECT 1 INSPECT U.uid AND H.h USING iou OVER D.x AS S FROM t", "OVER takes the column seq"),
        ("SELECT 1 INSPECT U.uid AND H.h USING iou OVER D.seq AS U FROM t", "'U' is used for two things"),
        ("SELECT 1 INSPECT U.uid AND H.h USING iou OVER D.seq AS S T FROM t", "There is 'T' after"),
        ("SELECT 1 INSPECT a FROM t INSPECT b", "two clauses INSPECT"),
        ("SELECT 1 INSPECT a FROM t UNION SELECT 2", "this one has UNION"),
        ("SELECT 1 INSPECT a FROM t; DROP TABLE t", "more after the semicolon"),
        (3, "A query is a text, got a int"),
    ],
)
def test_refused(text, message):
    with pytest.raises(InputError) as error:
        split(text)
    assert message in str(error.value)


def test_quoted_names_and_lower_case_keywords():
    text = 'select 1 inspect "my u".UID and h.NAME using "iou" over D.seq "S s" from t ; -- end'
    clause, rest = split(text)
    assert clause == ("my u", ("h", "NAME"), ("iou",), "D", "S s")
    assert rest.split() == ["select", "1", "from", "t", "--", "end"]
