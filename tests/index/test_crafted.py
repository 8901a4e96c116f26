"""Files whose checksums are right and whose content is not: refused before the compiled search believes them."""

import numpy as np
import pytest

from gphash import HammingIndex, container
from gphash.container import FormatError
from gphash.index import storage


def write(path, n_bits=6, codes=(0x0400, 0x8000), starts=(0, 2, 3), ids=(0, 5, 1), dtype=np.uint16, **meta):
    arrays = {
        "codes": np.array(codes, dtype),
        "starts": np.array(starts, np.uint32),
        "ids": np.array(ids, np.int64),
    }
    container.write(path, storage.KIND, {"n_bits": n_bits, "model": None, **meta}, arrays)


WIDE = {"n_bits": 70, "dtype": np.uint64}

CRAFTED = {
    "spare bits": {"codes": (0x0400, 0xFCFF)},
    "descending codes": {"codes": (0x8000, 0x0400)},
    "equal codes": {"codes": (0x0400, 0x0400)},
    "ids that repeat in a bucket": {"ids": (5, 5, 1)},
    "ids that repeat": {"ids": (0, 5, 0)},
    "ids far apart that repeat": {"ids": (-(2**62), 2**62, -(2**62))},
    "ids that descend in a bucket": {"ids": (5, 0, 1)},
    "a bucket without ids": {"starts": (0, 0, 3)},
    "starts beyond the ids": {"starts": (0, 2, 4)},
    "no bits": {"n_bits": 0},
    "negative bits": {"n_bits": -6},
    "a fraction of bits": {"n_bits": 6.0},
    "bits as a text": {"n_bits": "6"},
    "true bits": {"n_bits": True},
    "too many bits": {"n_bits": 1025, "codes": np.zeros((2, 17)), "dtype": np.uint64},
    "a model that is a number": {"model": 5},
    "an unknown field": {"colour": "red"},
    "wide spare bits": {**WIDE, "codes": ((1, 0), (1, 1))},
    "wide descending codes": {**WIDE, "codes": ((1, 1 << 63), (1, 1 << 62))},
    "wide equal codes": {**WIDE, "codes": ((1, 1 << 63), (1, 1 << 63))},
}


@pytest.mark.parametrize("change", CRAFTED.values(), ids=CRAFTED)
def test_a_crafted_index_is_refused(tmp_path, change):
    write(tmp_path / "good")
    assert len(HammingIndex.open(tmp_path / "good")) == 3
    write(tmp_path / "bad.index", **change)
    with pytest.raises(FormatError, match=r"bad\.index' cannot be used: .*; make the file again"):
        HammingIndex.open(tmp_path / "bad.index")


def test_wide_codes_that_differ_in_their_last_word_are_opened(tmp_path):
    write(tmp_path / "good", **WIDE, codes=((1, 1 << 62), (1, 1 << 63)))
    assert HammingIndex.open(tmp_path / "good").search(np.zeros((1, 9), np.uint8), 3).distances.tolist() == [[2, 2, 2]]


@pytest.mark.parametrize("name", ["n_bits", "model", "codes", "starts", "ids"])
def test_an_index_without_a_field_is_refused(tmp_path, name):
    write(tmp_path / "a")
    stored = container.read(tmp_path / "a")
    parts = [{key: value for key, value in part.items() if key != name} for part in (stored.meta, stored.arrays)]
    container.write(tmp_path / "a", storage.KIND, *parts)
    with pytest.raises(FormatError, match=f"a' cannot be used: the field '{name}'.* is missing"):
        HammingIndex.open(tmp_path / "a")
