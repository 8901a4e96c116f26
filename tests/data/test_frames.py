"""Arrow tables and frames that hand out Arrow's data: the same codes as from arrays, and no copy of them all."""

import builtins
import tracemalloc

import numpy as np
import pytest

from gphash import Collection, GPHasher
from gphash.arrays import ChunkedRows
from gphash.data import frames, sources
from gphash.data.blocks import ArrayTable
from gphash.files import DataError
from gphash.functions import model as models
from gphash.hashers import ITQ
from tests import digits

pa = pytest.importorskip("pyarrow")
# scikit-learn's word on frames of columns where a model was fitted to an array.
pytestmark = pytest.mark.filterwarnings("ignore:X has feature names, but")

TRAIN, TEST = slice(0, 200), slice(1000, 1100)
X = digits.X.astype(np.float32)


class Stream:
    """Any library's frame: all that is known of it is Arrow's protocol."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def lists(rows, kind=None, n_chunks=1):
    kind = kind or pa.list_(pa.from_numpy_dtype(rows.dtype), rows.shape[1])
    pieces = np.array_split(rows, n_chunks)
    if hasattr(kind, "list_size"):
        return pa.chunked_array([pa.FixedSizeListArray.from_arrays(piece.ravel(), rows.shape[1]) for piece in pieces])
    return pa.chunked_array([pa.array(list(piece), kind) for piece in pieces])


def columns(rows, n_chunks=1):
    own = {f"c{number}": rows[:, number] for number in range(rows.shape[1])}
    table = pa.table(own)
    return pa.concat_tables(table.slice(part[0], len(part)) for part in np.array_split(np.arange(len(rows)), n_chunks))


def polars(rows):
    return pytest.importorskip("polars").DataFrame({"embedding": rows})


def polars_columns(rows):
    return pytest.importorskip("polars").DataFrame({f"c{at}": rows[:, at] for at in range(rows.shape[1])})


FRAMES = {
    "table": lambda rows: pa.table({"embedding": lists(rows)}),
    "chunks": lambda rows: pa.table({"embedding": lists(rows, n_chunks=3)}),
    "lists": lambda rows: pa.table({"embedding": lists(rows, pa.list_(pa.float32()), 2)}),
    "large lists": lambda rows: pa.table({"embedding": lists(rows, pa.large_list(pa.float32()))}),
    "lists alone": lists,
    "an array": lambda rows: lists(rows).chunk(0),
    "columns": columns,
    "columns in chunks": lambda rows: columns(rows, 3),
    "batch": lambda rows: columns(rows).to_batches()[0],
    "reader": lambda rows: columns(rows).to_reader(),
    "another library": lambda rows: Stream(columns(rows, 2)),
    "other lists": lambda rows: Stream(lists(rows)),
    "polars": polars,
    "polars columns": polars_columns,
}


@pytest.fixture(scope="module")
def trained():
    return quick().fit(X[TRAIN], digits.y[TRAIN])


def quick():
    return GPHasher(**{**digits.QUICK, "n_bits": 12, "random_state": 0})


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_the_same_as_arrays(trained, name):
    make = FRAMES[name]
    assert quick().fit(make(X[TRAIN]), digits.y[TRAIN]).fingerprint_ == trained.fingerprint_
    expected = trained.encode(X[TEST])
    np.testing.assert_array_equal(trained.encode(make(X[TEST])), expected)
    learned = ITQ(12, random_state=0).fit(X[TRAIN])
    assert ITQ(12, random_state=0).fit(make(X[TRAIN])).fingerprint_ == learned.fingerprint_


@pytest.mark.parametrize("name", ["chunks", "columns", "another library", "polars"])
def test_collections_take_frames(trained, name, tmp_path):
    make = FRAMES[name]
    trained.save(tmp_path / "model.gph")
    loaded = models.load(tmp_path / "model.gph")
    np.testing.assert_array_equal(loaded.encode(make(X[TEST])), trained.encode(X[TEST]))
    with Collection.create(tmp_path / "own", trained, make(X[TEST]), vectors="float16") as made:
        expected = [[hit.key for hit in hits] for hits in made.search(X[:3], k=5)]
        assert [[hit.key for hit in hits] for hits in made.search(make(X[:3]), k=5)] == expected
    with Collection.open(tmp_path / "own", writable=True) as made:
        made.add(make(X[:2]))
        assert len(made) == 102


@pytest.mark.parametrize("name", ["table", "chunks", "columns in chunks"])
def test_tables_have_the_fingerprint_of_their_rows(name):
    found = frames.held(FRAMES[name](X))
    assert ArrayTable(found).fingerprint() == ArrayTable(X).fingerprint()


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.float32, np.float64])
def test_numbers_stay_where_they_are(dtype):
    rows = np.arange(12, dtype=dtype).reshape(4, 3)
    table = pa.table({"embedding": lists(rows)})
    found = frames.held(table)
    assert found.dtype == dtype
    there = np.frombuffer(table.column(0).chunk(0).values.buffers()[1], dtype)
    assert np.shares_memory(found, there)
    parts = frames.held(columns(rows, 2))
    assert isinstance(parts, ChunkedRows)
    assert (parts.dtype, parts.shape) == (dtype, (4, 3))
    np.testing.assert_array_equal(parts[np.array([3, 0, 2])], rows[[3, 0, 2]])
    np.testing.assert_array_equal(parts[1:3], rows[1:3])
    np.testing.assert_array_equal(parts[np.array([], dtype=int)], rows[:0])


def test_encoding_copies_no_table(trained):
    table = columns(np.tile(X.astype(np.float16), (80, 1)), 4)

    def peak(n_rows):
        tracemalloc.start()
        trained.encode(table.slice(0, n_rows))
        _, found = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return found

    once = peak(models.PIECE)
    assert peak(len(table)) - once < table.nbytes / 4


def test_names_of_columns_are_those_of_features(trained):
    with_names = quick().fit(columns(X[TRAIN]), digits.y[TRAIN])
    assert [*with_names.feature_names_in_[:2]] == ["c0", "c1"]
    swapped = columns(X[TEST]).select([f"c{at}" for at in reversed(range(X.shape[1]))])
    with pytest.raises(ValueError, match="feature names should match"):
        with_names.encode(swapped)
    assert not hasattr(quick().fit(FRAMES["table"](X[TRAIN]), digits.y[TRAIN]), "feature_names_in_")
    with pytest.raises(ValueError, match="63 features"):
        trained.encode(columns(X[TEST, 1:]))


WRONG = {
    "a word": (
        lambda: pa.table({"id": ["a"], "x": [1.0]}),
        "X has the column 'id' of string; give one column of lists",
    ),
    "words in lists": (lambda: pa.table({"x": [["a"]]}), "X has the column 'x' of string in lists; give one column"),
    "lists and numbers": (lambda: pa.table({"n": [1], "x": [[1.0]]}), "X has the column 'x' of list<"),
    "no column": (lambda: pa.table({}), "X has no columns; give one column"),
    "no number": (lambda: pa.table({"x": [1.0, 2.0, None]}), "X has an empty place in row 2; give a number in every"),
    "no list": (lambda: pa.table({"x": [[1.0], None]}), "X has an empty place in row 1"),
    "empty lists": (
        lambda: pa.table({"x": pa.array([[], []], pa.list_(pa.float32()))}),
        "X has shape .2, 0.; give rows",
    ),
    "a hole": (lambda: pa.table({"x": [[1.0, 2.0], [1.0, None]]}), "X has an empty place in row 1"),
    "a short list": (lambda: pa.table({"x": [[1.0, 2.0], [1.0]]}), "X has 1 numbers in row 1, and 2 in others"),
    "a short chunk": (
        lambda: pa.table({"x": pa.chunked_array([[[1.0, 2.0]], [[1.0]]])}),
        "X has 1 numbers in row 1, and 2 in others",
    ),
    "one row": (lambda: pa.table({"x": [1.0]}), r"X has 1 row\(s\); give at least 2"),
    "no rows": (lambda: pa.table({"x": lists(X[:1]).slice(0, 0)}), r"X has 0 row\(s\); give at least 2"),
    "infinite": (lambda: pa.table({"x": [1.0, np.inf]}), "X holds NaN or infinity"),
    "objects": (
        lambda: np.array([np.ones(3), np.ones(3), None], object)[:2],
        r"give numbers \[n, d\]: numpy.stack\(X\)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_rows_is_refused(name):
    make, words = WRONG[name]
    with pytest.raises(ValueError, match=words):
        ITQ(1).fit(make())


def test_without_pyarrow_one_sentence_says_what_to_install(trained, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("pyarrow"):
            raise ImportError(name)
        return real(name, *rest)

    frame = Stream(columns(X[TEST]))
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        ImportError, match=r"^reading Arrow tables and polars frames needs pyarrow: pip install pyarrow$"
    ):
        trained.encode(frame)


def written(table, path, kind):
    with pa.OSFile(str(path), "wb") as sink, getattr(pa.ipc, f"new_{kind}")(sink, table.schema) as writer:
        writer.write_table(table)
    return path


@pytest.mark.parametrize("suffix", [".arrow", ".feather"])
@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("n_chunks", [1, 3])
def test_arrow_files_are_data(tmp_path, kind, n_chunks, suffix):
    rows = X[:30].astype(np.float16)
    table = pa.table({"label": [str(one) for one in digits.y[:30]], "embedding": lists(rows, n_chunks=n_chunks)})
    source = sources.read(written(table, tmp_path / f"rows{suffix}", kind))
    np.testing.assert_array_equal(source.X, rows)
    assert source.X.dtype == np.float16
    assert [source.classes[number] for number in source.y] == table.column("label").to_pylist()
    if n_chunks == 1:
        assert not source.X.flags.writeable  # mapped


def test_arrow_files_of_columns_keep_their_type(tmp_path):
    rows = X[:30].astype(np.int8)
    source = sources.read(written(columns(rows, 2), tmp_path / "rows.arrow", "file"))
    assert source.X.dtype == np.int8
    np.testing.assert_array_equal(source.X, rows)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_parquet_keeps_short_types(tmp_path, dtype):
    rows = X[:30].astype(dtype)
    pa.parquet.write_table(pa.table({"embedding": lists(rows)}), tmp_path / "rows.parquet", row_group_size=8)
    source = sources.read(tmp_path / "rows.parquet")
    assert source.X.dtype == dtype
    np.testing.assert_array_equal(source.X, rows)


def test_damaged_arrow_files_are_refused(tmp_path):
    path = written(pa.table({"embedding": lists(X[:30])}), tmp_path / "rows.arrow", "file")
    whole = path.read_bytes()
    for content in (b"", b"ARROW1\0\0", whole[: len(whole) // 2], b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"rows.arrow' is not a whole Arrow file"):
            sources.read(path)
    written(pa.table({"embedding": lists(X[:1]).slice(0, 0)}), path, "file")
    with pytest.raises(DataError, match="no rows"):
        sources.read(path)
    written(pa.table({"embedding": [[1.0], None]}), path, "file")
    with pytest.raises(DataError, match="a list of 0 numbers"):
        sources.read(path)
