"""Codes of several lengths from one training are those that a training of each would give."""

import numpy as np
import pytest
from sklearn.base import clone

from gphash import GPHasher
from tests import digits
from tests.digits import QUICK

X, y = digits.X[:300], digits.y[:300]
TEST = digits.X[1200:1400]


@pytest.mark.parametrize(
    ("given", "kind"),
    [({}, y), ({"n_free_bits": 3}, y), ({}, digits.tags[:300]), ({"codes": "sampled", "max_sweeps": 3}, y)],
    ids=["labels", "free", "tags", "sampled"],
)
@pytest.mark.filterwarnings("ignore:codes have collapsed")
def test_each_is_what_fit_gives(given, kind, tmp_path):
    hasher = GPHasher(**{**QUICK, **given})
    found = hasher.fit_lengths(X, kind, [8, 20])
    assert list(found) == [8, 20]
    assert not hasattr(hasher, "classes_")
    for n_bits, one in found.items():
        alone = clone(hasher).set_params(n_bits=n_bits).fit(X, kind)
        assert one.fingerprint_ == alone.fingerprint_
        assert one.get_params() == alone.get_params()
        np.testing.assert_array_equal(one.encode(TEST), alone.encode(TEST))
        if kind is y:
            np.testing.assert_array_equal(one.class_codes_, alone.class_codes_)
        one.save(tmp_path / f"{n_bits}.gph")


def test_one_training_serves_all():
    seen = []
    GPHasher(**QUICK).fit_lengths(X, y, [8, 16, 32], callback=seen.append)
    assert [sweep.number for sweep in seen] == list(range(1, len(seen) + 1))


@pytest.mark.parametrize(
    ("lengths", "said"), [([], "lengths is empty"), ([8, 0], "n_bits=0"), ([4, 2], "n_free_bits=3; give fewer")]
)
def test_lengths_that_cannot_be_are_refused(lengths, said):
    with pytest.raises(ValueError, match=said):
        GPHasher(**{**QUICK, "n_free_bits": 3}).fit_lengths(X, y, lengths)
