"""Kernel, pair weight and start: what is chosen is what was planted, by the measure that it should be chosen by."""

from types import SimpleNamespace

import numpy as np
import pytest

from gphash.data.blocks import ArrayTable
from gphash.execution.local import LocalExecutor, SerialExecutor
from gphash.method import gibbs, kernels, scaling, selection, training
from gphash.method.kernels import SquaredExponential
from gphash.method.scaling import Scaling
from gphash.method.selection import Sample
from gphash.method.training import Settings
from gphash.supervision import similarity
from gphash.supervision.similarity import PairGraph, Pairs

N, BITS, SAMPLE = 240, 4, 2000
SCALING = Scaling(np.zeros(2), False)
KINDS = ("labels", "tags", "pairs")
KERNEL = SquaredExponential(0.3, 4.0)


def striped(width, n=N):
    """Rows in the unit square, and their classes: stripes so wide, in turn of two classes."""
    X = np.random.default_rng(0).random((n, 2), dtype=np.float32)
    return X, (X[:, 0] // width % 2).astype(int)


def judged(y, n_pairs, seed=1):
    """Random pairs of rows, as a list of partners."""
    i, j = np.random.default_rng(seed).integers(0, len(y), (2, n_pairs))
    i, j = i[i != j], j[i != j]
    return similarity.from_pairs(Pairs(i, j, np.where(y[i] == y[j], 1, -1)), len(y))


def sample_of(kind="labels", width=0.5, n_inducing=40, power=1.0):
    X, y = striped(width)
    taught = {
        "labels": lambda: similarity.from_labels(y),
        "tags": lambda: similarity.from_tags(np.eye(2, dtype=int)[y]),
        "pairs": lambda: judged(y, 3000),
    }
    return Sample(X, taught[kind](), X[:n_inducing], SCALING, power)


def table_of(weight=1.0):
    return gibbs.pair_table(BITS, 2 / BITS, weight)


def chosen(sample, length_scale=None, signal_scale=None, seed=0, executor=None):
    given = length_scale, signal_scale
    executor = executor or SerialExecutor()
    return selection.choose_kernel(sample, table_of(), seed, SquaredExponential, *given, None, executor)


@pytest.fixture
def trained(monkeypatch):
    """All that is trained on samples from here on: what with, and the outcome."""
    seen, train = [], selection.train_sample

    def note(*arguments):
        seen.append((arguments, train(*arguments)))
        return seen[-1][1]

    monkeypatch.setattr(selection, "train_sample", note)
    return seen


class TestKernel:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(("width", "length"), [(0.125, 0.075), (0.5, 1.0)])
    def test_narrow_stripes_need_a_short_length_and_wide_ones_a_long_one(self, monkeypatch, kind, width, length):
        monkeypatch.setattr(SquaredExponential, "LENGTH_SCALES", (0.075, 1.0))
        monkeypatch.setattr(kernels, "median_distance", lambda X: 1.0)
        assert chosen(sample_of(kind, width), signal_scale=8.0).length_scale == length

    @pytest.mark.parametrize("kind", KINDS)
    def test_length_scales_are_compared_first_then_signal_scales_for_the_same_codes(self, trained, kind):
        sample = sample_of(kind, 0.25)
        found = chosen(sample)
        if kind == "pairs":  # codes have to be trained, for want of words
            (first, start), *tried = trained
            assert first[1].length_scale == pytest.approx(kernels.median_distance(sample.X))
            signs = start.signs
        else:
            tried, signs = trained, trained[0][0][4]
        n_lengths = len(SquaredExponential.LENGTH_SCALES)
        assert len(tried) == n_lengths + len(selection.SIGNAL_SCALES)
        for arguments, outcome in tried:
            np.testing.assert_array_equal(arguments[4], signs)
            np.testing.assert_array_equal(outcome.signs, signs)
        lengths, signals = tried[:n_lengths], tried[n_lengths:]
        assert len({arguments[1].signal_scale for arguments, _ in lengths}) == 1
        longest = max(lengths, key=lambda one: one[1].score)[0][1].length_scale
        assert {arguments[1].length_scale for arguments, _ in signals} == {longest}
        assert found == max(signals, key=lambda one: one[1].score)[0][1]

    def test_codes_that_are_given_are_those_that_kernels_are_compared_by(self, trained):
        signs, given = selection.random_signs(N, BITS, 3), (SquaredExponential, None, None)
        selection.choose_kernel(sample_of(), table_of(), 0, *given, signs, SerialExecutor())
        for arguments, _ in trained:
            np.testing.assert_array_equal(arguments[4], signs)

    def test_where_a_few_rows_count_for_much_the_smoothest_kernel_that_may_be_as_good_is_taken(self):
        rough, smooth = SquaredExponential(0.1, 4.0), SquaredExponential(1.0, 4.0)
        few = np.r_[np.full(10, 10.0), np.full(990, 1e-3)]
        for weights, wanted in ((None, rough), (np.ones(1000), rough), (few, smooth)):
            assert selection.smoothest([rough, smooth], [-0.10, -0.15], weights) == wanted
        assert selection.smoothest([rough, smooth], [-0.10, -0.60], few) == rough

    def test_the_edges_of_the_grid_can_be_chosen(self, trained):
        narrow, noise = (sample_of(width=width, n_inducing=120) for width in (0.125, 0.001))
        distance = kernels.median_distance(narrow.X)
        assert chosen(narrow) == SquaredExponential(
            distance * SquaredExponential.LENGTH_SCALES[0], selection.SIGNAL_SCALES[-1]
        )
        # Where there is nothing to learn, the kernel that claims least.
        assert chosen(noise) == SquaredExponential(
            distance * SquaredExponential.LENGTH_SCALES[-1], selection.SIGNAL_SCALES[0]
        )
        tried = {arguments[1] for arguments, _ in trained}
        assert {one.length_scale for one in tried} == {distance * factor for factor in SquaredExponential.LENGTH_SCALES}
        assert {one.signal_scale for one in tried} == set(selection.SIGNAL_SCALES)

    def test_what_is_given_is_kept(self, trained):
        assert chosen(sample_of(), length_scale=0.123).length_scale == 0.123
        assert chosen(sample_of(), signal_scale=5.5).signal_scale == 5.5
        trained.clear()
        assert chosen(sample_of(), 0.123, 5.5) == SquaredExponential(0.123, 5.5)
        assert trained == []  # nothing was left to choose

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_same_seed_chooses_the_same_on_any_number_of_threads(self, kind):
        with LocalExecutor(2) as threads:
            assert chosen(sample_of(kind)) == chosen(sample_of(kind), executor=threads)


class TestStart:
    @staticmethod
    def best(n_starts, seed=0, kind="pairs"):
        sample, executor = sample_of(kind), SerialExecutor()
        first = selection.first_codes(sample, KERNEL, BITS, seed, n_starts, executor)
        return selection.best_start(sample, KERNEL, table_of(), seed, n_starts, first, executor)

    def test_of_pairs_the_one_with_the_best_score_goes_on(self, trained):
        found = self.best(5)
        scores = [outcome.score for _, outcome in trained]
        assert len(scores) == 5
        assert len(set(scores)) > 1
        assert found.score == max(scores)
        assert found is trained[int(np.argmax(scores))][1]

    @pytest.mark.parametrize("kind", ["labels", "tags"])
    def test_labels_and_tags_begin_with_words(self, trained, kind):
        sample = sample_of(kind)
        first = selection.first_codes(sample, KERNEL, BITS, 0, 2, SerialExecutor())
        y = sample.supervision.masks[:, 0]
        for one in np.unique(y):
            assert (first[y == one] == first[y == one][0]).all()
        assert len(np.unique(first, axis=0)) == 2
        found = self.best(2, kind=kind)
        assert len(trained) == 1
        np.testing.assert_array_equal(trained[0][0][4], first)
        assert found is trained[0][1]

    def test_pairs_know_no_words(self):
        assert selection.first_codes(sample_of("pairs"), KERNEL, BITS, 0, 2, SerialExecutor()) is None

    def test_more_starts_are_the_same_and_others(self, trained):
        assert self.best(4).score >= self.best(1).score
        seeds = [arguments[3] for arguments, _ in trained]
        assert len(set(seeds)) == 4
        assert seeds[4] == seeds[0]

    def test_the_same_seed_gives_the_same_codes(self):
        one, other, third = self.best(2), self.best(2), self.best(2, seed=1)
        np.testing.assert_array_equal(one.signs, other.signs)
        np.testing.assert_array_equal(one.function.weights, other.function.weights)
        assert (one.signs != third.signs).any()

    def test_its_function_predicts_its_codes(self):
        start, sample = self.best(4), sample_of()
        assert start.signs.shape == (N, BITS)
        margins = KERNEL.evaluate(start.function.landmarks, sample.X) @ start.function.weights
        assert ((margins >= 0) == (start.signs > 0)).mean() > 0.9

    def test_codes_that_are_given_stay_if_they_are_frozen(self):
        signs = selection.random_signs(N, BITS, 3)
        start = selection.train_sample(sample_of(), KERNEL, table_of(), 0, signs, frozen=True)
        np.testing.assert_array_equal(start.signs, signs)


class TestPairWeight:
    PARTNERS = 1000.0
    WEIGHTS = (1.0, 0.2, 0.06)

    def choose(self, sample, n_partners=PARTNERS, seed=0):
        first = selection.first_codes(sample, KERNEL, BITS, seed, 1, SerialExecutor())
        return selection.choose_pair_weight(sample, KERNEL, table_of, n_partners, seed, 1, first, SerialExecutor())

    @pytest.mark.parametrize("wanted", WEIGHTS)
    @pytest.mark.parametrize("kind", KINDS)
    def test_retrieval_decides_and_not_the_score(self, monkeypatch, kind, wanted):
        """The one weight with useful codes has the worst score by far."""
        good = TestStart.best(3, kind=kind)
        noise = np.random.default_rng(0).normal(size=good.function.weights.shape).astype(np.float32)
        signs = selection.random_signs(N, BITS, 9)
        useless = SimpleNamespace(landmarks=good.function.landmarks, weights=noise)
        bad = good._replace(signs=signs, function=useless, score=0.0)
        starts = iter(good._replace(score=-99.0) if weight == wanted else bad for weight in self.WEIGHTS)
        monkeypatch.setattr(selection, "best_start", lambda *_: next(starts))
        assert self.choose(sample_of(kind)) == wanted

    @pytest.mark.parametrize("kind", KINDS)
    def test_what_judges_is_held_out(self, trained, kind):
        sample = sample_of(kind)
        self.choose(sample)
        assert len(trained) == len(self.WEIGHTS)
        for (part, *_), _ in trained:
            if kind == "pairs":
                _, remaining, _, judge = sample.supervision.hold_out(np.zeros(N, bool), 0)
                assert pairs_in(part.supervision) == pairs_in(remaining)
                assert not pairs_in(remaining) & pairs_in(judge)
                assert pairs_in(remaining) | pairs_in(judge) == pairs_in(sample.supervision)
                assert len(judge.partners) == pytest.approx(len(sample.supervision.partners) / 5, rel=0.5)
            else:
                np.testing.assert_array_equal(part.X, sample.X[: 2 * N // 3])
                assert len(part.supervision.masks) == len(part.X)

    def test_few_partners_leave_nothing_to_choose(self, trained):
        assert self.choose(sample_of(), n_partners=50.0) == 1.0
        assert len(trained) == 1

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_same_seed_chooses_the_same(self, kind):
        assert self.choose(sample_of(kind, 0.25)) == self.choose(sample_of(kind, 0.25)) in self.WEIGHTS


def pairs_in(graph):
    return set(zip(graph.owners.tolist(), graph.partners.tolist(), strict=True))


class TestMeasures:
    def test_retrieval_of_codes_that_are_classes_and_of_codes_that_are_not(self):
        _, y = striped(0.5)
        words = np.where([[1, 1, 0, 0], [0, 1, 1, 0]], 1.0, -1.0)
        assert selection.quality(similarity.from_labels(y), words[y]) == pytest.approx(1)
        rows = np.random.default_rng(0).normal(size=(N, BITS))
        assert selection.quality(similarity.from_labels(y), rows) == pytest.approx(0.5, abs=0.05)

    def test_separation_is_the_chance_that_alike_is_nearer(self):
        _, y = striped(0.5)
        pairs = judged(y, 500)
        words = np.array([[1, 1, 1, 1], [-1, 1, -1, 1]], np.int8)
        assert selection.quality(pairs, words[y]) == 1
        assert selection.quality(pairs, np.ones((N, BITS), np.int8)) == 0.5
        assert selection.quality(pairs, selection.random_signs(N, BITS, 0)) == pytest.approx(0.5, abs=0.1)
        only = pairs.select(pairs.similar == 1)
        assert selection.quality(only, words[y]) == 0.5  # nothing to tell apart

    def test_the_median_leaves_equal_rows_out(self):
        twice = np.repeat([[0.0, 0.0], [3.0, 4.0]], 40, axis=0)
        assert kernels.median_distance(twice) == pytest.approx(5)
        assert kernels.median_distance(np.ones((5, 3))) == 1.0


class TestOrder:
    """The sample is the beginning of an order of rows."""

    def test_labels_and_tags_have_all_rows_in_random_order(self):
        for kind in ("labels", "tags"):
            supervision = sample_of(kind).supervision
            one, other = (supervision.order(np.random.default_rng(seed), SAMPLE) for seed in (0, 1))
            assert sorted(one) == sorted(other) == list(range(N))
            assert (one != other).any()
            np.testing.assert_array_equal(one, supervision.order(np.random.default_rng(0), SAMPLE))

    def test_of_pairs_only_rows_that_are_named(self):
        pairs = similarity.from_pairs(Pairs([3, 5, 7], [5, 7, 200], [1, -1, 1]), N)
        assert sorted(pairs.order(np.random.default_rng(0), SAMPLE)) == [3, 5, 7, 200]

    def test_a_sample_of_sparse_pairs_is_walked_along_them(self):
        n = 5000
        y = np.arange(n) % 2
        graph = judged(y, 5000)  # two partners a row: of rows drawn at random, next to none meet
        order = graph.order(np.random.default_rng(0), 200)
        assert len(set(order.tolist())) == len(order)
        assert sorted(order) == np.flatnonzero(np.diff(graph.offsets)).tolist()
        walked = graph.among(order[:200])
        strangers = np.random.default_rng(0).choice(order, 200, replace=False)
        assert len(walked.partners) >= 2 * 150
        assert len(graph.among(strangers).partners) < 2 * 40
        np.testing.assert_array_equal(order, graph.order(np.random.default_rng(0), 200))

    def test_many_small_islands_fill_a_sample(self):
        first = np.arange(0, 600, 2)
        graph = similarity.from_pairs(Pairs(first, first + 1, np.where(first % 4, 1, -1)), 600)
        order = graph.order(np.random.default_rng(0), 100)
        assert sorted(order) == list(range(600))
        assert len(graph.among(order[:100]).partners) == 100  # fifty whole pairs


@pytest.mark.parametrize("kind", KINDS)
def test_only_rows_of_the_sample_are_looked_at(monkeypatch, trained, kind):
    monkeypatch.setattr(selection, "SAMPLE", 60)
    monkeypatch.setattr(selection, "INDUCING", 20)
    whole = sample_of(kind)
    given = {"n_inducing": 30, "n_starts": 1, "pair_weight": None, "max_sweeps": 2, "block_size": 64}
    settings = Settings(BITS, codes="sampled", **given)
    found = training.train(ArrayTable(whole.X), whole.supervision, settings, SerialExecutor())
    order = whole.supervision.order(np.random.default_rng(settings.seed), 60)
    some, rows = order[:60], scaling.apply(found.chosen.scaling, whole.X)
    assert len(trained) > len(selection.SIGNAL_SCALES)
    for (part, *_), outcome in trained:
        np.testing.assert_array_equal(part.X, rows[some[: len(part.X)]])
        assert len(part.Z) == 20
        assert len(outcome.signs) == len(part.X)
        if isinstance(part.supervision, PairGraph):
            assert part.supervision.n_rows == 60
