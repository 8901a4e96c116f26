"""An index in one file: a container (see `container`) of kind "index" with codes, starts and ids."""

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gphash import container, schema
from gphash.codes import packing
from gphash.index import buckets as bucketing
from gphash.index.buckets import Buckets
from gphash.schema import Array, FaultError, Maybe, Rule, Schema, Text, Whole

KIND = "index"
META: dict[str, Rule] = {"n_bits": Whole(1, packing.MOST_BITS), "model": Maybe(Text())}
AGAIN = "make the file again, or get it from where it was made"


class Stored(NamedTuple):
    """What a file holds; the buckets are mapped into memory."""

    buckets: Buckets
    n_bits: int
    model: str | None
    fingerprint: str


def write_index(path: str | os.PathLike[str], buckets: Buckets, n_bits: int, model: str | None) -> str:
    """Write an index, whole or not at all, and return its fingerprint; an index that is there is replaced."""
    container.check_replaceable(path, KIND)
    arrays = {"codes": buckets.codes, "starts": buckets.starts, "ids": buckets.ids}
    return container.write(path, KIND, {"n_bits": n_bits, "model": model}, arrays)


def read_index(path: str | os.PathLike[str]) -> Stored:
    """Read and verify an index; compiled code relies on what is checked here."""
    if not Path(path).is_file():
        kind, what = (IsADirectoryError, "is a folder") if Path(path).is_dir() else (FileNotFoundError, "is not there")
        raise kind(f"{os.fspath(path)!r} {what}; give the file of an index.")
    stored = container.read(path, KIND, mapped=True)
    with schema.reading(path, AGAIN):
        schema.Record(META).check(stored.meta, "")
        n_bits = stored.meta["n_bits"]
        n_words = -(-n_bits // 64)
        word = np.dtype(bucketing.word_type(n_bits)).newbyteorder("<").str
        arrays = {
            "codes": Array(word, ("codes",) if n_words == 1 else ("codes", n_words), 0, 2**64 - 1),
            "starts": Array(("<u4", "<i8"), ("starts",), 0, 2**63 - 1),
            "ids": Array("<i8", ("items",), -(2**63), 2**63 - 1),
        }
        sizes = schema.check(Schema(META, arrays), stored.meta, stored.arrays)
        if sizes["starts"] != sizes["codes"] + 1:
            raise FaultError(f"it has {sizes['starts']} starts for {sizes['codes']} codes")
        codes, starts, ids = (np.asarray(stored.arrays[name]) for name in arrays)
        if fault := bucketing.fault(codes, starts, ids, n_bits):
            raise FaultError(fault)
        return Stored(bucketing.build(codes, starts, ids), n_bits, stored.meta["model"], stored.fingerprint)
