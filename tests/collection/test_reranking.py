"""Vectors that are kept beside codes: exact within the candidates, as durable as the codes, and never wrong."""

import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gphash.collection import folder as folders
from gphash.collection import vectors
from gphash.collection.collection import Collection
from gphash.container import FormatError
from gphash.hashers import LSH
from tests.collection import sources

RNG = np.random.default_rng(5)
X = RNG.standard_normal((900, 24)).astype(np.float32) * RNG.uniform(0.1, 10, (900, 1)).astype(np.float32)
QUERIES = RNG.standard_normal((7, 24)).astype(np.float32)
FORMS = ["float16", "int8"]


@pytest.fixture(scope="module")
def hasher():
    return LSH(16, random_state=0).fit(X)


def made(path, hasher, n=600, **how):
    said = {"key": [f"item {row:04}" for row in range(n)], "price": [row % 10 for row in range(n)]}
    return Collection.create(path, hasher, X[:n], said, **{"vectors": "float16", **how})


def row_of(key):
    return int(key.removeprefix("item "))


def as_stored(rows, form):
    """What quantised rows are, by the definition."""
    largest = np.abs(rows.astype(np.float64)).max(axis=1, keepdims=True)
    if form == "int8":
        return np.rint(rows / (largest / 127)) * (largest / 127)
    scale = 2.0 ** np.ceil(np.log2(largest))
    return np.float64(np.float16(rows / scale)) * scale


def scores_of(query, rows, metric):
    dots = rows @ query.astype(np.float64)
    return dots if metric == "dot" else dots / np.linalg.norm(rows, axis=1) / np.linalg.norm(query.astype(np.float64))


rows_of_any_size = arrays.arrays(
    np.float64, (4, 5), elements=st.floats(-1, 1, width=32).map(lambda value: float(np.round(value, 6)))
)


@given(rows_of_any_size, st.integers(-60, 58), st.sampled_from(FORMS))
def test_a_stored_row_is_nearly_the_row(rows, power, form):
    rows = rows * 2.0**power
    numbers = np.arange(-2, 2)
    stored = vectors.check(vectors.seal(vectors.pack(rows, form), numbers), numbers, form, "here")
    error = np.abs(vectors.unpack(stored, form) - rows)
    # Of the largest value of the row: half a step of int8, or half a unit in the last of float16's eleven places.
    assert (error <= np.abs(rows).max(axis=1, keepdims=True) * (1 / 253 if form == "int8" else 2.0**-11)).all()


@given(st.integers(1, 70), st.sampled_from(FORMS), st.sampled_from(vectors.METRICS), st.integers(0, 99))
def test_equal_rows_have_equal_scores(width, form, metric, seed):
    rng = np.random.default_rng(seed)
    rows, query = np.repeat(rng.standard_normal((1, width)), 9, axis=0), rng.standard_normal(width)
    found = vectors.scores(query, vectors.pack(rows, form), vectors.VectorKind(form, metric))
    assert len(set(found.tolist())) == 1
    assert (vectors.scores(query, vectors.pack(0 * rows, form), vectors.VectorKind(form, metric)) == 0).all()


@pytest.mark.parametrize(("form", "place"), [("float16", 8), ("float16", 4), ("int8", 4)])
def test_what_is_no_number_is_refused_however_well_it_is_sealed(form, place):
    rows, numbers = vectors.pack(np.ones((2, 3)), form), np.arange(2)
    rows[1, place : place + (2 if place == 8 else 4)] = 0xFF  # a NaN
    with pytest.raises(FormatError, match="'here' is damaged: a vector holds NaN or infinity"):
        vectors.check(vectors.seal(rows, numbers), numbers, form, "here")


@given(arrays.arrays(np.uint8, 24), st.integers(0, 23), st.integers(1, 255))
def test_a_row_knows_whose_it_is_and_that_it_is_whole(content, place, mask):
    rows = vectors.seal(content[None].copy(), np.array([7]))
    with pytest.raises(FormatError, match="the vector of 8"):
        vectors.check(rows, np.array([8]), "int8", "here")
    rows[0, place] ^= mask
    with pytest.raises(FormatError, match="here"):
        vectors.check(rows, np.array([7]), "int8", "here")


@pytest.mark.parametrize("metric", vectors.METRICS)
@pytest.mark.parametrize("form", FORMS)
def test_it_is_exact_within_the_candidates(tmp_path, hasher, form, metric):
    with made(tmp_path / "a.gphash", hasher, vectors=form, metric=metric) as collection:
        assert collection.vectors == (form, metric)
        for rerank in (10, 60, 600, 5000):
            for query, hits in zip(QUERIES, collection.search(QUERIES, rerank=rerank), strict=True):
                candidates = [row_of(hit.key) for hit in collection.search(query, rerank)]
                scores = scores_of(query, as_stored(X[candidates], form), metric)
                best = sorted(zip(-scores, candidates, strict=True))[:10]
                assert [row_of(hit.key) for hit in hits] == [row for _, row in best]
                np.testing.assert_allclose([hit.score for hit in hits], [-score for score, _ in best], rtol=1e-4)
        exact = np.argsort(-scores_of(QUERIES[0], X[:600].astype(np.float64), metric))[:3]
        assert [row_of(hit.key) for hit in collection.search(QUERIES[0], 3, rerank=600)] == exact.tolist()
        assert all(hit.score is None for hit in collection.search(QUERIES[0]))


def test_equal_vectors_are_ordered_by_their_keys(tmp_path, hasher):
    keys = [f"key {row:03}" for row in np.random.default_rng(0).permutation(100)]
    rows = np.repeat(X[:5], 20, axis=0)
    with Collection.create(tmp_path / "a.gphash", hasher, rows, {"key": keys}, vectors="int8") as collection:
        hits = collection.search(X[3], 7, rerank=100)
        assert [hit.key for hit in hits] == sorted(keys[60:80])[:7]
        own = collection.query(key=keys[60])
        assert [hit.key for hit in collection.search(own, 30, rerank=99)][:19] == sorted(keys[61:80])


def test_conditions_radius_and_probabilities_come_first(tmp_path):
    whole = sources.of_digits()
    with Collection.create(tmp_path / "a.gphash", sources.hasher(), whole, vectors="float16") as collection:
        hits = collection.search(whole.X[0], 5, rerank=50, label="3", radius=6, ranking="similarity")
        assert {hit.labels for hit in hits} == {("3",)}
        assert all(hit.distance <= 6 and hit.probability is not None for hit in hits)
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        sure = collection.search(whole.X[0], 50, rerank=100, min_probability=0.9)
        assert all(hit.probability >= 0.9 for hit in sure)
        first = collection.search(collection.query(key=0), 1, rerank=300)[0]  # a picture's row is what was described
        own = scores_of(whole.X[0], whole.X.astype(np.float64), "cosine")
        assert first.key == np.argsort(-own)[1]


def test_what_cannot_be_reranked_is_refused(tmp_path, hasher):
    with made(tmp_path / "a.gphash", hasher) as kept, made(tmp_path / "b.gphash", hasher, vectors=None) as bare:
        assert bare.vectors is None
        with pytest.raises(ValueError, match="rerank=400, but the collection was made without vectors; make it with "):
            bare.search(QUERIES[0], rerank=400)
        with pytest.raises(ValueError, match="rerank needs the features of the query, which has a code alone"):
            kept.search(kept.query(code="01" * 8), rerank=400)
        with pytest.raises(ValueError, match="rerank=5, but k=10; give at least"):
            kept.search(QUERIES[0], rerank=5)
        for wrong in (0, -1, True, 2.5, "9"):
            with pytest.raises(ValueError, match="rerank="):
                kept.search(QUERIES[0], 1, rerank=wrong)
    for wrong in ({"vectors": "float32"}, {"vectors": True}, {"metric": "euclid"}):
        with pytest.raises(ValueError, match=r"vectors=|metric="):
            made(tmp_path / "c.gphash", hasher, **wrong)
    assert not (tmp_path / "c.gphash").exists()


def check_whole(collection, model, form="float16"):
    """All vectors of a collection are those of the rows that a model, key → row, knows of."""
    numbers = collection._store.items.numbers(sorted(model))
    assert len(collection) == len(numbers) == len(model)
    if model:
        order = np.array([numbers[key] for key in sorted(model)])
        found = vectors.unpack(collection._store.vectors_of(order), form)
        np.testing.assert_allclose(found, as_stored(X[[model[key] for key in sorted(model)]], form), rtol=1e-5)


changes = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 899)), min_size=1, max_size=8)),
        st.tuples(st.just("remove"), st.lists(st.integers(0, 40), min_size=1, max_size=12)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=60)
@given(changes, st.sampled_from([1, 10, 1 << 16]), st.booleans())
def test_vectors_follow_all_changes(tmp_path_factory, hasher, steps, small, numbered):
    """Also those of keys that are used again, in parts that lose some items, and of parts that are joined."""
    path = tmp_path_factory.mktemp("changes") / "a.gphash"
    name = (lambda key: key) if numbered else str
    known = {name(key): key for key in range(20)}
    created = {"key": list(known)[::-1]}  # whose order is not that of the rows
    writer = Collection.create(path, hasher, X[19::-1], created, vectors="float16", writable=True)
    before, folders.SMALL = folders.SMALL, small
    reader = Collection.open(path)
    try:
        for kind, given_ in steps:
            if kind == "add":
                fresh = {name(key): row for key, row in given_ if name(key) not in known}
                if fresh:
                    writer.add(X[list(fresh.values())], {"key": list(fresh)})
                known |= fresh
            elif kind == "remove":
                gone = {name(key) for key in given_} & set(known)
                writer.remove(gone)
                known = {key: row for key, row in known.items() if key not in gone}
            elif kind == "compact":
                writer.compact()
            else:
                writer.close()
                writer = Collection.open(path, writable=True)
            check_whole(writer, known)
            check_whole(reader, known)
        if known:
            key = min(known)
            np.testing.assert_allclose(writer.query(key=key).features, as_stored(X[[known[key]]], "float16")[0])
    finally:
        folders.SMALL = before
        reader.close()
        writer.close()
    files = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    assert files == writer._store.manifest.files


def test_a_part_that_loses_few_items_keeps_its_file_of_vectors(tmp_path, hasher, monkeypatch):
    monkeypatch.setattr(folders, "SMALL", 10)
    made(tmp_path / "a.gphash", hasher).close()
    with Collection.open(tmp_path / "a.gphash", writable=True) as collection:
        known = {f"item {row:04}": row for row in range(600)}
        for n_gone, file in ((50, "parts/0000.vectors"), (400, "parts/0002.vectors")):
            gone = list(known)[:n_gone]
            collection.remove(gone)
            known = {key: row for key, row in known.items() if key not in set(gone)}
            collection.compact()
            assert [part.vectors for part in collection._store.manifest.parts] == [file]
            check_whole(collection, known)


def test_only_what_is_asked_for_is_read(tmp_path, hasher):
    """A row that nobody asks for may be damaged; one that is asked for may not."""
    path = tmp_path / "a.gphash"
    made(path, hasher).close()
    file = path / "parts/0000.vectors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1  # of the last row
    file.write_bytes(content)
    with Collection.open(path) as collection:
        assert len(collection.search(QUERIES[0], 5, rerank=20, where="key < ?", params=["item 0599"])) == 5
        with pytest.raises(FormatError, match=r"0000\.vectors' is damaged: the vector of 599 "):
            collection.search(QUERIES[0], 5, rerank=600)
        assert len(collection.search(QUERIES[0], 600)) == 600
    other = shutil.copytree(path, tmp_path / "b.gphash")
    (other / "parts/0000.vectors").unlink()
    with pytest.raises(FormatError, match=r"0000\.vectors' is missing"):
        Collection.open(other)
    made(tmp_path / "c.gphash", hasher, vectors="int8").close()
    shutil.copy(tmp_path / "c.gphash/parts/0000.vectors", other / "parts/0000.vectors")
    with pytest.raises(FormatError, match=r"0000\.vectors' .*not the file that the collection names"):
        Collection.open(other)


def test_blocks_keep_vectors_too(tmp_path, hasher):
    blocks = tmp_path / "blocks"
    blocks.mkdir()
    for place in range(3):
        np.save(blocks / f"{place}.npy", X[200 * place : 200 * place + 200])
    hasher.save(tmp_path / "model.gph")
    with Collection.create(tmp_path / "a.gphash", tmp_path / "model.gph", blocks, vectors="int8") as collection:
        assert len(collection._store.manifest.parts) == 3
        check_whole(collection, {row: row for row in range(600)}, "int8")
    with Collection.create(tmp_path / "a.gphash", tmp_path / "model.gph", blocks, replace=True) as collection:
        assert collection.vectors is None
    assert not list((tmp_path / "a.gphash").rglob("*.vectors"))
