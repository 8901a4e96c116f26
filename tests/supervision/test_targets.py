"""Kinds of supervision: the package's own are recognised, and others are added from outside in a few lines."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from gphash import GPHasher, Pairs, container
from gphash.hashers import methods
from gphash.supervision import similarity, targets
from gphash.supervision.targets import KINDS, Kind
from tests import digits

N = 200
X, y = digits.X[:N], digits.y[:N]


class Triplets(NamedTuple):
    """Row i is more like row j than like row k."""

    i: Any
    j: Any
    k: Any


def judged(given, n_rows, balance_pairs):
    signs = np.repeat([1, -1], len(given.i))
    return similarity.from_pairs(Pairs([*given.i, *given.i], [*given.j, *given.k], signs), n_rows, balance_pairs)


class Paths(NamedTuple):
    """Labels in a hierarchy: rows are similar when they share a branch."""

    paths: list[str]


def branches(given, n_rows, balance_pairs):
    known = sorted({part for path in given.paths for part in path.split("/")})
    return similarity.from_tags([[branch in path.split("/") for branch in known] for path in given.paths])


@pytest.fixture
def others(monkeypatch):
    monkeypatch.setattr(KINDS, "_things", dict(KINDS._things))
    KINDS.register("triplets", Kind("Triplets", lambda y: isinstance(y, Triplets), judged))
    KINDS.register("paths", Kind("Paths", lambda y: isinstance(y, Paths), branches))


@pytest.fixture
def triplets(others):
    rng = np.random.default_rng(0)
    i, j, k = rng.integers(0, N, (3, 40_000))
    keep = (y[i] == y[j]) & (y[i] != y[k]) & (i != j)
    return Triplets(i[keep], j[keep], k[keep])


@pytest.fixture
def paths(others):
    return Paths([f"{'even' if label % 2 == 0 else 'odd'}/{label}" for label in y])


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (y, "labels"),
        (y.tolist(), "labels"),
        (y.astype(str), "labels"),
        (y[:, None], "labels"),
        (digits.tags[:N], "tags"),
        (digits.tags[:N].tolist(), "tags"),
        (digits.pairs(N, 1000), "pairs"),
    ],
)
@pytest.mark.filterwarnings("ignore:A column-vector y")
def test_what_is_given_is_recognised(given, kind):
    found = targets.supervision(given, N, True, "Anything")
    assert found.kind == found.form == kind
    assert found.n_rows == N
    assert found.complete == (kind != "pairs")
    order = found.order(np.random.default_rng(0), 50)
    part = found.among(order[:50])
    assert part.n_rows == 50
    assert part.kind == kind


def test_what_is_held_out_judges_what_was_learned():
    held = np.arange(N) % 3 == 0
    kept, taught, rest, judge = similarity.from_labels(y).hold_out(held, 0)
    assert sorted([*kept, *rest]) == list(range(N))
    np.testing.assert_array_equal(taught.masks[:, 0], y[kept])
    np.testing.assert_array_equal(judge.masks[:, 0], y[rest])


def test_a_kind_from_outside_is_trained_kept_and_judged(tmp_path, triplets, paths):
    settings = {**digits.QUICK, "max_sweeps": 8}
    pairs = judged(triplets, N, True)
    both = np.stack([pairs.owners, pairs.partners])[:, pairs.owners < pairs.partners]
    signs = np.where(pairs.similar[pairs.owners < pairs.partners] == 1, 1, -1)
    hasher = GPHasher(**settings).fit(X, triplets, checkpoint=tmp_path / "run")
    assert hasher.fingerprint_ == GPHasher(**settings).fit(X, Pairs(*both, signs)).fingerprint_
    assert container.read(tmp_path / "run").meta["supervision"] == "triplets"
    assert hasher.score(X, y) > 0.5
    assert GPHasher(**settings).fit(X, paths).score(X, paths) > 0.8


def test_a_checkpoint_of_another_kind_is_of_another_run(tmp_path, paths):
    settings = {**digits.QUICK, "max_sweeps": 3}
    GPHasher(**settings).fit(X, paths, checkpoint=tmp_path / "run")
    table = branches(paths, N, True).masks.view(np.uint8)
    tags = np.unpackbits(table, axis=1)[:, :12]
    with pytest.raises(ValueError, match="belongs to another run"):
        GPHasher(**settings).fit(X, tags, checkpoint=tmp_path / "run")


def test_a_method_refuses_what_it_cannot_learn_from(triplets):
    with pytest.raises(ValueError, match=r"y is Triplets, but SDH learns from class labels \[n\] or 0/1 tags"):
        methods.METHODS["sdh"]().fit(X, triplets)
    with pytest.raises(ValueError, match=r"y is Triplets; here, give labels"):
        targets.signatures(triplets, N)
