"""EP and Gibbs together: solvers agree, threads change nothing, representatives and other rows share their codes."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn.datasets import load_digits

from gphash.data.blocks import ArrayTable
from gphash.execution import clustering
from gphash.execution.local import LocalExecutor, SerialExecutor
from gphash.method import blockwise, gibbs, inference, scaling, selection, sweeping, training
from gphash.method import prior as priors
from gphash.method.kernels import SquaredExponential
from gphash.method.state import Problem, RowBlock, Schedule
from gphash.method.training import Settings
from gphash.supervision import similarity
from gphash.supervision.similarity import Pairs
from tests import reference

N_TRAIN, BITS = 1347, 16
KERNEL = SquaredExponential(0.7, 4.0)
CONVERGE = Schedule(max_sweeps=0, drift=0.0, late_drift=0.0, steps=20, converged=1e-4, max_finish=30)


@cache
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], y[order]


@cache
def digits_features(n_inducing=100):
    """Prior, whitened features and residual of all scaled digits; training rows first."""
    X, _ = digits()
    fitted = scaling.fit(X[:N_TRAIN])
    scaled = scaling.apply(fitted, X)
    prior = priors.build(KERNEL, scaled[clustering.draw(N_TRAIN, n_inducing, np.random.default_rng(1))])
    return fitted, prior, *priors.features(prior, scaled)


def digits_problem(n_central, block_size, table, seed=0):
    """Digits in blocks, the first `n_central` of them representatives."""
    _, y = digits()
    _, _, Phi, residual = digits_features()
    signatures = similarity.from_labels(y[:N_TRAIN])
    ends = [*range(0, N_TRAIN, block_size), N_TRAIN]
    rows = [
        RowBlock(number, Phi[start:stop], residual[start:stop], signatures[start:stop])
        for number, (start, stop) in enumerate(pairwise(ends))
    ]
    central = signatures[: ends[n_central]]
    return Problem(rows=rows, n_central=n_central, supervision=central, table=table, seed=seed)


def codes_of_classes(seed=2):
    """A random word per class; the last four bits tell one class from the rest."""
    words = np.where(np.random.default_rng(seed).random((10, BITS)) < 0.5, -1, 1)
    words[:, -4:] = np.where(np.arange(10)[:, None] == np.arange(4), 1, -1)
    return words.astype(np.int8)[digits()[1][:N_TRAIN]]


def split(problem, signs):
    return np.split(signs, np.cumsum([len(block.residual) for block in problem.rows])[:-1])


def joined(state, what):
    return np.concatenate([what(latent) for latent in state.latents])


@cache
def solved(solver):
    """Digits with fixed codes, by one of the solvers, to convergence."""
    problem = digits_problem(1, 500, gibbs.pair_table(BITS, 2 / BITS, 1.0))
    with LocalExecutor(2) as executor:
        state = inference.init(problem, split(problem, codes_of_classes()), executor)._replace(frozen=True)
        state = inference.run(problem, state, CONVERGE, executor, solver=solver)
        return problem, inference.finish(problem, state, executor)


def posterior(state):
    """Every bit's own mean and variance at the test digits, in float64, from its sites alone."""
    _, _, Phi, residual = digits_features()
    precision, shift = (
        joined(state, lambda latent: latent.sites.precision),
        joined(state, lambda latent: latent.sites.shift),
    )
    train, test = Phi[:N_TRAIN].astype(np.float64), Phi[N_TRAIN:].astype(np.float64)
    means, variances = [], []
    for j in range(BITS):
        Lambda = np.eye(train.shape[1]) + (train.T * precision[:, j]) @ train
        means.append(test @ np.linalg.solve(Lambda, train.T @ shift[:, j]))
        variances.append(residual[N_TRAIN:] + (test * np.linalg.solve(Lambda, test.T).T).sum(axis=1))
    return np.stack(means, axis=1), np.stack(variances, axis=1)


def chances(state):
    mean, variance = posterior(state)
    return mean, ndtr(mean / np.sqrt(1 + variance))


def test_both_solvers_give_the_same_codes_and_nearly_the_same_probabilities():
    (shared_mean, shared), (exact_mean, exact) = chances(solved("shared")[1]), chances(solved("blockwise")[1])
    assert np.abs(shared - exact).mean() < 0.01
    differ = (shared_mean >= 0) != (exact_mean >= 0)
    assert differ.mean() < 0.002
    # Where they differ at all, the bit was a toss-up.
    assert np.abs(exact[differ] - 0.5).max(initial=0) < 0.02


@pytest.mark.parametrize("solver", ["shared", "blockwise"])
def test_the_hash_function_is_the_posterior_of_the_sites(solver):
    fitted, prior, _, _ = digits_features()
    _, state = solved(solver)
    function = priors.hash_function(fitted, prior, state.mean, state.factor)
    X_test = digits()[0][N_TRAIN:]
    mean, probability = chances(state)
    np.testing.assert_allclose(function.margins(X_test), mean, atol=2e-2)
    assert np.abs(function.probabilities(X_test) - probability).mean() < 0.005


def test_means_of_all_bits_solve_each_bits_own_system():
    _, state = solved("shared")
    Phi = digits_features()[2][:N_TRAIN].astype(np.float64)
    precision, shift = (
        joined(state, lambda latent: latent.sites.precision),
        joined(state, lambda latent: latent.sites.shift),
    )
    for j in range(BITS):
        exact = np.linalg.solve(np.eye(100) + (Phi.T * precision[:, j]) @ Phi, Phi.T @ shift[:, j])
        np.testing.assert_allclose(Phi @ state.mean[:, j], Phi @ exact, atol=2e-3 * np.abs(Phi @ exact).max())


def test_blockwise_steps_are_sweeps_of_every_bit():
    problem = digits_problem(1, 500, gibbs.pair_table(BITS, 2 / BITS, 1.0))
    signs = codes_of_classes()
    with LocalExecutor(2) as executor:
        state = inference.init(problem, split(problem, signs), executor)._replace(frozen=True)
        state, sweep = inference.step_blockwise(problem, state, CONVERGE, executor)
    residual = digits_features()[3]
    for j in (0, BITS - 1):
        swept = blockwise.sweep_bit(
            [block.Phi for block in problem.rows],
            residual[:N_TRAIN],
            signs[:, j],
            np.full(N_TRAIN, 0.5),
            0.5 * signs[:, j],
        )
        np.testing.assert_allclose(joined(state, lambda x: x.sites.precision)[:, j], swept.precision, rtol=1e-4)
        np.testing.assert_allclose(state.mean[:, j], swept.mean, atol=1e-4)
    assert sweep.flips == 0
    assert sweep.number == 1


def test_one_bit_by_shared_factor_is_dense_ep(monkeypatch):
    monkeypatch.setattr(inference, "TOLERANCE", 1e-7)
    # With a single bit the mean of the precisions is the bit's own: nothing is approximated but float32.
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 3)).astype(np.float32)
    signs = np.where(X[:, :1] + 0.5 * rng.normal(size=(60, 1)) > 0, 1, -1).astype(np.int8)
    prior = priors.build(SquaredExponential(1.0, 2.0), X[:25])
    Phi, residual = priors.features(prior, X)
    rows = [RowBlock(0, Phi[:35], residual[:35], None), RowBlock(1, Phi[35:], residual[35:], None)]
    table = gibbs.pair_table(1, 2.0, 1.0)
    problem = Problem(rows=rows, n_central=2, supervision=similarity.from_labels(range(60)), table=table, seed=0)
    executor = SerialExecutor()
    state = inference.init(problem, [signs[:35], signs[35:]], executor)._replace(frozen=True)
    state = inference.run(problem, state, CONVERGE._replace(converged=1e-6), executor)
    wide = Phi.astype(np.float64)
    dense = reference.dense_ep(wide @ wide.T + np.diag(residual), signs[:, 0])
    widened = 1 + residual * dense.precision
    np.testing.assert_allclose(joined(state, lambda x: x.sites.precision)[:, 0], dense.precision / widened, atol=1e-4)
    np.testing.assert_allclose(joined(state, lambda x: x.sites.shift)[:, 0], dense.shift / widened, atol=1e-4)


def test_sites_are_the_same_however_rows_are_cut_into_blocks():
    table, signs, found = gibbs.pair_table(BITS, 2 / BITS, 1.0), codes_of_classes(), []
    for block_size in (200, N_TRAIN):
        problem = digits_problem(1, block_size, table)
        with LocalExecutor(2) as executor:
            state = inference.init(problem, split(problem, signs), executor)._replace(frozen=True)
            state = inference.run(problem, state, CONVERGE, executor)
        np.testing.assert_array_equal(joined(state, lambda latent: latent.signs), signs)
        found.append(joined(state, lambda latent: latent.sites.precision))
    np.testing.assert_allclose(*found, atol=1e-3)


def dominant(signs, labels):
    """The most frequent code of every class, and the share of the class that has it."""
    words, shares = [], []
    for label in range(10):
        codes, counts = np.unique(signs[labels == label], axis=0, return_counts=True)
        words.append(codes[counts.argmax()])
        shares.append(counts.max() / counts.sum())
    return np.array(words), np.array(shares)


def assert_one_word_per_class(central, others, central_labels, other_labels):
    words, shares = dominant(central, central_labels)
    other_words, other_shares = dominant(others, other_labels)
    np.testing.assert_array_equal(words, other_words)
    assert shares.min() > 0.8
    assert other_shares.min() > 0.8
    assert len(np.unique(words, axis=0)) == 10
    # The degenerate split would show as a bit that tells the representatives of a class from its other rows.
    for label in range(10):
        means = central[central_labels == label].mean(axis=0), others[other_labels == label].mean(axis=0)
        assert np.abs(means[0] - means[1]).max() < 0.3


@pytest.mark.parametrize("solver", ["shared", "blockwise"])
def test_from_random_codes_representatives_and_other_rows_come_to_the_same_words(solver):
    _, y = digits()
    problem = digits_problem(1, 200, gibbs.pair_table(8, 2 / 8, 1.0))
    signs = selection.random_signs(N_TRAIN, 8, 4)
    with LocalExecutor(2) as executor:
        state = inference.init(problem, split(problem, signs), executor)
        state = inference.run(problem, state, Schedule(max_sweeps=12, max_finish=1), executor, solver=solver)
    found = joined(state, lambda latent: latent.signs)
    assert_one_word_per_class(found[:200], found[200:], y[:200], y[200:N_TRAIN])


SETTINGS = Settings(
    n_bits=12,
    codes="sampled",
    n_inducing=100,
    length_scale=0.7,
    signal_scale=4.0,
    n_representatives=200,
    n_starts=2,
    max_sweeps=10,
    block_size=256,
    seed=5,
)


@cache
def trained(n_jobs, **changes):
    """Training on digits: the outcome, and codes and rows of every block at the last sweep."""
    X, y = digits()
    signatures, settings, kept = similarity.from_labels(y[:N_TRAIN]), SETTINGS._replace(**changes), []
    with LocalExecutor(n_jobs) as executor:
        outcome = training.train(ArrayTable(X[:N_TRAIN]), signatures, settings, executor, keep=kept.append)
    layout = training.layout(signatures, settings)
    return outcome, [latent.signs for latent in kept[-1].state.latents], layout.blocks, layout.n_central_blocks


def test_after_training_representatives_and_other_rows_have_the_same_words():
    _, y = digits()
    _, signs, blocks, n = trained(2)
    assert [len(part) for part in signs] == [len(block) for block in blocks]
    assert sum(map(len, blocks[:n])) == 200
    labels = [y[block] for block in blocks]
    assert_one_word_per_class(*(np.concatenate(part) for part in (signs[:n], signs[n:], labels[:n], labels[n:])))


@pytest.mark.parametrize("codes", ["sampled", "posterior"])
def test_training_learns_codes_that_unseen_rows_are_given_too(codes):
    X, y = digits()
    function = trained(2, codes=codes)[0].function
    words, _ = dominant(function.margins(X[:N_TRAIN]) >= 0, y[:N_TRAIN])
    distances = ((function.margins(X[N_TRAIN:]) >= 0)[:, None] != words).sum(axis=2)
    assert (distances.argmin(axis=1) == y[N_TRAIN:]).mean() > 0.9


@pytest.mark.parametrize("codes", ["sampled", "posterior"])
def test_training_is_the_same_bit_for_bit_for_one_and_two_threads(codes):
    (one, one_signs, _, _), (two, two_signs, _, _) = trained(1, codes=codes), trained(2, codes=codes)
    for mine, theirs in zip(one_signs, two_signs, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    mine, theirs = (outcome.function.content()[1] for outcome in (one, two))
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name])
    assert [sweep._replace(seconds=0) for sweep in one.sweeps] == [sweep._replace(seconds=0) for sweep in two.sweeps]
    X_test = digits()[0][N_TRAIN:]
    np.testing.assert_array_equal(one.function.margins(X_test, 1), two.function.margins(X_test, 2))


@pytest.mark.parametrize("codes", ["sampled", "posterior"])
def test_training_is_the_same_with_phi_on_disk(codes):
    here, on_disk = (trained(2, codes=codes, memory_limit=limit)[0].function for limit in (np.inf, 0.0))
    for name, array in here.content()[1].items():
        np.testing.assert_array_equal(array, on_disk.content()[1][name])


def test_another_seed_gives_other_codes():
    assert not np.array_equal(trained(2)[0].function.weights, trained(2, seed=6)[0].function.weights)


def test_pair_lists_have_codes_that_separate_them():
    X, y = digits()
    rng = np.random.default_rng(7)
    i, j = rng.integers(0, 600, (2, 12_000))
    i, j = i[i != j], j[i != j]
    graph = similarity.from_pairs(Pairs(i, j, np.where(y[i] == y[j], 1, -1)), 600)
    settings = SETTINGS._replace(n_representatives=1, max_sweeps=15)
    found = []
    for n_jobs in (1, 2):
        with LocalExecutor(n_jobs) as executor:
            found.append(
                training.train(ArrayTable(X[:600]), graph, settings, executor).function.margins(X[N_TRAIN:]) >= 0
            )
    np.testing.assert_array_equal(*found)
    labels, codes = y[N_TRAIN:], found[0]
    distances = (codes[:, None] != codes[None]).sum(axis=2)
    alike = np.equal.outer(labels, labels)
    assert distances[alike].mean() + 3 < distances[~alike].mean()


def test_a_sweep_reports_what_it_did():
    problem = digits_problem(1, 200, gibbs.pair_table(8, 2 / 8, 1.0))
    executor = SerialExecutor()
    signs = selection.random_signs(N_TRAIN, 8, 8)
    state = inference.init(problem, split(problem, signs), executor)
    for number in (1, 2, 3):
        before = joined(state, lambda latent: latent.signs)
        state, sweep = inference.step(problem, state, Schedule(), executor)
        after = joined(state, lambda latent: latent.signs)
        assert sweep.number == state.sweep == number
        assert sweep.flips == np.count_nonzero(before != after)
        assert sweep.leave_one_out <= 0
        assert not sweep.frozen


def test_codes_are_frozen_at_the_last_sweep_and_stay_so():
    problem = digits_problem(1, 200, gibbs.pair_table(8, 2 / 8, 1.0))
    executor, sweeps, codes = SerialExecutor(), [], []
    state = inference.init(problem, split(problem, selection.random_signs(N_TRAIN, 8, 9)), executor)

    def watch(state, sweep):
        sweeps.append(sweep)
        codes.append(joined(state, lambda latent: latent.signs))

    state = inference.run(problem, state, Schedule(max_sweeps=3, converged=0.0, max_finish=4), executor, watch)
    assert [sweep.frozen for sweep in sweeps] == [False] * 3 + [True] * 4
    assert state.finished
    for later in codes[3:]:
        np.testing.assert_array_equal(later, codes[2])
    assert [sweep.flips for sweep in sweeps[3:]] == [0] * 4


def test_a_coarser_model_first_leads_to_the_same_fixed_point(monkeypatch):
    monkeypatch.setattr(inference, "COARSEST", 20)
    problem = digits_problem(1, 500, gibbs.pair_table(BITS, 2 / BITS, 1.0))
    signs, executor = split(problem, codes_of_classes()), SerialExecutor()
    began = inference.init_fixed(problem, signs, 1.0, executor)
    assert began.sweep == 0
    assert began.frozen
    assert np.any(began.mean[:25])
    assert not np.any(began.mean[25:])  # those of the coarser model, which has a quarter of the inducing inputs
    found = inference.finish(problem, inference.run(problem, began, CONVERGE, executor), executor)
    _, expected = solved("shared")
    for what in (lambda latent: latent.sites.precision, lambda latent: latent.sites.shift):
        np.testing.assert_allclose(joined(found, what), joined(expected, what), rtol=0.02, atol=2e-3)
    np.testing.assert_allclose(found.mean, expected.mean, atol=0.02 * np.abs(expected.mean).max())


class TestLeastSquares:
    @staticmethod
    def found(weights=None):
        problem = digits_problem(1, 500, gibbs.pair_table(BITS, 2 / BITS, 1.0))
        if weights is not None:
            rows = [
                block._replace(weights=own) for block, own in zip(problem.rows, split(problem, weights), strict=True)
            ]
            problem = problem._replace(rows=rows)
        executor = SerialExecutor()
        state = inference.init(problem, split(problem, codes_of_classes()), executor)
        squares = inference.least_squares(problem, state, 0.3, executor)
        return squares.mean, inference.left_out_means(problem, squares, range(len(problem.rows)), executor)

    def test_means_and_those_of_rows_left_out_are_ridge_regression_s(self):
        Phi, Y = digits_features()[2][:N_TRAIN].astype(np.float64), codes_of_classes().astype(np.float64)
        mean, left_out = self.found()

        def ridge(kept):
            return np.linalg.solve(np.eye(Phi.shape[1]) + 0.3 * Phi[kept].T @ Phi[kept], 0.3 * Phi[kept].T @ Y[kept])

        everyone = np.arange(N_TRAIN)
        np.testing.assert_allclose(Phi @ mean, Phi @ ridge(everyone), atol=5e-3)
        for row in (0, 700, N_TRAIN - 1):
            np.testing.assert_allclose(left_out[row], Phi[row] @ ridge(everyone != row), atol=2e-2)

    def test_a_row_counts_as_often_as_it_should_but_at_most_once(self):
        Phi, Y = digits_features()[2][:N_TRAIN].astype(np.float64), codes_of_classes().astype(np.float64)
        weights = np.where(np.arange(N_TRAIN) % 3 == 0, 2.0, 0.5)
        mean, _ = self.found(weights)
        weighed = 0.3 * np.minimum(weights, 1.0)[:, None] * Phi
        expected = np.linalg.solve(np.eye(Phi.shape[1]) + weighed.T @ Phi, weighed.T @ Y)
        np.testing.assert_allclose(Phi @ mean, Phi @ expected, atol=5e-3)


class TestAnswers:
    @pytest.mark.parametrize(("tagged", "times"), [(False, 2), (True, 1)])
    def test_classes_are_answered_twice_and_tags_once_each_in_its_column(self, monkeypatch, tagged, times):
        X, y = digits()
        told = similarity.from_tags(np.eye(10, dtype=int)[y[:600]]) if tagged else similarity.from_labels(y[:600])
        seen = []
        whole = sweeping._ended

        def spy(source, problem, state):
            found = whole(source, problem, state)
            asked = source.partition.asked
            Phi = np.concatenate([problem.rows[number].Phi for number in asked])
            rows = np.concatenate([source.partition.blocks[number] for number in asked])
            seen.append((Phi @ found.mean, found.left_out, y[rows]))
            return found

        monkeypatch.setattr(sweeping, "_ended", spy)
        training.train(ArrayTable(X[:600]), told, Settings(8, n_inducing=100, block_size=200), SerialExecutor())
        ((fitted, left_out, classes),) = seen
        assert fitted.shape == left_out.shape == (600, times * 10)
        for own, other in zip(fitted.T, left_out.T, strict=True):
            assert np.corrcoef(own, other)[0, 1] > 0.9
        if not tagged:
            assert (left_out[:, 10:].argmax(axis=1) == classes).mean() > 0.9
