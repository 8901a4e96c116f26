"""Bits from probabilities of classes: a row's code is its own, its chances agree with it, and files keep all of it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from gphash.codes import trust
from gphash.codes.trust import Trust
from gphash.method import posteriors
from gphash.method.hashing import HashFunction, Uncertainty
from gphash.method.kernels import Matern32, SquaredExponential
from gphash.method.posteriors import PosteriorFunction, Reading
from gphash.method.scaling import Scaling
from gphash.schema import FaultError

D, R, C, M = 6, 30, 7, 12
ROWS = np.random.default_rng(1).normal(size=(2500, D))  # several tiles


def function(exclusive=True, kernel=SquaredExponential, uncertain=False, calibrated=True, seed=0, metric=False):
    generator = np.random.default_rng(seed)
    inner = 4 if metric else D
    Z = generator.normal(size=(R, inner))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    weights = (3 * generator.normal(size=(R, C))).astype(np.float32)
    columns = generator.normal(size=(R, R)).astype(np.float32)
    scaling = Scaling(generator.normal(size=D), True, generator.normal(size=(D, inner)) if metric else None)
    classifier = HashFunction(
        scaling,
        kernel(0.8, 2.0),
        Z.astype(np.float32),
        weights,
        generator.normal(size=C),
        Uncertainty(0.05, columns, 3) if uncertain else None,
    )
    directions = generator.normal(size=(C, M))
    reading = Reading(generator.normal(size=(M, C)), generator.normal(size=C)).rounded() if calibrated else None
    offset, levels = -directions.mean(axis=0) / 2, np.array(trust.LEVELS)
    known = [np.sort(generator.random(50)) for _ in range(2)]
    trusted = Trust(*known, np.sort(generator.exponential(size=50)), levels, levels[::-1].copy(), np.full(1, 0.2))
    own = directions, offset, generator.normal(size=C), reading, trusted if calibrated else None
    return PosteriorFunction(classifier, exclusive, 0.5 if exclusive else 1.0, *own)


ALL = pytest.mark.parametrize("exclusive", [True, False])


def borderline(one, n=200):
    """Rows between two others where a bit changes sides."""
    a, b = ROWS[:n], ROWS[n : 2 * n]
    bit = ((one.margins(a) >= 0) != (one.margins(b) >= 0)).argmax(axis=1)
    places = np.arange(n), bit
    side = (one.margins(a) >= 0)[places]
    low, high = np.zeros(n), np.ones(n)
    for _ in range(24):  # float32 cannot tell the side any more; float64 can
        middle = (low + high) / 2
        same = (one.margins(a + middle[:, None] * (b - a)) >= 0)[places] == side
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return np.concatenate([a + low[:, None] * (b - a), a + high[:, None] * (b - a)])


class TestCodes:
    @ALL
    def test_margins_are_what_the_formula_says(self, exclusive):
        one = function(exclusive)
        logits = one.classifier.exact_means(ROWS[:50])
        P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True) if exclusive else expit(logits)
        expected = P**one.power @ one.directions + one.offset
        np.testing.assert_allclose(one.margins(ROWS[:50]), expected, atol=1e-4)

    @ALL
    def test_classes_are_as_probable_as_they_occur(self, exclusive):
        one = function(exclusive)
        odds = np.exp(one.classifier.exact_means(ROWS[:50]) + one.shift)
        expected = odds / odds.sum(axis=1, keepdims=True) if exclusive else odds / (1 + odds)
        np.testing.assert_allclose(one.classes(ROWS[:50]), expected, atol=1e-4)

    @ALL
    @pytest.mark.parametrize("kernel", [SquaredExponential, Matern32])
    def test_they_do_not_depend_on_which_rows_are_encoded_together(self, exclusive, kernel):
        one = function(exclusive, kernel)
        rows = np.concatenate([borderline(one), ROWS[:1500]])
        together = one.margins(rows) >= 0
        np.testing.assert_array_equal(one.margins(rows, n_jobs=2) >= 0, together)
        order = np.random.default_rng(2).permutation(len(rows))
        np.testing.assert_array_equal(one.margins(rows[order]) >= 0, together[order])
        for some in (slice(400), slice(1, 8), slice(None, None, 3)):
            np.testing.assert_array_equal(one.margins(rows[some]) >= 0, together[some])
        alone = np.concatenate([one.margins(row[None]) >= 0 for row in rows[:450]])
        np.testing.assert_array_equal(alone, together[:450])

    def test_chances_of_classes_add_up_to_those_of_bits(self):
        one = function()
        P, words = one.classes(ROWS), one.directions + one.offset >= 0
        expected = [sum(p for p, word in zip(row, words, strict=True) if word[3]) for row in P[:50]]
        np.testing.assert_allclose(one.probabilities(ROWS)[:50, 3], expected, atol=1e-12)

    def test_chances_of_tags_are_at_least_half_exactly_where_the_bit_is_one(self):
        one = replace(function(False), shift=np.zeros(C))
        chances = one.probabilities(ROWS)
        assert ((chances >= 0) & (chances <= 1)).all()
        np.testing.assert_array_equal(chances >= 0.5, one.margins(ROWS) >= 0)

    def test_only_who_is_calibrated_knows_chances(self):
        assert function().has_probabilities
        assert not function(calibrated=False).has_probabilities

    def test_rows_of_any_size_have_a_code(self):
        one = function()
        for rows in (np.zeros((1, D)), np.full((2, D), 1e100), np.full((2, D), -1e-300)):
            assert one.margins(rows).shape == (len(rows), M)
            assert np.isfinite(one.margins(rows)).all()


class TestPosteriors:
    @ALL
    def test_they_are_finite_for_large_logits(self, exclusive):
        logits = np.array([[1e4, -1e4, 0.0], [0.0, 0.0, 0.0], [-1e4, -1e4, -1e4]])
        P = posteriors.powers(logits, exclusive, 1.0)
        assert np.isfinite(P).all()
        if exclusive:
            np.testing.assert_allclose(P.sum(axis=1), 1)
        np.testing.assert_allclose(P[1], 1 / 3 if exclusive else 0.5)

    def test_powers_are_powers(self):
        logits = np.random.default_rng(3).normal(size=(10, 4))
        for exclusive in (True, False):
            whole = posteriors.powers(logits, exclusive, 1.0)
            np.testing.assert_allclose(posteriors.powers(logits, exclusive, 0.5), np.sqrt(whole))


class TestFiles:
    @ALL
    @pytest.mark.parametrize("uncertain", [True, False])
    @pytest.mark.parametrize("calibrated", [True, False])
    @pytest.mark.parametrize("metric", [True, False])
    def test_what_is_kept_comes_back(self, exclusive, uncertain, calibrated, metric):
        one = function(exclusive, uncertain=uncertain, calibrated=calibrated, metric=metric)
        again = PosteriorFunction.restore(*one.content())
        assert (again.n_bits, again.n_features, again.kernel) == (M, D, one.kernel)
        np.testing.assert_array_equal(again.margins(ROWS), one.margins(ROWS))
        if calibrated:
            np.testing.assert_array_equal(again.probabilities(ROWS), one.probabilities(ROWS))
        assert (again.classifier.uncertainty is None) == (not uncertain)
        (meta, arrays), (other_meta, other_arrays) = one.content(), again.content()
        assert meta == other_meta
        assert arrays.keys() == other_arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, other_arrays[name])

    @pytest.mark.parametrize(
        ("part", "name", "value", "words"),
        [
            ("meta", "exclusive", 1, "exclusive"),
            ("meta", "exclusive", None, "exclusive"),
            ("meta", "power", 0.0, "power"),
            ("meta", "power", float("nan"), "power"),
            ("meta", "power", None, "power"),
            ("meta", "uncertainty", {"power": 2.0, "n_lowering": 3}, "power"),
            ("meta", "uncertainty", {"power": 0.05, "n_lowering": -1}, "n_lowering"),
            ("meta", "uncertainty", {"power": 0.05, "n_lowering": R + 1}, "n_lowering|uncertainty"),
            ("meta", "kernel", {"name": "cubic", "length_scale": 1.0, "signal_scale": 1.0}, "kernel"),
            ("arrays", "directions", None, "directions"),
            ("arrays", "directions", np.zeros((C + 1, M)), "directions|classes"),
            ("arrays", "directions", np.full((C, M), np.nan), "directions"),
            ("arrays", "directions", np.zeros((C, M), np.float32), "directions"),
            ("arrays", "offset", np.zeros(M + 1), "offset|bits"),
            ("arrays", "bias", None, "bias"),
            ("arrays", "bias", np.full(C, np.inf), "bias"),
            ("arrays", "weights", np.zeros((R + 1, C), np.float32), "inducing inputs"),
            ("meta", "calibrated", 1, "calibrated"),
            ("arrays", "uncertainty", None, "uncertainty"),
            ("arrays", "Z", np.zeros((R, D + 1), np.float32), "features"),
        ],
    )
    def test_faults_are_found(self, part, name, value, words):
        meta, arrays = function(uncertain=True).content()
        parts = {"meta": dict(meta), "arrays": dict(arrays)}
        parts[part][name] = value
        if value is None:
            del parts[part][name]
        with pytest.raises(FaultError, match=words):
            PosteriorFunction.restore(**parts)

    def test_it_says_what_it_is(self):
        assert "6 features → 7 classes → 12 bits" in repr(function())
        assert "7 tags" in repr(function(exclusive=False))
