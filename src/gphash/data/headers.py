"""The columns of a table: which of them are features, which say something of the items, and which are left out."""

import csv
import re
from collections.abc import Generator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from gphash.files import DataError

NUMBERS, TEXTS, DATES, BOOLEANS = "numbers", "texts", "dates", "booleans"
VECTORS = "lists of numbers"
EMPTY = "empty in every row"
VALUES = (NUMBERS, TEXTS, DATES, BOOLEANS)  # what an item can have

KNOWN = ("title", "text", "link", "picture")  # item columns that mean something, in any case
TAKEN = {"label": "label", "tags": "label", "key": "key"}  # names that only a column of this role may have
NAMED = 6  # columns that an error names
LONGEST_CELL = 1 << 24  # letters of a cell in a CSV file: a text may be long
# What pandas calls the numbers of the rows if they are written without a name.
_INDEX = re.compile(r"__index_level_[0-9]+__|Unnamed: [0-9]+")


class Roles(NamedTuple):
    """Columns of a table by their names, as a user gives them; None for those that are called so anyhow.

    label, tags
        The class of a row, or its tags, with ";" between them.
    key
        What tells rows apart: whole numbers or texts.
    text
        What is kept as the item column "text".
    items
        Columns of numbers that are no features.
    described
        Whether rows are made of texts: then a table needs no features, and its numbers say something of the items.
    """

    label: str | None = None
    tags: str | None = None
    key: str | None = None
    text: str | None = None
    items: tuple[str, ...] = ()
    described: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All names that are given."""
        return tuple(name for name in (*self[:4], *self.items) if name is not None)

    @property
    def said(self) -> str:
        """One of them as an argument, for errors."""
        for role in ("label", "tags", "key", "text"):
            if (name := getattr(self, role)) is not None:
                return f"{role}_column={name!r}"
        return f"item_column={self.items[0]!r}"


UNSAID = Roles()


class Header(NamedTuple):
    """The names of a table's columns, and what each is: numbers into the names.

    kinds
        What each holds, such as `NUMBERS`.
    items
        Columns that say something of the items, by the names that items know them by.
    left_out
        Columns that are nothing of this, and why.
    """

    path: Path
    names: list[str]
    kinds: list[str]
    label: int | None
    tags: int | None
    key: int | None
    features: list[int]
    items: dict[str, int]
    left_out: dict[int, str]

    @classmethod
    def of(cls, path: Path, names: list[str], kinds: list[str], roles: Roles) -> "Header":
        """Columns of a file, each of a kind: one of `VALUES`, `VECTORS`, `EMPTY`, or a type that is of no use."""
        folded = _checked(path, names)
        label, tags, key, text = _found(path, names, folded, roles)
        apart = {_column("item", name, path, names, folded) for name in roles.items}
        if odd := sorted(apart & {label, tags, key, text}, key=str):
            raise ValueError(f"item_column={names[odd[0]]!r} is another column of this table already; name it once.")
        for column in apart:
            if kinds[column] not in (*VALUES, EMPTY):
                raise ValueError(
                    f"item_column={names[column]!r}, which is {kinds[column]}; items have numbers, texts and dates."
                )
        left_out: dict[int, str] = {}
        items: dict[str, int] = {} if text is None else {"text": text}
        free = [column for column in range(len(names)) if column not in (label, tags, key, text)]
        texts = [column for column in free if folded[column] == "text" and kinds[column] not in (VECTORS, EMPTY)]
        described = roles.described and (text is not None or bool(texts))
        vectors = [column for column in free if kinds[column] == VECTORS]
        if described:
            left_out |= dict.fromkeys(vectors, "rows are made of the texts")
            vectors = []
        if len(vectors) > 1:
            raise DataError(
                f"{str(path)!r} has lists of numbers in the columns {_some(names, vectors)}; one of them must be the "
                "features, so write a table without the others"
            )
        features = list(vectors)
        for column in free:
            name, kind = names[column], kinds[column]
            known = folded[column] if folded[column] in KNOWN else name
            if kind == VECTORS:
                continue  # the features, or left out
            if kind not in VALUES:
                left_out[column] = kind if kind == EMPTY else f"{kind}, which is neither numbers nor texts nor dates"
            elif column not in apart and _INDEX.fullmatch(name):
                left_out[column] = "the numbers that pandas gives rows; write the table with index=False"
            elif folded[column] in TAKEN:
                left_out[column] = f"another column is the {TAKEN[folded[column]]}"
            elif known in items:
                left_out[column] = f"another column is the {known}"
            elif kind == NUMBERS and not vectors and not described and column not in apart and known not in KNOWN:
                features.append(column)
            else:
                items[known] = column
        return cls(path, names, kinds, label, tags, key, features, items, left_out)

    def check(self, described: bool = False) -> None:
        """Refuse a table without features; if rows may be described, one without texts, too."""
        if not self.features and not (described and "text" in self.items):
            shown = _some(self.names, range(len(self.names)))
            if described:
                raise DataError(
                    f"{str(self.path)!r} has neither a column 'text' to encode nor columns of numbers, but {shown}; "
                    "name the column of the texts: text_column"
                )
            raise DataError(
                f"{str(self.path)!r} has no columns of numbers to be features, but {shown}; give one for every "
                "feature, or one of lists of numbers"
            )

    def place(self, column: int, row: int | None = None) -> str:
        """How an error names a column, or a cell."""
        return cell(self.path, row, self.names[column])


def cell(path: Path, row: int | None, column: str) -> str:
    """How an error names a column of a file, or a cell: in a CSV file, by the number of its line."""
    where = "" if row is None else f"row {row}, "
    if row is not None and path.suffix.lower() == ".csv":
        with closing(csv_rows(path)) as rows:
            where = f"line {next(islice(rows, row + 1, None))[0]}, "
    return f"{str(path)!r}, {where}column {column!r}"


def _checked(path: Path, names: list[str]) -> list[str]:
    """Names in any case; those that cannot be are refused."""
    if "" in names:
        raise DataError(
            f"{str(path)!r}: column {names.index('') + 1} has no name; give all columns names (pandas writes such "
            "a table with index=False)"
        )
    # Case does not count: a column Label of numbers must not become a feature.
    folded = [name.casefold() for name in names]
    seen: set[str] = set()
    for column, name in enumerate(folded):
        if name in seen:
            raise DataError(f"{str(path)!r}: column {column + 1} is another {names[column]!r}; name each once")
        seen.add(name)
    return folded


def _found(path: Path, names: list[str], folded: list[str], roles: Roles) -> list[int | None]:
    """Label, tags, key and text: as they are given, or as they are called."""
    given = {
        role: _column(role, name, path, names, folded)
        for role, name in zip(roles._fields, roles[:4], strict=False)
        if name is not None
    }
    if len(set(given.values())) < len(given):
        raise ValueError(f"{roles.said}, and another option names the same column; name it once.")
    if "label" in given and "tags" in given:
        raise ValueError(f"{roles.said} and tags_column={roles.tags!r}; rows have labels or tags, so give one.")

    def called(*words: str) -> list[int]:
        return [folded.index(word) for word in words if word in folded and folded.index(word) not in given.values()]

    if not {"label", "tags"} & set(given):
        if len(both := called("label", "tags")) > 1:
            raise DataError(
                f"{str(path)!r} has the columns {_some(names, both)}; name the one to use: label_column or tags_column"
            )
        given |= {folded[column]: column for column in both}
    if "key" not in given:
        if len(both := called("id", "key")) > 1:
            raise DataError(f"{str(path)!r} has the columns {_some(names, both)}; name the one to use: key_column")
        if both:
            given["key"] = both[0]
    return [given.get(role) for role in ("label", "tags", "key", "text")]


def _column(role: str, name: str, path: Path, names: list[str], folded: list[str]) -> int:
    if name in names:
        return names.index(name)
    if name.casefold() in folded:
        return folded.index(name.casefold())
    there = _some(names, range(len(names)))
    raise ValueError(f"{role}_column={name!r}: {str(path)!r} has no such column, but {there}.")


def _some(names: list[str], columns: "list[int] | range") -> str:
    shown = ", ".join(repr(names[column]) for column in columns[:NAMED])
    return shown + (", …" if len(columns) > NAMED else "")


def csv_rows(path: Path) -> Generator[tuple[int, list[str]], None, None]:
    """Rows of a CSV file, each with the number of its last line."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_CELL))  # there is one for the whole process
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            yield from ((reader.line_num, cells) for cells in reader if cells)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{str(path)!r}, after line {reader.line_num}: not readable as CSV: {error}") from error
