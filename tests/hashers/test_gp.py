"""GPHasher as scikit-learn knows estimators, and codes that retrieve what is similar."""

import dataclasses
import errno
import os
import tempfile
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import gphash
from gphash import GPHasher, Pairs, load
from gphash.codes import distance, packing
from gphash.evaluation import metrics
from gphash.execution.spill import Spill
from gphash.supervision import similarity
from tests import digits
from tests.digits import QUICK

TRAIN, TEST = slice(0, 300), slice(1200, 1600)


def assert_calibrated(chances, same, tolerance):
    """How often pairs with about such a probability are similar is not far from it, in the mean over pairs."""
    places = np.minimum((10 * chances).astype(int), 9)
    off = [
        abs(chances[here].mean() - same[here].mean()) * here.mean()
        for one in range(10)
        if (here := places == one).any()
    ]
    assert sum(off) < tolerance


def supervision(kind):
    return {"labels": digits.y[TRAIN], "tags": digits.tags[TRAIN], "pairs": digits.pairs(300, 6000)}[kind]


@pytest.fixture(scope="module")
def hasher():
    return GPHasher(**QUICK).fit(digits.X[TRAIN], digits.y[TRAIN])


# No more inducing inputs than the checks have rows (some give ten), or they meet our warning.
@pytest.mark.filterwarnings("ignore:codes have collapsed")  # labels are drawn at random
@parametrize_with_checks(
    [GPHasher(**QUICK | {"n_inducing": 10, "max_sweeps": 5}), GPHasher(n_bits=4, n_inducing=10, n_starts=1, n_jobs=1)],
    # Training is random, and other rows draw other numbers: what a weight means is tested in tests/method/test_ep.py.
    # The checks of sparse rows take whatever has predict_proba for a classifier: see test_short_rows.py.
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "training is random",
        "check_sample_weight_equivalence_on_sparse_data": "training is random",
        "check_estimator_sparse_array": "it has predict_proba and is no classifier",
        "check_estimator_sparse_matrix": "it has predict_proba and is no classifier",
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


class TestAmongScikitLearn:
    def test_pipeline_hashes_standardised_rows(self):
        pipeline = make_pipeline(StandardScaler(), GPHasher(**QUICK)).fit(digits.X[TRAIN], digits.y[TRAIN])
        assert pipeline.transform(digits.X[TEST]).shape == (400, 8)
        assert pipeline.score(digits.X[TEST], digits.y[TEST]) > 0.6
        assert list(pipeline.get_feature_names_out()) == [f"gphasher{j}" for j in range(8)]

    def test_clone_has_the_parameters_and_nothing_learned(self, hasher):
        copy = clone(hasher)
        assert copy.get_params() == hasher.get_params()
        assert not hasattr(copy, "hash_function_")

    def test_same_seed_same_codes(self, hasher):
        again = clone(hasher).fit(digits.X[TRAIN], digits.y[TRAIN])
        np.testing.assert_array_equal(again.encode(digits.X[TEST]), hasher.encode(digits.X[TEST]))
        assert again.fingerprint_ == hasher.fingerprint_

    @pytest.mark.filterwarnings("ignore:codes have collapsed")  # with the other length scale
    def test_grid_search_over_the_length_scale_prefers_a_sensible_one(self):
        grid = {"length_scale": [0.01, 0.9]}
        search = GridSearchCV(GPHasher(**QUICK), grid, cv=2, error_score="raise")
        search.fit(digits.X[TRAIN], digits.y[TRAIN])
        assert search.best_params_ == {"length_scale": 0.9}
        assert np.ptp(search.cv_results_["mean_test_score"]) > 0.2

    def test_feature_names_out_number_the_bits(self, hasher):
        assert list(hasher.get_feature_names_out()) == [f"gphasher{j}" for j in range(8)]

    def test_pandas_output_and_feature_names(self):
        pandas = pytest.importorskip("pandas", reason="pandas is not installed")
        frame = pandas.DataFrame(digits.X[TRAIN], columns=[f"pixel{i}" for i in range(64)])
        hasher = GPHasher(**QUICK).set_output(transform="pandas").fit(frame, digits.y[TRAIN])
        assert list(hasher.feature_names_in_) == list(frame.columns)
        assert list(hasher.transform(frame).columns) == [f"gphasher{j}" for j in range(8)]

    def test_feature_names_survive_a_file(self, tmp_path):
        hasher = GPHasher(**QUICK | {"max_sweeps": 1}).fit(digits.X[TRAIN], digits.y[TRAIN])
        hasher.feature_names_in_ = np.array([f"pixel{i}" for i in range(64)], dtype=object)  # as a data frame sets them
        hasher.save(tmp_path / "model.gphash")
        names = gphash.load(tmp_path / "model.gphash").feature_names_in_
        assert names.dtype == object
        assert list(names) == list(hasher.feature_names_in_)

    def test_arrays_have_no_feature_names(self, hasher):
        assert hasher.n_features_in_ == 64
        assert not hasattr(hasher, "feature_names_in_")


class TestSupervision:
    @pytest.mark.parametrize(
        "name",
        [
            lambda y: np.array([f"digit {label}" for label in y]),
            lambda y: np.array([f"digit {label}" for label in y], dtype=object),
            lambda y: y.tolist(),
            lambda y: y.astype(float),
            lambda y: y.astype(np.uint8),
            lambda y: y - 1_000_000,
        ],
        ids=["words", "objects", "list", "floats", "bytes", "negative"],
    )
    def test_only_the_equality_of_labels_matters(self, hasher, name):
        renamed = GPHasher(**QUICK).fit(digits.X[TRAIN], name(digits.y[TRAIN]))
        assert renamed.fingerprint_ == hasher.fingerprint_

    def test_bools_are_two_classes(self):
        even = digits.y % 2 == 0
        hasher = GPHasher(**QUICK).fit(digits.X[TRAIN], even[TRAIN])
        assert hasher.score(digits.X[TEST], even[TEST]) > 0.8

    @pytest.mark.parametrize(
        "form",
        [lambda tags: tags.tolist(), lambda tags: tags.astype(bool), scipy.sparse.csr_array, scipy.sparse.coo_matrix],
    )
    def test_tags_may_come_in_any_form(self, form):
        assert (digits.tags[TRAIN].sum(axis=1) == 0).any()  # a row without tags is similar to none, and allowed
        dense = GPHasher(**QUICK).fit(digits.X[TRAIN], digits.tags[TRAIN])
        other = GPHasher(**QUICK).fit(digits.X[TRAIN], form(digits.tags[TRAIN]))
        assert other.fingerprint_ == dense.fingerprint_

    def test_repeated_and_swapped_pairs_count_once(self):
        i, j, similar = (np.asarray(part) for part in digits.pairs(300, 3000))
        once = GPHasher(**QUICK).fit(digits.X[TRAIN], Pairs(i, j, similar))
        twice = Pairs(np.append(i, j), np.append(j, i), np.append(similar, similar))
        assert GPHasher(**QUICK).fit(digits.X[TRAIN], twice).fingerprint_ == once.fingerprint_

    def test_a_column_of_labels_warns(self, hasher):
        with pytest.warns(UserWarning, match="column-vector y"):
            column = GPHasher(**QUICK).fit(digits.X[TRAIN], digits.y[TRAIN, None])
        assert column.fingerprint_ == hasher.fingerprint_


class TestCodes:
    def test_encode_packs_what_transform_gives(self, hasher):
        bits = hasher.transform(digits.X[TEST])
        assert bits.dtype == np.uint8
        assert set(np.unique(bits)) == {0, 1}
        np.testing.assert_array_equal(hasher.encode(digits.X[TEST]), packing.pack(bits))

    def test_most_bits_are_the_more_probable_ones(self, hasher):
        probabilities = hasher.bit_probabilities(digits.X[TEST])
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        assert ((probabilities >= 0.5) == (hasher.transform(digits.X[TEST]) == 1)).mean() > 0.95

    def test_sure_bits_are_kept_under_noise_more_often_than_unsure_ones(self, hasher):
        sure = np.abs(hasher.bit_probabilities(digits.X[TEST]) - 0.5)
        noise = np.random.default_rng(0).normal(scale=2.0, size=digits.X[TEST].shape)
        kept = hasher.transform(digits.X[TEST] + noise) == hasher.transform(digits.X[TEST])
        assert kept[sure > 0.45].mean() > 0.97
        assert kept[sure < 0.2].mean() < 0.85

    def test_score_is_the_mean_average_precision_of_each_row_among_the_others(self, hasher):
        X, y = digits.X[TEST][:60], digits.y[TEST][:60]
        packed = hasher.encode(X)
        rankings = [np.delete(row, query) for query, row in enumerate(distance.pairwise(packed, packed))]
        relevant = [np.delete(y == label, query) for query, label in enumerate(y)]
        assert hasher.score(X, y) == pytest.approx(metrics.mean_average_precision(rankings, relevant))


class TestRetrieval:
    def chance(self, n_bits, signatures):
        """The best mean average precision of a few random projections."""
        scores = []
        for seed in range(5):
            directions = np.random.default_rng(seed).normal(size=(64, n_bits))
            packed = packing.pack(((digits.X[TEST] - digits.X[TRAIN].mean(axis=0)) @ directions >= 0).astype(np.uint8))
            distances = distance.pairwise(packed, packed).astype(float)
            relevant = similarity.alike(signatures, signatures)
            np.fill_diagonal(distances, np.inf)
            np.fill_diagonal(relevant, False)
            scores.append(metrics.mean_average_precision(distances, relevant))
        return max(scores)

    def test_labels_with_all_choices_left_to_the_hasher(self):
        settings = {"n_bits": 16, "n_inducing": 100, "n_starts": 1, "random_state": 0}
        hasher = GPHasher(**settings).fit(digits.X[:600], digits.y[:600])
        score = hasher.score(digits.X[TEST], digits.y[TEST])
        assert score > 0.85
        assert score > self.chance(16, similarity.from_labels(digits.y[TEST])) + 0.3
        assert 0.3 < hasher.length_scale_ < 2
        assert hasher.signal_scale_ > 1
        assert hasher.pair_weight_ == 1
        assert np.log(0.5) < hasher.leave_one_out_score_ < 0

    @pytest.mark.parametrize("seed", [0, 1])
    def test_no_two_bits_tell_training_rows_apart_in_the_same_way(self, seed):
        hasher = GPHasher(**QUICK | {"n_bits": 32, "n_inducing": 100, "random_state": seed})
        signs = np.where(hasher.fit_transform(digits.X[:600], digits.y[:600]) > 0, 1, -1)
        # They may agree about classes, and differ on rows that are between them.
        product = np.abs(signs.T @ signs)
        assert product[np.triu_indices(32, 1)].max() < len(signs)

    # Measured on five seeds: labels 0.85 to 0.90, tags 0.84 to 0.85, pairs 0.85 to 0.88.
    @pytest.mark.parametrize("kind", ["labels", "tags", "pairs"])
    def test_eight_bits_from_three_hundred_rows(self, kind):
        hasher = GPHasher(**QUICK).fit(digits.X[TRAIN], supervision(kind))
        target = digits.tags[TEST] if kind == "tags" else digits.y[TEST]
        signatures = similarity.from_tags(target) if kind == "tags" else similarity.from_labels(target)
        score = hasher.score(digits.X[TEST], target)
        assert score > 0.78
        assert score > self.chance(8, signatures) + 0.2

    @pytest.mark.parametrize(
        "choice",
        [{"pair_weight": "auto"}, {"inducing": "random"}, {"solver": "blockwise"}, {"n_representatives": 100}],
        ids=str,
    )
    def test_other_choices_learn_as_well(self, choice):
        hasher = GPHasher(**QUICK | choice).fit(digits.X[TRAIN], digits.y[TRAIN])
        assert hasher.score(digits.X[TEST], digits.y[TEST]) > 0.75
        assert 0 < hasher.pair_weight_ <= 1

    def test_centred_rows_with_an_automatic_kernel(self):
        choice = {"scaling": "centre", "length_scale": "auto", "signal_scale": "auto"}
        hasher = GPHasher(**QUICK | choice).fit(digits.X[TRAIN], digits.y[TRAIN])
        assert hasher.score(digits.X[TEST], digits.y[TEST]) > 0.78
        assert hasher.length_scale_ > 10  # pixels go up to 16


class TestMemory:
    OUT_OF_CORE = QUICK | {"block_size": 64, "memory_limit": 1}

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        return tmp_path

    @pytest.mark.parametrize("kind", ["labels", "pairs"])
    @pytest.mark.parametrize("solver", ["shared", "blockwise"])
    def test_features_on_disk_give_the_same_codes_and_leave_nothing_behind(self, folder, kind, solver, monkeypatch):
        settings = {"solver": solver, "max_sweeps": 4}
        X = digits.X[TRAIN]
        written = []
        monkeypatch.setattr(Spill, "write", lambda *call, write=Spill.write: [write(*call), written.append(call[1])])
        outside = GPHasher(**self.OUT_OF_CORE | settings).fit(X, supervision(kind))
        inside = GPHasher(**QUICK | settings, block_size=64).fit(X, supervision(kind))
        assert len(written) == 5  # blocks
        assert list(folder.iterdir()) == []
        assert outside.fingerprint_ == inside.fingerprint_

    def test_many_blocks_need_one_file_descriptor(self):
        def files(sweep):
            seen.append(len(os.listdir("/proc/self/fd")))

        if not os.path.isdir("/proc/self/fd"):
            pytest.skip("needs /proc/self/fd to count open files")
        seen = [len(os.listdir("/proc/self/fd"))]
        GPHasher(**self.OUT_OF_CORE | {"block_size": 2}).fit(digits.X[TRAIN], digits.y[TRAIN], callback=files)
        assert max(seen) <= seen[0] + 4

    def test_a_full_disk_is_an_error_and_keeps_the_checkpoint(self, folder, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        hasher = GPHasher(**self.OUT_OF_CORE)
        with pytest.raises(OSError, match="No space left"):
            hasher.fit(digits.X[TRAIN], digits.y[TRAIN], checkpoint=folder / "run")
        monkeypatch.undo()
        whole = GPHasher(**self.OUT_OF_CORE).fit(digits.X[TRAIN], digits.y[TRAIN])
        again = hasher.fit(digits.X[TRAIN], digits.y[TRAIN], checkpoint=folder / "run")
        assert again.fingerprint_ == whole.fingerprint_

    @pytest.mark.parametrize("kind", ["labels", "tags", "pairs"])
    def test_a_fitted_hasher_holds_nothing_that_grows_with_the_rows(self, kind):
        n_rows = 293  # a number that nothing else has
        y = digits.pairs(n_rows, 5000) if kind == "pairs" else supervision(kind)[:n_rows]
        hasher = GPHasher(**QUICK).fit(digits.X[:n_rows], y)
        hasher.encode(digits.X[:n_rows])
        arrays = list(arrays_in(vars(hasher)))
        function = hasher.hash_function_ if kind == "pairs" else hasher.hash_function_.classifier
        assert any(array is function.weights for array in arrays)
        assert all(max(array.shape, default=0) < n_rows for array in arrays)


def arrays_in(thing):
    """Every array that can be reached from an object."""
    if isinstance(thing, np.ndarray):
        yield thing
        yield from arrays_in(thing.base)
    elif isinstance(thing, dict):
        for value in thing.values():
            yield from arrays_in(value)
    elif isinstance(thing, list | tuple | set):
        for value in thing:
            yield from arrays_in(value)
    elif dataclasses.is_dataclass(thing) or hasattr(thing, "__dict__"):
        yield from arrays_in(vars(thing))


def test_the_callback_sees_every_sweep():
    seen = []
    hasher = GPHasher(**QUICK).fit(digits.X[TRAIN], digits.y[TRAIN], callback=seen.append)
    assert seen == hasher.sweeps_
    assert [sweep.number for sweep in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].frozen
    assert hasher.leave_one_out_score_ == seen[-1].leave_one_out
    assert all(seconds >= 0 for seconds in hasher.seconds_.values())


@pytest.mark.parametrize("kind", ["labels", "pairs"])
def test_the_number_of_threads_does_not_change_the_model(kind):
    models = [
        GPHasher(**QUICK, block_size=64, n_jobs=n_jobs).fit(digits.X[TRAIN], supervision(kind)).fingerprint_
        for n_jobs in (1, 3)
    ]
    assert models[0] == models[1]


def test_rows_that_no_pair_names_do_not_spoil_the_model():
    judged = digits.pairs(300, 4000)
    alone = GPHasher(**QUICK).fit(digits.X[:300], judged)
    crowd = GPHasher(**QUICK).fit(digits.X[:1400], judged)
    scores = [hasher.score(digits.X[1400:], digits.y[1400:]) for hasher in (alone, crowd)]
    assert scores[1] > scores[0] - 0.03
    assert crowd.sweeps_[-1].frozen


@pytest.mark.parametrize("y", [np.zeros(300), None], ids=["one class", "none"])
def test_a_refused_second_fit_leaves_the_first_model_as_it_was(y):
    hasher = GPHasher(**QUICK).fit(digits.X[TRAIN], digits.y[TRAIN])
    codes = hasher.encode(digits.X[TEST])
    with pytest.raises(ValueError, match="y"):
        hasher.fit(digits.X[:300, :30], y)
    np.testing.assert_array_equal(hasher.encode(digits.X[TEST]), codes)


def test_a_pickled_hash_function_carries_nothing_derived():
    hasher = GPHasher(**QUICK).fit(digits.X[TRAIN], digits.y[TRAIN])
    hasher.encode(digits.X[TEST])
    kept = {"scaling", "kernel", "Z", "weights", "offset", "uncertainty", "reading"}
    assert set(hasher.hash_function_.classifier.__getstate__()) == kept
    assert set(vars(hasher.hash_function_)) == {
        "classifier",
        "exclusive",
        "power",
        "directions",
        "offset",
        "shift",
        "reading",
        "trust",
    }


def test_expectation_propagation_that_does_not_converge_is_told():
    X, y = toy_problem()
    with pytest.warns(ConvergenceWarning, match="has not converged: its sites still change by"):
        GPHasher(2, n_inducing=30, scaling="centre", length_scale=1.6, signal_scale=1e3, random_state=0).fit(X, y)


def toy_problem():
    """Two interleaved half circles that a far too large signal scale makes EP swing on."""
    angle = np.linspace(0, np.pi, 100)
    upper = np.column_stack([np.cos(angle), np.sin(angle)])
    return np.concatenate([upper, [1, 0.4] - upper]), np.repeat([0, 1], 100)


def test_rows_of_blocks_without_a_label_are_left_out(tmp_path):
    words = np.where(np.arange(300) % 5 == 0, "", digits.y[:300].astype(str))
    for number, rows in enumerate((slice(0, 130), slice(130, 300))):
        np.save(tmp_path / f"{number}.npy", digits.X[:300][rows])
        np.save(tmp_path / f"{number}.labels.npy", words[rows])
    hasher = GPHasher(**QUICK)
    with pytest.warns(UserWarning, match=r"left out 60 of 300 rows, which have no label"):
        hasher.fit(tmp_path)
    with pytest.warns(UserWarning, match=r"left out 60 of 300 rows"):
        wanted = clone(hasher).fit(digits.X[:300], np.where(words != "", digits.y[:300], -1))
    np.testing.assert_array_equal(hasher.encode(digits.X), wanted.encode(digits.X))


class TestPartialAndSkewed:
    def test_rows_without_a_label_cost_nothing(self):
        rows = np.arange(1000) % 10 == 0
        test, scores = (digits.X[1000:], digits.y[1000:]), []
        for seed in range(3):  # a hundred rows are few: other seeds, other codes
            settings = QUICK | {"n_bits": 16, "n_inducing": 300, "random_state": seed}
            with pytest.warns(UserWarning, match="left out 900 of 1,000 rows"):
                some = GPHasher(**settings).fit(digits.X[:1000], np.where(rows, digits.y[:1000], -1))
            alone = GPHasher(**settings | {"n_inducing": 100}).fit(digits.X[:1000][rows], digits.y[:1000][rows])
            scores.append((some.score(*test), alone.score(*test)))
            np.testing.assert_array_equal(some.classes_, np.arange(10))
        with_others, without = np.mean(scores, axis=0)
        assert with_others > without - 0.03 > 0.6

    def test_rows_without_a_label_are_neither_searched_for_nor_found(self, hasher):
        gaps = np.where(np.arange(400) < 300, digits.y[TEST][:400], -1)
        assert hasher.score(digits.X[TEST], gaps) == hasher.score(digits.X[TEST][:300], gaps[:300])

    def test_a_weight_of_zero_is_like_no_label(self):
        y = digits.y[TRAIN]
        with pytest.warns(UserWarning, match="left out"):
            gone = GPHasher(**QUICK).fit(digits.X[TRAIN], np.where(y < 5, y, -1))
        for how in ({"sample_weight": (y < 5).astype(float)}, {}):
            weight = None if how else dict.fromkeys(range(5, 10), 0.0)
            found = GPHasher(**QUICK, class_weight=weight).fit(digits.X[TRAIN], y, **how)
            np.testing.assert_array_equal(found.classes_, np.arange(5))
            assert found.class_codes_.shape == (5, 8)
            assert found.score(digits.X[TEST][digits.y[TEST] < 5], digits.y[TEST][digits.y[TEST] < 5]) > 0.8
        assert gone.class_codes_.shape == (5, 8)

    def test_a_checkpoint_of_other_weights_is_of_another_run(self, tmp_path):
        settings, weights = QUICK | {"max_sweeps": 3}, 1 + np.arange(300) % 3
        X, y = digits.X[:300], digits.y[:300]
        first = GPHasher(**settings).fit(X, y, weights, checkpoint=tmp_path / "run")
        again = GPHasher(**settings).fit(X, y, 2.0 * weights, checkpoint=tmp_path / "run")
        assert again.fingerprint_ == first.fingerprint_
        with pytest.raises(ValueError, match="belongs to another run"):
            GPHasher(**settings).fit(X, y, checkpoint=tmp_path / "run")

    @pytest.mark.filterwarnings("ignore:codes have collapsed")  # of five classes, one has 95% of the rows
    @pytest.mark.parametrize("solver", ["shared", "blockwise"])
    def test_balanced_classes_find_what_is_rare(self, solver):
        rng = np.random.default_rng(0)
        centres = rng.normal(size=(5, 6))
        y, y_test = np.repeat(np.arange(5), [760, 10, 10, 10, 10]), np.arange(300) % 5
        X, X_test = (centres[labels] + 0.5 * rng.normal(size=(len(labels), 6)) for labels in (y, y_test))
        settings = {"n_inducing": 60, "length_scale": 1.5, "signal_scale": 2.0, "n_starts": 1, "solver": solver}

        def score(weight, seed):
            return GPHasher(8, class_weight=weight, random_state=seed, **settings).fit(X, y).score(X_test, y_test)

        # Measured: 0.72 to 0.74 and 0.74 to 0.79 with the shared factor, 0.69 to 0.74 and 0.73 to 0.77 blockwise.
        plain, balanced = (np.mean([score(weight, seed) for seed in range(3)]) for weight in (None, "balanced"))
        assert balanced > plain + 0.02
        assert balanced > 0.7

    @pytest.mark.parametrize("weight", ["auto", "balanced", None])
    def test_classes_are_as_probable_as_they_occur_however_they_are_weighed(self, weight):
        rng = np.random.default_rng(0)
        y, y_test = (rng.choice(3, size, p=[0.9, 0.05, 0.05]) for size in (1500, 3000))
        X, X_test = (np.eye(3)[labels] + 0.5 * rng.normal(size=(len(labels), 3)) for labels in (y, y_test))
        hasher = GPHasher(8, class_weight=weight, n_inducing=60, random_state=0).fit(X, y)
        found = hasher.hash_function_.classes(X_test).mean(axis=0)
        np.testing.assert_allclose(found, np.bincount(y_test) / len(y_test), atol=0.015)

    def test_weights_that_are_equal_but_for_rounding(self):
        for n in (697, 1297):
            hasher = GPHasher(**QUICK | {"n_inducing": 30}).fit(digits.X[:n], digits.y[:n], np.full(n, 0.1))
            assert hasher.score(digits.X[:300], digits.y[:300]) > 0.5

    def test_tags_that_no_row_has_are_told(self, tmp_path):
        tags = np.insert(np.eye(10, dtype=int)[digits.y[:600]], [0, 4], 0, axis=1)
        hasher = GPHasher(**QUICK).fit(digits.X[:600], tags)
        assert hasher.tags_ == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
        hasher.save(tmp_path / "tags.gph")
        again = load(tmp_path / "tags.gph")
        assert again.tags_ == hasher.tags_
        chances = again.predict_proba(digits.X[600:700])
        np.testing.assert_array_equal(chances, hasher.predict_proba(digits.X[600:700]))
        assert (again.predict(digits.X[600:700]) == np.eye(10)[digits.y[600:700]]).mean() > 0.9

    @pytest.mark.parametrize("names", [digits.y[:600], np.array([f"no. {one}" for one in digits.y[:600]])])
    def test_a_model_from_a_file_predicts_as_before(self, tmp_path, names):
        hasher = GPHasher(**QUICK).fit(digits.X[:600], names)
        hasher.save(tmp_path / "model.gph")
        again = load(tmp_path / "model.gph")
        rows = digits.X[600:800]
        np.testing.assert_array_equal(again.predict(rows), hasher.predict(rows))
        np.testing.assert_array_equal(again.classes_, hasher.classes_)
        np.testing.assert_array_equal(again.class_codes_, hasher.class_codes_)
        codes = hasher.encode(rows)
        chances = hasher.similarity_probability(rows[:5], codes)
        np.testing.assert_array_equal(again.similarity_probability(rows[:5], codes), chances)
        same = digits.y[600:605, None] == digits.y[600:800]
        assert chances[same].mean() > chances[~same].mean() + 0.5

    @pytest.mark.parametrize("kind", ["labels", "tags"])
    def test_sampled_codes_know_classes_too(self, tmp_path, kind):
        taught, new = digits.X[:600], digits.X[600:1000]
        y = {"labels": digits.y, "tags": digits.tags}[kind]
        hasher = GPHasher(**QUICK, codes="sampled").fit(taught, y[:600])
        assert (hasher.predict(new) == y[600:1000]).mean() > 0.9
        hasher.save(tmp_path / "model.gph")
        again, codes = load(tmp_path / "model.gph"), hasher.encode(new)
        np.testing.assert_array_equal(again.predict_proba(new), hasher.predict_proba(new))
        found = again.similarity_probability(new, codes)
        np.testing.assert_array_equal(found, hasher.similarity_probability(new, codes))
        same = digits.y[600:1000, None] == digits.y[600:1000] if kind == "labels" else y[600:1000] @ y[600:1000].T > 0
        assert_calibrated(found, same, 0.06)
        with pytest.raises(ValueError, match="codes were sampled, or learned from pairs; fit labels or tags"):
            again.familiarity(new)

    @pytest.mark.parametrize("balance", [True, False])
    def test_pairs_know_how_probable_it_is_that_others_like_them_are_similar(self, tmp_path, balance):
        hasher = GPHasher(**QUICK, balance_pairs=balance).fit(digits.X[:600], digits.pairs(600, 9000))
        new, codes = digits.X[600:1000], hasher.encode(digits.X[600:1000])
        hasher.save(tmp_path / "model.gph")
        again = load(tmp_path / "model.gph")
        assert again.fingerprint_ == hasher.fingerprint_
        found = again.similarity_probability(new, codes)
        np.testing.assert_array_equal(found, hasher.similarity_probability(new, codes))
        # A tenth of random pairs is similar, although half of the weight is on those.
        assert_calibrated(found, digits.y[600:1000, None] == digits.y[600:1000], 0.03)

    @pytest.mark.parametrize("codes", ["posterior", "sampled"])
    def test_a_class_of_one_row_and_a_row_far_from_everything_have_probabilities(self, codes):
        y = digits.y[:300].copy()
        y[7] = 10
        hasher = GPHasher(**QUICK, codes=codes).fit(digits.X[:300], y)
        strange = np.concatenate([digits.X[300:400], [1e6 * digits.X[0] - 3e5, np.zeros(64)]])
        chances = hasher.predict_proba(strange)
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)
        assert chances[:100, 10].mean() < 0.05
        found = hasher.similarity_probability(strange, hasher.encode(strange))
        assert ((found >= 0) & (found <= 1)).all()

    def test_codes_of_another_model_are_refused(self, hasher):
        other = GPHasher(**QUICK | {"random_state": 1}).fit(digits.X[TRAIN], digits.y[TRAIN])
        index = gphash.HammingIndex.build(hasher.encode(digits.X[:20]), n_bits=8, model=hasher)
        with pytest.raises(ValueError, match="codes of two models cannot be compared"):
            index.search(other.predict_proba(digits.X[:2]), ranking="similarity", model=other)
        with pytest.raises(ValueError, match="queries has NaN or values outside of 0 to 1"):
            index.search(np.full((1, 10), np.nan), ranking="similarity", model=hasher)

    def test_pairs_know_no_classes(self):
        hasher = GPHasher(**QUICK).fit(digits.X[:100], digits.pairs(100, 500))
        for ask in (hasher.predict, hasher.predict_proba):
            with pytest.raises(
                ValueError, match="pairs name no classes; fit labels or tags, or ask for similarity_prob"
            ):
                ask(digits.X[:2])
        with pytest.raises(ValueError, match="learned from pairs; fit labels or tags with codes='posterior'"):
            hasher.familiarity(digits.X[:2])
        assert hasher.trust_ is None
        assert hasher.class_names_ is None

    def test_a_broad_tag_does_not_hide_narrow_ones(self):
        tags = np.concatenate([np.eye(10)[digits.y], (digits.y < 6)[:, None], (digits.y >= 6)[:, None]], axis=1)
        hasher = GPHasher(**QUICK | {"n_bits": 16, "n_inducing": 200}).fit(digits.X[:1000], tags[:1000])
        assert hasher.score(digits.X[1000:], digits.y[1000:]) > 0.6
        assert hasher.score(digits.X[1000:], tags[1000:]) > 0.9

    def test_many_classes_of_few_rows(self):
        rng = np.random.default_rng(0)
        centres, y = rng.normal(size=(300, 16)), np.arange(1500) % 300
        X = centres[y] + 0.1 * rng.normal(size=(1500, 16))
        settings = QUICK | {"n_bits": 24, "n_inducing": 300, "n_representatives": 1500, "max_sweeps": 2}
        hasher = GPHasher(**settings).fit(X, y)
        assert hasher.class_codes_.shape == (300, 24)
        assert hasher.score(X, y) > 0.1

    @pytest.mark.parametrize("n_constant", [1, 60, 64])
    def test_constant_features_break_nothing(self, n_constant):
        X = digits.X[TRAIN].copy()
        X[:, :n_constant] = 7.0
        with warnings.catch_warnings():
            # Four features do not tell ten digits apart, and none tells anything.
            warnings.simplefilter("ignore" if n_constant >= 60 else "error")
            hasher = GPHasher(**QUICK).fit(X, digits.y[TRAIN])
        assert np.isfinite(hasher.bit_probabilities(X)).all()
        assert hasher.encode(X).shape == (len(X), 1)
