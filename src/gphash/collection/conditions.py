"""`where`: one condition on the columns of items, with the same meaning in SQLite and in PostgreSQL.

A condition compares columns, values and `?`, each of which stands for one of `params`: ``price < ? or label = 'a'``.
It is read, its kinds are checked, and it is written anew for each database, so that it can be nothing but a condition:
no statement, no subquery, no comment, no function that is not listed here. A number counts as true if it is not 0. A
value in a condition adapts to what it is compared with: ``price = '3'`` is ``price = 3``. Whatever is divided by 0 is
null. Texts are compared by their code points; `like` minds case, and `lower` and `upper` know the letters of ASCII.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

WORDS = ("and", "or", "not", "is", "null", "in", "between", "like")
FUNCTIONS = {"abs": "number", "coalesce": "any", "length": "text", "lower": "text", "upper": "text"}  # what they take
TRUTH = {"true": 1, "false": 0}  # what is written instead
COMPARED = ("=", "<>", "!=", "<", "<=", ">", ">=")
LONGEST, DEEPEST = 10_000, 50  # characters, and brackets within brackets
LARGEST = 2**63 - 1
CASTS = {"number": "float8", "text": "text", "boolean": "boolean"}  # of a null

NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*")  # in a value
TOKEN = re.compile(
    r"""\s* (?: (?P<text>'(?:[^']|'')*') | (?P<number>[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.]))
    | (?P<name>[^\W\d]\w*|"(?:[^"]|"")+") | (?P<value>\?) | (?P<sign><=|>=|<>|!=|\|\||[=<>+*/(),-]) )""",
    re.VERBOSE,
)

T = TypeVar("T")


class Condition(NamedTuple):
    """A condition as it was given, as SQLite and psycopg take it, and the values of its places."""

    where: str
    sqlite: str
    postgres: str
    values: tuple[Any, ...]


class Term(NamedTuple):
    """A part of a condition: a "boolean", "number", "text" or "null", for both databases, with its values.

    One that is `given`, and no column, adapts to what it is compared with.
    """

    kind: str
    sqlite: str
    postgres: str
    values: tuple[Any, ...] = ()
    given: bool = False


def read(where: Any, params: Any, columns: Mapping[str, str], kinds: Mapping[str, str]) -> Condition:
    """Check a condition.

    Parameters
    ----------
    where
        The text.
    params
        A value for every "?" in it.
    columns
        Names that it may have, in any case, and what they are in a statement.
    kinds
        Of the columns: "text", or another one for numbers.
    """
    if not isinstance(where, str) or not where.strip() or len(where) > LONGEST or not _is_text(where):
        raise ValueError(f"where={str(where)[:80]!r}; give a condition as text, such as 'price < ?'.")
    if isinstance(params, str | bytes | Mapping) or not isinstance(params, Sequence):
        raise ValueError(f"params={params!r}; give a list with a value for every ? of where.")
    params = [value.item() if isinstance(value, np.generic) else value for value in params]
    for value in params:
        finite = not isinstance(value, float) or math.isfinite(value)
        if not isinstance(value, str | int | float | None) or not finite or not _is_text(str(value)):
            raise ValueError(f"params has {value!r}; give texts, numbers, true, false or null.")
    tokens = _tokens(where)
    if (places := sum(kind == "value" for kind, _ in tokens)) != len(params):
        raise ValueError(f"params={params!r} for where={where!r}, which has {places} ?; give one value for each.")
    found = _Reader(where, tokens, list(params), columns, kinds).whole()
    return Condition(where, found.sqlite, found.postgres, found.values)


def _is_text(text: str) -> bool:
    try:
        return "\0" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def _tokens(where: str) -> list[tuple[str, str]]:
    """Kinds of tokens, and the tokens."""
    found, place = [], 0
    while where[place:].strip():
        token = TOKEN.match(where, place)
        if token is None:
            raise ValueError(
                f"where={where!r} has {where[place:].strip()[:10]!r}; give one condition, made of columns, values, ?, "
                f"{', '.join(WORDS)}."
            )
        found.append((str(token.lastgroup), token[str(token.lastgroup)]))
        place = token.end()
    return found


class _Reader:
    """Reads tokens from left to right; what binds less calls what binds more."""

    def __init__(
        self,
        where: str,
        tokens: list[tuple[str, str]],
        params: list[Any],
        columns: Mapping[str, str],
        kinds: Mapping[str, str],
    ) -> None:
        self._where, self._tokens, self._params, self._columns = where, [*tokens, ("end", "")], params, columns
        self._known = {name.casefold(): (sql, kinds[name]) for name, sql in columns.items()}
        self._place = self._depth = 0

    def whole(self) -> Term:
        found = self._as(self._any(), "boolean")
        if self._tokens[self._place][0] != "end":
            self._refuse()
        return found

    def _refuse(self) -> NoReturn:
        rest = " ".join(token for _, token in self._tokens[self._place :]).strip()
        if rest.startswith("=") and self._tokens[self._place - 1][1] == "=":
            raise ValueError(f"where={self._where!r} has '=='; write = for equal.")
        what = f"has {rest[:20]!r} where something else must be" if rest else "ends too early"
        raise ValueError(f"where={self._where!r} {what}; give one whole condition, such as 'price < ?'.")

    def _word(self) -> str:
        """The next token, as it can be compared with words and signs."""
        kind, token = self._tokens[self._place]
        return token.casefold() if kind in ("name", "sign") else kind

    def _take(self, *words: str) -> str:
        """Pass one of some words or signs, if it is next."""
        found = self._word()
        self._place += found in words
        return found if found in words else ""

    def _need(self, word: str) -> None:
        if not self._take(word):
            self._refuse()

    def _deeper(self, read: Callable[[], T]) -> T:
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError(f"where={self._where!r} has too many brackets, or the like, in each other.")
        found = read()
        self._depth -= 1
        return found

    def _any(self) -> Term:
        return self._joined("or", self._all)

    def _all(self) -> Term:
        return self._joined("and", self._not)

    def _joined(self, word: str, part: Callable[[], Term]) -> Term:
        found = [part()]
        while self._take(word):
            found.append(part())
        if len(found) == 1:
            return found[0]
        return _made("boolean", f" {word.upper()} ", [self._as(one, "boolean") for one in found])

    def _not(self) -> Term:
        if not self._take("not"):
            return self._compared()
        return _written("boolean", "NOT {}", [self._as(self._deeper(self._not), "boolean")])

    def _compared(self) -> Term:
        left = self._sum()
        if sign := self._take(*COMPARED):
            return _written("boolean", f"{{}} {sign} {{}}", self._alike([left, self._sum()]))
        if self._take("is"):
            word = "IS NOT NULL" if self._take("not") else "IS NULL"
            self._need("null")
            if left.kind == "boolean":
                raise ValueError(
                    f"where={self._where!r} asks whether a condition is null; is null is for columns and values."
                )
            return _written("boolean", f"{{}} {word}", [self._alike([left])[0]])
        no = "NOT " if self._take("not") else ""
        if self._take("between"):
            first = self._sum()
            self._need("and")
            return _written("boolean", f"{{}} {no}BETWEEN {{}} AND {{}}", self._alike([left, first, self._sum()]))
        if self._take("like"):
            both = [self._as(one, "text") for one in (left, self._sum())]
            # PostgreSQL would take a backslash for a sign that makes the next one a letter.
            return _written("boolean", f"{{}} {no}LIKE {{}}", both, f"{{}} {no}LIKE {{}} ESCAPE ''")
        if self._take("in"):
            self._need("(")
            several = self._alike([left, *self._list()])
            return _written("boolean", f"{{}} {no}IN ({', '.join(['{}'] * (len(several) - 1))})", several)
        if no:
            self._refuse()
        return left

    def _list(self) -> list[Term]:
        found = [self._any()]
        while self._take(","):
            found.append(self._any())
        self._need(")")
        return found

    def _sum(self) -> Term:
        return self._chain(self._product, "+", "-")

    def _product(self) -> Term:
        return self._chain(self._glued, "*", "/")

    def _chain(self, part: Callable[[], Term], *signs: str) -> Term:
        found = part()
        while sign := self._take(*signs):
            both = [self._as(one, "number") for one in (found, part())]
            divided = "{} / nullif({}, 0)" if sign == "/" else None
            found = _written("number", f"{{}} {sign} {{}}", both, divided)
        return found

    def _glued(self) -> Term:
        found = [self._one()]
        while self._take("||"):
            found.append(self._one())
        return found[0] if len(found) == 1 else _made("text", " || ", [self._as(one, "text") for one in found])

    def _one(self) -> Term:
        if sign := self._take("-", "+"):
            found = self._as(self._deeper(self._one), "number")
            if found.given and found.values:
                return _value(-found.values[0] if sign == "-" else found.values[0])
            return _written("number", f"{sign} {{}}", [found])
        if self._take("("):
            found = self._deeper(self._any)
            self._need(")")
            return found
        kind, token = self._tokens[self._place]
        if kind in ("sign", "end") or (kind == "name" and token.casefold() in WORDS and token.casefold() != "null"):
            self._refuse()
        self._place += 1
        if kind == "text":
            return _value(token[1:-1].replace("''", "'"))
        if kind == "number":
            return _value(_number(token))
        return _value(self._params.pop(0)) if kind == "value" else self._named(token)

    def _named(self, token: str) -> Term:
        """Null, a function, or a column."""
        folded = token.casefold()
        if folded == "null":
            return _value(None)
        if folded in FUNCTIONS and self._take("("):
            return self._called(folded, self._deeper(self._list))
        name = folded[1:-1].replace('""', '"') if token[0] == '"' else folded
        if name not in self._known and folded in TRUTH:
            raise ValueError(f"where={self._where!r} has {token!r}; write {TRUTH[folded]} for {folded}.")
        if name not in self._known:
            raise ValueError(f"where names {token!r}, which is no column; the columns are {', '.join(self._columns)}.")
        sql, kind = self._known[name]
        return Term("text" if kind == "text" else "number", sql, sql.replace("%", "%%"))

    def _called(self, name: str, several: list[Term]) -> Term:
        takes = FUNCTIONS[name]
        if (len(several) != 1) != (takes == "any"):
            needed = "two values or more" if takes == "any" else "one value"
            raise ValueError(f"where={self._where!r} gives {name} {len(several)} values; it takes {needed}.")
        several = self._alike(several) if takes == "any" else [self._as(several[0], takes)]
        kind = "number" if name == "length" else several[0].kind
        return _written(kind, f"{name}({', '.join(['{}'] * len(several))})", several)

    def _alike(self, several: list[Term]) -> list[Term]:
        """Terms of one kind, that of the columns among them."""
        kinds = {one.kind for one in several if not one.given} or {one.kind for one in several} - {"null"} or {"text"}
        kind = next(iter(kinds))
        if len(kinds) > 1 or kind == "boolean":
            shown = "a condition" if "boolean" in kinds else "texts"
            raise ValueError(f"where={self._where!r} compares {shown} with numbers; compare what is of one kind.")
        return [self._as(one, kind) for one in several]

    def _as(self, term: Term, kind: str) -> Term:
        """A term as one of another kind, if it can be that."""
        if term.kind == kind:
            return term
        if term.kind == "null":
            return Term(kind, "NULL", f"CAST(NULL AS {CASTS[kind]})", given=True)
        if (term.kind, kind) == ("number", "boolean"):
            return _written("boolean", "{} <> 0", [term])
        value = term.values[0] if term.given else None
        if kind == "text" and isinstance(value, int):
            return _value(str(value))
        if kind == "number" and isinstance(value, str) and NUMBER.fullmatch(value):
            return _value(_number(value))
        what = term.sqlite if not term.given else repr(value)
        needed = {"boolean": "a condition", "number": "a number", "text": "a text"}[kind]
        raise ValueError(f"where={self._where!r} has {what} in a place that needs {needed}.")


def _number(text: str) -> int | float:
    number = float(text)
    if "." in text or "e" in text.casefold() or abs(number) > LARGEST or abs(whole := int(text)) > LARGEST:
        return number
    return whole


def _value(value: Any) -> Term:
    """A value that is handed over beside the statement."""
    if value is None:
        return Term("null", "NULL", "NULL", given=True)
    if isinstance(value, str):
        return Term("text", "?", 'CAST(%s AS text) COLLATE "C"', (value,), True)
    number = float(value) if isinstance(value, float) or abs(value) > LARGEST else int(value)
    return Term("number", "?", f"CAST(%s AS {'float8' if isinstance(number, float) else 'bigint'})", (number,), True)


def _written(kind: str, form: str, terms: list[Term], postgres: str | None = None) -> Term:
    """Terms put into a form, in brackets, so that nothing depends on what binds more in which database."""
    values = tuple(value for one in terms for value in one.values)
    ours = f"({form.format(*(one.sqlite for one in terms))})"
    return Term(kind, ours, f"({(postgres or form).format(*(one.postgres for one in terms))})", values)


def _made(kind: str, between: str, terms: list[Term]) -> Term:
    return _written(kind, between.join(["{}"] * len(terms)), terms)
