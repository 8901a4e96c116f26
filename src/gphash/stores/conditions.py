"""Conditions on a user's own table: the text is the developer's, values are parameters."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

PLACEHOLDER = re.compile("%(.?)", re.DOTALL)
TOKEN = re.compile(r"""'[^'\\]*' | "[^"]*" | -- | /\* | \*/ | \$\w*\$ | [()\[\];'"]""", re.VERBOSE)
CLOSING = {")": "(", "]": "["}


class Condition(NamedTuple):
    """Which items may be found.

    where
        As it was given, for messages.
    text
        The condition with named parameters, ready to become a part of a statement.
    values
        Of the parameters.
    """

    where: str
    text: str
    values: dict[str, Any]


def _check_closed(where: str) -> None:
    """Refuse a condition that is not whole, and could change the meaning of the statement around it."""
    opened: list[str] = []
    for token in TOKEN.findall(where):
        if token in "([":
            opened.append(token)
        elif token in CLOSING:
            if not opened or opened.pop() != CLOSING[token]:
                raise ValueError(f"where={where!r} has a {token!r} that nothing opens; give one whole condition.")
        elif len(token) == 1 and token != ";":
            raise ValueError(
                f"where={where!r} has a quote ({token}) that is not closed, or a backslash in quotes; close it, and "
                "give values as %s."
            )
        elif token[0] not in "'\"":
            raise ValueError(
                f"where={where!r} has {token!r}; give one condition, without comments, semicolons and dollar quotes."
            )
    if opened:
        raise ValueError(f"where={where!r} has a {opened[-1]!r} that nothing closes; give one whole condition.")


def read(where: Any, params: Any) -> Condition:
    """A condition with one value for every "%s"; any other per cent sign is doubled."""
    if not isinstance(where, str) or not where.strip() or "\0" in where:
        raise ValueError(f"where={where!r}; give a SQL condition as text, such as 'price < %s'.")
    if isinstance(params, str | bytes | Mapping) or not isinstance(params, Sequence):
        raise ValueError(f"params={params!r}; give a list with a value for every %s of where.")
    _check_closed(where)
    count = 0

    def named(found: re.Match[str]) -> str:
        nonlocal count
        if found[1] == "%":
            return "%%"
        if found[1] != "s":
            raise ValueError(f"where={where!r} has {found[0]!r}; write %s for a value, and %% for a per cent sign.")
        count += 1
        return f"%(value_{count - 1})s"

    # Braces would be taken for names of ours.
    text = PLACEHOLDER.sub(named, where).replace("{", "{{").replace("}", "}}")
    if count != len(params):
        raise ValueError(f"where has {count} %s and params has {len(params)} values; give one for each.")
    return Condition(where, text, {f"value_{number}": value for number, value in enumerate(params)})
