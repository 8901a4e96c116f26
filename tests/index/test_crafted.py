"""Files whose checksums are right and whose content is not: refused before the compiled search believes them."""

import contextlib

import numpy as np
import pytest

from gphash import HammingIndex, container
from gphash.container import FormatError
from gphash.index import journal, storage
from tests.fuzz import targets


def write(path, n_bits=6, codes=(0x0400, 0x8000), starts=(0, 2, 3), ids=(0, 5, 1), dtype=np.uint16, **meta):
    arrays = {
        "codes": np.array(codes, dtype),
        "starts": np.array(starts, np.uint32),
        "ids": np.array(ids, np.int64),
    }
    container.write(path, storage.KIND, {"n_bits": n_bits, "model": None, "folded": None, **meta}, arrays)


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
    "a journal that is a list": {"folded": []},
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
    for writable in (False, True):
        with pytest.raises(FormatError, match=r"bad\.index' cannot be used: .*; build the index again"):
            HammingIndex.open(tmp_path / "bad.index", writable=writable)


def test_wide_codes_that_differ_in_their_last_word_are_opened(tmp_path):
    write(tmp_path / "good", **WIDE, codes=((1, 1 << 62), (1, 1 << 63)))
    assert HammingIndex.open(tmp_path / "good").search(np.zeros((1, 9), np.uint8), 3).distances.tolist() == [[2, 2, 2]]


@pytest.mark.parametrize("name", ["n_bits", "model", "folded", "codes", "starts", "ids"])
def test_an_index_without_a_field_is_refused(tmp_path, name):
    write(tmp_path / "a")
    stored = container.read(tmp_path / "a")
    parts = [{key: value for key, value in part.items() if key != name} for part in (stored.meta, stored.arrays)]
    container.write(tmp_path / "a", storage.KIND, *parts)
    with pytest.raises(FormatError, match=f"a' cannot be used: the field '{name}'.* is missing"):
        HammingIndex.open(tmp_path / "a")


N_BITS = 12


def record(ids, codes=b""):
    return len(ids).to_bytes(8, "little") + np.array(ids, "<i8").tobytes() + codes


def code(*octets):
    return bytes(octets)


JOURNALS = {
    "spare bits": [(journal.ADD, record([50], code(0, 1)))],
    "an item that is there": [(journal.ADD, record([3], code(0, 0)))],
    "an item twice": [(journal.ADD, record([50, 50], code(0, 0, 16, 0)))],
    "an item twice, one after the other": [(journal.ADD, record([50], code(0, 0)))] * 2,
    "an item that is not there": [(journal.REMOVE, record([50]))],
    "an item removed twice": [(journal.REMOVE, record([3, 3]))],
    "an item removed twice, one after the other": [(journal.REMOVE, record([3]))] * 2,
    "a count without items": [(journal.REMOVE, (1).to_bytes(8, "little"))],
    "a count that overflows": [(journal.REMOVE, (2**61 + 1).to_bytes(8, "little") + bytes(8))],
    "no count": [(journal.ADD, b"")],
    "an unknown kind": [(3, record([3]))],
}


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "items.index"
    HammingIndex.build(targets.codes(0, 20), n_bits=N_BITS).save(path)
    journal.create(path.with_name("items.index.journal"), bytes.fromhex(container.describe(path).fingerprint), path)
    return path


@pytest.mark.parametrize("records", JOURNALS.values(), ids=JOURNALS)
def test_a_crafted_journal_is_refused(saved, records):
    place = saved.with_name("items.index.journal")
    with contextlib.closing(journal.Writer(place, journal.read(place).slot)) as writer:
        for kind, payload in records:
            writer.append(kind, payload)
    before = place.read_bytes()
    for writable in (False, True):
        with pytest.raises(FormatError, match=r"items\.index\.journal' "):
            HammingIndex.open(saved, writable=writable)
    assert place.read_bytes() == before


def test_changes_that_undo_each_other_are_replayed(saved):
    place = saved.with_name("items.index.journal")
    with contextlib.closing(journal.Writer(place, journal.read(place).slot)) as writer:
        writer.append(journal.REMOVE, record([3]))
        writer.append(journal.ADD, record([3, 50], code(0, 0, 255, 240)))
        writer.append(journal.REMOVE, record([50]))
    index = HammingIndex.open(saved)
    assert len(index) == 20
    assert index.codes_of([3]).tolist() == [[0, 0]]


@pytest.mark.parametrize("slot", [{"length": 4095, "chain": 1}, {"length": 0, "chain": 1}, {"number": 2**64 - 1}])
def test_a_journal_that_says_a_wrong_length_is_refused(saved, slot):
    place = saved.with_name("items.index.journal")
    place.write_bytes(targets.seal_journal(place.read_bytes()[:76], [], slot, b""))
    with pytest.raises(FormatError, match="does not say how long it is"):
        HammingIndex.open(saved, writable=True)
