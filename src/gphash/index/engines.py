"""An index handed over to engines that people already run: FAISS, SQL databases, and stores of binary vectors.

Everywhere the first bit of a code comes first: it is the highest bit of the first byte, the highest digit of the number
and the first character of the text. Distances do not depend on that, round trips do.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.hamming import packing
from gphash.index import buckets as bucketing

Dialect: TypeAlias = Literal["postgresql", "pgvector", "sqlite", "duckdb"]
Code: TypeAlias = int | bytes | str

WORD = 64  # bits that a SQL integer holds
ROWS = 1 << 14  # converted at a time
IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]{0,57}")  # PostgreSQL cuts names at 63, and statements append five


class Source(Protocol):
    """What is handed over; a `HammingIndex` is one."""

    n_bits: int

    def items(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Packed codes and ids of all items, ids ascending."""
        ...


class Sql(NamedTuple):
    """Statements for one database, with its driver's placeholders.

    create
        Makes the table.
    insert
        Adds one row; takes (id, code).
    rows
        (id, code) of all items, ids ascending; can be gone through once.
    index_codes
        Makes the index on codes; best run when the rows are there.
    within
        All items within a radius; takes (code, radius).
    nearest
        The k nearest items; takes (code, k).

    Both queries give (id, distance) in the order of (distance, id). Distances are computed once per distinct code.
    """

    create: str
    insert: str
    rows: Iterator[tuple[int, Code]]
    index_codes: str
    within: str
    nearest: str


def to_faiss(index: Source) -> Any:
    """A FAISS `IndexBinaryIDMap` over an `IndexBinaryFlat` with all items.

    Its codes have 8 · bytes bits: the spare ones are zero in every code and add nothing to distances.

    Parameters
    ----------
    index
        What to hand over.

    Returns
    -------
    index
        Takes packed queries as they are. Its `range_search` gives distances below the radius, not up to it.
    """
    faiss = _faiss()
    packed, ids = index.items()
    found = faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(8 * packed.shape[1]))
    found.add_with_ids(packed, ids)
    return found


def to_sql(index: Source, dialect: Dialect, table: str = "items") -> Sql:
    """Statements and rows that bring all items into a SQL database and search there.

    Parameters
    ----------
    index
        What to hand over.
    dialect
        "postgresql" (14 or newer) and "pgvector" have the placeholders of psycopg; "sqlite" and "duckdb" have "?".
        SQLite needs the function `hamming` for codes beyond 64 bits, see `hamming`.
    table
        A plain name: letters, digits and underscores.

    Returns
    -------
    sql
        Statements; `sql_codes` gives the codes of queries.
    """
    _check_dialect(dialect)
    if not IDENTIFIER.fullmatch(table):
        raise ValueError(f"table={table!r}; give a plain name of at most 58 letters, digits and underscores.")
    mark = "%s" if dialect in ("postgresql", "pgvector") else "?"
    kind = _column(index.n_bits, dialect)
    number = "INTEGER" if dialect == "sqlite" else "BIGINT"
    near = (
        f"WITH {table}_near AS MATERIALIZED (SELECT code, {_distance(index.n_bits, dialect)} AS distance "
        f"FROM (SELECT DISTINCT code FROM {table}) AS codes "
        f"CROSS JOIN (SELECT CAST({mark} AS {kind}) AS wanted) AS question) "
        f"SELECT item.id, near.distance FROM {table}_near AS near JOIN {table} AS item ON item.code = near.code"
    )
    order = "ORDER BY near.distance, item.id"
    return Sql(
        create=f"CREATE TABLE {table} (id {number} PRIMARY KEY, code {kind} NOT NULL)",
        insert=f"INSERT INTO {table} (id, code) VALUES ({mark}, CAST({mark} AS {kind}))",
        rows=_rows(*index.items(), index.n_bits, dialect),
        index_codes=f"CREATE INDEX {table}_code ON {table} (code)",
        within=f"{near} WHERE near.distance <= {mark} {order}",
        nearest=f"{near} {order} LIMIT {mark}",
    )


def sql_codes(packed: ArrayLike, n_bits: int, dialect: Dialect) -> list[Code]:
    """Codes as the statements of `to_sql` take them.

    Parameters
    ----------
    packed
        Packed codes, [n, bytes].
    n_bits
        Length of a code.
    dialect
        As for `to_sql`.

    Returns
    -------
    codes
        For pgvector zeros and ones as text; else integers up to 64 bits, and bytes beyond, [n].
    """
    _check_dialect(dialect)
    if dialect == "pgvector":
        return list(as_text(packed, n_bits))
    if n_bits <= WORD:
        return list(as_bigint(packed, n_bits).tolist())
    return list(as_bytes(packed, n_bits))


def hamming(a: bytes, b: bytes) -> int:
    """Hamming distance of two codes in bytes.

    For SQLite, which cannot count the bits of bytes: ``connection.create_function("hamming", 2, hamming,
    deterministic=True)``.
    """
    if len(a) != len(b):
        raise ValueError(f"codes have {len(a)} and {len(b)} bytes; give two of one length.")
    return (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()


def as_bigint(packed: ArrayLike, n_bits: int) -> NDArray[np.int64]:
    """Codes of up to 64 bits as the signed integers of databases.

    A code is read as a binary number whose highest digit is the first bit. Codes of 64 bits that begin with 1 are
    negative, in two's complement; all others are not.

    Parameters
    ----------
    packed
        Packed codes, [n, bytes].
    n_bits
        Length of a code.

    Returns
    -------
    numbers
        int64 [n].
    """
    _check_word(n_bits)
    octets = packing.check_packed(packed, n_bits)
    words = bucketing.to_words(octets, n_bits)
    spare = 8 * words.dtype.itemsize - n_bits
    return (words.astype(np.uint64) >> np.uint64(spare)).view(np.int64)


def from_bigint(numbers: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """Undo `as_bigint`.

    Parameters
    ----------
    numbers
        Integers, [n].
    n_bits
        Length of a code.

    Returns
    -------
    packed
        [n, bytes], spare bits zero.
    """
    _check_word(n_bits)
    given = np.asarray(numbers)
    if given.size == 0:
        given = given.astype(np.int64)
    if given.ndim != 1 or given.dtype.kind != "i":
        raise ValueError(f"numbers is {given.dtype} of shape {given.shape}; give signed integers, [n].")
    if n_bits < WORD and len(given) and (given.min() < 0 or given.max() >= 1 << n_bits):
        raise ValueError(f"numbers goes from {given.min()} to {given.max()}; {n_bits} bits hold 0 to 2^{n_bits} - 1.")
    left = given.astype(np.int64).view(np.uint64) << np.uint64(WORD - n_bits)
    return np.ascontiguousarray(left.astype(">u8").view(np.uint8).reshape(len(given), 8)[:, : -(-n_bits // 8)])


def as_text(packed: ArrayLike, n_bits: int) -> list[str]:
    """Codes as zeros and ones, "0101…", which is what PostgreSQL and pgvector read as bit(n_bits)."""
    digits = packing.unpack(packed, n_bits) + np.uint8(ord("0"))
    return [row.tobytes().decode("ascii") for row in digits]


def from_text(texts: Sequence[str], n_bits: int) -> NDArray[np.uint8]:
    """Undo `as_text`: packed codes, [n, bytes]."""
    for text in texts:
        if len(text) != n_bits or set(text) - {"0", "1"}:
            raise ValueError(f"texts has {text!r}; give {n_bits} zeros and ones.")
    digits = np.frombuffer("".join(texts).encode("ascii"), np.uint8).reshape(len(texts), n_bits)
    return packing.pack(digits - np.uint8(ord("0")))


def as_bytes(packed: ArrayLike, n_bits: int) -> list[bytes]:
    """Codes as bytes: binary vectors of Milvus, blobs of databases. Their dimension is 8 · bytes, spare bits zero."""
    return [row.tobytes() for row in packing.check_packed(packed, n_bits)]


def from_bytes(codes: Sequence[bytes], n_bits: int) -> NDArray[np.uint8]:
    """Undo `as_bytes`: packed codes, [n, bytes]."""
    width = -(-n_bits // 8)
    for code in codes:
        if len(code) != width:
            raise ValueError(f"codes has one of {len(code)} bytes; give {width} for n_bits={n_bits}.")
    octets = np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), width)
    return packing.check_packed(octets, n_bits, "codes").copy()


def as_hex(packed: ArrayLike, n_bits: int) -> list[str]:
    """Codes as hexadecimal text, two digits a byte, which Elasticsearch reads as bits of a `dense_vector`.

    The field's `dims` is 8 · bytes, spare bits zero.
    """
    return [code.hex() for code in as_bytes(packed, n_bits)]


def from_hex(texts: Sequence[str], n_bits: int) -> NDArray[np.uint8]:
    """Undo `as_hex`: packed codes, [n, bytes]."""
    return from_bytes([bytes.fromhex(text) for text in texts], n_bits)


def _rows(
    packed: NDArray[np.uint8], ids: NDArray[np.int64], n_bits: int, dialect: Dialect
) -> Iterator[tuple[int, Code]]:
    for start in range(0, len(ids), ROWS):
        part = slice(start, start + ROWS)
        yield from zip(ids[part].tolist(), sql_codes(packed[part], n_bits, dialect), strict=True)


def _column(n_bits: int, dialect: Dialect) -> str:
    """Type of the column of codes."""
    if dialect == "pgvector":
        return f"BIT({n_bits})"
    if n_bits <= WORD:
        return "INTEGER" if dialect == "sqlite" else "BIGINT"
    return "BYTEA" if dialect == "postgresql" else "BLOB"


def _distance(n_bits: int, dialect: Dialect) -> str:
    """Hamming distance of the columns `code` and `wanted`."""
    if dialect == "pgvector":
        return "CAST(code <~> wanted AS INTEGER)"
    if dialect == "duckdb":
        return "bit_count(xor(code, wanted))" if n_bits <= WORD else "bit_count(xor(code::BIT, wanted::BIT))"
    if dialect == "postgresql":
        if n_bits <= WORD:
            return "bit_count((code # wanted)::BIT(64))"
        width = 8 * -(-n_bits // 8)
        code, wanted = (f"('x' || encode({name}, 'hex'))::BIT({width})" for name in ("code", "wanted"))
        return f"bit_count({code} # {wanted})"
    return _sqlite_distance() if n_bits <= WORD else "hamming(code, wanted)"


def _sqlite_distance() -> str:
    """Bits that differ, counted with the arithmetic that SQLite has.

    Four shifts put the count of every four bits in their place, at most 4, so that no sum reaches the sign; then bytes,
    at most 8. 256 is 1 modulo 255, so the remainder by 255 is the sum of the bytes.
    """
    differ = "((code | wanted) & ~(code & wanted))"
    ones, low = "0x1111111111111111", "0x0F0F0F0F0F0F0F0F"
    fours = " + ".join(f"(({differ} >> {shift}) & {ones})" for shift in range(4))
    return f"((({fours}) & {low}) + ((({fours}) >> 4) & {low})) % 255"


def _check_dialect(dialect: str) -> None:
    if dialect not in get_args(Dialect):
        raise ValueError(f"dialect={dialect!r}; give one of {', '.join(get_args(Dialect))}.")


def _check_word(n_bits: int) -> None:
    if not 1 <= n_bits <= WORD:
        raise ValueError(f"n_bits={n_bits!r}; a 64-bit integer holds 1 to {WORD} bits.")


def _faiss() -> Any:
    """The library, or one sentence that says how to get it."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError("Handing over to FAISS needs faiss-cpu: pip install 'gphash[faiss]'.") from error
    return faiss
