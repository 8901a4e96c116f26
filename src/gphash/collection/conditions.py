"""`where`: one condition on the columns of items, in words that SQLite and PostgreSQL understand alike.

A condition compares columns, values and `?`, each of which stands for one of `params`: ``price < ? or label = 'a'``.
It is taken apart into tokens and put together again, so that it can be nothing but a condition: no statement, no
subquery, no comment, no function that is not listed here.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

WORDS = ("and", "or", "not", "is", "null", "in", "between", "like")
FUNCTIONS = ("abs", "coalesce", "length", "lower", "round", "upper")
LONGEST, DEEPEST = 10_000, 50  # characters, and brackets within brackets

TOKEN = re.compile(
    r"""\s* (?: (?P<text>'(?:[^']|'')*') | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<name>[^\W\d]\w*|"(?:[^"]|"")+") | (?P<value>\?) | (?P<sign><=|>=|<>|!=|\|\||[=<>+*/(),-]) )""",
    re.VERBOSE,
)


class Condition(NamedTuple):
    """A condition in tokens, of which "?" is a value's place, and the values."""

    where: str
    tokens: tuple[str, ...]
    values: tuple[Any, ...]

    def sqlite(self) -> str:
        """The condition as SQLite takes it."""
        return " ".join(self.tokens)

    def postgres(self) -> str:
        """The condition as psycopg takes it."""
        return " ".join("%s" if token == "?" else token.replace("%", "%%") for token in self.tokens)


def read(where: Any, params: Any, columns: Mapping[str, str]) -> Condition:
    """Check a condition.

    Parameters
    ----------
    where
        The text.
    params
        A value for every "?" in it.
    columns
        Names that it may have, in any case, and what they are in a statement.
    """
    if not isinstance(where, str) or not where.strip() or len(where) > LONGEST or "\0" in where:
        raise ValueError(f"where={str(where)[:80]!r}; give a condition as text, such as 'price < ?'.")
    if isinstance(params, str | bytes | Mapping) or not isinstance(params, Sequence):
        raise ValueError(f"params={params!r}; give a list with a value for every ? of where.")
    for value in params:
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, str | int | float | None) or not finite or (value == value and "\0" in str(value)):
            raise ValueError(f"params has {value!r}; give texts, numbers, true, false or null.")
    tokens = tuple(_tokens(where, {name.casefold(): sql for name, sql in columns.items()}, columns))
    if (places := tokens.count("?")) != len(params):
        raise ValueError(f"where has {places} ? and params {len(params)} values; give one for each.")
    return Condition(where, tokens, tuple(params))


def _tokens(where: str, known: Mapping[str, str], columns: Mapping[str, str]) -> Iterator[str]:
    depth, place = 0, 0
    while where[place:].strip():
        found = TOKEN.match(where, place)
        if found is None:
            raise ValueError(
                f"where={where!r} has {where[place:].strip()[:10]!r}; give one condition, made of columns, values, ?, "
                f"{', '.join(WORDS)}."
            )
        kind, token, place = str(found.lastgroup), found[str(found.lastgroup)], found.end()
        depth += (token == "(") - (token == ")")
        if not 0 <= depth <= DEEPEST:
            raise ValueError(f"where={where!r} has brackets that do not match, or too many; give one whole condition.")
        yield _named(token, where[place:], known, columns) if kind == "name" else token
    if depth:
        raise ValueError(f"where={where!r} has a '(' that nothing closes; give one whole condition.")


def _named(token: str, rest: str, known: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """A word of the language, a function, or a column."""
    folded = token.casefold()
    if folded in WORDS or (folded in FUNCTIONS and rest.lstrip().startswith("(")):
        return folded
    name = folded[1:-1].replace('""', '"') if token[0] == '"' else folded
    if name not in known:
        raise ValueError(f"where names {token!r}, which is no column; the columns are {', '.join(columns)}.")
    return known[name]
