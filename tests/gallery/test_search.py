"""Galleries find what an index finds, and tell what is known of it."""

import io

import numpy as np
import pytest
from PIL import Image

from gphash import HammingIndex, methods
from gphash.baselines import LSH
from gphash.gallery import png
from gphash.gallery.gallery import Gallery
from gphash.gallery.recent import Recent
from gphash.gallery.records import NoPictureError, UnknownItemError
from gphash.hamming import packing
from tests.gallery import sources

SOURCE = sources.of_digits()


def oracle(gallery, query, k, *, radius=None, label=None, expected=False):
    """Ids and distances by plain arithmetic."""
    packed, ids = gallery.index.items()
    bits = packing.unpack(packed, gallery.n_bits).astype(float)
    code = packing.unpack(query.code[None], gallery.n_bits)[0]
    hamming = np.abs(bits - code).sum(axis=1)
    distances = hamming
    if expected:
        distances = (bits * (1 - query.probabilities) + (1 - bits) * query.probabilities).sum(axis=1)
    labels = [gallery.item(int(number)).labels for number in ids]
    kept = [
        i for i in range(len(ids)) if (radius is None or hamming[i] <= radius) and (label is None or label in labels[i])
    ]
    # Expected distances of equal codes are equal, but sums of floats may differ in the last place.
    kept.sort(key=lambda i: (round(distances[i], 9), ids[i]))
    return [(int(ids[i]), pytest.approx(distances[i])) for i in kept[:k]]


@pytest.mark.parametrize("ranking", ["hamming", "expected"])
@pytest.mark.parametrize("radius", [None, 0, 1, 3])
@pytest.mark.parametrize("label", [None, "3"])
@pytest.mark.parametrize("k", [1, 7, 1000])
def test_what_is_found_is_exact(gallery, ranking, radius, label, k):
    query = gallery.query(features=SOURCE.X[5])
    found = gallery.search(query, k, ranking=ranking, radius=radius, allowed=label)
    wanted = oracle(gallery, query, k, radius=radius, label=label, expected=ranking == "expected")
    assert [(neighbour.id, neighbour.distance) for neighbour in found] == wanted


def test_an_item_is_what_the_source_said(gallery):
    packed = gallery.model.encode(SOURCE.X)
    for row in (0, 17, 299):
        item = gallery.item(row)
        assert item.labels == (SOURCE.classes[SOURCE.y[row]],)
        assert item.bits == "".join(map(str, packing.unpack(packed[row : row + 1], 8)[0]))
        assert item.has_picture
    assert (gallery.n_bits, gallery.classes, gallery.name, len(gallery)) == (8, SOURCE.classes, "digits", 300)
    assert gallery.has_pictures
    assert gallery.has_labels
    assert gallery.has_probabilities
    assert not gallery.writable


def test_neighbours_say_whether_they_are_of_the_same_class(gallery):
    query = gallery.query(id=17)
    assert query.labels == (SOURCE.classes[SOURCE.y[17]],)
    found = gallery.search(query, 50)
    assert [neighbour.relevant for neighbour in found] == [
        SOURCE.y[neighbour.id] == SOURCE.y[17] for neighbour in found
    ]
    unknown = gallery.search(gallery.query(features=SOURCE.X[17]), 50)
    assert {neighbour.relevant for neighbour in unknown} == {None}
    assert [neighbour.id for neighbour in unknown] == [neighbour.id for neighbour in found]


def test_others_leaves_the_query_out_and_nothing_else(gallery):
    query = gallery.query(id=17)
    everything = [neighbour.id for neighbour in gallery.search(query, 300)]
    others = [neighbour.id for neighbour in gallery.search(query, 300, others=True)]
    assert others == [number for number in everything if number != 17]
    for k in (1, 5, 299):
        assert [neighbour.id for neighbour in gallery.search(query, k, others=True)] == others[:k]


def test_a_picture_an_id_and_features_ask_the_same(gallery):
    by_features = gallery.query(features=SOURCE.X[3])
    by_id = gallery.query(id=3)
    by_picture = gallery.query(picture=sources.png_of(SOURCE.images[3]))
    by_code = gallery.query(code=gallery.item(3).bits)
    by_bytes = gallery.query(code=by_features.code)
    assert {query.code.tobytes() for query in (by_features, by_id, by_picture, by_code, by_bytes)} == {
        by_features.code.tobytes()
    }
    np.testing.assert_allclose(by_id.probabilities, by_features.probabilities, atol=0.05)
    np.testing.assert_allclose(by_picture.probabilities, by_id.probabilities, atol=1e-6)
    assert by_code.probabilities is None
    assert (by_id.id, by_picture.id) == (3, None)


def test_a_picture_may_be_a_file(gallery, tmp_path):
    path = tmp_path / "three.png"
    path.write_bytes(sources.png_of(SOURCE.images[3]))
    assert gallery.query(picture=path).code.tobytes() == gallery.query(id=3).code.tobytes()


def test_encode_gives_codes_and_probabilities(gallery):
    packed, chances = gallery.encode(SOURCE.X[:20])
    assert np.array_equal(packed, gallery.model.encode(SOURCE.X[:20]))
    assert np.array_equal(packing.pack(chances >= 0.5), packed)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "nothing given"),
        ({"id": 1, "code": "00000000"}, "id and code given"),
        ({"features": [1.0, 2.0]}, r"shape \(2,\); give one row of 64"),
        ({"features": np.full(64, np.nan)}, "NaN or infinity"),
        ({"features": ["a"] * 64}, "dtype"),
        ({"code": "0110"}, "give 8 zeros and ones"),
        ({"code": "0110000x"}, "give 8 zeros and ones"),
        ({"code": np.zeros(2, np.uint8)}, "2 bytes per code"),
        ({"code": np.zeros((2, 1), np.uint8)}, "2 rows"),
        ({"id": True}, "id=True"),
        ({"picture": b"no picture"}, "no picture of a known format"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(gallery, asked, message):
    with pytest.raises(ValueError, match=message):
        gallery.query(**asked)


def test_the_width_of_many_rows_is_named_twice(gallery):
    with pytest.raises(ValueError, match=r"features has 3 columns; the model takes rows of 64"):
        gallery.encode(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"k": 0}, "k=0"),
        ({"k": 2.0}, r"k=2\.0"),
        ({"radius": -1}, "radius=-1"),
        ({"ranking": "other"}, "ranking='other'"),
        ({"allowed": "cat"}, "allowed='cat' is no label of the gallery; give one of '0'"),
        ({"ranking": "expected"}, "no probabilities"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(gallery, asked, message):
    with pytest.raises(ValueError, match=message):
        gallery.search(gallery.query(code="00000000"), **asked)


@pytest.mark.parametrize("number", [300, -1, 2**63, -(2**80)])
def test_an_item_that_is_not_there(gallery, number):
    for ask in (gallery.item, gallery.picture, lambda id: gallery.query(id=id)):
        with pytest.raises(UnknownItemError, match=str(number)):
            ask(number)


def test_pixels_come_as_png(gallery):
    picture = gallery.picture(3)
    assert picture.media_type == "image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(picture.content))), SOURCE.images[3])


@pytest.mark.parametrize("shape", [(1, 1), (5, 3), (7, 11, 3)])
def test_png_is_what_pillow_reads(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png.encode(pixels)))), pixels)


def test_png_refuses_other_arrays():
    with pytest.raises(ValueError, match="pixels is float64"):
        png.encode(np.zeros((4, 4)))


@pytest.mark.parametrize("shape", [(10, 7), (9, 20, 3), (4, 4, 3)])
def test_a_reduced_picture_is_made_of_means(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    found = png.reduced(pixels, 4)
    step = -(-max(shape[:2]) // 4)
    assert max(found.shape[:2]) <= 4
    for row in range(found.shape[0]):
        for column in range(found.shape[1]):
            block = pixels[row * step : (row + 1) * step, column * step : (column + 1) * step]
            assert np.abs(block.mean(axis=(0, 1)) - found[row, column]).max() <= 0.5


def test_filters_of_few_labels_are_kept(model, tmp_path):
    names = tuple(f"class {number}" for number in range(40))
    source = sources.of_digits(y=np.arange(300) % 40, classes=names)
    gallery = Gallery.build(tmp_path / "many.index", model, source)
    query = gallery.query(features=SOURCE.X[0])
    for _ in range(2):
        for number, name in enumerate(names):
            found = gallery.search(query, 300, allowed=name)
            assert sorted(one.id for one in found) == list(range(number, 300, 40))
    assert len(gallery._filters) == 16


def test_what_was_asked_for_last_is_kept():
    made = []
    kept = Recent(2)
    for key in "abacab":
        assert kept.get(key, lambda key=key: made.append(key) or key) == key
    assert made == ["a", "b", "c", "b"]


def test_buckets_count_labels(gallery):
    packed, ids = gallery.index.items()
    codes, sizes = np.unique(packed, axis=0, return_counts=True)
    found = gallery.buckets(5, samples=3)
    assert [bucket.size for bucket in found] == sorted(sizes.tolist(), reverse=True)[:5]
    for bucket in found:
        members = ids[(packed == packing.pack([[int(bit) for bit in bucket.bits]])).all(axis=1)]
        assert len(members) == bucket.size
        assert set(bucket.ids) <= set(members.tolist())
        assert len(bucket.ids) == min(3, bucket.size)
        assert bucket.ids == sorted(bucket.ids)
        counts = np.bincount(SOURCE.y[members], minlength=10).tolist()
        wanted = {name: n for name, n in zip(SOURCE.classes, counts, strict=True) if n}
        assert bucket.labels == wanted
        assert list(bucket.labels.values()) == sorted(wanted.values(), reverse=True)
    assert len(gallery.buckets(10_000)) == len(codes)


def test_a_random_item_is_one_of_them(gallery):
    assert {gallery.random_id(seed) for seed in range(50)} <= set(range(300))
    assert gallery.random_id(3) == gallery.random_id(3)


def test_tags(model, tmp_path):
    source = sources.tagged()
    gallery = Gallery.build(tmp_path / "tags.index", model, source)
    tags = source.y
    assert gallery.item(0).labels == tuple(name for name, tag in zip(source.classes, tags[0], strict=True) if tag)
    row = int(np.flatnonzero(tags.sum(axis=1) == 3)[0]) if (tags.sum(axis=1) == 3).any() else 0
    found = gallery.search(gallery.query(id=row), 300)
    assert [neighbour.relevant for neighbour in found] == [bool((tags[n.id] & tags[row]).any()) for n in found]
    # A query without tags has nothing to find.
    bare = int(np.flatnonzero(~tags.any(axis=1))[0])
    assert {neighbour.relevant for neighbour in gallery.search(gallery.query(id=bare))} == {None}
    only = gallery.search(gallery.query(id=row), 300, allowed="large")
    assert sorted(neighbour.id for neighbour in only) == np.flatnonzero(tags[:, 1]).tolist()
    (bucket, *_) = gallery.buckets(1)
    packed, _ = gallery.index.items()
    members = (packed == packing.pack([[int(bit) for bit in bucket.bits]])).all(axis=1)
    sums = tags[members].sum(axis=0)
    assert bucket.labels == {name: int(n) for name, n in zip(source.classes, sums, strict=True) if n}


def test_features_only(model, tmp_path):
    source = sources.of_digits(y=None, classes=(), images=None, descriptor=None)
    gallery = Gallery.build(tmp_path / "bare.index", model, source)
    assert (gallery.item(3).labels, gallery.item(3).has_picture, gallery.classes) == ((), False, ())
    assert not gallery.has_labels
    assert not gallery.has_pictures
    with pytest.raises(NoPictureError):
        gallery.picture(3)
    with pytest.raises(ValueError, match="give features"):
        gallery.query(picture=sources.png_of(SOURCE.images[3]))
    query = gallery.query(id=3)
    assert query.probabilities is None
    assert {neighbour.relevant for neighbour in gallery.search(query)} == {None}
    with pytest.raises(ValueError, match="its items have none"):
        gallery.search(query, allowed="3")
    assert gallery.buckets(1)[0].labels == {}


def test_a_method_without_probabilities(tmp_path):
    LSH(n_bits=12, random_state=0).fit(SOURCE.X).save(tmp_path / "lsh.gph")
    gallery = Gallery.build(tmp_path / "lsh.index", tmp_path / "lsh.gph", SOURCE)
    query = gallery.query(id=3)
    assert query.probabilities is None
    assert gallery.encode(SOURCE.X[:2])[1] is None
    assert gallery.search(query, 1)[0].distance == 0
    with pytest.raises(ValueError, match="LSH gives none"):
        gallery.search(query, ranking="expected")


def test_ids_of_a_table_in_any_order(model, tmp_path):
    ids = np.random.default_rng(0).permutation(300).astype(np.int64) * 7 - 900
    gallery = Gallery.build(tmp_path / "ids.index", model, sources.of_digits(ids=ids))
    for row in (0, 150, 299):
        assert gallery.item(int(ids[row])).labels == (SOURCE.classes[SOURCE.y[row]],)
        picture = Image.open(io.BytesIO(gallery.picture(int(ids[row])).content))
        assert np.array_equal(np.asarray(picture), SOURCE.images[row])
    found = gallery.search(gallery.query(id=int(ids[0])), 300, allowed="3")
    assert sorted(neighbour.id for neighbour in found) == sorted(ids[SOURCE.y == 3].tolist())


def test_an_index_made_in_python(model, tmp_path):
    hasher = methods.load(model)
    index = HammingIndex.build(hasher.encode(SOURCE.X), n_bits=8, model=hasher)
    index.save(tmp_path / "plain.index")
    with pytest.raises(ValueError, match="give the file of the model"):
        Gallery.open(tmp_path / "plain.index")
    gallery = Gallery.open(tmp_path / "plain.index", model=model)
    assert gallery.name == "plain"
    assert gallery.item(3).labels == ()
    assert gallery.search(gallery.query(id=3), 1)[0].distance == 0
    assert gallery.search(gallery.query(features=SOURCE.X[3]), 1, ranking="expected")[0].labels == ()


def test_an_empty_gallery(copy):
    with Gallery.open(copy, writable=True) as gallery:
        gallery.index.remove(gallery.index.ids)
        assert gallery.search(gallery.query(features=SOURCE.X[0])) == []
        assert gallery.buckets() == []
        with pytest.raises(UnknownItemError):
            gallery.random_id()
        assert gallery.add(features=SOURCE.X[0], label="0").id == 300


def test_a_million_items_are_listed_by_bucket(model, tmp_path):
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (1_000_000, 1), dtype=np.uint8)
    HammingIndex.build(packed, n_bits=8).save(tmp_path / "many.index")
    gallery = Gallery.open(tmp_path / "many.index", model=model)
    found = gallery.buckets()
    assert found[0].size == np.bincount(packed[:, 0]).max()


def test_a_query_may_do_without_probabilities(gallery):
    for given in ({"id": 3}, {"features": SOURCE.X[5]}):
        full, bare = gallery.query(**given), gallery.query(**given, certainty=False)
        assert full.probabilities is not None
        assert bare.probabilities is None
        np.testing.assert_array_equal(full.code, bare.code)
        assert (full.id, full.labels) == (bare.id, bare.labels)
