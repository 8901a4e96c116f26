"""Promises: cuts are those of a loop over rows, and what is learned on some queries holds for others."""

import numpy as np
import pytest

from gphash.codes.reading import CodeReader
from gphash.codes.trust import LEVELS, Trust
from gphash.evaluation import promises, retrieval
from gphash.evaluation.retrieval import Beliefs, Queries
from gphash.supervision import similarity


def plain():
    """Cuts at the very level that is asked for."""
    levels, one = np.array(LEVELS), np.ones(1)
    return Trust(one, one, one, levels, levels, np.zeros(1))


@pytest.mark.parametrize("leave_one_out", [True, False])
@pytest.mark.parametrize("exclusive", [True, False])
def test_trust_is_that_of_a_loop_over_rows(leave_one_out, exclusive):
    generator = np.random.default_rng(0)
    bits = np.random.default_rng(1).random((4, 6))[generator.integers(0, 4, 90)] < generator.random((90, 6))
    packed = np.packbits(bits, axis=1)
    marks = generator.integers(0, 3, 90) if exclusive else (generator.random((90, 3)) < 0.4).astype(int)
    marks = marks if exclusive else np.maximum(marks, np.eye(3, dtype=int)[generator.integers(0, 3, 90)])
    made = similarity.from_labels(marks) if exclusive else similarity.from_tags(marks)
    reader = CodeReader(generator.normal(size=(6, 3)), generator.normal(size=3), exclusive)
    classes = generator.dirichlet(np.ones(3), 90)
    few = slice(0, 90 if leave_one_out else 30)
    queries = Queries(packed[few], made[few], leave_one_out, beliefs=Beliefs(classes[few], reader))
    found = promises.judge(queries, retrieval.store(packed, made), plain())
    chances, alike = reader.compare(classes[few], reader.read(packed)), similarity.alike(made[few], made)
    precision, recall, error, pairs = [], [], np.zeros((20, 3)), 0
    for query in range(few.stop):
        others = [row for row in range(90) if not (leave_one_out and row == query)]
        order = sorted(others, key=lambda row: -chances[query, row])
        believed = np.cumsum([chances[query, row] for row in order])
        n = int((believed / np.arange(1, len(order) + 1) >= 0.5 - 1e-9).sum())
        # Rows of one code are as good as each other: in expectation over their order.
        worth = [np.mean([alike[query, o] for o in others if (packed[o] == packed[row]).all()]) for row in order]
        precision.append(np.mean(worth[:n]) if n else np.nan)
        inside = [row for row in order if chances[query, row] >= 0.5 * chances[query, order[0]]]
        total = sum(alike[query, row] for row in order)
        recall.append(sum(alike[query, row] for row in inside) / total if total else np.nan)
        for row in others:
            error[min(int(20 * chances[query, row]), 19)] += 1, chances[query, row], alike[query, row]
            pairs += 1
    kept = found["promises"]
    assert kept["precision_0.5"] == pytest.approx(np.nanmean(precision), abs=1e-9)
    assert kept["answered_0.5"] == pytest.approx(np.isfinite(precision).mean())
    assert kept["recall_0.5"] == pytest.approx(np.nanmean(recall), abs=1e-9)
    expected = np.abs(error[:, 1] - error[:, 2]).sum() / pairs
    assert found["calibration"]["calibration_error"] == pytest.approx(expected, abs=1e-9)


def world(generator, n, over):
    """Rows of five classes whose beliefs are calibrated, or too sure by a factor; a code is its class's, with noise."""
    words = np.random.default_rng(7).integers(0, 2, (5, 10))
    labels = generator.integers(0, 5, n)
    bits = words[labels] ^ (generator.random((n, 10)) < 0.2)
    logits = generator.normal(size=(n, 5)) + 2 * np.eye(5)[labels]
    # Class and noise of a normal density each: the posterior is a soft-max of 2 × what was seen.
    chances = np.exp(over * 2 * logits)
    chances /= chances.sum(axis=1, keepdims=True)
    reader = CodeReader(over * np.log(4) / 2 * (2.0 * words.T - 1), np.zeros(5), True)
    return (
        np.packbits(bits, axis=1),
        similarity.from_labels(labels),
        chances / chances.sum(axis=1, keepdims=True),
        reader,
    )


@pytest.mark.parametrize("over", [1.0, 2.0])
def test_promises_learned_on_some_rows_are_kept_on_others(over):
    """Even if all probabilities are too high."""
    parts = []
    for seed in (0, 1):
        packed, made, classes, reader = world(np.random.default_rng(seed), 3000, over)
        queries = Queries(packed, made, leave_one_out=True, beliefs=Beliefs(classes, reader))
        parts.append((queries, retrieval.store(packed, made)))
    precision, recall, least = promises.learn(*parts[0])
    assert (np.diff(precision) >= 0).all()
    assert (np.diff(recall) <= 0).all()
    one = np.ones(1)
    told = promises.judge(*parts[1], Trust(one, one, one, precision, recall, least))["promises"]
    for level in promises.PROMISED:
        if told[f"answered_{level}"] > 0.05:
            assert told[f"precision_{level}"] > level - 0.02
        assert told[f"recall_{level}"] > level - 0.02
    assert told["recall_0.8"] < 0.9
    if over == 2.0:
        uncut = promises.judge(*parts[1], plain())["promises"]
        assert uncut["precision_0.8"] < 0.75
