"""What is known of the items of a collection in PostgreSQL, asked of its tables; see `postgres_store`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gphash.collection.rows import Key, Layout, Row, quoted
from gphash.index import engines
from gphash.index.postgres.postgres_index import PostgresIndex

BATCH = 20_000  # rows that are read at once
COUNT_LABELS = (
    "SELECT name, count(*) FROM (SELECT label AS name FROM {items} WHERE number = ANY(%(numbers)s) "
    "UNION ALL SELECT tag FROM {tags} WHERE number = ANY(%(numbers)s)) AS named WHERE name IS NOT NULL "
    'GROUP BY name ORDER BY 2 DESC, name COLLATE "C"'
)


class PostgresItems:
    """What is known of the items, with the methods of `items.Items`."""

    def __init__(self, index: PostgresIndex, layout: Layout) -> None:
        self.layout, self._index = layout, index
        self._names = ", ".join(columns_of(layout))

    def ask(self, template: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, in which {items} and the like are tables."""
        with self._index.view() as view:
            return view.rows(template, **values)

    def rows(self, numbers: Sequence[int]) -> dict[int, Row]:
        """Items by their numbers; those that are not there are left out."""
        found = self.ask(
            f"SELECT {self._names} FROM {{items}} WHERE number = ANY(%(numbers)s)", numbers=array_of(numbers)
        )
        return {row.number: row for row in self._rows(found)}

    def all_rows(self) -> Iterator[Row]:
        """All items, by their numbers."""
        last = -(2**63)
        template = f"SELECT {self._names} FROM {{items}} WHERE number >= %(last)s ORDER BY number LIMIT %(most)s"
        while found := self.ask(template, last=last, most=BATCH):
            yield from self._rows(found)
            if len(found) < BATCH:
                return
            last = found[-1][0] + 1

    def all_pictures(self) -> Iterator[tuple[int, bytes, str | None]]:
        """All pictures that are kept here, by their numbers."""
        for (number,) in self.ask("SELECT number FROM {pictures} ORDER BY number"):
            for one in self.ask(
                "SELECT number, content, shape FROM {pictures} WHERE number = %(number)s", number=number
            ):
                yield (one[0], one[1], one[2])

    def _rows(self, found: list[tuple[Any, ...]]) -> Iterator[Row]:
        codes = _packed([row[1] for row in found], self._index.n_bits)
        for (number, _, described, *values), code in zip(found, codes, strict=True):
            key = values.pop(0) if self.layout.keys == "text" else number
            pairs = zip(self.layout.values, values, strict=True)
            yield Row(number, key, code, described, {name: value for name, value in pairs if value is not None})

    def numbers(self, keys: Sequence[Key]) -> dict[Key, int]:
        """Numbers of keys; those that are not there are left out."""
        key, texts = self.layout.names["key"], self.layout.keys == "text"
        given = list(keys) if texts else array_of([one for one in keys if -(2**63) <= int(one) < 2**63])
        return dict(self.ask(f"SELECT {key}, number FROM {{items}} WHERE {key} = ANY(%(keys)s)", keys=given))

    def classes(self) -> tuple[str, ...]:
        """Names of all labels and tags, in the order in which they came."""
        return tuple(name for (name,) in self.ask("SELECT name FROM {classes} ORDER BY place"))

    def count_labels(self, numbers: Sequence[int]) -> dict[str, int]:
        """How many of some items have each label or tag, most frequent first."""
        return dict(self.ask(COUNT_LABELS, numbers=array_of(numbers)))

    def picture(self, number: int) -> bytes | NDArray[np.uint8] | None:
        """The picture of an item that is kept here: the content of its file, or pixels."""
        found = self.ask("SELECT content, shape FROM {pictures} WHERE number = %(number)s", number=number)
        if not found or found[0][1] is None:
            return None if not found else bytes(found[0][0])
        return np.frombuffer(found[0][0], np.uint8).reshape([int(side) for side in found[0][1].split(",")])

    def pictured(self, numbers: Sequence[int]) -> set[int]:
        """Those of some items whose pictures are kept here."""
        found = self.ask("SELECT number FROM {pictures} WHERE number = ANY(%(numbers)s)", numbers=array_of(numbers))
        return {number for (number,) in found}

    def has_pictures(self, named: bool) -> bool:
        """Whether some item has a picture: one that is kept here, or, if they count, one in the folder of pictures."""
        some = "EXISTS (SELECT FROM {pictures})"
        if named:
            some += " OR EXISTS (SELECT FROM {items} WHERE picture IS NOT NULL)"
        return bool(self.ask(f"SELECT {some}")[0][0])


def columns_of(layout: Layout) -> list[str]:
    """Columns of an item as it is stored, in templates."""
    key = ["key"] if layout.keys == "text" else []
    return ["number", "code", "described", *key, *(named(one) for one in layout.values)]


def named(name: str) -> str:
    """A column in a template."""
    return escaped(quoted(name).replace("%", "%%"))


def escaped(text: str) -> str:
    """A text as a template has it, whose braces are names."""
    return text.replace("{", "{{").replace("}", "}}")


def _packed(codes: list[Any], n_bits: int) -> list[bytes]:
    """Packed codes from a column: numbers, or bit strings behind their length."""
    if n_bits > engines.WORD:
        return [bytes(code[4:]) for code in codes]
    return [code.tobytes() for code in engines.from_bigint(np.array(codes, np.int64), n_bits)]


def array_of(numbers: Iterable[Any]) -> NDArray[np.int64]:
    """Numbers as a statement takes them."""
    return np.array(list(numbers), np.int64)
