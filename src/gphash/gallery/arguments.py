"""What users hand to a gallery is checked here; an error names the argument, what was given and what is wanted."""

from collections.abc import Sequence
from typing import Any

import numpy as np

LONGEST_LABEL = 256
LARGEST_ID = int(np.iinfo(np.int64).max)


def whole(name: str, value: Any, least: int) -> None:
    """Refuse what is no whole number, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name}={value!r}; give a whole number of at least {least}.")


def number(id: Any) -> int:
    """A checked id; whether there is such an item, is another question."""
    if isinstance(id, bool) or not isinstance(id, int | np.integer):
        raise ValueError(f"id={id!r}; give a whole number.")
    return int(id)


def fits(number: int) -> bool:
    """Whether a number can be the id of an item."""
    return -LARGEST_ID - 1 <= number <= LARGEST_ID


def labels(label: str | None, tags: Sequence[str] | None) -> tuple[str, ...]:
    """Checked names of an item's class or tags, each once."""
    if label is not None and tags is not None:
        raise ValueError("label and tags given; give one of them, or none.")
    if isinstance(tags, str):
        raise ValueError(f"tags={tags!r}; give a list of names.")
    name = "label" if tags is None else "tags"
    given: list[Any] = [label] if label is not None else list(tags or ())
    for text in given:
        if not isinstance(text, str) or not text.strip() or not text.isprintable() or len(text) > LONGEST_LABEL:
            raise ValueError(f"{name} has {text!r}; give names of 1 to {LONGEST_LABEL} letters that can be printed.")
    return tuple(dict.fromkeys(text.strip() for text in given))


def some(classes: tuple[str, ...]) -> str:
    """What labels there are, for an error."""
    if not classes:
        return "its items have none"
    return f"give one of {', '.join(map(repr, classes[:10]))}{', …' if len(classes) > 10 else ''}"
