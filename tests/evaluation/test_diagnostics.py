"""What codes are like: calibration, balance, entropy, correlation, buckets."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.evaluation import diagnostics


def random_bits(seed, n, m, spread=0.5):
    return (np.random.default_rng(seed).random((n, m)) < spread).astype(np.uint8)


shapes = {"seed": st.integers(0, 10**6), "n": st.integers(1, 30), "m": st.integers(1, 20)}


@given(**shapes, spread=st.sampled_from([0.0, 0.1, 0.5, 1.0]))
def test_codes_are_described_as_counting_by_hand_would(seed, n, m, spread):
    bits = random_bits(seed, n, m, spread)
    found = diagnostics.describe_codes(bits)
    counts = Counter(map(bytes, bits))
    assert found["distinct_codes"] == len(counts)
    assert found["largest_bucket"] == max(counts.values())
    assert found["code_entropy"] == pytest.approx(sum(-c / n * math.log2(c / n) for c in counts.values()), abs=1e-12)
    for j in range(m):
        share = sum(int(b) for b in bits[:, j]) / n
        assert found["bits"]["balance"][j] == pytest.approx(share, abs=1e-15)
        entropy = sum(-p * math.log2(p) for p in (share, 1 - share) if p > 0)
        assert found["bits"]["entropy"][j] == pytest.approx(entropy, abs=1e-12)
        for i in range(m):
            constant = len({*bits[:, i].tolist()}) == 1 or len({*bits[:, j].tolist()}) == 1
            wanted = 0.0 if constant else np.corrcoef(bits[:, i], bits[:, j])[0, 1]
            assert found["bits"]["correlation"][i, j] == pytest.approx(wanted, abs=1e-12)


@given(**shapes)
def test_the_order_of_rows_changes_nothing(seed, n, m):
    rng = np.random.default_rng(seed)
    bits, chances, order = random_bits(seed, n, m), rng.random((n, m)), rng.permutation(n)
    for first, second in (
        (diagnostics.describe_codes(bits), diagnostics.describe_codes(bits[order])),
        (diagnostics.calibrate(chances, bits), diagnostics.calibrate(chances[order], bits[order])),
    ):
        np.testing.assert_equal(first, second)


def test_a_constant_code_has_one_bucket_and_no_entropy():
    found = diagnostics.describe_codes(np.ones((7, 3), dtype=np.uint8))
    assert (found["distinct_codes"], found["largest_bucket"], found["code_entropy"]) == (1, 7, 0)
    assert found["bits"]["balance"].tolist() == [1, 1, 1]
    # Not −0, which a table would print.
    assert [math.copysign(1, value) for value in (*found["bits"]["entropy"], found["code_entropy"])] == [1] * 4
    assert not found["bits"]["correlation"].any()


def test_all_codes_are_balanced_and_uncorrelated():
    found = diagnostics.describe_codes(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1))
    assert (found["distinct_codes"], found["largest_bucket"], found["code_entropy"]) == (256, 1, 8)
    assert found["bits"]["balance"].tolist() == [0.5] * 8
    assert found["bits"]["entropy"].tolist() == [1] * 8
    np.testing.assert_array_equal(found["bits"]["correlation"], np.eye(8))


@pytest.mark.parametrize("shape", [(0, 4), (4,)])
def test_bits_without_rows_are_refused(shape):
    with pytest.raises(ValueError, match="at least one row of bits"):
        diagnostics.describe_codes(np.zeros(shape, dtype=np.uint8))


@given(**shapes)
def test_calibration_is_that_of_a_loop_over_bits(seed, n, m):
    rng, n_bins = np.random.default_rng(seed), diagnostics.BINS
    # Multiples of 1/64, edges and ends among them.
    chances, bits = rng.integers(0, 65, (n, m)) / 64, random_bits(seed, n, m)
    found = diagnostics.calibrate(chances, bits)
    bins = [[] for _ in range(n_bins)]
    for chance, bit in zip(chances.ravel().tolist(), bits.ravel().tolist(), strict=True):
        bins[min(math.floor(chance * n_bins), n_bins - 1)].append((chance, bit))
    error = 0.0
    for number, inside in enumerate(bins):
        assert found["curve"]["counts"][number] == len(inside)
        if not inside:
            assert np.isnan([found["curve"]["predicted"][number], found["curve"]["observed"][number]]).all()
            continue
        predicted, observed = (math.fsum(column) / len(inside) for column in zip(*inside, strict=True))
        assert found["curve"]["predicted"][number] == pytest.approx(predicted, abs=1e-12)
        assert found["curve"]["observed"][number] == pytest.approx(observed, abs=1e-12)
        error += len(inside) * abs(observed - predicted) / (n * m)
    assert found["calibration_error"] == pytest.approx(error, abs=1e-12)


def test_true_probabilities_are_calibrated_and_false_ones_are_not():
    rng = np.random.default_rng(0)
    chances = rng.random((20_000, 8))
    bits = (rng.random(chances.shape) < chances).astype(np.uint8)
    assert diagnostics.calibrate(chances, bits)["calibration_error"] < 0.01
    assert diagnostics.calibrate(1 - chances, bits)["calibration_error"] > 0.4
    certain = diagnostics.calibrate(bits.astype(float), bits)
    assert certain["calibration_error"] == 0
    assert certain["curve"]["counts"][1:-1].sum() == 0


def test_the_dominant_code_of_a_class_is_its_commonest():
    bits = np.array([[1, 1], [0, 1], [0, 1], [1, 0], [1, 0], [0, 0]], dtype=np.uint8)
    # Of class "b", both codes are equally common: the smallest counts.
    labels = ["a", "a", "a", "b", "c", "b"]
    classes, words = diagnostics.dominant_codes(bits, labels)
    assert classes.tolist() == ["a", "b", "c"]
    assert words.tolist() == [[0, 1], [0, 0], [1, 0]]
