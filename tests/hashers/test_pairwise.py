"""The methods that learn from pairs of rows: KSH, LFH and MLH."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import gphash
from gphash.execution.local import SerialExecutor
from gphash.hashers import ksh, mlh, ridge_methods
from gphash.hashers.kernel_methods import Blocked
from gphash.hashers.ksh import KSH
from gphash.hashers.mlh import MLH
from gphash.hashers.ridge_methods import LFH
from gphash.supervision import similarity
from tests import digits

TRAIN, TEST = slice(0, 300), slice(1200, 1600)
KINDS = ["labels", "tags", "pairs"]
KERNEL = {"n_inducing": 50, "length_scale": 0.9}
METHODS = [
    KSH(8, **KERNEL, random_state=0),
    LFH(8, **KERNEL, ridge=0.1, random_state=0),
    LFH(8, features="linear", ridge=0.1, random_state=0),
    MLH(8, random_state=0),
]


def name(hasher):
    return type(hasher).__name__ + ("-linear" if getattr(hasher, "features", "") == "linear" else "")


def given_for(kind, n_rows=300):
    return {"labels": digits.y[:n_rows], "tags": digits.tags[:n_rows], "pairs": digits.pairs(n_rows, 20 * n_rows)}[kind]


def known(kind, n_rows):
    """Supervision as the package keeps it, and S0 written out."""
    y, tags, (i, j, s) = digits.y[:n_rows], digits.tags[:n_rows], digits.pairs(n_rows, 5 * n_rows)
    if kind == "labels":
        return similarity.from_labels(y), np.where(y[:, None] == y, 1.0, -1.0)
    if kind == "tags":
        return similarity.from_tags(tags), np.where(tags @ tags.T > 0, 1.0, -1.0)
    dense = np.zeros((n_rows, n_rows))
    dense[i, j] = dense[j, i] = s
    return similarity.from_pairs(digits.pairs(n_rows, 5 * n_rows), n_rows), dense


@pytest.fixture
def hasty(monkeypatch):
    """Few iterations, where it does not matter how well a method learns."""
    monkeypatch.setattr(mlh, "BATCHES", 100)
    monkeypatch.setattr(ridge_methods, "STEPS", 5)
    monkeypatch.setattr(ksh, "ITERATIONS", 10)
    monkeypatch.setattr(ksh, "FEW_ITERATIONS", 5)


# No more inducing inputs than the checks have rows.
@pytest.mark.slow
@parametrize_with_checks(
    [
        KSH(2, n_inducing=10, n_labelled=20),
        LFH(2, n_inducing=10, length_scale=1.0),
        LFH(2, features="linear"),
        MLH(2),
    ]
)
def test_scikit_learn_contract(estimator, check, hasty):
    check(estimator)


class TestAll:
    # Random hyperplanes reach 0.25 to 0.35 for labels, and 0.65 for tags.
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("hasher", METHODS, ids=name)
    def test_learns_digits(self, hasher, kind, monkeypatch):
        monkeypatch.setattr(mlh, "BATCHES", 1000)
        target = digits.tags[TEST] if kind == "tags" else digits.y[TEST]
        score = clone(hasher).fit(digits.X[TRAIN], given_for(kind)).score(digits.X[TEST], target)
        assert score > (0.75 if kind == "tags" else 0.5)

    @pytest.mark.parametrize("hasher", METHODS, ids=name)
    def test_a_file_gives_the_same_codes(self, hasher, tmp_path, hasty):
        fitted = clone(hasher).fit(digits.X[TRAIN], digits.y[TRAIN])
        fitted.save(tmp_path / "model")
        loaded = gphash.load(tmp_path / "model")
        assert type(loaded) is type(hasher)
        np.testing.assert_array_equal(loaded.encode(digits.X[TEST]), fitted.encode(digits.X[TEST]))
        assert loaded.fingerprint_ == fitted.fingerprint_
        assert loaded.get_params() == fitted.get_params()
        assert {key for key in vars(fitted) if key.endswith("_")} == {key for key in vars(loaded) if key.endswith("_")}

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("hasher", METHODS, ids=name)
    def test_neither_threads_nor_neighbours_change_a_code(self, hasher, kind, monkeypatch, hasty):
        monkeypatch.setattr(ksh, "BLOCK", 64)
        monkeypatch.setattr(ridge_methods, "BLOCK", 64)
        models = [clone(hasher).set_params(n_jobs=jobs).fit(digits.X[TRAIN], given_for(kind)) for jobs in (1, 3)]
        assert models[0].fingerprint_ == models[1].fingerprint_
        codes = models[0].encode(digits.X[TEST])
        alone = [models[0].encode(row[None]) for row in digits.X[TEST][:50]]
        np.testing.assert_array_equal(np.concatenate(alone), codes[:50])

    @pytest.mark.parametrize("hasher", METHODS[:3], ids=name)
    @pytest.mark.parametrize("kind", KINDS)
    def test_chooses_what_is_left_to_it(self, hasher, kind, hasty):
        automatic = {key: "auto" for key in ("length_scale", "ridge") if key in hasher.get_params()}
        fitted = clone(hasher).set_params(n_bits=4, n_inducing=30, **automatic).fit(digits.X[TRAIN], given_for(kind))
        if name(hasher) != "LFH-linear":
            assert 0.2 < fitted.length_scale_ < 2
        if isinstance(hasher, LFH):
            assert fitted.ridge_ in LFH.RIDGES

    @pytest.mark.parametrize("hasher", METHODS, ids=name)
    def test_rows_that_no_pair_names_do_not_spoil_the_model(self, hasher, monkeypatch):
        monkeypatch.setattr(mlh, "BATCHES", 300)
        hasher = clone(hasher)
        pairs = digits.pairs(300, 6000)
        alone = hasher.fit(digits.X[:300], pairs).score(digits.X[TEST], digits.y[TEST])
        crowd = hasher.fit(digits.X[:1100], pairs).score(digits.X[TEST], digits.y[TEST])
        assert crowd > alone - 0.1

    @pytest.mark.parametrize(
        ("hasher", "message"),
        [
            (KSH(n_labelled=0), "n_labelled=0"),
            (KSH(n_inducing=2.5), "n_inducing=2.5"),
            (LFH(features="rbf"), "features='rbf'"),
            (LFH(ridge=-1), "ridge=-1"),
            (LFH(features="linear", ridge="none"), "ridge='none'"),
            (MLH(radius=0), "radius=0"),
            (MLH(4, radius=5), "radius=5; give at most"),
            (MLH(0), "n_bits=0"),
            (MLH(scaling="none"), "scaling='none'"),
        ],
        ids=str,
    )
    def test_bad_parameters_are_named(self, hasher, message):
        with pytest.raises(ValueError, match=message):
            hasher.fit(digits.X[TRAIN], digits.y[TRAIN])


class TestKSH:
    @pytest.mark.parametrize("kind", KINDS)
    def test_products_are_those_of_the_dense_matrix(self, kind):
        supervision, dense = known(kind, 90)
        generator = np.random.default_rng(0)
        codes, q, K = np.sign(generator.normal(size=(90, 3))), generator.normal(size=90), generator.normal(size=(90, 7))
        S = functools.reduce(lambda S, y: S.less(y), codes.T, ksh.residual(supervision, 5))
        written_out = (dense != 0) * (5 * dense - codes @ codes.T)
        np.testing.assert_allclose(S.times(q), written_out @ q, atol=1e-3)
        np.testing.assert_allclose(S.between(K), K.T @ written_out @ K, rtol=1e-5, atol=1e-3)

    @pytest.mark.parametrize("kind", KINDS)
    def test_slope_is_that_of_the_objective(self, kind):
        supervision, dense = known(kind, 40)
        generator = np.random.default_rng(0)
        codes, u = np.sign(generator.normal(size=(40, 2))), generator.normal(size=40)
        S = functools.reduce(lambda S, y: S.less(y), codes.T, ksh.residual(supervision, 4))

        def objective(u):
            q = 2 / (1 + np.exp(-u)) - 1
            return -q @ ((dense != 0) * (4 * dense - codes @ codes.T)) @ q

        value, slope = ksh.objective(u, S)
        assert value == pytest.approx(objective(u), rel=1e-5)
        step = 1e-6 * np.eye(40)
        differences = [(objective(u + row) - objective(u - row)) / 2e-6 for row in step]
        np.testing.assert_allclose(slope, differences, rtol=1e-4, atol=1e-4)

    def test_gradient_by_weights(self):
        supervision, _ = known("labels", 60)
        generator = np.random.default_rng(0)
        K, a = generator.normal(size=(60, 5)), generator.normal(size=5)
        S = ksh.residual(supervision, 4)
        gradient = Blocked(K, 32, SerialExecutor()).transposed(ksh.objective(K @ a, S)[1])
        step = 1e-6 * np.eye(5)
        differences = [(ksh.objective(K @ (a + row), S)[0] - ksh.objective(K @ (a - row), S)[0]) / 2e-6 for row in step]
        np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-4)

    @pytest.mark.parametrize("kind", KINDS)
    def test_descent_is_not_worse_than_its_spectral_start(self, kind):
        supervision, dense = known(kind, 200)
        K = np.random.default_rng(0).normal(size=(200, 20)).astype(np.float32)
        K -= K.mean(axis=0)
        S = ksh.residual(supervision, 1)

        def error(iterations):
            y = np.where(K @ ksh.learn(K, S, 1, iterations, SerialExecutor())[:, 0] >= 0, 1, -1)
            return np.square((dense != 0) * (np.outer(y, y) - dense)).sum()

        assert error(500) <= error(0)
        start = ksh.learn(K, S, 1, 0, SerialExecutor())[:, 0]
        assert np.linalg.norm(K @ start) == pytest.approx(200**0.5, rel=1e-3)
        lower = ksh.descend(Blocked(K, 32, SerialExecutor()), S, start, 500)
        assert ksh.objective(K @ lower, S)[0] < ksh.objective(K @ start, S)[0]

    def test_the_spectral_start_is_the_first_generalised_eigenvector(self):
        supervision, dense = known("labels", 100)
        K = np.random.default_rng(0).normal(size=(100, 6))
        a = ksh.learn(K, ksh.residual(supervision, 1), 1, 0, SerialExecutor())[:, 0]
        values, _ = np.linalg.eig(np.linalg.solve(K.T @ K, K.T @ dense @ K))
        assert (a @ K.T @ dense @ K @ a) / (a @ K.T @ K @ a) == pytest.approx(values.real.max(), rel=1e-5)

    @pytest.mark.parametrize("kind", KINDS)
    def test_learns_from_no_more_rows_than_asked_for(self, kind, monkeypatch):
        monkeypatch.setattr("gphash.method.selection.SAMPLE", 50)
        seen = []
        learn = ksh.learn
        monkeypatch.setattr(ksh, "learn", lambda K, *rest: [seen.append(len(K)), learn(K, *rest)][1])
        hasher = KSH(8, **KERNEL, n_labelled=150, random_state=0).fit(digits.X[TRAIN], given_for(kind))
        assert seen == [150]
        assert hasher.score(digits.X[TEST], digits.tags[TEST] if kind == "tags" else digits.y[TEST]) > 0.4


def log_posterior(u, U, similar, weights, variance):
    """Of one row, given partners U, every pair counted in both orders."""
    theta = U @ u / 2
    return 2 * weights @ (similar * theta - np.logaddexp(0, theta)) - u @ u / (2 * variance)


class TestLFH:
    @pytest.mark.parametrize("kind", ["labels", "tags"])
    def test_a_step_raises_the_posterior_of_every_row(self, kind):
        supervision, dense = known(kind, 60)
        U = np.random.default_rng(0).normal(size=(60, 4))
        columns = np.arange(3, 60, 4)
        after = np.concatenate(
            [ridge_methods.step(U, supervision, columns, rows) for rows in (slice(0, 32), slice(32, 60))]
        )
        for i in range(60):
            others = columns[columns != i]
            similar = (dense[i, others] > 0).astype(float)
            about = U[others], similar, np.ones(len(others)), ridge_methods.PRIOR_VARIANCE
            assert log_posterior(after[i], *about) > log_posterior(U[i], *about)

    def test_a_step_by_pairs_raises_the_posterior_of_every_row(self):
        graph, _ = known("pairs", 60)
        U = np.random.default_rng(0).normal(size=(60, 4))
        after = np.concatenate([ridge_methods.step_by_pairs(U, graph, rows) for rows in (slice(0, 32), slice(32, 60))])
        for i in range(60):
            mine = slice(graph.offsets[i], graph.offsets[i + 1])
            about = (
                U[graph.partners[mine]],
                graph.similar[mine],
                graph.weights[mine],
                ridge_methods.PAIRS_PRIOR_VARIANCE,
            )
            assert log_posterior(after[i], *about) > log_posterior(U[i], *about)

    @pytest.mark.parametrize("kind", KINDS)
    def test_rows_become_near_to_similar_ones(self, kind):
        supervision, dense = known(kind, 200)
        U = ridge_methods.latent(supervision, 200, 8, np.random.default_rng(0), SerialExecutor())
        products = np.sign(U) @ np.sign(U).T
        assert products[dense > 0].mean() > products[dense < 0].mean() + 3


class TestMLH:
    @given(
        st.integers(1, 4).flatmap(
            lambda m: st.tuples(
                arrays.arrays(np.float64, (2, 3, m), elements=st.floats(-2, 2, width=16)),
                st.integers(1, m),
                st.lists(st.integers(0, 1), min_size=3, max_size=3),
            )
        )
    )
    @settings(max_examples=60, deadline=None)
    def test_inference_is_exact(self, case):
        (a, b), radius, similar = case
        n_bits = a.shape[1]
        loss = mlh.losses(n_bits, radius)[similar]
        words = np.array(list(itertools.product((-1, 1), repeat=n_bits)))
        first, second = mlh.infer(a, b, loss)
        for p in range(3):
            worth = [g @ a[p] + h @ b[p] + loss[p, (g != h).sum()] for g in words for h in words]
            found = first[p] @ a[p] + second[p] @ b[p] + loss[p, (first[p] != second[p]).sum()]
            assert found == pytest.approx(max(worth), abs=1e-9)

    def test_losses_are_hinges_on_both_sides_of_the_radius(self):
        np.testing.assert_allclose(mlh.losses(5, 2), [[1, 2 / 3, 1 / 3, 0, 0, 0], [0, 0, 0.25, 0.5, 0.75, 1]])

    @pytest.mark.parametrize("kind", KINDS)
    def test_half_of_the_pairs_drawn_are_similar(self, kind):
        supervision, dense = known(kind, 100)
        i, j, similar = mlh.draw(*mlh.pair_sources(supervision), 1000, np.random.default_rng(0))
        assert len(i) == 1000
        assert similar.mean() == 0.5
        assert (i != j).mean() > 0.9
        np.testing.assert_array_equal(dense[i, j][i != j] > 0, similar[i != j] == 1)

    def test_tags_without_a_dissimilar_pair_give_similar_ones_only(self):
        tags = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
        i, _, similar = mlh.draw(*mlh.pair_sources(similarity.from_tags(tags)), 100, np.random.default_rng(0))
        assert len(i) == 100
        assert similar.all()

    def test_the_radius_can_be_given(self, hasty):
        fits = [MLH(8, radius=radius, random_state=0).fit(digits.X[TRAIN], digits.y[TRAIN]) for radius in (None, 3, 1)]
        assert fits[0].fingerprint_ == fits[1].fingerprint_ != fits[2].fingerprint_
