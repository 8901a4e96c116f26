"""How many bits: rows that are held out, figures that are those of the codes, and the shortest length that will do."""

import numpy as np
import pytest

from gphash import GPHasher
from gphash.evaluation import canvas
from gphash.paper import lengths
from gphash.paper.lengths import Measured
from gphash.supervision import targets
from tests import digits
from tests.digits import QUICK

X, y = digits.X[:400], digits.y[:400]


@pytest.fixture(scope="module")
def found():
    return lengths.suggest(GPHasher(**QUICK), X, y, [8, 24])


def test_figures_are_those_of_codes_that_never_saw_the_rows(found):
    train, test = lengths.hold_out(targets.signatures(y, 400), 0)
    assert (found.held_out, found.searched) == (80, 400)
    assert [(one.name, one.n_bits, one.n_bytes) for one in found.curve] == [
        ("codes", 8, 1),
        ("codes", 24, 3),
        ("sign bits", 64, 8),
        ("floats", 2048, 256),
    ]
    for one in found.curve[:2]:
        alone = GPHasher(**{**QUICK, "n_bits": one.n_bits}).fit(X[train], y[train])
        assert one.hamming == pytest.approx(alone.score(X[test], y[test]))
        assert one.best > 0.7
        assert one.encoding > 0 < one.searching


def test_floats_and_sign_bits_are_ranked_as_they_should_be(found):
    _, test = lengths.hold_out(targets.signatures(y, 400), 0)
    rows, labels = X[test], y[test]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    precisions = []
    for i in range(len(rows)):
        order = [j for j in np.argsort(-(unit @ unit[i]), kind="stable") if j != i]
        hits = labels[order] == labels[i]
        if hits.any():
            precisions.append(np.mean([hits[: k + 1].mean() for k in np.flatnonzero(hits)]))
    assert found.curve[-1].best == pytest.approx(np.mean(precisions), abs=1e-3)
    assert 0.3 < found.curve[-2].hamming < found.curve[-1].best + 0.1


@pytest.mark.parametrize("kind", ["labels", "tags"])
def test_rows_are_held_out_once_and_only_if_they_have_labels(kind):
    given = np.where(np.arange(400) % 4, y, -1) if kind == "labels" else digits.tags[:400]
    signatures = targets.signatures(given, 400)
    train, test = lengths.hold_out(signatures, 3)
    assert sorted([*train, *test]) == list(range(400))
    assert len(test) == round(len(signatures.known) / 5)
    assert set(test) <= set(signatures.known)


def of(n_bits, best):
    return Measured("codes", n_bits, n_bits // 8, best, best, 1.0, 1.0)


@pytest.mark.parametrize(
    ("figures", "taken", "said"),
    [
        ({8: 0.5, 16: 0.8, 32: 0.805, 64: 0.809}, 16, "64 bits have the most, 0.809"),
        ({8: 0.5, 16: 0.6, 32: 0.9}, 32, "no other length has more; 16 bits have 0.600"),
        ({8: 0.9, 16: 0.8}, 8, "no other length has more"),
    ],
)
def test_the_shortest_that_is_nearly_as_good_is_recommended(figures, taken, said):
    n_bits, reason = lengths.recommend([of(*pair) for pair in figures.items()])
    assert n_bits == taken
    assert said in reason


def test_tags_have_a_curve_as_well():
    found = lengths.suggest(GPHasher(**QUICK), X, digits.tags[:400], [8])
    assert found.n_bits == 8
    assert found.curve[0].best > found.curve[-1].best - 0.1


@pytest.mark.skipif(not canvas.available(), reason="pictures need matplotlib")
def test_the_curve_is_drawn(found):
    axes = lengths.draw(found.curve, found.n_bits, "digits").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "codes, by P(similar)",
        "codes, by Hamming distance",
        "sign bits, 8 bytes",
        "floats, 256 bytes",
    ]


def test_too_little_is_refused():
    with pytest.raises(ValueError, match="y has 40 rows with labels; to hold some out, give at least 50"):
        lengths.suggest(GPHasher(**QUICK), X[:40], y[:40])
    with pytest.raises(ValueError, match="n_free_bits=4, and no length of"):
        lengths.suggest(GPHasher(**QUICK, n_free_bits=4), X, y, [2, 4])
