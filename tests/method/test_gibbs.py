"""Conditionals by enumeration, grouped against ungrouped sums, samplers against a naive one with the same uniforms."""

import numpy as np
import pytest
from scipy.special import log_ndtr

from gphash.method import gibbs
from gphash.supervision import similarity
from gphash.supervision.similarity import Pairs
from tests import reference

N, M, R = 9, 4, 6  # rows, bits, representatives
SCALE, WEIGHT = 2 / M, 0.7


def random_signs(rng, shape):
    return np.where(rng.random(shape) < 0.5, -1, 1).astype(np.int8)


def supervision(kind, rng, n=N):
    """Signatures, and the oracle's pairs of some rows with some partners."""
    if kind == "labels":
        labels = np.arange(n) % 3
        if n % 3:  # of other sizes, classes pull with other strengths, which has a test of its own
            labels = np.arange(n) % 2
        return similarity.from_labels(labels), lambda rows, partners: reference.label_pairs(labels, rows, partners)
    tags = rng.random((n, 70)) < 0.02
    tags[np.arange(n), [(0, 64, 69)[row % 3] for row in range(n)]] = True
    tags[0] = False
    return similarity.from_tags(tags), lambda rows, partners: reference.tag_pairs(tags, rows, partners)


def forcing(code):
    """Uniforms that leave no choice: 0 draws +1, 1 draws −1."""
    return np.where(code > 0, 0.0, 1.0)


def assert_conditional(sample, signs, i, j, chance):
    """The sampler's chance of +1 is between two numbers that differ in the ninth digit."""
    for factor, expected in ((1 - 1e-9, 1), (1 + 1e-9, -1)):
        uniforms = forcing(signs)
        uniforms[i, j] = chance * factor
        assert sample(uniforms)[i, j] == expected


@pytest.mark.parametrize("kind", ["labels", "tags"])
@pytest.mark.parametrize("seed", [0, 1])
def test_conditional_of_a_representative_equals_enumeration_over_representatives_alone(kind, seed):
    rng = np.random.default_rng(seed)
    signatures, judge = supervision(kind, rng)
    signs, gamma = random_signs(rng, (N, M)), rng.normal(size=(N, M))
    table, central = gibbs.pair_table(M, SCALE, WEIGHT), np.arange(R)
    pairs = judge(central, central)
    assert len(pairs) == R * (R - 1) // 2

    def sample(uniforms):
        order = np.arange(R)[::-1].copy()
        return gibbs.sample_central(signatures[:R], signs[:R], gamma[:R], uniforms, order, table)[0]

    for i in range(R):
        for j in range(M):
            chance = reference.chance_by_enumeration(i, j, signs[:R], gamma[:R], pairs, SCALE, WEIGHT)
            assert_conditional(sample, signs[:R], i, j, chance)


@pytest.mark.parametrize("kind", ["labels", "tags"])
@pytest.mark.parametrize("seed", [2, 3])
def test_conditional_of_another_row_equals_enumeration_against_representatives_alone(kind, seed):
    rng = np.random.default_rng(seed)
    signatures, judge = supervision(kind, rng)
    signs, gamma = random_signs(rng, (N, M)), rng.normal(size=(N, M))
    table, groups = gibbs.pair_table(M, SCALE, WEIGHT), gibbs.group(signs[:R], signatures[:R])[0]
    pairs = judge(np.arange(R, N), np.arange(R))
    assert len(pairs) == R * (N - R)

    def sample(uniforms):
        return gibbs.sample_rows(signs[R:], gamma[R:], uniforms, signatures[R:], groups, table)

    for i in range(N - R):
        for j in range(M):
            chance = reference.chance_by_enumeration(R + i, j, signs, gamma, pairs, SCALE, WEIGHT)
            assert_conditional(sample, signs[R:], i, j, chance)


@pytest.mark.parametrize("balance", [False, True])
def test_conditional_under_a_pair_list_equals_enumeration(balance):
    rng = np.random.default_rng(4)
    i, j = np.triu_indices(N, 1)
    chosen = rng.random(len(i)) < 0.5
    i, j = i[chosen], j[chosen]
    similar = np.where(rng.random(len(i)) < 0.3, 1, -1)
    graph = similarity.from_pairs(Pairs(i, j, similar), N, balance)
    share = (similar > 0).mean()
    weights = np.where(similar > 0, 0.5 / share, 0.5 / (1 - share)) if balance else np.ones(len(i))
    pairs = list(zip(i, j, similar, weights, strict=True))
    signs, gamma = random_signs(rng, (N, M)), rng.normal(size=(N, M))
    table, order = gibbs.pair_table(M, SCALE, WEIGHT), rng.permutation(N)

    def sample(uniforms):
        return gibbs.sample_central(graph, signs, gamma, uniforms, order, table)[0]

    for row in range(N):
        for bit in range(M):
            chance = reference.chance_by_enumeration(row, bit, signs, gamma, pairs, SCALE, WEIGHT)
            assert_conditional(sample, signs, row, bit, chance)


def test_table_holds_the_gain_of_every_inner_product():
    table = gibbs.pair_table(5, 0.3, 1.7)
    assert table.shape == (2, 13)
    for row, s in enumerate((-1, 1)):
        for b in range(-6, 7):
            gain = log_ndtr(0.3 * s * (b + 1)) - log_ndtr(0.3 * s * (b - 1))
            assert table[row, b + 6] == pytest.approx(1.7 * gain, rel=1e-12)


@pytest.mark.parametrize("n_bits", [1, 8, 13, 70])
@pytest.mark.parametrize("kind", ["labels", "tags"])
def test_groups_hold_every_member_once(n_bits, kind):
    rng = np.random.default_rng(n_bits)
    signatures, _ = supervision(kind, rng, 60)
    signs = random_signs(rng, (5, n_bits))[rng.integers(0, 5, 60)]
    groups = gibbs.group(signs, signatures)[0]
    expected = {}
    for code, mask in zip(signs, signatures.masks, strict=True):
        key = tuple(code.tolist()), tuple(mask.tolist())
        expected[key] = expected.get(key, 0) + 1
    found = {
        (tuple(code.astype(int).tolist()), tuple(mask.tolist())): count
        for code, mask, count in zip(groups.signs.T, groups.signatures.masks, groups.counts, strict=True)
    }
    assert found == expected
    assert len(groups.counts) == len(expected)


@pytest.mark.parametrize("kind", ["labels", "tags"])
def test_grouped_sums_equal_sums_over_single_partners(kind):
    rng = np.random.default_rng(5)
    signatures, judge = supervision(kind, rng, 60)
    signs = np.concatenate([random_signs(rng, (4, 8))[rng.integers(0, 4, 50)], random_signs(rng, (10, 8))])
    groups, table = gibbs.group(signs[:50], signatures[:50])[0], gibbs.pair_table(8, 0.25, 0.05)
    assert len(groups.counts) < 50
    judged = {frozenset(pair[:2]): pair[2] for pair in judge(np.arange(50, 60), np.arange(50))}
    for row in range(10):
        s = [judged[frozenset((50 + row, partner))] for partner in range(50)]
        for j in range(8):
            odds = 0.05 * reference.pair_sum(signs[50 + row], j, signs[:50], s, np.ones(50), 0.25)
            rows = slice(50 + row, 51 + row)

            def sample(uniforms, rows=rows):
                return gibbs.sample_rows(signs[rows], np.zeros((1, 8)), uniforms, signatures[rows], groups, table)

            assert_conditional(sample, signs[rows], 0, j, 1 / (1 + np.exp(-odds)))


@pytest.mark.parametrize("kind", ["labels", "tags"])
@pytest.mark.parametrize(("codes", "weight"), [("few", 1.0), ("random", 0.01), ("random", 0.0), ("random", 1.0)])
def test_representatives_follow_the_naive_sampler(kind, codes, weight):
    rng = np.random.default_rng(6)
    n, m = 70, 6
    signatures, judge = supervision(kind, rng, n)
    signs = random_signs(rng, (3, m))[rng.integers(0, 3, n)] if codes == "few" else random_signs(rng, (n, m))
    table, pairs = gibbs.pair_table(m, 0.3, weight), judge(np.arange(n), np.arange(n))
    seen = []
    for _ in range(5):
        gamma, uniforms, order = rng.normal(size=(n, m)), rng.random((n, m)), rng.permutation(n)
        found, _ = gibbs.sample_central(signatures, signs, gamma, uniforms, order, table)
        expected, counted = reference.sample_in_turn(signs, gamma, uniforms, order, pairs, 0.3, weight)
        np.testing.assert_array_equal(found, expected)
        assert counted == np.count_nonzero(found != signs)
        seen.append((len(gibbs.group(signs, signatures)[0].counts), counted))
        signs = found
    # The trial is worth something only if groups came and went.
    assert max(flips for _, flips in seen) > n // 4
    if weight < 1:
        assert min(groups for groups, _ in seen) > n // 4


def test_representatives_that_are_all_alone_in_their_groups_fit_the_room():
    # Every row founds a group of its own while all places but one are taken.
    rng = np.random.default_rng(7)
    n, m = 64, 12
    signatures = similarity.from_labels(np.arange(n))
    signs, gamma, table = random_signs(rng, (n, m)), np.zeros((n, m)), gibbs.pair_table(m, 0.1, 0.0)
    pairs = reference.label_pairs(np.arange(n), np.arange(n), np.arange(n))
    for _ in range(3):
        uniforms, order = rng.random((n, m)), rng.permutation(n)
        found, *_ = gibbs.sample_central(signatures, signs, gamma, uniforms, order, table)
        expected, _ = reference.sample_in_turn(signs, gamma, uniforms, order, pairs, 0.1, 0.0)
        np.testing.assert_array_equal(found, expected)
        signs = found


@pytest.mark.parametrize("kind", ["labels", "tags"])
def test_other_rows_follow_the_naive_sampler(kind):
    rng = np.random.default_rng(8)
    n, t, m = 60, 25, 10
    signatures, judge = supervision(kind, rng, n)
    signs, gamma, uniforms = random_signs(rng, (n, m)), rng.normal(size=(n, m)), rng.random((n, m))
    groups, table = gibbs.group(signs[:t], signatures[:t])[0], gibbs.pair_table(m, 0.2, 0.3)
    before = signs.copy()
    found = gibbs.sample_rows(signs[t:], gamma[t:], uniforms[t:], signatures[t:], groups, table)
    pairs = judge(np.arange(t, n), np.arange(t))
    expected, counted = reference.sample_in_turn(signs, gamma, uniforms, np.arange(t, n), pairs, 0.2, 0.3)
    np.testing.assert_array_equal(found, expected[t:])
    np.testing.assert_array_equal(signs, before)
    assert counted == np.count_nonzero(found != signs[t:])


@pytest.mark.parametrize("balance", [False, True])
def test_pair_list_follows_the_naive_sampler(balance):
    rng = np.random.default_rng(9)
    n, m = 40, 7
    i, j = np.triu_indices(n - 2, 1)  # the last two rows have no partner
    chosen = rng.random(len(i)) < 0.2
    similar = np.where(rng.random(chosen.sum()) < 0.2, 1, -1)
    graph = similarity.from_pairs(Pairs(i[chosen], j[chosen], similar), n, balance)
    owner = np.repeat(np.arange(n), np.diff(graph.offsets))
    once = owner < graph.partners
    judged = np.where(graph.similar[once] == 1, 1, -1)
    pairs = list(zip(owner[once], graph.partners[once], judged, graph.weights[once], strict=True))
    signs, table = random_signs(rng, (n, m)), gibbs.pair_table(m, 0.3, 0.5)
    for _ in range(3):
        gamma, uniforms, order = rng.normal(size=(n, m)), rng.random((n, m)), rng.permutation(n)
        found, _ = gibbs.sample_central(graph, signs, gamma, uniforms, order, table)
        expected, counted = reference.sample_in_turn(signs, gamma, uniforms, order, pairs, 0.3, 0.5)
        np.testing.assert_array_equal(found, expected)
        assert counted == np.count_nonzero(found != signs)
        signs = found


def test_scores_far_out_decide_whatever_the_partners_say():
    rng = np.random.default_rng(10)
    signatures = similarity.from_labels(np.arange(10) % 2)
    signs, gamma = random_signs(rng, (10, 3)), np.where(rng.random((10, 3)) < 0.5, -100.0, 100.0)
    uniforms = np.clip(rng.random((10, 3)), 1e-6, 1 - 1e-6)
    groups, table = gibbs.group(signs, signatures)[0], gibbs.pair_table(3, 2 / 3, 1.0)
    found = gibbs.sample_rows(signs, gamma, uniforms, signatures, groups, table)
    np.testing.assert_array_equal(found, np.sign(gamma))


def test_partners_count_as_much_as_they_pull():
    rng = np.random.default_rng(11)
    labels = np.repeat([0, 1, 2], [20, 6, 4])
    signatures, signs = similarity.from_labels(labels), random_signs(rng, (30, 5))
    pulls, table = signatures.pulls(), gibbs.pair_table(5, 0.3, 0.05)
    assert len(np.unique(pulls)) == 3

    def sample(uniforms):
        return gibbs.sample_central(signatures, signs, np.zeros((30, 5)), uniforms, np.arange(30), table)[0]

    for i in (0, 22, 29):
        others = np.arange(30) != i
        s = np.where(labels == labels[i], 1, -1)[others]
        for j in range(5):
            odds = 0.05 * reference.pair_sum(signs[i], j, signs[others], s, pulls[others], 0.3)
            assert_conditional(sample, signs, i, j, 1 / (1 + np.exp(-odds)))


def test_tags_that_are_on_many_rows_make_similar_with_a_chance():
    rng = np.random.default_rng(12)
    tags = np.concatenate([np.eye(20, 90, dtype=int), np.zeros((20, 2), dtype=int)], axis=1)
    tags[:12, 90], tags[8:, 91] = 1, 1
    tags[1, 0] = 1
    signatures, signs = similarity.from_tags(tags), random_signs(rng, (20, 5))
    assert signatures.chances == (1, 0.7, 0.7)
    table = gibbs.pair_table(5, 0.3, 0.05, signatures.chances)
    narrow, broad = (tags[:, columns] @ tags[:, columns].T > 0 for columns in (slice(0, 90), slice(90, 92)))
    similar = np.where(narrow, 1.0, 0.7 * broad)

    def sample(uniforms):
        return gibbs.sample_central(signatures, signs, np.zeros((20, 5)), uniforms, np.arange(20), table)[0]

    for i in (0, 1, 10, 19):
        others = np.flatnonzero(np.arange(20) != i)
        chances = similar[i, others]
        for j in range(5):
            both = [
                reference.pair_sum(signs[i], j, signs[others], [s] * 19, p, 0.3)
                for s, p in ((1, chances), (-1, 1 - chances))
            ]
            assert_conditional(sample, signs, i, j, 1 / (1 + np.exp(-0.05 * sum(both))))
