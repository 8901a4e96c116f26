"""Input that cannot work is refused by an error that names the argument, what was given and what is wanted;
input that is merely odd works."""

import errno
import os
import re

import numpy as np
import pytest
import scipy.sparse
from sklearn.exceptions import NotFittedError

import gphash
from gphash import GPHasher, Pairs, container

N = 40
X = np.random.default_rng(0).normal(size=(N, 5))
y = np.arange(N) % 3
TAGS = np.stack([y == 0, y == 1], axis=1).astype(int)
SETTINGS = {
    "n_bits": 8,
    "n_inducing": 10,
    "n_starts": 1,
    "length_scale": 0.9,
    "signal_scale": 4.0,
    "max_sweeps": 5,
    "random_state": 0,
}


def fit(rows=X, target=y, **changes):
    return GPHasher(**SETTINGS | changes).fit(rows, target)


def with_value(value):
    rows = X.copy()
    rows[3, 2] = value
    return rows


@pytest.fixture(scope="module")
def hasher():
    return fit()


BAD_ROWS = [
    (with_value(np.nan), "Input X contains NaN"),
    (with_value(np.inf), "Input X contains infinity"),
    (with_value(-np.inf), "Input X contains infinity"),
    (with_value(1e25), "X holds values as large as 1e+25; give values of at most "),
    (X[:, 0], "Expected 2D array, got 1D array instead"),
    (X[:, :, None], "Found array with dim 3, while dim <= 2 is required by GPHasher"),
    (np.full((N, 5), "word"), "could not convert string to float"),
    (X + 1j, "Complex data not supported"),
    (X[:0], "Found array with 0 sample(s) (shape=(0, 5)) while a minimum of"),
    (X[:, :0], "Found array with 0 feature(s) (shape=(40, 0)) while a minimum of 1 is required by GPHasher"),
]


class TestRows:
    @pytest.mark.parametrize(("rows", "message"), BAD_ROWS, ids=[message[:30] for _, message in BAD_ROWS])
    def test_bad_rows_are_refused_by_fit_and_encode(self, hasher, rows, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            fit(rows)
        with pytest.raises(ValueError, match=re.escape(message)):
            hasher.encode(rows)

    @pytest.mark.parametrize("number", [np.nan, np.inf, 1e25])
    def test_sparse_rows_of_bad_numbers_are_refused(self, hasher, number):
        rows = scipy.sparse.csr_array(with_value(number))
        for work in (fit, hasher.encode):
            with pytest.raises(ValueError, match=r"X holds (NaN or infinity; give finite|values as large as 1e.25)"):
                work(rows)

    def test_sparse_rows_of_objects_are_refused(self, hasher):
        rows = scipy.sparse.csr_array(X)
        rows.data = rows.data.astype(object)
        for work in (fit, hasher.encode):
            with pytest.raises(ValueError, match="X is sparse, of dtype object and shape"):
                work(rows)

    def test_sparse_rows_that_point_elsewhere_are_refused(self, hasher):
        rows = scipy.sparse.csr_array(X)
        rows.indices[3] = 1 << 20
        for work in (fit, hasher.encode):
            with pytest.raises(ValueError, match="indices must be < 5"):
                work(rows)

    @pytest.mark.parametrize("number", [np.nan, np.inf])
    def test_short_rows_of_bad_numbers_are_refused(self, hasher, number):
        rows = with_value(number).astype(np.float16)
        for work in (fit, hasher.encode):
            with pytest.raises(ValueError, match="X holds NaN or infinity; give finite numbers"):
                work(rows)

    def test_one_row_is_too_few(self):
        with pytest.raises(ValueError, match=r"1 sample\(s\) \(shape=\(1, 5\)\) while a minimum of 2 is required"):
            fit(X[:1], y[:1])

    @pytest.mark.parametrize("method", ["encode", "transform", "bit_probabilities"])
    def test_other_features_than_in_training_are_refused(self, hasher, method):
        with pytest.raises(ValueError, match="X has 3 features, but GPHasher is expecting 5 features"):
            getattr(hasher, method)(X[:, :3])

    @pytest.mark.parametrize(
        "dtype", [np.int32, np.float16, np.float32, bool, object], ids=lambda dtype: dtype.__name__
    )
    def test_any_real_type_of_rows_works(self, dtype):
        rows = (10 * X).astype(dtype)
        assert fit(rows).encode(rows).shape == (N, 1)

    def test_lists_lose_no_digits(self, hasher):
        assert fit(X.tolist()).fingerprint_ == hasher.fingerprint_
        stamps = X + 1e9
        assert fit(stamps.tolist()).fingerprint_ == fit(stamps).fingerprint_


AUTO = {"length_scale": "auto", "signal_scale": "auto", "pair_weight": "auto"}


ODD = {
    "duplicate rows": (np.repeat(X[:8], 5, axis=0), np.repeat(y[:8], 5)),
    "duplicate rows, other labels": (np.tile(X[:4], (10, 1)), y),
    "constant features": (np.column_stack([X, np.ones(N), np.zeros(N)]), y),
    "all rows equal": (np.full((N, 5), 7.3), y),
    "all zero": (np.zeros((N, 5)), y),
    "one feature": (X[:, :1], y),
    "one binary feature": ((X[:, :1] > 0).astype(float), y),
    "a class of its own for every row": (X, np.arange(N)),
    "all rows similar by some tag": (X, np.column_stack([np.arange(N) != 0, np.arange(N) != 1])),
    "more than 64 tags": (X, np.eye(N, 100, dtype=int) + np.eye(N, 100, 1, dtype=int)),
    "two pairs only": (X, Pairs([0, 1], [1, 2], [1, -1])),
}


class TestOddButValid:
    """Nothing to learn from, or hardly: training ends, probabilities are finite, and equal rows have equal codes."""

    @pytest.mark.parametrize("changes", [{}, AUTO, {"solver": "blockwise"}, {"scaling": "centre"}], ids=str)
    @pytest.mark.parametrize("case", ODD)
    def test_training_ends_well(self, case, changes):
        rows, target = ODD[case]
        hasher = fit(rows, target, **changes)
        probabilities, bits = hasher.bit_probabilities(rows), hasher.transform(rows)
        assert ((probabilities >= 0) & (probabilities <= 1)).all()
        assert np.isfinite(hasher.leave_one_out_score_)
        _, first, same = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        np.testing.assert_array_equal(bits, bits[first][same.ravel()])

    @pytest.mark.parametrize("inducing", ["kmeans", "random"])
    def test_more_inducing_inputs_than_rows_warn_and_work(self, inducing):
        with pytest.warns(UserWarning, match="n_inducing=100 exceeds the 40 rows of X; all rows are inducing inputs"):
            hasher = fit(n_inducing=100, inducing=inducing)
        assert len(hasher.hash_function_.classifier.Z) == N

    @pytest.mark.parametrize("changes", [{}, AUTO, {"scaling": "centre"}], ids=str)
    def test_two_rows_of_two_classes_get_two_codes(self, changes):
        hasher = fit(X[:2], [0, 1], n_inducing=2, **changes)
        assert len(np.unique(hasher.encode(X[:2]), axis=0)) == 2

    @pytest.mark.parametrize("changes", [{"block_size": 1}, {"n_representatives": 1}, {"n_bits": 1}, {"max_sweeps": 1}])
    def test_smallest_settings_work(self, changes):
        assert fit(**changes).encode(X).shape == (N, 1)


WHOLE = ["n_bits", "n_inducing", "n_representatives", "n_starts", "max_sweeps", "block_size"]


POSITIVE = ["length_scale", "signal_scale", "similarity_scale", "pair_weight", "memory_limit"]


WORDS = {
    "inducing": "'kmeans', 'random'",
    "solver": "'auto', 'shared', 'blockwise', 'conjugate'",
    "scaling": "'unit', 'centre'",
}


class TestParameters:
    def refuse(self, name, value, wanted):
        with pytest.raises(ValueError, match="^" + re.escape(f"{name}={value!r}; give {wanted}")):
            fit(**{name: value})

    @pytest.mark.parametrize("value", [0, -1, 2.5, 8.0, np.nan, True, "8", None, [8]])
    @pytest.mark.parametrize("name", WHOLE)
    def test_whole_numbers(self, name, value):
        self.refuse(
            name, value, "a whole number from 1 to 1024" if name == "n_bits" else "a whole number of at least 1."
        )

    @pytest.mark.parametrize("value", [0, -1.0, np.nan, np.inf, True, "much", None, [1.0], 1j])
    @pytest.mark.parametrize("name", POSITIVE)
    def test_positive_numbers_or_auto(self, name, value):
        self.refuse(name, value, f"a number from {'1' if name == 'memory_limit' else '1e-06'} to ")

    @pytest.mark.parametrize("value", ["other", "", None, 3, ["unit"]])
    @pytest.mark.parametrize("name", WORDS)
    def test_words(self, name, value):
        self.refuse(name, value, f"one of {WORDS[name]}.")

    @pytest.mark.parametrize(
        ("name", "value", "wanted"),
        [
            ("balance_pairs", "no", "True or False."),
            ("balance_pairs", None, "True or False."),
            ("n_jobs", 0, "a number of threads"),
            ("n_jobs", 1.5, "a number of threads"),
            ("n_jobs", "2", "a number of threads"),
            ("random_state", -1, "a whole number of at least 0"),
            ("random_state", "x", "a whole number of at least 0"),
            ("random_state", 1.5, "a whole number of at least 0"),
        ],
    )
    def test_others(self, name, value, wanted):
        self.refuse(name, value, wanted)

    @pytest.mark.parametrize(
        ("name", "value", "wanted"),
        [
            ("callback", "print", "a function of one Sweep"),
            ("checkpoint", 3, "the path of a file"),
            ("checkpoint", "", "the path of a file"),
        ],
    )
    def test_where_training_is_done(self, name, value, wanted):
        with pytest.raises(ValueError, match="^" + re.escape(f"{name}={value!r}; give {wanted}")):
            GPHasher(**SETTINGS).fit(X, y, **{name: value})

    def test_parameters_are_checked_without_rows(self):
        GPHasher(**SETTINGS).check_parameters()
        with pytest.raises(ValueError, match=r"^n_inducing='many'; give a whole number"):
            GPHasher(n_inducing="many").check_parameters()

    def test_numpy_numbers_count_as_numbers(self, hasher):
        same = fit(n_bits=np.int64(8), length_scale=np.float64(0.9), random_state=np.int32(0), n_jobs=np.int64(1))
        assert same.fingerprint_ == hasher.fingerprint_


BAD_TARGETS = {
    "none": (
        None,
        "requires y to be passed, but the target y is None; GPHasher learns from class labels [n], 0/1 tags [n, c] "
        "or a list of Pairs",
    ),
    "short": (y[:-1], "y has 39 rows and X has 40; give one label or row of tags per row"),
    "short tags": (TAGS[:-1], "y has 39 rows and X has 40; give one label or row of tags per row"),
    "empty": ([], "y has 0 rows and X has 40"),
    "one number": (3, "y has shape (); give class labels [n], 0/1 tags [n, c] or a list of Pairs"),
    "three axes": (
        np.zeros((N, 2, 2)),
        "y has shape (40, 2, 2); give class labels [n], 0/1 tags [n, c] or a list of Pairs",
    ),
    "no tags": (np.zeros((N, 0)), "y has shape (40, 0); give class labels [n], 0/1 tags [n, c] or a list of Pairs"),
    "ragged": (
        [[1, 2], [3]] * 20,
        "y has rows of different lengths; give class labels [n], 0/1 tags [n, c] or a list of Pairs",
    ),
    "one class": (np.full(N, "cat"), "y has one class only; hashing needs at least 2 classes"),
    "continuous": (X[:, 0], "; give class labels [n], 0/1 tags [n, c] or a list of Pairs"),
    "infinity": (np.where(y == 0, np.inf, y), "; give one class label per row"),
    "bytes": (np.where(y == 0, b"a", None), "y holds b'a'; give a word or number per row"),
    "sets": ([{"a"}, {"b"}] * 20, "y holds {'a'}; give a word or number per row, or 0/1 tags [n, c]"),
    "mixed": (np.array([1, "a"] * 20, dtype=object), "y holds words as well as numbers; give labels of"),
    "tags all 0": (0 * TAGS, "tags y are all 0"),
    "tags of 2": (2 * TAGS, "tags y hold 2; give a matrix [n_rows, n_tags] of 0 and 1 only"),
    "tags of -1": (2 * TAGS - 1, "tags y hold -1; give a matrix"),
    "tags with NaN": (np.where(TAGS, np.nan, 0.0), "tags y hold nan; give a matrix"),
    "a tag on every row": (np.column_stack([TAGS, np.ones(N)]), "tag 2 of y is on every row"),
}


BAD_PAIRS = {
    "too high": (Pairs([0, 1], [2, N], [1, -1]), "pairs.j names row 40, but X has rows 0 to 39"),
    "negative": (Pairs([-1, 1], [2, 3], [1, -1]), "pairs.i names row -1, but X has rows 0 to 39"),
    "both signs": (Pairs([0, 1, 2], [1, 0, 3], [1, -1, 1]), "pairs judge rows 0 and 1 both alike and unlike"),
    "itself": (Pairs([0, 4], [1, 4], [1, -1]), "pairs name row 4 with itself; give pairs of two different rows"),
    "all alike": (Pairs([0, 1], [1, 2], [1, 1]), "pairs are all alike; give some of both"),
    "all unlike": (Pairs([0, 1], [1, 2], [-1, -1]), "pairs are all unlike; give some of both"),
    "none": (Pairs([], [], []), "pairs are empty; give at least one similar and one dissimilar pair"),
    "lengths": (Pairs([0, 1], [1], [1, -1]), "have lengths 2, 1 and (2,); they must agree"),
    "one judgement": (Pairs([0, 1], [1, 2], 1), "have lengths 2, 2 and (); they must agree"),
    "floats": (
        Pairs([0.0, 1.0], [1, 2], [1, -1]),
        "pairs.i has shape (2,) and dtype float64; give row numbers",
    ),
    "numbers": (Pairs(0, 1, 1), "pairs.i has shape () and dtype int64; give row numbers"),
    "0 and 1": (Pairs([0, 1], [1, 2], [1, 0]), "pairs.similar holds 0; give +1 (alike) or -1 (unlike) for every pair"),
}


class TestTargets:
    @pytest.mark.parametrize("case", BAD_TARGETS)
    def test_bad_labels_and_tags_are_refused(self, case):
        target, message = BAD_TARGETS[case]
        with pytest.raises(ValueError, match=re.escape(message)):
            fit(target=target)

    @pytest.mark.parametrize("case", BAD_PAIRS)
    def test_bad_pairs_are_refused(self, case):
        target, message = BAD_PAIRS[case]
        with pytest.raises(ValueError, match=re.escape(message)):
            fit(target=target)

    def test_pairs_cannot_be_scored(self, hasher):
        with pytest.raises(ValueError, match="y is a list of Pairs; here, give labels"):
            hasher.score(X, Pairs([0, 1], [1, 2], [1, -1]))


class TestBeforeFit:
    @pytest.mark.parametrize("method", ["encode", "transform", "bit_probabilities"])
    def test_nothing_to_encode_with(self, method):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(GPHasher(), method)(X)

    def test_nothing_to_score_save_or_identify(self, tmp_path):
        hasher = GPHasher()
        with pytest.raises(NotFittedError):
            hasher.score(X, y)
        with pytest.raises(NotFittedError):
            hasher.save(tmp_path / "model.gphash")
        with pytest.raises(NotFittedError):
            _ = hasher.fingerprint_
        assert list(tmp_path.iterdir()) == []

    def test_an_interrupted_fit_is_no_fit(self):
        def stop(sweep):
            raise KeyboardInterrupt

        hasher = GPHasher(**SETTINGS)
        with pytest.raises(KeyboardInterrupt):
            hasher.fit(X, y, callback=stop)
        with pytest.raises(NotFittedError, match="not fitted yet"):
            hasher.encode(X)


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "model.gphash"

    def test_a_folder_that_does_not_exist_is_named(self, hasher, tmp_path):
        with pytest.raises(FileNotFoundError, match=re.escape(f"the folder does not exist: '{tmp_path / 'nowhere'}'")):
            hasher.save(tmp_path / "nowhere" / "model.gphash")

    def test_a_folder_is_no_place_for_a_model(self, hasher, tmp_path):
        with pytest.raises(IsADirectoryError, match=re.escape(f"this is a folder; it must be a file: '{tmp_path}'")):
            hasher.save(tmp_path)
        assert list(tmp_path.iterdir()) == []

    def test_a_full_disk_keeps_the_old_file(self, hasher, path, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        hasher.save(path)
        before = path.read_bytes()
        other = fit(random_state=1)
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left on device"):
            other.save(path)
        assert path.read_bytes() == before
        assert list(path.parent.iterdir()) == [path]

    def test_no_file(self, path):
        with pytest.raises(FileNotFoundError, match=re.escape(str(path))):
            gphash.load(path)

    def test_a_checkpoint_is_no_model(self, path):
        GPHasher(**SETTINGS).fit(X, y, checkpoint=path)
        with pytest.raises(container.FormatError, match="holds 'checkpoint'; it must hold 'model'"):
            gphash.load(path)

    def test_a_text_file_is_no_model(self, path):
        path.write_text("weights = 1, 2, 3\n")
        with pytest.raises(container.FormatError, match=r"model\.gphash' is not a gphash file"):
            gphash.load(path)

    @pytest.mark.parametrize("share", [0, 0.01, 0.5, 0.999])
    def test_a_truncated_model_is_refused(self, hasher, path, share):
        hasher.save(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])
        with pytest.raises(container.FormatError, match=r"model\.gphash' is truncated"):
            gphash.load(path)

    def test_a_changed_byte_is_noticed(self, hasher, path):
        hasher.save(path)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        with pytest.raises(container.FormatError, match=r"model\.gphash' is damaged"):
            gphash.load(path)
