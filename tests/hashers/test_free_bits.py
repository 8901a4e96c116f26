"""Free bits: behind the supervised ones, learned without labels, and left out where classes are read."""

import numpy as np
import pytest

import gphash
from gphash import GPHasher, HammingIndex
from gphash.codes import packing
from gphash.functions.joined import JoinedFunction
from gphash.hashers.projection_methods import ITQ
from tests import digits
from tests.digits import QUICK

TRAIN, TEST = slice(0, 400), slice(1200, 1600)
SEEN = np.isin(digits.y[TRAIN], range(7))
KINDS = {"labels": digits.y[TRAIN], "tags": digits.tags[TRAIN], "pairs": digits.pairs(400, 6000)}


def fitted(n_bits, n_free_bits, y=digits.y[TRAIN], X=digits.X[TRAIN], **given):
    return GPHasher(**{**QUICK, **given, "n_bits": n_bits, "n_free_bits": n_free_bits}).fit(X, y)


@pytest.fixture(scope="module")
def pair():
    """With free bits, and with the supervised ones alone."""
    return fitted(20, 8), fitted(12, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_supervised_bits_stay_as_they_are_and_free_bits_follow(kind):
    joined, alone = fitted(16, 4, KINDS[kind]), fitted(12, 0, KINDS[kind])
    assert joined.encode(digits.X[TEST]).shape == (400, 2)
    np.testing.assert_array_equal(joined.transform(digits.X[TEST])[:, :12], alone.transform(digits.X[TEST]))
    chances = joined.bit_probabilities(digits.X[TEST])
    np.testing.assert_array_equal(chances[:, :12], alone.bit_probabilities(digits.X[TEST]))
    np.testing.assert_array_equal(chances[:, 12:] >= 0.5, joined.transform(digits.X[TEST])[:, 12:] == 1)
    codes = [hasher.encode(digits.X[:50]) for hasher in (joined, alone)]
    likely = [
        hasher.similarity_probability(digits.X[TEST], own) for hasher, own in zip((joined, alone), codes, strict=True)
    ]
    np.testing.assert_array_equal(*likely)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of labels that are wrong, or missing
def test_free_bits_are_those_of_iterative_quantisation_and_need_no_label(pair):
    free = pair[0].hash_function_.free
    itq = ITQ(8, random_state=0).fit(digits.X[TRAIN]).hash_function_

    def loss(function):
        margins = function.margins(digits.X[TRAIN])
        margins = margins / np.linalg.norm(function.weights, axis=0)
        return np.square(np.abs(margins) - 1).mean()

    assert loss(free) == pytest.approx(loss(itq), rel=0.05)  # from another random start
    np.testing.assert_allclose(free.margins(digits.X[TRAIN]).std(axis=0), 1)
    for y in (np.roll(digits.y[TRAIN], 7), np.where(np.arange(400) % 3, digits.y[TRAIN], -1)):
        other = fitted(20, 8, y).hash_function_.free
        np.testing.assert_array_equal(other.weights, free.weights)


def test_classes_are_read_from_the_supervised_bits_alone(pair):
    joined, alone = pair
    rows, codes = digits.X[TEST][:20], digits.X[TEST][20:]
    np.testing.assert_array_equal(joined.predict_proba(rows), alone.predict_proba(rows))
    np.testing.assert_array_equal(joined.familiarity(rows), alone.familiarity(rows))
    np.testing.assert_array_equal(
        joined.similarity_probability(rows, joined.encode(codes)),
        alone.similarity_probability(rows, alone.encode(codes)),
    )
    np.testing.assert_array_equal(joined.class_codes_, alone.class_codes_)
    assert joined.trust_ is not None


@pytest.mark.parametrize("ranking", ["hamming", "expected", "similarity"])
def test_an_index_searches_by_every_ranking(pair, ranking):
    joined = pair[0]
    index = HammingIndex.build(joined.encode(digits.X[TEST]), n_bits=20, model=joined)
    asked = {"hamming": joined.encode, "expected": joined.bit_probabilities, "similarity": joined.predict_proba}
    found = index.search(asked[ranking](digits.X[:50]), k=10, ranking=ranking, model=joined)
    same = digits.y[TEST][found.ids] == digits.y[:50, None]
    assert same.mean() > 0.6


def test_a_file_keeps_them(pair, tmp_path):
    joined = pair[0]
    joined.save(tmp_path / "joined.gph")
    again = gphash.load(tmp_path / "joined.gph")
    assert again.n_free_bits == 8
    assert isinstance(again.hash_function_, JoinedFunction)
    assert again.fingerprint_ == joined.fingerprint_
    np.testing.assert_array_equal(again.encode(digits.X[TEST]), joined.encode(digits.X[TEST]))
    np.testing.assert_array_equal(again.class_codes_, joined.class_codes_)


def test_a_folder_of_blocks_gives_the_same(pair, tmp_path):
    np.save(tmp_path / "a.npy", digits.X[:250])
    np.save(tmp_path / "b.npy", digits.X[250:400])
    blocks = GPHasher(**{**QUICK, "n_bits": 20, "n_free_bits": 8}).fit(tmp_path, digits.y[TRAIN])
    np.testing.assert_array_equal(blocks.encode(digits.X[TEST]), pair[0].encode(digits.X[TEST]))


def test_unseen_classes_are_found_better_and_seen_ones_as_well():
    given = {"X": digits.X[TRAIN][SEEN], "y": digits.y[TRAIN][SEEN]}
    joined, alone = fitted(32, 8, **given), fitted(32, 0, **given)
    new = digits.y[TEST] >= 7
    unseen = [one.score(digits.X[TEST][new], digits.y[TEST][new]) for one in (joined, alone)]
    assert unseen[0] > unseen[1] + 0.02
    seen = [one.score(digits.X[TEST][~new], digits.y[TEST][~new]) for one in (joined, alone)]
    assert seen[0] > seen[1] - 0.02


@pytest.mark.filterwarnings("ignore:codes have collapsed")  # three features do not tell ten classes apart
def test_rows_in_fewer_dimensions_than_free_bits():
    X = np.repeat(digits.X[TRAIN][:, [10, 20, 30]], 2, axis=1)
    codes = fitted(14, 6, X=X).encode(X)
    assert packing.unpack(codes, 14).shape == (400, 14)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n_free_bits": -1}, "n_free_bits=-1; give a whole number of at least 0"),
        ({"n_free_bits": 2.0}, "n_free_bits=2.0; give a whole number"),
        ({"n_free_bits": 8}, "n_free_bits=8; give fewer than n_bits=8"),
        ({"n_bits": 128, "n_free_bits": 65}, r"n_free_bits=65, but X has 64 feature\(s\); give at most as many"),
    ],
)
def test_numbers_that_cannot_be_are_refused(given, said):
    with pytest.raises(ValueError, match=said):
        GPHasher(**{**QUICK, **given}).fit(digits.X[TRAIN], digits.y[TRAIN])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda meta, arrays: meta["supervised"].update(form="joined"),
            "'supervised.form' must be kernel or",
        ),
        (lambda meta, arrays: meta["free"].update(form="trees"), "'free.form' must be linear"),
        (lambda meta, arrays: meta.pop("free"), "free"),
        (lambda meta, arrays: arrays.update({"other.weights": np.zeros(3)}), "'other.weights' belongs to none"),
        (lambda meta, arrays: arrays.pop("free.weights"), "weights"),
        (
            lambda meta, arrays: arrays.update({"free.weights": np.zeros((3, 8)), "free.scaling_mean": np.zeros(3)}),
            "its parts take 64 and 3 features",
        ),
    ],
)
def test_content_that_makes_no_sense_is_refused(pair, spoil, said):
    meta, arrays = pair[0].hash_function_.content()
    spoil(meta, arrays)
    with pytest.raises(gphash.schema.FaultError, match=said):
        JoinedFunction.restore(meta, arrays)
