"""A container comes back as it was written, or not at all."""

import errno
import hashlib
import json
import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gphash
from gphash import container, files

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
metas = st.dictionaries(st.text(max_size=5), values, max_size=4)
dtypes = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    hnp.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.byte_string_dtypes(max_len=5),
    hnp.unicode_string_dtypes(endianness="?", max_len=5),
)
any_arrays = dtypes.flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
)
array_maps = st.dictionaries(st.text(max_size=5), any_arrays, max_size=4)

SAMPLE_META = {"bits": 12, "kernel": {"name": "rbf", "scale": 0.5}, "classes": ["a", "ß"]}
SAMPLE_ARRAYS = {"weights": np.linspace(0, 1, 15).reshape(5, 3), "codes": np.arange(7, dtype=np.uint8)}


@pytest.fixture
def sample(tmp_path):
    path = tmp_path / "sample.gphash"
    container.write(path, "model", SAMPLE_META, SAMPLE_ARRAYS)
    return path


def assert_same_bytes(read, given):
    assert read.shape == given.shape
    assert read.dtype == given.dtype.newbyteorder("<")
    assert read.tobytes() == given.astype(given.dtype.newbyteorder("<")).tobytes()


tmp_path_is_reusable = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@tmp_path_is_reusable
@given(kind=st.text(min_size=1, max_size=8), meta=metas, arrays=array_maps)
def test_round_trip(tmp_path, kind, meta, arrays):
    path = tmp_path / "a"
    fingerprint = container.write(path, kind, meta, arrays)
    stored = container.read(path, kind)
    assert stored.kind == kind
    assert stored.meta == meta
    assert stored.library_version == gphash.__version__
    assert stored.fingerprint == fingerprint == container.fingerprint(kind, meta, arrays)
    assert stored.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_same_bytes(stored.arrays[name], array)
        assert stored.arrays[name].flags.writeable
    description = container.describe(path)
    assert (description.kind, description.meta, description.fingerprint) == (kind, meta, fingerprint)
    assert {name: entry.shape for name, entry in description.arrays.items()} == {k: a.shape for k, a in arrays.items()}


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(2, 3, 4).T,
        np.arange(600_000.0)[::2],
        np.arange(600_000.0).reshape(2, -1)[:, ::-1],
        np.broadcast_to(np.float32(3), (4, 5)),
        np.arange(400_000, dtype=">i8").reshape(400, 1000).T,
    ],
    ids=["transposed", "strided", "reversed", "broadcast", "big-endian"],
)
def test_any_memory_layout(tmp_path, array):
    container.write(tmp_path / "a", "x", {}, {"array": array})
    assert_same_bytes(container.read(tmp_path / "a").arrays["array"], array)


def test_arrays_are_aligned(sample):
    data = sample.read_bytes()
    header_length = int.from_bytes(data[8:16], "little")
    begin = -(-(16 + header_length + 32) // 64) * 64
    for name, entry in container.describe(sample).arrays.items():
        assert entry.offset % 64 == 0
        raw = data[begin + entry.offset : begin + entry.offset + entry.n_bytes]
        assert raw == SAMPLE_ARRAYS[name].tobytes()


def test_large_arrays_are_not_copied(tmp_path):
    array = np.zeros((1500, 2000)).T
    tracemalloc.start()
    container.write(tmp_path / "a", "x", {}, {"array": array})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < array.nbytes / 4


def test_mapped_arrays_are_the_file_and_cannot_be_written(tmp_path):
    path = tmp_path / "mapped"
    written = {
        "large": np.arange(100_000.0),
        "empty": np.empty(0),
        "table": np.arange(6, dtype=np.uint16).reshape(2, 3),
    }
    container.write(path, "test", {}, written)
    found = container.read(path, "test", mapped=True)
    assert found.fingerprint == container.read(path, "test").fingerprint
    for name, array in written.items():
        np.testing.assert_array_equal(found.arrays[name], array)
        assert found.arrays[name].dtype == array.dtype
        assert not found.arrays[name].flags.writeable or not array.size
    path.unlink()  # a file that was replaced stays readable for whoever has it open
    np.testing.assert_array_equal(found.arrays["large"], written["large"])


def test_damage_to_a_mapped_file_is_reported(sample):
    content = bytearray(sample.read_bytes())
    content[-1] ^= 1
    sample.write_bytes(content)
    with pytest.raises(container.FormatError):
        container.read(sample, mapped=True)


def test_fingerprint_forgets_order_and_version(tmp_path, monkeypatch):
    first = container.write(tmp_path / "a", "model", SAMPLE_META, SAMPLE_ARRAYS)
    monkeypatch.setattr(container, "__version__", "99.0")
    turned = dict(reversed(SAMPLE_META.items())), dict(reversed(SAMPLE_ARRAYS.items()))
    second = container.write(tmp_path / "b", "model", *turned)
    assert first == second
    assert container.read(tmp_path / "b").library_version == "99.0"


@pytest.mark.parametrize(
    ("kind", "meta", "arrays"),
    [
        ("other", {"a": 1}, {"x": np.zeros(4)}),
        ("kind", {"a": 2}, {"x": np.zeros(4)}),
        ("kind", {"a": 1}, {"y": np.zeros(4)}),
        ("kind", {"a": 1}, {"x": np.zeros((2, 2))}),
        ("kind", {"a": 1}, {"x": np.zeros(4, np.int64)}),
        ("kind", {"a": 1}, {"x": np.array([0, 0, 0, 1e-300])}),
        ("kind", {"a": 1}, {"x": np.zeros(2), "y": np.zeros(2)}),
        ("kind", {"a": 1}, {}),
    ],
)
def test_fingerprint_sees_every_difference(kind, meta, arrays):
    assert container.fingerprint(kind, meta, arrays) != container.fingerprint("kind", {"a": 1}, {"x": np.zeros(4)})


def test_every_truncation_is_reported(sample):
    data = sample.read_bytes()
    for length in range(len(data)):
        sample.write_bytes(data[:length])
        with pytest.raises(container.FormatError, match=r"sample\.gphash' is truncated"):
            container.read(sample)


def test_every_flipped_byte_is_reported(sample):
    data = sample.read_bytes()
    header_end = 16 + int.from_bytes(data[8:16], "little") + 32
    for position in range(len(data)):
        for mask in (0x01, 0xFF):
            damaged = bytearray(data)
            damaged[position] ^= mask
            sample.write_bytes(damaged)
            with pytest.raises(container.FormatError, match=r"sample\.gphash"):
                container.read(sample)
            if position < header_end:
                with pytest.raises(container.FormatError, match=r"sample\.gphash"):
                    container.describe(sample)


@tmp_path_is_reusable
@given(meta=metas, arrays=array_maps, where=st.floats(0, 1, exclude_max=True), mask=st.integers(1, 255))
def test_damage_to_any_container_is_reported(tmp_path, meta, arrays, where, mask):
    path = tmp_path / "a"
    path.unlink(missing_ok=True)
    container.write(path, "model", meta, arrays)
    data = bytearray(path.read_bytes())
    position = int(where * len(data))
    path.write_bytes(data[:position])
    with pytest.raises(container.FormatError):
        container.read(path)
    data[position] ^= mask
    path.write_bytes(data)
    with pytest.raises(container.FormatError):
        container.read(path)


@given(data=st.binary(max_size=200), ours=st.booleans())
@tmp_path_is_reusable
def test_foreign_bytes_are_reported(tmp_path, data, ours):
    path = tmp_path / "a"
    path.write_bytes(container.MAGIC * ours + data)
    with pytest.raises(container.FormatError):
        container.read(path)


def test_every_fault_has_its_own_sentence(sample, tmp_path):
    data = sample.read_bytes()
    faults = {
        "foreign": b"PK\x03\x04 something else",
        "truncated": data[:-1],
        "damaged": data[:-1] + bytes([data[-1] ^ 1]),
        "longer": data + b"\0",
        "older": with_header(data, format_version=container.FORMAT_VERSION - 1),
        "newer": with_header(data, format_version=container.FORMAT_VERSION + 1),
    }
    messages = {}
    for fault, content in faults.items():
        sample.write_bytes(content)
        with pytest.raises(container.FormatError, match=r"sample\.gphash") as caught:
            container.read(sample)
        messages[fault] = str(caught.value)
    sample.write_bytes(data)
    with pytest.raises(container.FormatError, match="holds 'model'; it must hold 'checkpoint'") as caught:
        container.read(sample, "checkpoint")
    messages["kind"] = str(caught.value)
    assert "is not a gphash file" in messages["foreign"]
    assert f"it has {len(data) - 1} bytes of {len(data)}" in messages["truncated"]
    assert "content does not match its checksum" in messages["damaged"]
    assert "1 bytes follow its end" in messages["longer"]
    assert "which is newer" in messages["newer"]
    assert "make it again" in messages["older"]
    assert len(set(messages.values())) == len(messages)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        container.read(tmp_path / "nothing")


def with_header(data, **changes):
    """Forge a file whose checksums are right but whose header says something else."""
    length = int.from_bytes(data[8:16], "little")
    fields = json.loads(data[16 : 16 + length]) | changes
    header = json.dumps(fields).encode()
    forged = container.MAGIC + len(header).to_bytes(8, "little") + header
    forged += hashlib.sha256(forged).digest()
    begin = -(-(16 + length + 32) // 64) * 64
    return forged + bytes(-len(forged) % 64) + data[begin:]


def entry(**changes):
    return {"name": "x", "dtype": "<f8", "shape": [2], "offset": 0} | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"format_version": 0},
        {"format_version": "1"},
        {"kind": 3},
        {"meta": []},
        {"meta": {"a": float("nan")}},
        {"fingerprint": "0" * 64},
        {"arrays": 7},
        {"arrays": [3]},
        {"arrays": [entry(dtype="|O")]},
        {"arrays": [entry(dtype="f8,f8")]},
        {"arrays": [entry(dtype=">f8")]},
        {"arrays": [entry(dtype="nonsense")]},
        {"arrays": [entry(shape=[-1])]},
        {"arrays": [entry(shape=[True])]},
        {"arrays": [entry(shape=[2.0])]},
        {"arrays": [entry(shape=[1 << 60])]},
        {"arrays": [entry(shape=[0, 1 << 62, 1 << 62])]},
        {"arrays": [entry(shape=[1] * 100)]},
        {"arrays": [entry(offset=64)]},
        {"arrays": [entry(offset=-8)]},
        {"arrays": [entry(), entry(offset=64)]},
        {"arrays": [entry(name=["x"])]},
    ],
    ids=str,
)
def test_forged_headers_are_reported(tmp_path, changes):
    path = tmp_path / "a"
    container.write(path, "x", {}, {"x": np.zeros(2)})
    path.write_bytes(with_header(path.read_bytes(), **changes))
    with pytest.raises(container.FormatError):
        container.read(path)


def test_forging_without_changes_is_harmless(sample):
    """The forger itself is right: what the test above reports is the change."""
    sample.write_bytes(with_header(sample.read_bytes()))
    assert container.read(sample, "model").meta == SAMPLE_META


class FailingFile:
    """A file on a disk with room for so many bytes."""

    def __init__(self, file, room, error):
        self.file, self.room, self.error = file, room, error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()

    def write(self, data):
        self.room -= len(data)
        if self.room < 0:
            raise self.error
        return self.file.write(data)

    def flush(self):
        self.file.flush()

    def fileno(self):
        return self.file.fileno()


@pytest.mark.parametrize("room", [0, 100, 1000, 100_000, 1_500_000])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_failing_write_keeps_the_old_file(sample, monkeypatch, room, error):
    before = sample.read_bytes()

    def open_on_a_full_disk(path, mode):
        return FailingFile(open(path, mode), room, error)

    monkeypatch.setattr(files, "open", open_on_a_full_disk, raising=False)
    with pytest.raises(type(error)):
        container.write(sample, "model", {}, {"large": np.zeros(250_000)})
    assert sample.read_bytes() == before
    assert [path.name for path in sample.parent.iterdir()] == ["sample.gphash"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=repr)
def test_a_failing_last_step_keeps_the_old_file(sample, monkeypatch, step, error):
    before = sample.read_bytes()

    def fail(*_):
        raise error

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(type(error)):
        container.write(sample, "model", {}, SAMPLE_ARRAYS)
    assert sample.read_bytes() == before
    assert [path.name for path in sample.parent.iterdir()] == ["sample.gphash"]


def test_nothing_is_written_where_nothing_was(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(OSError, match="Input/output"):
        container.write(tmp_path / "new", "model", {}, SAMPLE_ARRAYS)
    assert list(tmp_path.iterdir()) == []


def test_a_link_stays_a_link(sample, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(sample)
    container.write(link, "other", {}, {})
    assert link.is_symlink()
    assert container.read(sample).kind == "other"


@pytest.mark.parametrize(
    ("kind", "meta", "arrays", "error", "message"),
    [
        ("", {}, {}, ValueError, "kind is ''"),
        (None, {}, {}, ValueError, "kind is None"),
        ("x", [], {}, TypeError, "meta is a list"),
        ("x", {"a": [1, {"b": {3}}]}, {}, TypeError, "meta must be .* is a set"),
        ("x", {"a": float("inf")}, {}, ValueError, "meta must be .* JSON"),
        ("x", {"a": np.zeros(2)}, {}, TypeError, "meta must be .* is a ndarray"),
        ("x", {}, {"a": [1, 2]}, TypeError, r"arrays\['a'\] is a list"),
        ("x", {}, {"a": np.array([None])}, TypeError, r"arrays\['a'\] has dtype object"),
        ("x", {}, {"a": np.zeros(2, "f4,f4")}, TypeError, r"arrays\['a'\] has dtype"),
        ("x", {}, {"a": np.zeros(2, np.dtypes.StringDType())}, TypeError, r"arrays\['a'\] has dtype"),
        ("x", {}, {"a": np.ma.zeros(2)}, TypeError, r"arrays\['a'\] is a MaskedArray"),
    ],
)
def test_errors_name_the_argument_and_what_is_wanted(tmp_path, kind, meta, arrays, error, message):
    with pytest.raises(error, match=message) as caught:
        container.write(tmp_path / "a", kind, meta, arrays)
    assert "must be" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_header_too_long_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(container, "MAX_HEADER_BYTES", 1000)
    with pytest.raises(ValueError, match="large values belong in arrays"):
        container.write(tmp_path / "a", "x", {"text": "x" * 1000}, {})


def test_numpy_numbers_and_tuples_in_meta(tmp_path):
    meta = {"n": np.int64(3), "x": np.float32(0.5), "yes": np.True_, "pair": (1, 2)}
    container.write(tmp_path / "a", "x", meta, {})
    assert container.read(tmp_path / "a").meta == {"n": 3, "x": 0.5, "yes": True, "pair": [1, 2]}
