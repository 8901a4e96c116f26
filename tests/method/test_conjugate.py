"""Conjugate gradients with many inducing inputs: the same answers as dense algebra, and as good codes as EP's."""

import numpy as np
import pytest
from scipy.special import log_ndtr
from sklearn.datasets import load_digits

from gphash import GPHasher
from gphash.execution.local import BlocksLostError, LocalExecutor
from gphash.method import conjugate, sweeping
from gphash.method import prior as priors
from gphash.method.conjugate import Solver
from gphash.method.kernels import SquaredExponential
from gphash.method.state import RowBlock
from gphash.supervision.similarity import Pairs

N, R, FOLDS = 300, 40, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 3)).astype(np.float32)
SIGNS = np.where(np.column_stack([X[:, 0] + 0.5 * RNG.normal(size=N), X[:, 1] * X[:, 2]]) > 0, 1, -1).astype(np.int8)
PRIOR = priors.build(SquaredExponential(1.5, 2.0), X[:R], 0.05)
PHI = priors.features(PRIOR, X)[0].astype(np.float64)
WEIGHTS = np.where(np.arange(N) % 3 == 0, 2.0, 0.5)
ASKED = [0, 2]  # blocks whose rows are left out by folds


def blocks(weights):
    """Plain kernel values of 100 rows each."""
    parts = [slice(start, start + 100) for start in range(0, N, 100)]
    return [
        RowBlock(k, priors.plain(PRIOR, X[rows]), np.zeros(100), None, None if weights is None else weights[rows])
        for k, rows in enumerate(parts)
    ]


def dealt():
    return [conjugate.deal(SIGNS[100 * k : 100 * k + 100], FOLDS if k in ASKED else 0, (0, k)) for k in range(N // 100)]


def solved(how, weights=None):
    with LocalExecutor(2) as executor:
        found = how(Solver(blocks(weights), dealt(), ASKED, (2, FOLDS), PRIOR, executor))
    folds = np.concatenate([own.folds for own in dealt()])
    return found, folds


def squares(rows, weights):
    """Means by least squares of some rows, dense."""
    seen = 0.3 * np.minimum(weights[rows], 1.0)[:, None] * PHI[rows]
    return np.linalg.solve(np.eye(R) + seen.T @ PHI[rows], seen.T @ SIGNS[rows])


def laplace(rows, weights):
    """Modes of the posterior under log Φ(y h) of some rows, dense, by Newton's method."""
    means = []
    for y in SIGNS[rows].T.astype(np.float64):
        mean = np.zeros(R)
        for _ in range(30):
            z = y * (PHI[rows] @ mean)
            hazard = np.exp(-(z**2) / 2 - log_ndtr(z)) / np.sqrt(2 * np.pi)
            slope = PHI[rows].T @ (weights[rows] * y * hazard) - mean
            curvature = (PHI[rows].T * (weights[rows] * hazard * (z + hazard))) @ PHI[rows] + np.eye(R)
            mean = mean + np.linalg.solve(curvature, slope)
        means.append(mean)
    return np.stack(means, axis=1)


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["alike", "weighed"])
@pytest.mark.parametrize("name", ["least_squares", "laplace"])
class TestAnswers:
    @pytest.fixture(autouse=True)
    def to_the_end(self, monkeypatch):
        monkeypatch.setattr(conjugate, "STEPS", 60)
        monkeypatch.setattr(conjugate, "FIRST_STEPS", 60)
        monkeypatch.setattr(conjugate, "TOLERANCE", 1e-5)
        monkeypatch.setattr(conjugate, "LAST_TOLERANCE", 1e-5)
        monkeypatch.setattr(conjugate, "CONVERGED", 1e-6)

    def run(self, name, weights):
        exact = np.ones(N) if weights is None else weights
        if name == "laplace":
            return *solved(Solver.laplace, weights), lambda rows: laplace(rows, exact)
        return *solved(lambda solver: solver.least_squares(0.3), weights), lambda rows: squares(rows, exact)

    def test_means_are_those_of_dense_algebra(self, name, weights):
        found, _, dense = self.run(name, weights)
        np.testing.assert_allclose(PHI @ found.mean, PHI @ dense(np.arange(N)), atol=5e-3)

    def test_rows_are_answered_by_those_outside_of_their_fold(self, name, weights):
        found, folds, dense = self.run(name, weights)
        rows = np.r_[0:100, 200:300]
        expected = np.empty((N, 2))
        for fold in range(1, FOLDS + 1):
            expected[folds == fold] = PHI[folds == fold] @ dense(np.flatnonzero(folds != fold))
        np.testing.assert_allclose(found.left_out, expected[rows], atol=1e-2)


def test_only_rows_that_are_asked_are_dealt_out_evenly():
    asked, other = conjugate.deal(SIGNS[:100], 3, (0, 1)), conjugate.deal(SIGNS[:100], 0, (0, 1))
    assert np.bincount(asked.folds).tolist() == [0, 34, 33, 33]
    assert not other.folds.any()


@pytest.mark.parametrize(("n_dealt", "n_rows", "expected"), [(1000, 1000, 5), (20_000, 50_000, 2), (500, 10**6, 2)])
def test_a_fold_leaves_out_about_a_fifth_of_all_rows_or_less(n_dealt, n_rows, expected):
    assert conjugate.count_folds(n_dealt, n_rows) == expected


def test_steps_are_reported_and_the_precisions_settle():
    seen = []
    solved(lambda solver: solver.laplace(lambda sweep, _: seen.append(sweep)))
    assert [sweep.number for sweep in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].change <= conjugate.CONVERGED < seen[0].change
    assert seen[-1].leave_one_out > np.log(0.5) + 0.1


SETTINGS = {"n_bits": 16, "n_inducing": 200, "random_state": 0}


class TestHasher:
    @pytest.mark.parametrize("tagged", [False, True], ids=["labels", "tags"])
    def test_codes_are_as_good_as_those_of_ep(self, tagged):
        rows, y = load_digits(return_X_y=True)
        told = np.eye(10, dtype=int)[y] if tagged else y
        scores = [
            GPHasher(**SETTINGS, solver=solver).fit(rows[:1200], told[:1200]).score(rows[1200:], told[1200:])
            for solver in ("shared", "conjugate")
        ]
        assert scores[1] > scores[0] - 0.02 > 0.8

    def test_automatic_with_many_inducing_inputs_only(self, monkeypatch):
        rows, y = load_digits(return_X_y=True)
        monkeypatch.setattr("gphash.method.sweeping.MANY", 150)
        few, many = (GPHasher(**SETTINGS | {"n_inducing": r}).fit(rows[:600], y[:600]).seconds_ for r in (100, 200))
        assert "least squares" not in few
        assert "least squares" in many

    def test_inducing_inputs_that_are_close_spoil_nothing(self):
        """Weights are large there and cancel, the more so the larger the functions may be."""
        rows = np.random.default_rng(0).uniform(size=(2600, 2)).astype(np.float32)
        classes = rows.argmax(axis=1) + 2 * (rows.sum(axis=1) > 1)
        given = {"n_bits": 8, "n_inducing": 600, "inducing": "random", "length_scale": 1.0, "signal_scale": 30.0}
        fitted = GPHasher(**given, solver="conjugate", random_state=0).fit(rows[:2000], classes[:2000])
        assert fitted.score(rows[2000:], classes[2000:]) > 0.95

    def test_noisy_rows_and_very_smooth_functions(self):
        """Where kernel values hardly differ, products with them round most."""
        generator = np.random.default_rng(0)
        rows = generator.uniform(-1, 1, size=(14_000, 3)).astype(np.float32)
        scores = np.stack(
            [np.sin(3 * rows[:, 0] + rows[:, 1]), np.cos(3 * rows[:, 1] * rows[:, 0]), rows[:, 2]], axis=1
        )
        y = (scores + 0.4 * generator.normal(size=scores.shape)).argmax(axis=1)
        given = {"n_bits": 8, "n_inducing": 300, "length_scale": 2.0, "signal_scale": 30.0, "random_state": 0}
        quality, likelihood = [], []
        for solver in ("shared", "conjugate"):
            fitted = GPHasher(**given, solver=solver).fit(rows[:12_000], y[:12_000])
            quality.append(fitted.score(rows[12_000:], y[12_000:]))
            chances = fitted.predict_proba(rows[12_000:])[np.arange(2000), y[12_000:]]
            likelihood.append(np.log(chances).mean())
        assert quality[1] > quality[0] - 0.015
        assert likelihood[1] > likelihood[0] - 0.02

    def test_precision_that_is_lost_is_told(self):
        with pytest.raises(ValueError, match="signal_scale"):
            solved(lambda solver: solver.least_squares(np.nan))

    def test_as_many_inducing_inputs_as_there_are_rows_are_not_many(self):
        rows, y = load_digits(return_X_y=True)
        with pytest.warns(UserWarning, match="n_inducing"):
            fitted = GPHasher(**SETTINGS | {"n_inducing": 3000}).fit(rows[:300], y[:300])
        assert "least squares" not in fitted.seconds_

    def test_easy_rows_with_a_crooked_border_are_learned_to_the_end(self):
        rows = np.random.default_rng(5).normal(size=(4000, 6)).astype(np.float32)
        classes = (rows[:, 0] * rows[:, 1] > 0).astype(int)
        given = {"n_bits": 8, "n_inducing": 500, "length_scale": 0.99, "signal_scale": 16.0, "random_state": 0}
        scores = [
            GPHasher(**given, solver=solver).fit(rows[:3000], classes[:3000]).score(rows[3000:], classes[3000:])
            for solver in ("shared", "conjugate")
        ]
        assert scores[1] > scores[0] - 0.01

    def test_blocks_of_a_single_row(self):
        rows, y = load_digits(return_X_y=True)
        given = SETTINGS | {"n_inducing": 50, "block_size": 1, "solver": "conjugate"}
        assert GPHasher(**given).fit(rows[:300], y[:300]).score(rows[300:600], y[300:600]) > 0.6

    def test_a_larger_power_keeps_ep(self):
        assert sweeping.solver("auto", 5000, 0.05, fixed=True) == "conjugate"
        assert sweeping.solver("auto", 5000, 1.0, fixed=True) == "shared"

    def test_lost_blocks_are_made_again_and_steps_go_on(self, monkeypatch):
        rows, y = load_digits(return_X_y=True)
        given = SETTINGS | {"n_inducing": 100, "solver": "conjugate"}
        expected = GPHasher(**given).fit(rows[:600], y[:600])
        match, calls = Solver._match, []

        def losing(self, *arguments):
            calls.append(1)
            if len(calls) % 3 == 0:
                raise BlocksLostError("a worker is gone")
            return match(self, *arguments)

        monkeypatch.setattr(Solver, "_match", losing)
        with pytest.warns(RuntimeWarning, match="a worker is gone; its blocks are made again, and training goes on"):
            found = GPHasher(**given).fit(rows[:600], y[:600])
        numbers = [sweep.number for sweep in found.sweeps_]
        assert numbers == list(range(1, len(numbers) + 1))
        assert found.score(rows[600:], y[600:]) == pytest.approx(expected.score(rows[600:], y[600:]), abs=0.01)

    @pytest.mark.parametrize(
        ("told", "given"),
        [(SIGNS[:, 0] > 0, {"codes": "sampled"}), (Pairs([0, 1, 2], [1, 2, 3], [1, -1, 1]), {})],
        ids=["sampled", "pairs"],
    )
    def test_refused_where_codes_are_sampled(self, told, given):
        with pytest.raises(ValueError, match="solver='conjugate' is for labels and tags with codes='posterior'"):
            GPHasher(4, n_inducing=20, solver="conjugate", **given).fit(X, told)
