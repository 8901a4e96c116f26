import numpy as np
import pytest
from sklearn.datasets import load_digits

from gphash.data.dataset import Split
from gphash.evaluation import protocol
from gphash.hashers import cross_fitting
from gphash.hashers.projection_methods import LSH
from gphash.hashers.ridge_methods import HadamardRidge
from gphash.method.posteriors import Reading
from gphash.supervision import targets

ABOUT = {"name": "digits", "features": "pixels", "checksum": "0"}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return Split(X[:1000].astype(np.float32), y[:1000]), Split(X[1000:].astype(np.float32), y[1000:])


@pytest.mark.parametrize("method", [LSH, HadamardRidge])
def test_any_method_is_ranked_by_a_calibrated_probability(digits, method):
    def make(seed):
        return method(16, random_state=seed)

    found = protocol.run(make, *digits, ABOUT, read=cross_fitting.read)["results"]
    assert found["similarity"]["calibration"]["calibration_error"] < 0.02
    assert found["similarity"]["map"] > found["hamming"]["map"] - 0.03
    assert "similarity" not in protocol.run(make, *digits, ABOUT)["results"]


def test_tags_are_read_one_by_one(digits):
    train = Split(digits[0].X, np.stack([digits[0].y % 2, digits[0].y > 4, digits[0].y == 3], axis=1).astype(np.uint8))
    hasher = LSH(32, random_state=0).fit(train.X, train.y)
    read = cross_fitting.read(hasher, lambda: LSH(32, random_state=0), train)
    chances = read.predict_proba(digits[1].X)
    assert chances.shape == (797, 3)
    assert not read.reader_.exclusive
    truth = np.stack([digits[1].y % 2, digits[1].y > 4, digits[1].y == 3], axis=1)
    assert ((chances >= 0.5) == truth).mean() > 0.8
    np.testing.assert_allclose(chances.mean(axis=0), truth.mean(axis=0), atol=0.06)


def test_logits_that_are_too_large_get_a_factor():
    """Logits of which the right size is known: classes are drawn from their soft-max."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(4000, 3))
    chances = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = (generator.random(4000)[:, None] > np.cumsum(chances, axis=1)).sum(axis=1)
    some = targets.signatures(labels, len(labels))
    factor = cross_fitting._temperature(Reading(4 * np.eye(3), np.zeros(3)), logits, some, some)
    assert factor == pytest.approx(0.25, rel=0.1)
