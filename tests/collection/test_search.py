"""Collections find what an index finds, and tell what is known of it."""

import io

import numpy as np
import pytest
from PIL import Image

from gphash import GPHasher
from gphash.codes import packing
from gphash.collection.collection import Collection
from gphash.collection.nearest import cut
from gphash.collection.records import NoPictureError, UnknownItemError, code_of
from gphash.hashers import LSH
from tests import digits
from tests.collection import sources

SOURCE = sources.of_digits()


def oracle(collection, query, k, *, radius=None, label=None, expected=False):
    """Ids and distances by plain arithmetic."""
    packed, ids = collection.index.items()
    bits = packing.unpack(packed, collection.n_bits).astype(float)
    code = packing.unpack(query.code[None], collection.n_bits)[0]
    hamming = np.abs(bits - code).sum(axis=1)
    distances = hamming
    if expected:
        distances = (bits * (1 - query.probabilities) + (1 - bits) * query.probabilities).sum(axis=1)
    labels = [collection.item(int(number)).labels for number in ids]
    kept = [
        i for i in range(len(ids)) if (radius is None or hamming[i] <= radius) and (label is None or label in labels[i])
    ]
    # Expected distances of equal codes are equal, but sums of floats may differ in the last place.
    kept.sort(key=lambda i: (round(distances[i], 11), ids[i]))
    return [(int(ids[i]), pytest.approx(distances[i])) for i in kept[:k]]


@pytest.mark.parametrize("ranking", ["hamming", "expected"])
@pytest.mark.parametrize("radius", [None, 0, 1, 3])
@pytest.mark.parametrize("label", [None, "3"])
@pytest.mark.parametrize("k", [1, 7, 1000])
def test_what_is_found_is_exact(collection, ranking, radius, label, k):
    query = collection.query(features=SOURCE.X[5])
    found = collection.search(query, k, ranking=ranking, radius=radius, label=label)
    wanted = oracle(collection, query, k, radius=radius, label=label, expected=ranking == "expected")
    assert [(neighbour.key, neighbour.distance) for neighbour in found] == wanted


def test_an_item_is_what_the_source_said(collection):
    packed = collection.model.encode(SOURCE.X)
    for row in (0, 17, 299):
        item = collection.item(row)
        assert item.labels == (SOURCE.classes[SOURCE.y[row]],)
        assert item.bits == "".join(map(str, packing.unpack(packed[row : row + 1], 8)[0]))
        assert item.has_picture
    assert (collection.n_bits, collection.classes, collection.name, len(collection)) == (
        8,
        SOURCE.classes,
        "digits",
        300,
    )
    assert collection.has_pictures
    assert collection.model.has_probabilities
    assert not collection.writable


def test_neighbours_say_whether_they_are_of_the_same_class(collection):
    query = collection.query(key=17)
    assert query.labels == (SOURCE.classes[SOURCE.y[17]],)
    found = collection.search(query, 50)
    assert [neighbour.relevant for neighbour in found] == [
        SOURCE.y[neighbour.key] == SOURCE.y[17] for neighbour in found
    ]
    unknown = collection.search(collection.query(features=SOURCE.X[17]), 50)
    assert {neighbour.relevant for neighbour in unknown} == {None}
    assert [neighbour.key for neighbour in unknown if neighbour.key != 17] == [hit.key for hit in found][:49]


def test_an_item_that_is_the_query_is_left_out_and_nothing_else(collection):
    query = collection.query(key=17)
    everything = [neighbour.key for neighbour in collection.search(query._replace(key=None), 300)]
    others = [neighbour.key for neighbour in collection.search(query, 300)]
    assert others == [key for key in everything if key != 17]
    for k in (1, 5, 299):
        assert [neighbour.key for neighbour in collection.search(query, k)] == others[:k]


def test_the_most_probably_similar_come_first(collection):
    query = collection.query(features=SOURCE.X[17])
    found = collection.search(query, 300, ranking="similarity")
    chances = [hit.probability for hit in found]
    assert chances == sorted(chances, reverse=True)
    function = collection.model.function
    reader, packed = function.reader(), np.stack([code_of(hit.bits) for hit in found])
    np.testing.assert_array_equal(reader.compare(query.classes[None], reader.read(packed))[0], chances)
    apart = np.bitwise_count(packed ^ query.code).sum(axis=1)
    assert [hit.distance for hit in found] == apart.tolist()
    # By another ranking, items are as probable.
    by_key = {hit.key: hit.probability for hit in found}
    assert all(hit.probability == by_key[hit.key] for hit in collection.search(query, 50))


def test_a_list_is_cut_where_it_is_not_probable_enough(collection):
    query = collection.query(features=SOURCE.X[17])
    found = collection.search(query, 300, ranking="similarity")
    likely = collection.search(query, 300, ranking="similarity", min_probability=0.5)
    assert likely == [hit for hit in found if hit.probability >= 0.5] != found
    trust = collection.model.trust_
    for promised in (0.3, 0.8):
        kept = collection.search(query, 300, ranking="similarity", precision=promised)
        assert kept == found[: len(kept)]
        assert kept.complete
        level = trust.cut("precision", promised)
        assert np.mean([hit.probability for hit in kept]) >= level
        assert np.mean([hit.probability for hit in found[: len(kept) + 1]]) < level
    kept = collection.search(query, 300, recall=0.95)
    least = trust.cut("recall", 0.95) * found[0].probability
    assert kept == [hit for hit in found if hit.probability >= least]
    assert kept.complete == (len(kept) < 300)
    assert not collection.search(query, 1, recall=0.95).complete
    assert collection.search(query, 1000, recall=0.95).complete  # there are no more
    unlikely = [hit for hit in found if hit.probability < 0.1]
    assert cut(trust, query, unlikely, 300, None, 0.5, None) == []
    for name in ("precision", "recall"):
        for wrong in (2, -0.1, 0, 1, np.nan, True, "half"):
            with pytest.raises(ValueError, match=rf"{name}=.*; give a number between 0 and 1, such as 0\.9"):
                collection.search(query, **{name: wrong})
        with pytest.raises(ValueError, match=rf"{name}=0\.9, but ranking='hamming'; give ranking='similarity'"):
            collection.search(query, ranking="hamming", **{name: 0.9})
    with pytest.raises(ValueError, match=r"precision=0\.9 and recall=0\.8; give one of them"):
        collection.search(query, precision=0.9, recall=0.8)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """A collection whose model has learned from pairs."""
    model = GPHasher(**digits.QUICK).fit(digits.X[:400], digits.pairs(400, 6000))
    place = tmp_path_factory.mktemp("judged") / "judged.gphash"
    with Collection.create(place, model, digits.X[400:700]) as made:
        yield made, model


class TestOfPairs:
    """Searches of a model that has learned from judged pairs."""

    def test_hits_have_their_probability_and_the_order_of_expected_distances(self, judged):
        collection, model = judged
        found = collection.search(digits.X[700], 300)  # by P(similar), unless something else is asked for
        expected = collection.search(digits.X[700], 300, ranking="expected")
        assert [hit.key for hit in found] == [hit.key for hit in expected]
        chances = model.similarity_probability(digits.X[700:701], model.encode(digits.X[400:700]))[0]
        np.testing.assert_allclose([hit.probability for hit in found], [chances[hit.key] for hit in found], atol=1e-6)
        assert [hit.probability for hit in expected] == [hit.probability for hit in found]
        likely = collection.search(digits.X[700], 300, min_probability=0.5)
        assert likely == [hit for hit in found if hit.probability >= 0.5] != found
        assert found.nothing_similar is None
        assert collection.query(features=digits.X[700]).classes is None

    def test_an_item_is_compared_by_its_code(self, judged):
        collection, model = judged
        query = collection.query(key=17)
        found, curve = collection.search(query, 300), model.reader_.hamming
        by_hand = [1 / (1 + np.exp(curve[1] * hit.distance - curve[0])) for hit in found]
        np.testing.assert_allclose([hit.probability for hit in found], by_hand)
        chances = [one.probability for one in collection.duplicates(1).pairs()]
        ends = [1 / (1 + np.exp(curve[1] * apart - curve[0])) for apart in (0, 1)]
        np.testing.assert_allclose(sorted(set(chances)), sorted(ends))
        near = collection.duplicates(min_probability=(ends[0] + ends[1]) / 2)
        assert near.clusters() == collection.duplicates(0).clusters()

    def test_what_needs_classes_is_refused_with_a_remedy(self, judged):
        collection, _ = judged
        for name in ("precision", "recall"):
            message = rf"{name}=0\.9, but the model was not fitted to labels or tags .* give min_probability"
            with pytest.raises(ValueError, match=message):
                collection.search(digits.X[700], **{name: 0.9})

    def test_far_from_everything_it_is_a_probability_all_the_same(self, judged):
        collection, _ = judged
        found = collection.search(1e6 * digits.X[700] - 3e5, 300)
        assert all(0 <= hit.probability <= 1 for hit in found)


@pytest.mark.parametrize("wrong", [-0.1, 1.5, np.nan, True, "half"])
def test_a_least_probability_is_one(collection, wrong):
    with pytest.raises(ValueError, match=r"min_probability=.*; give a number from 0 to 1"):
        collection.search(SOURCE.X[17], min_probability=wrong)


def test_a_model_of_another_method_promises_nothing(tmp_path):
    with Collection.create(tmp_path / "a.gphash", LSH(8, random_state=0).fit(SOURCE.X), SOURCE.X) as bare:
        for name in ("min_probability", "precision", "recall"):
            with pytest.raises(
                ValueError, match=rf"{name}=0\.9, but the model does not know P\(similar\).*; leave it out"
            ):
                bare.search(SOURCE.X[17], **{name: 0.9})
        with pytest.raises(ValueError, match=r"ranking='similarity', but the model does not know P\(similar\)"):
            bare.search(SOURCE.X[17], ranking="similarity")


def test_a_strange_query_finds_nothing_similar(collection):
    """Of digits, the familiar ones are most; noise is none of them, and the nearest items come all the same."""
    told = [collection.search(row, 5).nothing_similar for row in SOURCE.X]
    assert np.mean(told) < 0.1
    noise = np.random.default_rng(0).integers(0, 17, (20, 64)).astype(np.float32)
    strange = collection.search(noise, 5)
    assert np.mean([hits.nothing_similar for hits in strange]) > 0.5
    assert {len(hits) for hits in strange} == {5}
    assert collection.query(features=noise[0]).familiarity < collection.query(features=SOURCE.X[17]).familiarity
    assert collection.search(collection.query(code="0" * 8), 3).nothing_similar is not None


def test_rows_and_several_queries(collection):
    def told(found):
        """Several rows at once are encoded in another order of sums, which the last digits of a probability show."""
        return [[hit._replace(probability=round(hit.probability, 5)) for hit in hits] for hits in found]

    queries = [collection.query(features=row) for row in SOURCE.X[:3]]
    wanted = told([collection.search(query, 5) for query in queries])
    assert told(collection.search(queries, 5)) == told(collection.search(SOURCE.X[:3], 5)) == wanted
    assert told([collection.search(SOURCE.X[0], 5)]) == wanted[:1]
    assert told(collection.search(SOURCE.X[:3].tolist(), 5)) == wanted
    found = collection.search(SOURCE.X[:3], 5, ranking="expected")
    for hits, query in zip(found, queries, strict=True):
        alone = collection.search(query, 5, ranking="expected")
        assert [hit.key for hit in hits] == [hit.key for hit in alone]
        assert [hit.distance for hit in hits] == pytest.approx([hit.distance for hit in alone], rel=1e-4)
    for wrong in ([], np.zeros((2, 3)), np.zeros((0, 64)), np.zeros((1, 1, 64)), "abc"):
        with pytest.raises((ValueError, TypeError), match="query"):
            collection.search(wrong)


def test_a_picture_a_key_and_features_ask_the_same(collection):
    by_features = collection.query(features=SOURCE.X[3])
    by_id = collection.query(key=3)
    by_picture = collection.query(picture=sources.png_of(SOURCE.images[3]))
    by_code = collection.query(code=collection.item(3).bits)
    by_bytes = collection.query(code=by_features.code)
    assert {query.code.tobytes() for query in (by_features, by_id, by_picture, by_code, by_bytes)} == {
        by_features.code.tobytes()
    }
    np.testing.assert_allclose(by_id.probabilities, by_features.probabilities, atol=0.05)
    np.testing.assert_allclose(by_picture.probabilities, by_id.probabilities, atol=1e-6)
    assert by_code.probabilities is None
    assert (by_id.key, by_picture.key) == (3, None)


def test_a_picture_may_be_a_file(collection, tmp_path):
    path = tmp_path / "three.png"
    path.write_bytes(sources.png_of(SOURCE.images[3]))
    assert collection.query(picture=path).code.tobytes() == collection.query(key=3).code.tobytes()


def test_encode_gives_codes_and_probabilities(collection):
    packed, chances = collection.encode(SOURCE.X[:20])
    assert np.array_equal(packed, collection.model.encode(SOURCE.X[:20]))
    assert np.array_equal(chances, collection.model.bit_probabilities(SOURCE.X[:20]))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "nothing given"),
        ({"key": 1, "code": "00000000"}, "key and code given"),
        ({"features": [1.0, 2.0]}, r"shape \(2,\); give one row of 64"),
        ({"features": np.full(64, np.nan)}, "NaN or infinity"),
        ({"features": ["a"] * 64}, "dtype"),
        ({"code": "0110"}, "give 8 zeros and ones"),
        ({"code": "0110000x"}, "give 8 zeros and ones"),
        ({"code": np.zeros(2, np.uint8)}, "2 bytes per code"),
        ({"code": np.zeros((2, 1), np.uint8)}, "2 rows"),
        ({"key": True}, "key=True"),
        ({"picture": b"no picture"}, "not a picture of a known format"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused(collection, asked, message):
    with pytest.raises(ValueError, match=message):
        collection.query(**asked)


def test_the_width_of_many_rows_is_named_twice(collection):
    with pytest.raises(
        ValueError, match=r"features has dtype .* and shape \(2, 3\); give at least one row .*\[n, 64\]"
    ):
        collection.encode(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"k": 0}, "k=0"),
        ({"k": 2.0}, r"k=2\.0"),
        ({"radius": -1}, "radius=-1"),
        ({"ranking": "other"}, "ranking='other'"),
        ({"label": "cat"}, "label='cat' is no label of the collection; give one of '0'"),
        ({"ranking": "expected"}, "no probabilities"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(collection, asked, message):
    with pytest.raises(ValueError, match=message):
        collection.search(collection.query(code="00000000"), **asked)


@pytest.mark.parametrize("number", [300, -1, 2**63, -(2**80)])
def test_an_item_that_is_not_there(collection, number):
    for ask in (collection.item, collection.picture, lambda key: collection.query(key=key)):
        with pytest.raises(UnknownItemError, match=str(number)):
            ask(number)


def test_pixels_come_as_png(collection):
    picture = collection.picture(3)
    assert picture.media_type == "image/png"
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(picture.content))), SOURCE.images[3])


def test_filters_of_few_labels_are_kept(model, tmp_path):
    names = tuple(f"class {number}" for number in range(40))
    source = sources.of_digits(y=np.arange(300) % 40, classes=names)
    collection = Collection.create(tmp_path / "many.gphash", model, source)
    query = collection.query(features=SOURCE.X[0])
    for _ in range(2):
        for number, name in enumerate(names):
            found = collection.search(query, 300, label=name)
            assert sorted(one.key for one in found) == list(range(number, 300, 40))
    assert collection._store._filter.cache_info().currsize == 16


def test_buckets_count_labels(collection):
    packed, ids = collection.index.items()
    codes, sizes = np.unique(packed, axis=0, return_counts=True)
    found = collection.buckets(5, samples=3)
    assert [bucket.size for bucket in found] == sorted(sizes.tolist(), reverse=True)[:5]
    for bucket in found:
        members = ids[(packed == packing.pack([[int(bit) for bit in bucket.bits]])).all(axis=1)]
        assert len(members) == bucket.size
        assert set(bucket.keys) <= set(members.tolist())
        assert len(bucket.keys) == min(3, bucket.size)
        assert bucket.keys == sorted(bucket.keys)
        counts = np.bincount(SOURCE.y[members], minlength=10).tolist()
        wanted = {name: n for name, n in zip(SOURCE.classes, counts, strict=True) if n}
        assert bucket.labels == wanted
        assert list(bucket.labels.values()) == sorted(wanted.values(), reverse=True)
    assert len(collection.buckets(10_000)) == len(codes)


def test_a_random_item_is_one_of_them(collection):
    assert {collection.random_key(seed) for seed in range(50)} <= set(range(300))
    assert collection.random_key(3) == collection.random_key(3)


def test_tags(model, tmp_path):
    source = sources.tagged()
    collection = Collection.create(tmp_path / "tags.gphash", model, source)
    tags = source.y
    assert collection.item(0).labels == tuple(name for name, tag in zip(source.classes, tags[0], strict=True) if tag)
    row = int(np.flatnonzero(tags.sum(axis=1) == 3)[0]) if (tags.sum(axis=1) == 3).any() else 0
    found = collection.search(collection.query(key=row), 300)
    assert [neighbour.relevant for neighbour in found] == [bool((tags[n.key] & tags[row]).any()) for n in found]
    # A query without tags has nothing to find.
    bare = int(np.flatnonzero(~tags.any(axis=1))[0])
    assert {neighbour.relevant for neighbour in collection.search(collection.query(key=bare))} == {None}
    only = collection.search(source.X[row], 300, label="large")
    assert sorted(neighbour.key for neighbour in only) == np.flatnonzero(tags[:, 1]).tolist()
    (bucket, *_) = collection.buckets(1)
    packed, _ = collection.index.items()
    members = (packed == packing.pack([[int(bit) for bit in bucket.bits]])).all(axis=1)
    sums = tags[members].sum(axis=0)
    assert bucket.labels == {name: int(n) for name, n in zip(source.classes, sums, strict=True) if n}


def test_features_only(model, tmp_path):
    source = sources.of_digits(y=None, classes=(), images=None, descriptor=None)
    collection = Collection.create(tmp_path / "bare.gphash", model, source)
    assert (collection.item(3).labels, collection.item(3).has_picture, collection.classes) == ((), False, ())
    assert not collection.has_pictures
    with pytest.raises(NoPictureError):
        collection.picture(3)
    with pytest.raises(ValueError, match="give features"):
        collection.query(picture=sources.png_of(SOURCE.images[3]))
    query = collection.query(key=3)
    assert query.probabilities is None
    assert {neighbour.relevant for neighbour in collection.search(query)} == {None}
    with pytest.raises(ValueError, match="its items have none"):
        collection.search(query, label="3")
    assert collection.buckets(1)[0].labels == {}


def test_a_method_without_probabilities(tmp_path):
    LSH(n_bits=12, random_state=0).fit(SOURCE.X).save(tmp_path / "lsh.gph")
    collection = Collection.create(tmp_path / "lsh.gphash", tmp_path / "lsh.gph", SOURCE)
    query = collection.query(key=3)
    assert query.probabilities is None
    assert collection.encode(SOURCE.X[:2])[1] is None
    assert collection.search(query._replace(key=None), 1)[0].distance == 0
    with pytest.raises(ValueError, match="lsh has none"):
        collection.search(query, ranking="expected")


def test_keys_of_a_table_in_any_order(model, tmp_path):
    ids = np.random.default_rng(0).permutation(300).astype(np.int64) * 7 - 900
    collection = Collection.create(tmp_path / "ids.gphash", model, sources.of_digits(ids=ids))
    for row in (0, 150, 299):
        assert collection.item(int(ids[row])).labels == (SOURCE.classes[SOURCE.y[row]],)
        picture = Image.open(io.BytesIO(collection.picture(int(ids[row])).content))
        assert np.array_equal(np.asarray(picture), SOURCE.images[row])
    found = collection.search(collection.query(key=int(ids[0])), 300, label="3")
    assert sorted(neighbour.key for neighbour in found) == sorted(ids[SOURCE.y == 3].tolist())


def test_an_empty_collection(copy):
    with Collection.open(copy, writable=True) as collection:
        collection.remove(range(300))
        for _ in range(2):
            assert collection.search(collection.query(features=SOURCE.X[0])) == []
            assert collection.search(collection.query(features=SOURCE.X[0]), where="key > ?", params=[3]) == []
            assert (collection.buckets(), len(collection)) == ([], 0)
            with pytest.raises(UnknownItemError):
                collection.random_key()
            collection.compact()
    with Collection.open(copy, writable=True) as collection:
        assert collection.add(SOURCE.X[:1], {"label": ["0"]}) == [300]
        assert [hit.key for hit in collection.search(SOURCE.X[0])] == [300]


def test_a_query_may_do_without_probabilities(collection):
    for given in ({"key": 3}, {"features": SOURCE.X[5]}):
        full, bare = collection.query(**given), collection.query(**given, certainty=False)
        assert full.probabilities is not None
        assert bare.probabilities is None
        np.testing.assert_array_equal(full.code, bare.code)
        assert (full.key, full.labels) == (bare.key, bare.labels)
