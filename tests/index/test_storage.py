"""An index in a file is whole, or refused by name; damage is reported, never believed."""

import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gphash import HammingIndex, container
from gphash.codes import packing
from gphash.container import FormatError
from gphash.index import buckets as bucketing
from gphash.index import storage
from tests.test_container import with_header

N_BITS = 12


def contents(index):
    """The code of every id."""
    whole = index.contents.whole()
    packed = bucketing.to_packed(bucketing.spread(whole), index.n_bits)
    return dict(zip(whole.ids.tolist(), map(bytes, packed), strict=True))


def stored(path):
    """What somebody who opens the index finds."""
    return contents(HammingIndex.open(path))


def codes(seed, n, n_bits=N_BITS):
    return packing.pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))


@pytest.fixture
def path(tmp_path):
    """A saved index of 40 items."""
    path = tmp_path / "items.index"
    HammingIndex.build(codes(0, 40), n_bits=N_BITS, model="abc").save(path)
    return path


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n_bits=st.sampled_from([1, 16, 17, 64, 65, 1024]),
    ids=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50), unique=True, max_size=20),
    model=st.none() | st.text(max_size=5),
)
def test_round_trip(tmp_path, n_bits, ids, model):
    path = tmp_path / "a"
    index = HammingIndex.build(codes(len(ids), len(ids), n_bits), ids, n_bits=n_bits, model=model)
    mark = index.save(path)
    assert mark == container.describe(path).fingerprint
    opened = HammingIndex.open(path)
    assert contents(opened) == contents(index)
    assert (opened.n_bits, opened.model, len(opened)) == (n_bits, model, len(ids))
    assert opened.stats()[:4] == index.stats()[:4]


def test_an_opened_index_searches_in_its_file(path):
    index = HammingIndex.build(codes(0, 40), n_bits=N_BITS)
    opened = HammingIndex.open(path)
    for array in opened.contents.parts[0].buckets[:3]:
        assert not array.flags.writeable
        assert not array.flags.owndata
    queries, chances = codes(3, 4), np.random.default_rng(4).random((4, N_BITS))
    for found, wanted in [
        (opened.search(queries, 20), index.search(queries, 20)),
        (opened.search_expected(chances, 20), index.search_expected(chances, 20)),
        (opened.within(queries, 3), index.within(queries, 3)),
    ]:
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    assert list(opened.iterate(chances[0])) == list(index.iterate(chances[0]))
    assert sorted(file.name for file in path.parent.iterdir()) == ["items.index"]


def test_changes_stay_in_memory_until_they_are_saved(path):
    before = path.read_bytes()
    first, second = HammingIndex.open(path), HammingIndex.open(path)
    first.add(codes(1, 3), [100, 101, -(2**62)])
    assert first.remove([3, 101, 777]) == 2
    assert path.read_bytes() == before
    assert contents(second) == stored(path) != contents(first)
    mark = first.save(path)
    assert mark == container.describe(path).fingerprint
    assert stored(path) == contents(first)
    assert sorted(contents(second)) == list(range(40))  # which has the old file open
    second.add(codes(2, 1), [500])
    assert sorted(contents(second)) == [*range(40), 500]


def test_threads_may_change_one_index(path):
    index, failures = HammingIndex.open(path), []

    def change(first):
        try:
            for step in range(15):
                index.add(codes(first + step, 2), [first + 2 * step, first + 2 * step + 1])
                index.remove([first + 2 * step])
                assert index.search(codes(0, 1), 1000).ids.shape[1] >= 40
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=change, args=(first,)) for first in (1000, 2000, 3000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(contents(index)) == index.ids.tolist()
    assert index.ids.tolist() == [*range(40), *(first + odd for first in (1000, 2000, 3000) for odd in range(1, 30, 2))]


def opened_or_refused(path):
    """What an index holds; None if it says that it is damaged, and which file it is."""
    try:
        return stored(path)
    except FormatError as error:
        message = str(error)
    assert str(path) in message
    return None


def test_every_truncation_is_reported(path):
    data = path.read_bytes()
    for length in [*range(0, len(data), 17), len(data) - 1]:
        path.write_bytes(data[:length])
        assert opened_or_refused(path) is None
    path.write_bytes(data + b"\0")
    assert opened_or_refused(path) is None
    path.write_bytes(data)
    assert opened_or_refused(path) is not None


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_altered_byte_is_reported(path, mask):
    data, found = path.read_bytes(), stored(path)
    for position in range(mask % 3, len(data), 3):
        damaged = bytearray(data)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        assert opened_or_refused(path) is None, position
    path.write_bytes(data)
    assert stored(path) == found


def test_a_file_that_is_not_there(path):
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"items\.index' is not there; give the file of an index"):
        HammingIndex.open(path)


def test_another_byte_order_is_refused(path):
    data = path.read_bytes()
    entries = [
        {"name": name, "dtype": entry.dtype.replace("<", ">"), "shape": entry.shape, "offset": entry.offset}
        for name, entry in container.describe(path).arrays.items()
    ]
    path.write_bytes(with_header(data, arrays=entries))
    with pytest.raises(FormatError, match="dtype '>"):
        HammingIndex.open(path)


def test_newer_formats_are_refused(path):
    path.write_bytes(with_header(path.read_bytes(), format_version=container.FORMAT_VERSION + 1))
    with pytest.raises(FormatError, match="newer"):
        HammingIndex.open(path)


def test_files_that_are_no_index_are_refused(path):
    container.write(path, "model", {}, {})
    with pytest.raises(FormatError, match="holds 'model'"):
        HammingIndex.open(path)
    path.write_bytes(b"something else")
    with pytest.raises(FormatError, match="not a gphash file"):
        HammingIndex.open(path)


def test_saving_through_a_link_replaces_what_it_points_to(path, tmp_path_factory):
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(path)
    index = HammingIndex.open(link)
    index.add(codes(14, 1), [1400])
    index.save(link)
    assert link.is_symlink()
    assert stored(path) == stored(link) == contents(index)


def test_permissions_stay(path):
    path.chmod(0o600)
    HammingIndex.open(path).save(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("starts", np.array([0, 2**31], np.uint32)),
        ("starts", np.array([1, 3], np.uint32)),
        ("starts", np.array([0], np.uint32)),
        ("ids", np.arange(3, dtype=np.int32)),
        ("codes", np.zeros(1, np.uint64)),
        ("codes", np.zeros((1, 2), np.uint16)),
    ],
)
def test_arrays_that_do_not_go_together_are_refused(tmp_path, name, value):
    arrays = {"codes": np.zeros(1, np.uint16), "starts": np.array([0, 3], np.uint32), "ids": np.arange(3)}
    meta = {"n_bits": N_BITS, "model": None}
    container.write(tmp_path / "good", storage.KIND, meta, arrays)
    assert len(HammingIndex.open(tmp_path / "good")) == 3
    container.write(tmp_path / "bad", storage.KIND, meta, {**arrays, name: value})
    with pytest.raises(FormatError, match=r"bad' cannot be used: .*; make the file again"):
        HammingIndex.open(tmp_path / "bad")


def test_where_nothing_can_be_saved(tmp_path):
    index = HammingIndex.build(codes(0, 3), n_bits=N_BITS)
    with pytest.raises(FileNotFoundError, match=r"does not exist: '.*nowhere'"):
        index.save(tmp_path / "nowhere" / "x")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        index.save(tmp_path)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        HammingIndex.open(tmp_path)
    assert not list(tmp_path.iterdir())
