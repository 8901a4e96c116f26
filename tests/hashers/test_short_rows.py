"""Rows of short types, of mapped files, and sparse ones: the same codes as from wide rows, and no copy of them all."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from gphash import Collection, GPHasher, arrays
from gphash.data import blocks, sources
from gphash.functions import model as models
from gphash.hashers import ITQ, FastHash
from tests import digits

METHODS = {
    "gph": lambda: GPHasher(**{**digits.QUICK, "n_bits": 12, "random_state": 0}),
    "itq": lambda: ITQ(12, random_state=0),
    "fasthash": lambda: FastHash(12, n_trees=3, depth=2, random_state=0),
}
TRAIN, TEST = slice(0, 200), slice(1000, 1100)
SHORT = [np.float16, np.int8, np.uint8, np.int16, np.uint16]


def wide(X):
    return X.astype(np.float32)


def with_zeros(X):
    """Sparse rows that store every number, zeros as well."""
    n, d = X.shape
    return scipy.sparse.csr_array((X.ravel(), np.tile(np.arange(d), n), np.arange(0, n * d + 1, d)), (n, d))


SPARSE = {
    "csr": scipy.sparse.csr_array,
    "matrix": scipy.sparse.csr_matrix,
    "columns": scipy.sparse.csc_array,
    "coordinates": scipy.sparse.coo_array,
    "explicit zeros": with_zeros,
}


@pytest.fixture(scope="module", params=METHODS)
def trained(request):
    """An untrained hasher, and one that has learned from float32."""
    make = METHODS[request.param]
    return make, make().fit(wide(digits.X[TRAIN]), digits.y[TRAIN])


@pytest.mark.parametrize("dtype", SHORT, ids=lambda dtype: dtype.__name__)
def test_short_numbers_are_the_same_as_wide_ones(trained, dtype, tmp_path):
    make, expected = trained
    np.save(tmp_path / "rows.npy", digits.X.astype(dtype))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    found = make().fit(mapped[TRAIN], digits.y[TRAIN])
    assert found.fingerprint_ == expected.fingerprint_
    np.testing.assert_array_equal(found.encode(mapped[TEST]), expected.encode(wide(digits.X[TEST])))


@pytest.mark.parametrize("form", SPARSE)
def test_sparse_rows_are_the_same_as_dense_ones(trained, form, tmp_path):
    make, expected = trained
    rows = SPARSE[form](wide(digits.X[TRAIN]))
    found = make().fit(rows, digits.y[TRAIN])
    assert found.fingerprint_ == expected.fingerprint_
    asked, dense = SPARSE[form](wide(digits.X[TEST])), wide(digits.X[TEST])
    np.testing.assert_array_equal(found.encode(asked), expected.encode(dense))
    found.save(tmp_path / "model.gph")
    loaded = models.load(tmp_path / "model.gph")
    np.testing.assert_array_equal(loaded.encode(asked), expected.encode(dense))
    if loaded.has_probabilities:
        np.testing.assert_array_equal(loaded.bit_probabilities(asked), expected.bit_probabilities(dense))
        np.testing.assert_array_equal(loaded.look(asked).classes, loaded.look(dense).classes)


def test_rows_without_any_number_are_rows_of_zeros(trained):
    _, expected = trained
    nothing = scipy.sparse.csr_array((3, digits.X.shape[1]), dtype=np.float32)
    np.testing.assert_array_equal(expected.encode(nothing), expected.encode(np.zeros(nothing.shape, np.float32)))


@pytest.mark.parametrize("vectors", [None, "int8"])
@pytest.mark.parametrize("form", ["mapped", "sparse"])
def test_a_collection_of_such_rows(tmp_path, form, vectors):
    hasher = METHODS["gph"]().fit(wide(digits.X[TRAIN]), digits.y[TRAIN])
    np.save(tmp_path / "rows.npy", digits.X.astype(np.float16))
    rows = scipy.sparse.csr_array(digits.X) if form == "sparse" else sources.read(tmp_path / "rows.npy")
    options = {"vectors": vectors, "writable": True}
    with (
        Collection.create(tmp_path / "one", hasher, wide(digits.X), **options) as expected,
        Collection.create(tmp_path / "other", hasher, rows, **options) as found,
    ):
        for collection, more in ((expected, wide(digits.X[:3])), (found, scipy.sparse.csr_array(digits.X[:3]))):
            collection.add(more)
        np.testing.assert_array_equal(found.index.items()[0], expected.index.items()[0])
        asked, rerank = digits.X[7], None if vectors is None else 50
        assert found.search(asked, rerank=rerank) == expected.search(asked, rerank=rerank)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint8, bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_of_rows_is_mapped_as_it_is(tmp_path, dtype, order):
    np.save(tmp_path / "rows.npy", np.asarray(digits.X > 3, dtype, order=order))
    found = sources.read(tmp_path / "rows.npy").X
    assert found.dtype == dtype
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, digits.X > 3)


@pytest.mark.parametrize("dtype", [np.float64, np.int64, ">f4", ">f2"])
def test_other_files_become_float32(tmp_path, dtype):
    np.save(tmp_path / "rows.npy", digits.X.astype(dtype))
    assert sources.read(tmp_path / "rows.npy").X.dtype == np.dtype("=f4")


def test_a_table_of_short_rows_reads_wide_ones():
    table = blocks.ArrayTable(digits.X.astype(np.int8))
    read = table.select(np.array([3, 5, 8])).read()
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, digits.X[[3, 5, 8]])


def test_tables_of_other_sparse_rows_have_other_fingerprints():
    rows = scipy.sparse.csr_array(digits.X[:9])
    marks = {blocks.ArrayTable(arrays.sparse(some)).fingerprint() for some in (rows, rows * 2, rows[::-1])}
    assert len(marks) == 3


@pytest.mark.parametrize("form", ["float16", "sparse"])
def test_encoding_copies_no_more_than_some_tiles(tmp_path, form):
    n_rows, n_features = 60_000, 200
    hasher = ITQ(8, random_state=0, n_jobs=1).fit(np.random.default_rng(0).standard_normal((300, n_features)))
    hasher.save(tmp_path / "model.gph")
    loaded = models.load(tmp_path / "model.gph", n_jobs=1)
    rows = (
        scipy.sparse.csr_array((n_rows, n_features), dtype=np.float32)
        if form == "sparse"
        else np.zeros((n_rows, n_features), np.float16)
    )
    for encode in (hasher.encode, loaded.encode):
        encode(rows[:10])
        tracemalloc.start()
        encode(rows)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 4 * n_rows * n_features / 2  # half of what float32 takes
