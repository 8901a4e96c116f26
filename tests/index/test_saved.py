"""A saved index is its file: whole or not at all, mapped when it is opened; damage is reported, never believed."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gphash import HammingIndex, container
from gphash.codes import packing
from gphash.container import FormatError
from gphash.index import storage
from tests.test_container import with_header

N_BITS = 12


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
    np.testing.assert_equal(opened.items(), index.items())
    assert (opened.n_bits, opened.model, len(opened)) == (n_bits, model, len(ids))


def test_an_opened_index_searches_in_its_file(path):
    opened = HammingIndex.open(path)
    for array in opened.contents.parts[0].buckets[:3]:
        assert not array.flags.writeable
        assert not array.flags.owndata
    opened.add(codes(1, 1), [99])  # which stays in memory until it is saved
    assert len(HammingIndex.open(path)) == 40
    opened.save(path)
    assert len(HammingIndex.open(path)) == len(opened) == 41
    assert sorted(file.name for file in path.parent.iterdir()) == ["items.index"]


def test_every_truncation_is_reported(path):
    data = path.read_bytes()
    for length in [*range(0, len(data) - 700, 97), *range(max(0, len(data) - 700), len(data), 7), len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(FormatError, match=r"items\.index"):
            HammingIndex.open(path)


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_altered_byte_is_reported(path, mask):
    data = path.read_bytes()
    for position in range(mask % 3, len(data), 3):
        damaged = bytearray(data)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"items\.index"):
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
    path.unlink()
    with pytest.raises(FileNotFoundError, match="is not there"):
        HammingIndex.open(path)


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
    with pytest.raises(FormatError, match=r"bad' cannot be used: .*; "):
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
