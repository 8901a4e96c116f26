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
    assert GPHasher(**settings).fit(X, paths).score(X, paths) > 0.7


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


MISSING = np.arange(N) % 4 == 0


@pytest.mark.parametrize(
    "given",
    [
        np.where(MISSING, -1, y),
        np.where(MISSING, -1, y).tolist(),
        np.where(MISSING, np.nan, y),
        np.where(MISSING, "", y.astype(str)),
        np.array([None if gone else str(label) for gone, label in zip(MISSING, y, strict=True)], dtype=object),
        np.array([np.nan if gone else str(label) for gone, label in zip(MISSING, y, strict=True)], dtype=object),
        [None if gone else int(label) for gone, label in zip(MISSING, y, strict=True)],
        np.where(MISSING[:, None], -1, digits.tags[:N]),
        np.where(MISSING[:, None], np.nan, digits.tags[:N]),
    ],
)
def test_rows_without_a_label(given):
    with pytest.warns(UserWarning, match=r"left out 50 of 200 rows, which have no label"):
        found = targets.supervision(given, N, True, "Anything")
    np.testing.assert_array_equal(found.known, np.flatnonzero(~MISSING))
    assert set(found.order(np.random.default_rng(0), 50)) == set(found.known)
    # They are similar to nothing, not even to each other.
    alike = similarity.alike(found, found)
    np.fill_diagonal(alike, False)
    assert not alike[MISSING].any()
    whole = similarity.alike(*[similarity.from_labels(y) if found.exact else similarity.from_tags(digits.tags[:N])] * 2)
    np.testing.assert_array_equal(similarity.alike(found[~MISSING], found[~MISSING]), whole[np.ix_(~MISSING, ~MISSING)])


def test_pandas_columns_with_gaps():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    for column in (
        pandas.Series(np.where(MISSING, np.nan, y)).astype("Int64"),
        pandas.Series(y.astype(str)).mask(MISSING),
        pandas.Series(y.astype(str)).mask(MISSING).astype("string"),
        pandas.Series(y.astype(str)).mask(MISSING).astype("category"),
    ):
        with pytest.warns(UserWarning, match="left out 50 of 200 rows"):
            found = targets.supervision(column, N, True, "Anything")
        np.testing.assert_array_equal(found.known, np.flatnonzero(~MISSING))
        assert len(found.classes) == 10


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.where(y % 2 == 0, -1, 1), r"y has the labels -1 and 1 only, and -1 means .* name the classes 0 and 1"),
        (np.full(N, -1), "y has a label for no row: all are −1, None, NaN or blank"),
        ([None] * N, "y has a label for no row"),
        (np.full((N, 3), -1), "tags y are −1, None or NaN in all rows"),
        (np.where(np.arange(N)[:, None] > 5, digits.tags[:N], [-1, 0, 0]), "tags y hold -1"),
    ],
)
def test_labels_that_leave_nothing_to_learn_are_explained(given, words):
    with pytest.raises(ValueError, match=words):
        targets.supervision(given, N, True, "Anything")


def test_an_empty_row_of_tags_is_known_to_be_like_no_other():
    tags = digits.tags[:N].copy()
    tags[:20] = 0
    assert len(targets.supervision(tags, N, True, "Anything").known) == N
