"""Conditions are whole, or refused before a server sees them."""

import pytest

pytest.importorskip("psycopg", reason="psycopg is not installed")

from gphash.index.postgres import relations


@pytest.mark.parametrize(
    "where",
    [
        "price < 3",
        "(a = 1 AND (b = 2)) OR c",
        "name LIKE 'it''s (%%'",
        '"odd (name" = 1',
        "tags && ARRAY[1, 2] AND a[1] = 2",
        "x = ';' AND y = '--' OR z = '/*'",
        "a ->> 'k' = 'v' AND x - -1 > 0",
    ],
)
def test_a_whole_condition_is_taken(where):
    assert relations.read_condition(where, []).where == where


@pytest.mark.parametrize(
    "where",
    [
        "true) OR (true",
        "(a = 1",
        "a = 1)",
        "a = (1]",
        "a = ARRAY[1",
        "a = '",
        "a = '''",
        '"a = 1',
        "a = 1 -- b",
        "a = /* b */ 1",
        "a = 1; DROP TABLE items",
        "a = $$x$$",
        "a = $t$)$t$",
        "a = E'\\') OR true'",
    ],
)
def test_what_could_end_the_condition_is_refused(where):
    with pytest.raises(ValueError, match="where="):
        relations.read_condition(where, [])


@pytest.mark.parametrize(
    ("where", "params", "text"),
    [
        ("price < %s", [10], "price < %(value_0)s"),
        ("name LIKE 'a%%' AND b = ANY(%s)", [[1]], "name LIKE 'a%%' AND b = ANY(%(value_0)s)"),
        ("%s IS NULL OR note = '{}'", (None,), "%(value_0)s IS NULL OR note = '{{}}'"),
    ],
)
def test_conditions_have_named_parameters(where, params, text):
    found = relations.read_condition(where, params)
    assert found.text == text
    assert list(found.values.values()) == list(params)
