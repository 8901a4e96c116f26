"""Conditions on a user's own table: the text is the developer's, values are parameters."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

PLACEHOLDER = re.compile("%(.?)", re.DOTALL)


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


def read(where: Any, params: Any) -> Condition:
    """A condition with one value for every "%s"; any other per cent sign is doubled."""
    if not isinstance(where, str) or not where.strip() or "\0" in where:
        raise ValueError(f"where={where!r}; give a SQL condition as text, such as 'price < %s'.")
    if isinstance(params, str | bytes | Mapping) or not isinstance(params, Sequence):
        raise ValueError(f"params={params!r}; give a list with a value for every %s of where.")
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
