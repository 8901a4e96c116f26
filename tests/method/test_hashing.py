"""A row's code is a function of the row alone: not of its batch, its place, its memory layout, or the process."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import ndtr

import gphash
from gphash import GPHasher
from gphash.method import hashing
from tests import digits

ROWS = np.concatenate([digits.X, digits.X[::-1] * 0.75 + 1])  # 3,594 rows: several tiles
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module", params=["posterior", "sampled"])
def hasher(request):
    return GPHasher(**digits.QUICK | {"n_bits": 13, "codes": request.param}).fit(digits.X[:300], digits.y[:300])


@pytest.fixture(scope="module")
def codes(hasher):
    return hasher.encode(ROWS)


@pytest.fixture(scope="module")
def probabilities(hasher):
    return hasher.bit_probabilities(ROWS)


@pytest.fixture(scope="module")
def borderline(hasher):
    """Rows between two digits where a bit changes sides: float32 cannot tell which side they are on."""
    a, b = digits.X[:600], digits.X[600:1200]
    bit = (hasher.transform(a) != hasher.transform(b)).argmax(axis=1)
    side = hasher.transform(a)[np.arange(len(a)), bit]
    low, high = np.zeros(len(a)), np.ones(len(a))
    for _ in range(24):
        middle = (low + high) / 2
        same = hasher.transform(a + middle[:, None] * (b - a))[np.arange(len(a)), bit] == side
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return a + low[:, None] * (b - a)


def assert_consistent(hasher, X):
    probabilities = hasher.bit_probabilities(X)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    if hasher.codes == "sampled":  # others are not always the most probable ones
        np.testing.assert_array_equal(probabilities >= 0.5, hasher.transform(X) == 1)


@settings(max_examples=15)
@given(seed=seeds)
def test_permuting_rows_permutes_codes(hasher, codes, seed):
    order = np.random.default_rng(seed).permutation(len(ROWS))
    np.testing.assert_array_equal(hasher.encode(ROWS[order]), codes[order])


@settings(max_examples=60)
@given(rows=st.lists(st.integers(0, len(ROWS) - 1), min_size=1, max_size=70))
def test_any_subset_has_the_codes_it_has_among_all(hasher, codes, probabilities, rows):
    np.testing.assert_array_equal(hasher.encode(ROWS[rows]), codes[rows])
    # Products of float32 matrices round by place: probabilities agree to what that leaves, codes exactly.
    np.testing.assert_allclose(hasher.bit_probabilities(ROWS[rows]), probabilities[rows], atol=1e-4)


@pytest.mark.parametrize("size", [1, 2, 3, 31, 32, 33, 777, 1023, 1024, 1025, 1026, 2047, 2048, 2049, 3001])
def test_batch_size_does_not_change_a_code(hasher, codes, probabilities, size):
    for start in (0, 5, len(ROWS) - size):
        batch = slice(start, start + size)
        np.testing.assert_array_equal(hasher.encode(ROWS[batch]), codes[batch])
        np.testing.assert_allclose(hasher.bit_probabilities(ROWS[batch]), probabilities[batch], atol=1e-4)


def test_rows_on_the_border_have_one_code_whatever_their_batch(hasher, borderline):
    function = hasher.hash_function_
    nearest = np.abs(function.margins(borderline)).min(axis=1)
    assert np.median(nearest) < 1e-5  # on the border indeed
    expected = hasher.encode(borderline)
    for size in (1, 2, 7, 32, 100):
        batches = [hasher.encode(borderline[start : start + size]) for start in range(0, len(borderline), size)]
        np.testing.assert_array_equal(np.concatenate(batches), expected)
    np.testing.assert_array_equal(hasher.encode(borderline[::-1])[::-1], expected)
    assert_consistent(hasher, borderline)


@pytest.mark.parametrize("layout", ["fortran", "strided", "read-only", "list"])
def test_memory_layout_does_not_change_a_code(hasher, codes, borderline, layout):
    rows = np.concatenate([ROWS[:1500], borderline])
    expected = np.concatenate([codes[:1500], hasher.encode(borderline)])
    if layout == "fortran":
        given_rows = np.asfortranarray(rows)
    elif layout == "strided":
        given_rows = np.repeat(np.repeat(rows, 2, axis=0), 2, axis=1)[::2, ::2]
    elif layout == "read-only":
        given_rows = rows.copy()
        given_rows.flags.writeable = False
    else:
        given_rows = rows.tolist()
    np.testing.assert_array_equal(hasher.encode(given_rows), expected)


@pytest.mark.parametrize("n_jobs", [None, 1, 2, -1])
def test_threads_do_not_change_a_code(hasher, codes, n_jobs):
    other = GPHasher(**digits.QUICK | {"n_jobs": n_jobs})
    other.hash_function_, other.n_features_in_ = hasher.hash_function_, hasher.n_features_in_
    np.testing.assert_array_equal(other.encode(ROWS), codes)


@settings(max_examples=100)
@given(
    X=hnp.arrays(
        st.sampled_from([np.float32, np.float64]),
        st.tuples(st.integers(1, 5), st.just(64)),
        elements=st.floats(-1e6, 1e6, width=32),
    )
)
def test_probabilities_of_any_row_lie_in_the_unit_interval_and_agree_with_its_bits(hasher, X):
    assert_consistent(hasher, X)


@pytest.mark.filterwarnings("ignore:codes have collapsed")  # there is nothing to learn
@pytest.mark.parametrize("codes", ["posterior", "sampled"])
@settings(max_examples=10)
@given(seed=seeds, n_bits=st.integers(1, 20), unit_length=st.booleans())
def test_a_saved_model_encodes_as_before(tmp_path_factory, codes, seed, n_bits, unit_length):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(40, int(generator.integers(1, 6))))
    parameters = {"n_bits": n_bits, "n_inducing": 10, "max_sweeps": 3, "scaling": "unit" if unit_length else "centre"}
    hasher = GPHasher(**digits.QUICK | parameters, codes=codes).fit(X, np.arange(40) % 3)
    path = tmp_path_factory.mktemp("model") / "hasher.gphash"
    fingerprint = hasher.save(path)
    loaded = gphash.load(path)
    np.testing.assert_array_equal(loaded.encode(X), hasher.encode(X))
    np.testing.assert_array_equal(loaded.bit_probabilities(X), hasher.bit_probabilities(X))
    assert loaded.save(path) == fingerprint == hasher.fingerprint_
    assert loaded.get_params() == hasher.get_params()
    assert loaded.sweeps_ == hasher.sweeps_


def test_probabilities_are_those_of_the_latent_means_and_variances():
    hasher = GPHasher(**digits.QUICK, codes="sampled").fit(digits.X[:300], digits.y[:300])
    mean, variance = hashing.predict(hasher.hash_function_, digits.X[300:400])
    assert (variance >= 0).all()
    assert (variance <= hasher.signal_scale_**2).all()
    expected = ndtr(mean / np.sqrt(1 + variance)[:, None])
    np.testing.assert_allclose(hasher.bit_probabilities(digits.X[300:400]), expected, atol=1e-4)
