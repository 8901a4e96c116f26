"""Protocols on digits: reports state what was measured, and figures are those of the metrics."""

import json

import numpy as np
import pytest
from sklearn.base import BaseEstimator

import gphash
from gphash import GPHasher
from gphash.data.dataset import Split
from gphash.evaluation import diagnostics, metrics, protocol, report
from gphash.evaluation.metrics import Metric
from tests import digits

TRAIN, TEST, OTHER = slice(0, 400), slice(400, 560), slice(560, 700)
DATA = {"name": "digits", "features": "64 grey values", "checksum": "c0ffee"}


class Projections(BaseEstimator):
    """Random projections: no probabilities, no trace."""

    def __init__(self, n_bits=8, random_state=0):
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, X, y):
        self.centre_ = X.mean(axis=0)
        self.planes_ = np.random.default_rng(self.random_state).standard_normal((X.shape[1], self.n_bits))
        return self

    def transform(self, X):
        return ((X - self.centre_) @ self.planes_ >= 0).astype(np.uint8)

    def encode(self, X):
        return np.packbits(self.transform(X), axis=1)


class Given:
    """A hasher whose rows are the probabilities of their bits."""

    def fit(self, X, y):
        return self

    def transform(self, X):
        return (np.asarray(X) >= 0.5).astype(np.uint8)

    def encode(self, X):
        return np.packbits(self.transform(X), axis=1)

    def bit_probabilities(self, X):
        return np.asarray(X, dtype=np.float64)


def rows(part, y=digits.y):
    return Split(digits.X[part], y[part])


@pytest.fixture(scope="module")
def hasher():
    return GPHasher(**digits.QUICK).fit(digits.X[TRAIN], digits.y[TRAIN])


@pytest.fixture(scope="module")
def reported():
    return protocol.run(
        lambda seed: GPHasher(**{**digits.QUICK, "random_state": seed}), rows(TRAIN), rows(TEST), DATA, seed=3
    )


def explicit(hasher, queries, stored, alone):
    """Distances by Hamming and to be expected, as matrices, and relevance."""
    mine, theirs = hasher.transform(queries.X), hasher.transform(stored.X).astype(float)
    chances = hasher.bit_probabilities(queries.X)
    relevant = np.asarray(queries.y)[:, None] == np.asarray(stored.y)
    hamming = (mine[:, None] != theirs[None]).sum(axis=2)
    expected = (chances @ (1 - theirs.T) + (1 - chances) @ theirs.T).round(9)
    keep = ~np.eye(len(mine), dtype=bool) if alone else np.ones_like(relevant)
    return tuple(part[keep].reshape(len(mine), -1) for part in (hamming, expected, relevant))


def test_leave_one_out_searches_among_the_others(hasher):
    found = protocol.measure(hasher, rows(TEST), train=rows(TRAIN))
    hamming, expected, relevant = explicit(hasher, rows(TEST), rows(TEST), alone=True)
    assert found["hamming"]["map"] == pytest.approx(metrics.mean_average_precision(hamming, relevant), abs=1e-12)
    assert found["expected"]["map"] == pytest.approx(metrics.mean_average_precision(expected, relevant), abs=1e-12)
    inside = hamming <= 2
    within = (inside & relevant).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)
    assert found["hamming"]["precision_within_radius"] == pytest.approx(within.mean(), abs=1e-12)
    assert found["hamming"]["map"] == pytest.approx(hasher.score(*rows(TEST)[:2]), abs=1e-12)
    assert found["hamming"]["map"] > 0.6


def test_a_database_is_searched_with_other_rows(hasher):
    found = protocol.measure(hasher, rows(TEST), rows(OTHER), radius=1)
    hamming, expected, relevant = explicit(hasher, rows(TEST), rows(OTHER), alone=False)
    assert found["hamming"]["map"] == pytest.approx(metrics.mean_average_precision(hamming, relevant), abs=1e-12)
    assert found["expected"]["map"] == pytest.approx(metrics.mean_average_precision(expected, relevant), abs=1e-12)
    assert found["hamming"]["radius"] == 1
    assert found["calibration"]["calibration_error"] < 0.1, "the model knows the true bits of its classes"


def test_curves_and_figures_at_k_are_of_the_same_ranking(hasher):
    found = protocol.measure(hasher, rows(TEST))
    for ranking in ("hamming", "expected"):
        curve = found[ranking]["curve"]
        assert curve["retrieved"][0] == 1
        assert curve["retrieved"][-1] == 159
        assert (np.diff(curve["retrieved"]) > 0).all()
        assert curve["recall"][-1] == pytest.approx(1)
        assert (np.diff(curve["recall"]) >= 0).all()
        for name, values in (("precision_at_k", curve["precision"]), ("recall_at_k", curve["recall"])):
            assert list(found[ranking][name]) == [1, 10, 100]
            for k, value in found[ranking][name].items():
                assert value == values[list(curve["retrieved"]).index(k)]


@pytest.mark.parametrize("shift", [0, 1, 7])
def test_labels_of_two_sets_mean_the_same_though_their_classes_differ(shift):
    # Queries of classes 0, 1, 2 and stored rows of classes shift, shift + 1, shift + 2: numbered by themselves, both
    # would be 0, 1, 2.
    codes = np.eye(12)
    labels = np.repeat(np.arange(3), 4)
    found = protocol.measure(Given(), Split(codes[labels], labels), Split(codes[labels + shift], labels + shift))
    alone = {0: 0, 1: 4, 7: 12}[shift]
    assert found["hamming"]["queries_with_nothing_to_find"] == alone
    assert found["hamming"]["map"] == pytest.approx(1 if alone < 12 else np.nan, nan_ok=True)


def test_words_are_labels_too():
    codes, words = np.eye(4)[[0, 1, 2, 0]], np.array(["cat", "dog", "eel", "cat"])
    found = protocol.measure(Given(), Split(codes[:2], words[:2]), Split(codes[2:], words[2:]))
    assert found["hamming"]["map"] == 1
    assert found["hamming"]["queries_with_nothing_to_find"] == 1


def test_tags_are_similar_when_shared(hasher):
    queries, stored = rows(TEST, digits.tags), rows(OTHER, digits.tags)
    found = protocol.measure(hasher, queries, stored, rows(TRAIN, digits.tags))
    relevant = (np.asarray(queries.y) @ np.asarray(stored.y).T) > 0
    hamming, _, _ = explicit(hasher, rows(TEST), rows(OTHER), alone=False)
    assert found["hamming"]["map"] == pytest.approx(metrics.mean_average_precision(hamming, relevant), abs=1e-12)
    assert "calibration" not in found, "a row with several tags has no class"


def test_classes_that_training_has_not_seen_are_left_out_of_calibration():
    train = Split([[0.0, 1.0], [1.0, 0.0]], ["a", "b"])
    test = Split([[0.25, 0.75], [0.75, 0.25], [0.5, 0.5]], ["a", "b", "new"])
    found = protocol.measure(Given(), test, train=train)
    assert found["calibration"]["curve"]["counts"].sum() == 4
    assert found["calibration"]["calibration_error"] == pytest.approx(0.25)
    strangers = Split(test.X, ["x", "y", "z"])
    assert "calibration" not in protocol.measure(Given(), strangers, train=train)


def test_a_report_states_what_it_rests_on(reported):
    stated = reported["protocol"]
    assert stated["name"] == "leave one out within the test rows"
    assert (stated["training_rows"], stated["queries"], stated["database_rows"]) == (400, 160, 159)
    assert stated["seed"] == 3
    assert "averaged" in stated["ties"]
    assert stated["rankings"] == ["hamming", "expected", "similarity"]
    assert reported["gphash"] == gphash.__version__
    assert stated["database_rows_seen_in_training"] == 0
    assert "left out" in stated["nothing_to_find"]
    assert {name: reported["data"][name] for name in DATA} == DATA
    assert reported["data"]["rows"].keys() == {"training", "queries"}
    assert {"numpy", "scipy", "scikit-learn", "numba"} == reported["versions"].keys()
    method = reported["method"]
    assert method["name"] == "GPHasher"
    assert method["parameters"]["n_bits"] == 8
    assert method["parameters"]["random_state"] == 3
    assert method["training_seconds"] > 0
    assert {"number", "flips", "leave_one_out", "frozen"} <= method["sweeps"][0].keys()
    assert method["chosen"]["length_scale"] == digits.QUICK["length_scale"]


def test_a_report_of_a_database_says_so():
    made = protocol.run(lambda seed: Projections(8, seed), rows(TRAIN), rows(TEST), DATA, stored=rows(OTHER))
    assert made["protocol"]["name"] == "test rows against a database"
    assert made["protocol"]["database_rows"] == 140
    assert made["protocol"]["rankings"] == ["hamming"]
    assert "sweeps" not in made["method"]
    assert {"hamming", "codes"} == made["results"].keys()


def test_unseen_classes_are_drawn_by_the_seed_and_named():
    train, test = rows(TRAIN), rows(TEST)
    made = protocol.run(lambda seed: Projections(8, seed), train, test, DATA, seed=1, protocol="unseen-classes")
    unseen = made["protocol"]["unseen_classes"]
    assert len(unseen) == 3  # of ten
    assert made["protocol"]["name"].startswith("unseen classes: leave one out")
    assert made["protocol"]["training_rows"] == np.isin(train.y, unseen, invert=True).sum()
    assert made["protocol"]["queries"] == np.isin(test.y, unseen).sum()
    given = protocol.arrange("unseen-classes", train, test, 1)
    assert set(given.test.y) == set(unseen) == set(given.unseen)
    assert not set(given.train.y) & set(unseen)
    draws = {protocol.arrange("unseen-classes", train, test, seed).unseen for seed in range(5)}
    assert len(draws) > 1
    again = protocol.run(lambda seed: Projections(8, seed), train, test, DATA, seed=2, protocol="unseen-classes")
    assert protocol.summarise([made, again])["hamming.map"]["mean"] > 0


def test_a_database_of_training_rows_is_named_leaky():
    made = protocol.run(lambda seed: Projections(8, seed), rows(TRAIN), rows(TEST), DATA, protocol="training-database")
    assert made["protocol"]["name"].startswith("leaky")
    assert made["protocol"]["database_rows_seen_in_training"] == made["protocol"]["database_rows"] == 400
    other = protocol.run(lambda seed: Projections(8, seed), rows(TRAIN), rows(TEST), DATA, stored=rows(TRAIN))
    assert other["protocol"] == made["protocol"]
    assert other["results"] == made["results"]


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("mine", digits.y, "protocol='mine'; give one of 'held-out'"),
        ("unseen-classes", digits.tags, r"needs class labels y \[n\]; y has shape"),
        ("unseen-classes", digits.y % 3, "needs at least 4 classes; y has 3"),
    ],
)
def test_a_protocol_that_cannot_be_is_refused(name, y, message):
    with pytest.raises(ValueError, match=message):
        protocol.arrange(name, rows(TRAIN, y), rows(TEST, y))


def test_a_protocol_and_a_database_are_not_given_both():
    with pytest.raises(ValueError, match="leave stored out"):
        protocol.run(Projections, rows(TRAIN), rows(TEST), DATA, stored=rows(OTHER), protocol="training-database")


def test_a_report_survives_its_file(reported, tmp_path):
    assert json.loads(json.dumps(reported, allow_nan=False)) == reported
    report.write(tmp_path / "one.json", reported)
    assert report.read(tmp_path / "one.json") == reported


def test_every_metric_is_reported(reported):
    results = reported["results"]
    beside = {"curve", "queries_with_nothing_to_find"}
    assert results["hamming"].keys() - beside == {*metrics.METRICS, "radius"}
    assert results["expected"].keys() - beside == {*metrics.METRICS} - {"precision_within_radius"}
    assert len(results["codes"]["bits"]["balance"]) == 8
    assert results["codes"]["bit_entropy"] == pytest.approx(np.mean(results["codes"]["bits"]["entropy"]))


def test_one_more_metric_is_measured_and_reported(monkeypatch, hasher):
    monkeypatch.setattr(metrics.METRICS, "_things", dict(metrics.METRICS._things))
    metrics.METRICS.register("first", Metric("first", "", True, "is the first relevant?", lambda one: one.found[:, 0]))
    found = protocol.measure(hasher, rows(TEST))
    for ranking in ("hamming", "expected"):
        assert found[ranking]["first"] == found[ranking]["precision_at_k"][1]


def test_the_same_seed_gives_the_same_figures(reported):
    again = protocol.run(
        lambda seed: GPHasher(**{**digits.QUICK, "random_state": seed}), rows(TRAIN), rows(TEST), DATA, seed=3
    )
    assert again["results"] == reported["results"]


def test_one_bit_and_one_row_can_be_measured():
    found = protocol.measure(Given(), Split([[0.75]], [1]), train=Split([[1.0], [0.0]], [1, 2]))
    assert np.isnan(found["hamming"]["map"])
    assert found["codes"]["bit_correlation"] == 0
    assert found["calibration"]["calibration_error"] == 0.25


def test_a_summary_has_mean_and_spread_over_seeds():
    reports = [
        protocol.run(lambda seed: Projections(8, seed), rows(TRAIN), rows(TEST), DATA, seed=seed) for seed in range(4)
    ]
    found = protocol.summarise(reports)
    values = [one["results"]["hamming"]["map"] for one in reports]
    assert found["hamming.map"]["mean"] == pytest.approx(np.mean(values))
    assert found["hamming.map"]["spread"] == pytest.approx(np.std(values, ddof=1))
    assert found["hamming.map"]["spread"] > 0
    assert {"hamming.precision_at_k.10", "hamming.precision_within_radius", "codes.distinct_codes"} <= found.keys()
    assert not any("curve" in name for name in found)
    assert protocol.summarise(reports[:1])["hamming.map"] == {"mean": values[0], "spread": None}


def test_a_summary_of_reports_that_differ_in_more_than_the_seed_is_refused(reported):
    other = protocol.run(lambda seed: Projections(8, seed), rows(TRAIN), rows(TEST), DATA)
    with pytest.raises(ValueError, match="differ in more than their seeds"):
        protocol.summarise([reported, other])
    with pytest.raises(ValueError, match="give each seed once"):
        protocol.summarise([reported, reported])


def test_rows_that_training_has_seen_are_counted():
    made = protocol.run(lambda seed: Projections(8, seed), rows(TRAIN), rows(TEST), DATA, stored=rows(TRAIN))
    assert made["protocol"]["database_rows_seen_in_training"] == made["protocol"]["database_rows"] == 400
    assert made["protocol"]["queries_in_database"] == 0
    again = protocol.run(lambda seed: Projections(8, seed), rows(TRAIN), rows(TEST), DATA, stored=rows(TEST))
    assert again["protocol"]["queries_in_database"] == 160


@pytest.mark.parametrize("data", [{}, {"name": "x", "features": "y"}])
def test_a_report_that_does_not_say_its_data_is_refused(data):
    with pytest.raises(ValueError, match=r"data lacks .*checksum"):
        protocol.run(lambda seed: Projections(8, seed), rows(TRAIN), rows(TEST), data)


def test_calibration_is_judged_by_the_codes_that_classes_got_in_training(hasher):
    assert hasher.class_codes_.shape == (10, 8)
    found = protocol.measure(hasher, rows(TEST), train=rows(TRAIN))
    truths = hasher.class_codes_[np.searchsorted(hasher.classes_, rows(TEST).y)]
    wanted = diagnostics.calibrate(hasher.bit_probabilities(rows(TEST).X), truths)["calibration_error"]
    assert found["calibration"]["calibration_error"] == wanted


def test_a_summary_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no reports"):
        protocol.summarise([])


class Wrong(Projections):
    """A method that gives something else than it should."""

    def __init__(self, what):
        super().__init__(8, 0)
        self.what = what

    def transform(self, X):
        bits = super().transform(X)
        return 2 * bits.astype(np.int8) - 1 if self.what == "signs" else bits

    def encode(self, X):
        bits = super().transform(X)
        order = "little" if self.what == "order" else "big"
        return bits if self.what == "unpacked" else np.packbits(bits, axis=1, bitorder=order)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("signs", r"Wrong.transform gives shape \(160, 8\) with values from -1 to 1"),
        ("unpacked", r"Wrong.encode gives uint8 of shape \(160, 8\)"),
        ("order", "packed by numpy.packbits"),
    ],
)
def test_a_method_that_breaks_the_contract_is_refused(what, message):
    with pytest.raises(ValueError, match=message):
        protocol.measure(Wrong(what).fit(*rows(TRAIN)[:2]), rows(TEST), rows(OTHER))


@pytest.mark.parametrize("shape", [(160, 4), (160, 16)])
def test_probabilities_of_another_width_are_refused(shape):
    class Unsure(Projections):
        def bit_probabilities(self, X):
            return np.full(shape, 0.5)

    with pytest.raises(ValueError, match=r"Unsure\.bit_probabilities gives shape"):
        protocol.measure(Unsure(8, 0).fit(*rows(TRAIN)[:2]), rows(TEST))


def test_rows_and_labels_that_do_not_match_are_refused(hasher):
    test = rows(TEST)
    with pytest.raises(ValueError, match="queries has 160 rows of X and 100 of y"):
        protocol.measure(hasher, Split(test.X, test.y[:100]), rows(OTHER))
    with pytest.raises(ValueError, match="labels of one kind"):
        protocol.measure(hasher, test, Split(rows(OTHER).X, rows(OTHER).y.astype(str)))
    with pytest.raises(ValueError, match="radius=-1; give a whole number"):
        protocol.measure(hasher, test, radius=-1)


def test_a_sketch_tells_which_rows_were_met():
    X = np.random.default_rng(0).standard_normal((2000, 5)).astype(np.float32)
    known = protocol.sketch(X)
    assert len(known) == protocol.SKETCH
    assert protocol.share_met(known, X[::-1].astype(np.float64)) == 1
    assert protocol.share_met(known, X + 1) == 0
    assert protocol.share_met(known, X[:1000]) == pytest.approx(0.5, abs=0.1)
    assert protocol.share_met([], X) == 0
