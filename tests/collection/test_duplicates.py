"""Duplicates of a collection: exact against all comparisons, and those that were planted in real rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gphash.collection.collection import Collection
from gphash.data.known import digits
from gphash.hashers import LSH
from tests.collection import sources
from tests.index.test_joining import connected

X = np.random.default_rng(3).standard_normal((120, 6)).round(1)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Digits with a model that knows classes, and with vectors."""
    path = tmp_path_factory.mktemp("judged") / "digits.gphash"
    whole = sources.of_digits(120)
    said = {"key": [f"digit {row:03}" for row in np.random.default_rng(0).permutation(120)]}
    with Collection.create(path, sources.hasher(), whole, said, vectors="float16") as collection:
        yield collection


@settings(max_examples=25)
@given(
    st.one_of(st.none(), st.integers(0, 4)),
    st.one_of(st.none(), st.floats(0, 1)),
    st.one_of(st.none(), st.floats(0.5, 1)),
)
def test_pairs_and_clusters_are_those_of_all_comparisons(judged, radius, chance, cosine):
    if radius is None and chance is None:
        chance = 0.5
    packed, numbers = judged.index.items()
    keys = {number: row.key for number, row in judged._store.items.rows(numbers.tolist()).items()}
    reader, rows = judged.model.reader_, sources.of_digits(120).X.astype(np.float64)
    read = reader.read(packed)
    chances, unit = reader.compare(read, read), rows / np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = [
        (i, j)
        for i in range(len(packed))
        for j in range(i + 1, len(packed))
        if (radius is None or np.bitwise_count(packed[i] ^ packed[j]).sum() <= radius)
        and (chance is None or chances[i, j] >= chance)
        and (cosine is None or unit[i] @ unit[j] >= cosine)  # sixteenths, which float16 holds
    ]
    found = judged.duplicates(radius, min_probability=chance, min_cosine=cosine)
    pairs = found.pairs()
    assert [(one.first, one.second) for one in pairs] == [(keys[i], keys[j]) for i, j in wanted]
    for one, (i, j) in zip(pairs, wanted, strict=True):
        assert one.distance == np.bitwise_count(packed[i] ^ packed[j]).sum()
        assert one.probability == pytest.approx(chances[i, j])
        assert one.cosine == (None if cosine is None else pytest.approx(unit[i] @ unit[j], abs=1e-9))
    assert found.clusters() == [[keys[number] for number in group] for group in connected(wanted)]


@pytest.mark.parametrize("form", ["float16", "int8"])
def test_a_cosine_of_1_finds_all_that_are_equal(tmp_path, form):
    rows = np.random.default_rng(0).standard_normal((200, 37))
    hasher = LSH(16, random_state=0).fit(rows)
    with Collection.create(tmp_path / "a.gphash", hasher, np.concatenate([rows, rows]), vectors=form) as collection:
        pairs = collection.duplicates(0, min_cosine=1).pairs()
    assert [(one.first, one.second) for one in pairs] == [(row, row + 200) for row in range(200)]


def test_changes_count_and_numbers_are_keys(tmp_path):
    hasher = LSH(24, random_state=0).fit(X)
    with Collection.create(tmp_path / "a.gphash", hasher, X, vectors="int8", writable=True) as collection:
        assert collection.duplicates(0, min_cosine=0.999).clusters() == []
        assert collection.duplicates(0, min_cosine=0.999).pairs() == []
        fresh = collection.add(np.concatenate([X[5:8], X[5:6]]))
        assert collection.duplicates(0, min_cosine=0.999).clusters() == [[5, 120, 123], [6, 121], [7, 122]]
        collection.remove([5, 121])
        collection.compact()
        assert collection.duplicates(0, min_cosine=0.999).clusters() == [[7, 122], [120, 123]]
        assert [7, 122] in collection.duplicates(0).clusters()
        assert fresh == [120, 121, 122, 123]


def test_what_makes_no_sense_is_refused(tmp_path, judged):
    with Collection.create(tmp_path / "a.gphash", LSH(8, random_state=0).fit(X), X) as bare:
        for wrong, message in (
            ({}, "give one of them"),
            ({"radius": -1}, "radius=-1"),
            ({"radius": 1.5}, "radius=1.5"),
            ({"radius": 0, "min_cosine": 0.9}, "min_cosine=0.9, but the collection was made without vectors"),
            ({"min_probability": 0.5}, "min_probability=0.5, but the model does not know P"),
        ):
            with pytest.raises(ValueError, match=message):
                bare.duplicates(**wrong)
    for wrong in (2, "a", True, float("nan")):
        with pytest.raises(ValueError, match="min_cosine="):
            judged.duplicates(0, min_cosine=wrong)


def test_near_duplicates_that_were_planted_in_digits_are_found(tmp_path):
    """Codes of digits are those of their classes: the cosine tells copies from others of the class."""
    rows, rng = digits.load().train.X.astype(np.float32), np.random.default_rng(0)
    chosen = rng.choice(len(rows), 60, replace=False)
    copies = rows[chosen] + rng.normal(0, 0.005, (60, 64))  # as much as another scan of the same paper
    whole = np.concatenate([rows, copies.astype(np.float32)])
    with Collection.create(tmp_path / "a.gphash", sources.hasher(), whole, vectors="float16") as collection:
        found = collection.duplicates(1, min_cosine=0.9995).pairs()
    planted = {(int(row), len(rows) + place) for place, row in enumerate(chosen)}
    assert {(one.first, one.second) for one in found} == planted
