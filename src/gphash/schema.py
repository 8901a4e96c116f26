"""What the fields and arrays of a file may be, said once for each kind of file and checked in one place.

Whoever can write a file can make its checksums, too: they do not say that it makes sense. So no reader believes a field
before `check` has compared it with the schema, and `reading` turns what goes wrong into one error that names the file.
"""

import contextlib
import os
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.container import FormatError

LARGE = 1e18  # of a number in a file, whose square float32 can hold
AGAIN = "make the file again, or get it from where it was made"
MISSING = object()


class FaultError(FormatError):
    """What is wrong with a file that `reading` will name."""


class Rule(NamedTuple):
    """What a value has to be: in words, whether it is that apart from its parts, and the parts.

    Of every part there are rule, value and place; a part that has no rule is refused, and so is one that is MISSING.
    """

    must: str
    is_right: Callable[[Any], bool]
    parts: Callable[[Any], Iterable[tuple["Rule | None", Any, str]]] = lambda value: ()

    def check(self, value: Any, place: str) -> None:
        """Raise a FaultError that names the place if the value is anything else."""
        if value is MISSING:
            raise FaultError(f"the field {place!r} is missing")
        if not self.is_right(value):
            raise FaultError(f"the field {place!r} is {reprlib.repr(value)}; it must be {self.must}")
        for rule, part, where in self.parts(value):
            within = (place + where).removeprefix(".")
            if rule is None:
                raise FaultError(f"the field {within!r} is unknown")
            rule.check(part, within)


def Whole(least: int = 0, most: int = 2**62) -> Rule:
    """A whole number."""
    return Rule(f"a whole number from {least} to {most}", lambda value: type(value) is int and least <= value <= most)


def Number(least: float = -LARGE, most: float = LARGE) -> Rule:
    """A number that is finite."""
    must = f"a number from {least:g} to {most:g}"
    return Rule(must, lambda value: type(value) in (int, float) and least <= value <= most)


def Flag() -> Rule:
    """True or false."""
    return Rule("true or false", lambda value: type(value) is bool)


def Text(known: tuple[str, ...] = ()) -> Rule:
    """A text, perhaps one of a few."""
    must = f"one of {', '.join(map(repr, known))}" if known else "a text of whole characters"
    return Rule(must, lambda value: _is_text(value) and (not known or value in known))


def Name() -> Rule:
    """A text that can be a name of a file."""
    return Rule("a name of a file", lambda value: _is_text(value) and value != "" and "\0" not in value)


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and os.fsencode(value) is not None
    except UnicodeEncodeError:
        return False


def Digest(n_bytes: int | None = 32) -> Rule:
    """A checksum, or bytes, in hexadecimal digits."""
    digits = re.compile(r"([0-9a-f]{2})" + ("*" if n_bytes is None else f"{{{n_bytes}}}"))
    must = "hexadecimal digits" + ("" if n_bytes is None else f", {2 * n_bytes}")
    return Rule(must, lambda value: isinstance(value, str) and digits.fullmatch(value) is not None)


def Plain() -> Rule:
    """A number, a word, true or false, or nothing."""
    return Rule("a number, a word, true or false, or nothing", lambda value: not isinstance(value, dict | list))


def Maybe(rule: Rule) -> Rule:
    """Nothing, or what another rule says."""
    return Rule(rule.must, lambda value: True, lambda value: () if value is None else ((rule, value, ""),))


def Each(rule: Rule, least: int = 0, distinct: bool = False) -> Rule:
    """A list of values that all keep a rule."""

    def is_right(value: Any) -> bool:
        enough = isinstance(value, list) and len(value) >= least
        return enough and not (distinct and len(set(map(repr, value))) < len(value))

    must = f"a list of at least {least}" + (", none of them twice" if distinct else "")
    return Rule(must, is_right, lambda value: ((rule, one, f"[{place}]") for place, one in enumerate(value)))


def Row(rules: tuple[Rule, ...]) -> Rule:
    """A list of certain values."""
    return Rule(
        f"a list of {len(rules)}",
        lambda value: isinstance(value, list) and len(value) == len(rules),
        lambda value: ((rule, value[place], f"[{place}]") for place, rule in enumerate(rules)),
    )


def Named(rule: Rule | None = None) -> Rule:
    """Any names, with values that all keep a rule, or any values at all."""
    return Rule(
        "an object with names",
        lambda value: isinstance(value, dict),
        lambda value: () if rule is None else ((rule, one, f".{name}") for name, one in value.items()),
    )


def Record(rules: Mapping[str, Rule], optional: tuple[str, ...] = ()) -> Rule:
    """Certain names, each with a value that keeps its rule; those in `optional` may be missing."""

    def parts(value: dict[str, Any]) -> Iterable[tuple[Rule | None, Any, str]]:
        needed = (name for name in rules if name not in optional)
        return ((rules.get(name), value.get(name, MISSING), f".{name}") for name in dict.fromkeys((*needed, *value)))

    return Rule("an object with names", lambda value: isinstance(value, dict), parts)


@dataclass(frozen=True)
class Array:
    """An array: its dtype, such as "<f4", or several, and its shape, in numbers or names that several arrays share.

    Its values are from `least` to `most`, and never NaN; an optional one may be missing.
    """

    types: str | tuple[str, ...]
    shape: tuple[str | int, ...]
    least: float = -LARGE
    most: float = LARGE
    optional: bool = False


class Schema(NamedTuple):
    """What a kind of file holds: fields of its meta, of which some may be missing, and arrays, by their names.

    `sides` has least and most of sides of arrays that have a name; of others it is at least 0.
    """

    fields: Mapping[str, Rule]
    arrays: Mapping[str, Array]
    sides: Mapping[str, tuple[int, int]] = {}
    missing: tuple[str, ...] = ()


def check(
    schema: Schema, meta: dict[str, Any], arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Refuse meta and arrays of a file that do not keep a schema.

    `sizes` are sides that are known from elsewhere; the lengths of all sides that have a name are returned.
    """
    Record(schema.fields, schema.missing).check(meta, "")
    optional = tuple(name for name, rule in schema.arrays.items() if rule.optional)
    Record(dict.fromkeys(schema.arrays, Rule("an array", lambda value: True)), optional).check(dict(arrays), "")
    found = dict(sizes or {})
    for name, array in arrays.items():
        rule, has = schema.arrays[name], f"the array {name!r} has the shape {array.shape};"
        types = (rule.types,) if isinstance(rule.types, str) else rule.types
        if array.dtype.str not in types:
            raise FaultError(f"the array {name!r} is of type {array.dtype.str}; it must be {' or '.join(types)}")
        if array.ndim != len(rule.shape):
            raise FaultError(f"{has} it must have {len(rule.shape)} sides")
        for side, length in zip(rule.shape, array.shape, strict=True):
            expected = side if isinstance(side, int) else found.setdefault(side, length)
            if length != expected:
                raise FaultError(f"{has} a side ({side}) must be {expected}")
            least, most = schema.sides.get(str(side), (0, 2**62))
            if not least <= length <= most:
                raise FaultError(f"{has} {side} must be from {least} to {most}")
        check_values(name, array, rule.least, rule.most)
    return found


def check_values(name: str, array: NDArray[Any], least: float, most: float) -> None:
    """Refuse an array with values outside of a range, or NaN."""
    if array.dtype.kind in "iu" and least <= np.iinfo(array.dtype).min and np.iinfo(array.dtype).max <= most:
        return
    # A comparison with NaN is false, and the smallest of numbers among which there is one is NaN.
    if array.size and not (least <= array.min() and array.max() <= most):
        raise FaultError(f"the array {name!r} holds values outside of {least:g} to {most:g}, or NaN")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], instead: str = AGAIN) -> Iterator[None]:
    """Turn whatever is wrong with what a file holds into a FormatError that names it and says what to do instead."""
    name = os.fspath(path)
    try:
        yield
    except FaultError as fault:
        raise FormatError(f"{name!r} cannot be used: {fault}; {instead}") from fault
    except (FormatError, OSError):
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FormatError(f"{name!r} cannot be used: what it holds makes no sense ({error!r}); {instead}") from error
