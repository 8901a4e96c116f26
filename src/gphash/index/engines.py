"""An index handed over to engines that people already run: FAISS, SQL databases, and stores of binary vectors.

Everywhere the first bit of a code comes first: it is the highest bit of the first byte, the highest digit of the number
and the first character of the text. Distances do not depend on that, round trips do.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.codes import packing
from gphash.index import buckets as bucketing
from gphash.index.backends import Index

Dialect: TypeAlias = Literal["postgresql", "pgvector", "sqlite", "duckdb"]
Code: TypeAlias = int | bytes | str

WORD = 64  # bits that a SQL integer holds
ROWS = 1 << 14  # converted at a time
IDENTIFIER = re.compile("[A-Za-z_][A-Za-z0-9_]{0,57}")  # PostgreSQL cuts names at 63, and statements append five


class Sql(NamedTuple):
    """Statements for one database, with its driver's placeholders, and the rows, which can be gone through once.

    Both queries give (id, distance) in the order of (distance, id). Distances are computed once per distinct code.
    """

    create: str
    insert: str  # takes (id, code)
    rows: Iterator[tuple[int, Code]]  # ids ascending
    index_codes: str  # best run when the rows are there
    within: str  # takes (code, radius)
    nearest: str  # takes (code, k)


def to_faiss(index: Index) -> Any:
    """A FAISS `IndexBinaryIDMap` over an `IndexBinaryFlat` with all items, which takes packed queries as they are.

    Spare bits are zero in every code and add nothing to distances. Its `range_search` gives distances below the radius,
    not up to it.
    """
    try:
        import faiss
    except ImportError as error:
        raise ImportError("handing over to FAISS needs faiss-cpu: pip install faiss-cpu.") from error
    packed, ids = index.items()
    found = faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(8 * packed.shape[1]))
    found.add_with_ids(packed, ids)
    return found


def to_sql(index: Index, dialect: Dialect, table: str = "items") -> Sql:
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
        rows=_rows(index, dialect),
        index_codes=f"CREATE INDEX {table}_code ON {table} (code)",
        within=f"{near} WHERE near.distance <= {mark} {order}",
        nearest=f"{near} {order} LIMIT {mark}",
    )


def sql_codes(packed: ArrayLike, n_bits: int, dialect: Dialect) -> list[Code]:
    """Packed codes, [n, bytes], as the statements of `to_sql` take them.

    For pgvector zeros and ones as text; else integers up to 64 bits, and bytes beyond.
    """
    _check_dialect(dialect)
    if dialect == "pgvector":
        return list(as_text(packed, n_bits))
    return list(as_bigint(packed, n_bits).tolist() if n_bits <= WORD else as_bytes(packed, n_bits))


def hamming(a: bytes, b: bytes) -> int:
    """Hamming distance of two codes in bytes.

    For SQLite, which cannot count the bits of bytes: ``connection.create_function("hamming", 2, hamming,
    deterministic=True)``.
    """
    if len(a) != len(b):
        raise ValueError(f"codes have {len(a)} and {len(b)} bytes; give two of one length.")
    return (int.from_bytes(a) ^ int.from_bytes(b)).bit_count()


def as_bigint(packed: ArrayLike, n_bits: int) -> NDArray[np.int64]:
    """Packed codes of up to 64 bits, [n, bytes], as the signed integers of databases, [n].

    A code is read as a binary number whose highest digit is the first bit. Codes of 64 bits that begin with 1 are
    negative, in two's complement; all others are not.
    """
    _check_word(n_bits)
    words = bucketing.to_words(packing.check_packed(packed, n_bits), n_bits)
    spare = 8 * words.dtype.itemsize - n_bits
    return (words.astype(np.uint64) >> np.uint64(spare)).view(np.int64)


def from_bigint(numbers: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """Undo `as_bigint`: packed codes, [n, bytes]."""
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


def _rows(index: Index, dialect: Dialect) -> Iterator[tuple[int, Code]]:
    packed, ids = index.items()
    for start in range(0, len(ids), ROWS):
        part = slice(start, start + ROWS)
        yield from zip(ids[part].tolist(), sql_codes(packed[part], index.n_bits, dialect), strict=True)


def _column(n_bits: int, dialect: Dialect) -> str:
    """Type of the column of codes."""
    if dialect == "pgvector":
        return f"BIT({n_bits})"
    if n_bits <= WORD:
        return "INTEGER" if dialect == "sqlite" else "BIGINT"
    return "BYTEA" if dialect == "postgresql" else "BLOB"


def _distance(n_bits: int, dialect: Dialect) -> str:
    """Hamming distance of the columns `code` and `wanted`."""
    short = n_bits <= WORD
    if dialect == "pgvector":
        return "CAST(code <~> wanted AS INTEGER)"
    if dialect == "duckdb":
        return "bit_count(xor(code, wanted))" if short else "bit_count(xor(code::BIT, wanted::BIT))"
    if dialect == "sqlite":
        return _sqlite_distance() if short else "hamming(code, wanted)"
    code, wanted = (f"('x' || encode({name}, 'hex'))::BIT({8 * -(-n_bits // 8)})" for name in ("code", "wanted"))
    return "bit_count((code # wanted)::BIT(64))" if short else f"bit_count({code} # {wanted})"


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
