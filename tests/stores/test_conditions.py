"""Conditions are whole, or refused before a server sees them."""

import pytest

from gphash.stores import conditions


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
    assert conditions.read(where, []).where == where


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
        conditions.read(where, [])
