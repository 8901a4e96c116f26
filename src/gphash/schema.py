"""What the fields and arrays of a file may be, said once for each kind of file and checked in one place.

A checksum says that a file is as somebody wrote it, and not that it makes sense: whoever can write a file can make its
checksums, too. So no reader believes a field before `check` has compared it with the schema, and `reading` turns what
goes wrong in a reader into one error that names the file.
"""

import contextlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gphash.persistence import FormatError

LARGE = 1e18  # of a number in a file, whose square float32 can hold
AGAIN = "make the file again, or get it from where it was made"

Sizes = dict[str, int]


class FaultError(FormatError):
    """What is wrong with a file that `reading` will name."""


class Rule(Protocol):
    """What a value has to be."""

    def check(self, value: Any, place: str) -> None:
        """Raise a FaultError that names the place if the value is anything else."""


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    least: int = 0
    most: int = 2**62

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if type(value) is not int or not self.least <= value <= self.most:
            raise _fault(place, value, f"a whole number from {self.least} to {self.most}")


@dataclass(frozen=True)
class Number:
    """A number that is finite."""

    least: float = -LARGE
    most: float = LARGE

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if type(value) not in (int, float) or not self.least <= value <= self.most:
            raise _fault(place, value, f"a number from {self.least:g} to {self.most:g}")


@dataclass(frozen=True)
class Flag:
    """True or false."""

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if type(value) is not bool:
            raise _fault(place, value, "true or false")


@dataclass(frozen=True)
class Text:
    """A text, perhaps one of a few."""

    known: tuple[str, ...] = ()

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if not isinstance(value, str) or (self.known and value not in self.known):
            raise _fault(place, value, f"one of {', '.join(map(repr, self.known))}" if self.known else "a text")
        try:
            os.fsencode(value)
        except UnicodeEncodeError as error:
            raise _fault(place, value, "a text of whole characters") from error


@dataclass(frozen=True)
class Name:
    """A text that can be a name of a file."""

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        Text().check(value, place)
        if not value or "\0" in value:
            raise _fault(place, value, "a name of a file")


@dataclass(frozen=True)
class Digest:
    """A checksum, or bytes, in hexadecimal digits."""

    n_bytes: int | None = 32

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        digits = isinstance(value, str) and len(value) % 2 == 0 and set(value) <= set("0123456789abcdef")
        if not digits or self.n_bytes not in (None, len(value) // 2):
            raise _fault(place, value, "hexadecimal digits" + ("" if self.n_bytes is None else f", {2 * self.n_bytes}"))


@dataclass(frozen=True)
class Maybe:
    """Nothing, or what another rule says."""

    rule: Rule

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if value is not None:
            self.rule.check(value, place)


@dataclass(frozen=True)
class Each:
    """A list of values that all keep a rule."""

    rule: Rule
    least: int = 0
    distinct: bool = False

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if not isinstance(value, list) or len(value) < self.least:
            raise _fault(place, value, f"a list of at least {self.least}")
        for number, one in enumerate(value):
            self.rule.check(one, f"{place}[{number}]")
        if self.distinct and len(set(value)) < len(value):
            raise _fault(place, value, "a list without repetitions")


@dataclass(frozen=True)
class Row:
    """A list of certain values."""

    rules: tuple[Rule, ...]

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if not isinstance(value, list) or len(value) != len(self.rules):
            raise _fault(place, value, f"a list of {len(self.rules)}")
        for number, (rule, one) in enumerate(zip(self.rules, value, strict=True)):
            rule.check(one, f"{place}[{number}]")


@dataclass(frozen=True)
class Plain:
    """A number, a word, true or false, or nothing."""

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if isinstance(value, dict | list):
            raise _fault(place, value, "a number, a word, true or false, or nothing")


@dataclass(frozen=True)
class Named:
    """Any names, with values that all keep a rule, or any values at all."""

    rule: Rule | None = None

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if not isinstance(value, dict):
            raise _fault(place, value, "an object with names")
        if self.rule is not None:
            for name, one in value.items():
                self.rule.check(one, f"{place}.{name}")


@dataclass(frozen=True)
class Record:
    """Certain names, each with a value that keeps its rule; those in `optional` may be missing."""

    rules: Mapping[str, Rule]
    optional: tuple[str, ...] = ()

    def check(self, value: Any, place: str) -> None:
        """Refuse anything else."""
        if not isinstance(value, dict):
            raise _fault(place, value, "an object with names")
        _check_names(value, self.rules, self.optional, place)
        for name, one in value.items():
            self.rules[name].check(one, f"{place}.{name}" if place else name)


@dataclass(frozen=True)
class Array:
    """An array.

    types
        Its dtype, such as "<f4", or several.
    shape
        Numbers, or names of sides that several arrays share.
    least, most
        Of its values, which are never NaN.
    optional
        Whether it may be missing.
    """

    types: str | tuple[str, ...]
    shape: tuple[str | int, ...]
    least: float = -LARGE
    most: float = LARGE
    optional: bool = False

    def renamed(self, sides: Mapping[str, str]) -> "Array":
        """The same for an array that may be missing, with other names of its sides."""
        return replace(self, shape=tuple(sides.get(str(side), side) for side in self.shape), optional=True)


class Schema(NamedTuple):
    """What a kind of file holds.

    fields
        Of its meta.
    arrays
        By their names.
    sides
        Least and most of sides of arrays that have a name; of others at least 0.
    missing
        Fields that may be missing.
    """

    fields: Mapping[str, Rule]
    arrays: Mapping[str, Array]
    sides: Mapping[str, tuple[int, int]] = {}
    missing: tuple[str, ...] = ()


def check(
    schema: Schema, meta: dict[str, Any], arrays: Mapping[str, NDArray[Any]], sizes: Mapping[str, int] | None = None
) -> Sizes:
    """Refuse what does not keep a schema.

    Parameters
    ----------
    schema
        What is allowed.
    meta, arrays
        What a file holds.
    sizes
        Sides that are known from elsewhere.

    Returns
    -------
    sizes
        The length of every side that has a name.
    """
    Record(schema.fields, schema.missing).check(meta, "")
    _check_names(arrays, schema.arrays, tuple(name for name, rule in schema.arrays.items() if rule.optional), "arrays")
    found: Sizes = dict(sizes or {})
    for name, array in arrays.items():
        _check_array(schema, name, array, found)
    return found


def _check_names(given: Mapping[str, Any], known: Mapping[str, object], optional: tuple[str, ...], place: str) -> None:
    within = f" of {place}" if place else ""
    if missing := sorted(set(known) - set(given) - set(optional)):
        raise FaultError(f"the field {missing[0]!r}{within} is missing")
    if strange := sorted(set(given) - set(known)):
        raise FaultError(f"the field {strange[0]!r}{within} is unknown")


def _check_array(schema: Schema, name: str, array: NDArray[Any], sizes: Sizes) -> None:
    rule = schema.arrays[name]
    types = (rule.types,) if isinstance(rule.types, str) else rule.types
    if array.dtype.str not in types:
        raise FaultError(f"the array {name!r} is of type {array.dtype.str}; it must be {' or '.join(types)}")
    if array.ndim != len(rule.shape):
        raise FaultError(f"the array {name!r} has the shape {array.shape}; it must have {len(rule.shape)} sides")
    for side, length in zip(rule.shape, array.shape, strict=True):
        expected = side if isinstance(side, int) else sizes.setdefault(side, length)
        if length != expected:
            raise FaultError(f"the array {name!r} has the shape {array.shape}; a side ({side}) must be {expected}")
        least, most = schema.sides.get(side, (0, 2**62)) if isinstance(side, str) else (0, 2**62)
        if not least <= length <= most:
            raise FaultError(f"the array {name!r} has the shape {array.shape}; {side} must be from {least} to {most}")
    check_values(name, array, rule.least, rule.most)


def check_values(name: str, array: NDArray[Any], least: float, most: float) -> None:
    """Refuse an array with values outside of a range, or NaN."""
    if array.dtype.kind in "iu" and least <= np.iinfo(array.dtype).min and np.iinfo(array.dtype).max <= most:
        return
    # A comparison with NaN is false, and the smallest of numbers among which there is one is NaN.
    if array.size and not (least <= array.min() and array.max() <= most):
        if least == -math.inf and most == math.inf:
            raise FaultError(f"the array {name!r} holds NaN")
        raise FaultError(f"the array {name!r} holds values outside of {least:g} to {most:g}, or NaN")


@contextlib.contextmanager
def reading(path: str | os.PathLike[str], instead: str = AGAIN) -> Iterator[None]:
    """Turn whatever is wrong with what a file holds into a FormatError that names the file.

    Parameters
    ----------
    path
        The file.
    instead
        What its user can do.
    """
    name = os.fspath(path)
    try:
        yield
    except FaultError as fault:
        raise FormatError(f"{name!r} cannot be used: {fault}; {instead}") from fault
    except (FormatError, OSError):
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise FormatError(f"{name!r} cannot be used: what it holds makes no sense ({error!r}); {instead}") from error


def _fault(place: str, value: object, must: str) -> FaultError:
    shown = repr(value)
    return FaultError(f"the field {place!r} is {shown if len(shown) <= 60 else shown[:57] + '…'}; it must be {must}")
