"""Every method keeps the contract of GPHasher; the methods' own tests are in tests/baselines."""

import numpy as np
import pytest
from sklearn.base import clone

import gphash
import gphash.hashers
from gphash import Pairs, container
from gphash.hashers import ksh, methods, mlh, ridge_methods
from gphash.hashers.contract import Hasher
from gphash.supervision import similarity
from tests import digits

TRAIN, TEST = slice(0, 300), slice(1200, 1500)
SMALL = {"n_inducing": 40, "n_starts": 1, "max_sweeps": 8, "n_trees": 10, "n_labelled": 200}
KINDS = {"labels": digits.y[TRAIN], "tags": digits.tags[TRAIN], "pairs": digits.pairs(300, 4000)}


def make(name: str, **parameters: object) -> Hasher:
    method = methods.METHODS.find(name)
    known = method().get_params()
    some = {key: value for key, value in SMALL.items() if key in known}
    return method(**{"n_bits": 8, "random_state": 0, **some, **parameters})


@pytest.fixture(scope="module", autouse=True)
def hasty():
    """Fewer iterations than these methods take: on so few rows they are as good."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(mlh, "BATCHES", 1000)
        patched.setattr(ridge_methods, "STEPS", 15)
        patched.setattr(ksh, "ITERATIONS", 60)
        patched.setattr(ksh, "FEW_ITERATIONS", 20)
        yield


@pytest.fixture(scope="module", params=methods.METHODS)
def fitted(request):
    return request.param, make(request.param).fit(digits.X[TRAIN], digits.y[TRAIN])


def test_codes_are_bits_and_packed_bits(fitted):
    _, hasher = fitted
    bits = hasher.transform(digits.X[TEST])
    assert bits.dtype == np.uint8
    assert bits.shape == (300, 8)
    np.testing.assert_array_equal(hasher.encode(digits.X[TEST]), np.packbits(bits, axis=1))


def test_codes_are_better_than_chance(fitted):
    _, hasher = fitted
    assert hasher.score(digits.X[TEST], digits.y[TEST]) > 0.15


def test_a_model_survives_its_file(fitted, tmp_path):
    _, hasher = fitted
    mark = hasher.save(tmp_path / "model.gphash")
    again = gphash.load(tmp_path / "model.gphash")
    assert type(again) is type(hasher)
    assert again.get_params() == hasher.get_params()
    assert again.fingerprint_ == hasher.fingerprint_ == mark
    assert again.n_features_in_ == digits.X.shape[1]
    np.testing.assert_array_equal(again.encode(digits.X[TEST]), hasher.encode(digits.X[TEST]))
    learned = {name for name in vars(hasher) if name.endswith("_")} - {"classes_", "class_codes_"}
    assert learned <= set(vars(again))


def test_threads_change_nothing_and_seeds_do(fitted):
    name, hasher = fitted
    one = clone(hasher).set_params(n_jobs=1).fit(digits.X[TRAIN], digits.y[TRAIN])
    assert one.fingerprint_ == hasher.fingerprint_
    if name not in ("pcah", "spectral"):  # nothing random in them
        assert make(name, random_state=1).fit(digits.X[TRAIN], digits.y[TRAIN]).fingerprint_ != hasher.fingerprint_


def test_a_code_does_not_depend_on_the_rows_around_it(fitted):
    _, hasher = fitted
    alone = np.vstack([hasher.encode(row[None]) for row in digits.X[TEST][:60]])
    np.testing.assert_array_equal(alone, hasher.encode(digits.X[TEST])[:60])


def test_a_failed_fit_keeps_the_model(fitted):
    _, hasher = fitted
    before = hasher.fingerprint_
    with pytest.raises(ValueError, match="NaN"):
        hasher.fit(np.full((10, 3), np.nan), np.arange(10) % 2)
    assert hasher.fingerprint_ == before
    assert hasher.n_features_in_ == digits.X.shape[1]


@pytest.mark.filterwarnings("ignore:.*directions of X correlate:UserWarning")  # three tags for eight bits
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", methods.METHODS)
def test_supervision_is_learned_from_or_refused(name, kind):
    takes = methods.METHODS.find(name).takes
    hasher = make(name)
    if takes and kind not in takes:
        with pytest.raises(ValueError, match=f"{type(hasher).__name__} learns from class labels"):
            hasher.fit(digits.X[TRAIN], KINDS[kind])
    elif takes:
        hasher.fit(digits.X[TRAIN], KINDS[kind])
        truth = digits.tags[TEST] if kind == "tags" else digits.y[TEST]
        signatures = similarity.from_tags(truth) if kind == "tags" else similarity.from_labels(truth)
        chance = similarity.alike(signatures, signatures).mean()
        assert hasher.score(digits.X[TEST], truth) > chance + 0.05
    else:
        assert hasher.fit(digits.X[TRAIN]).fingerprint_ == clone(hasher).fit(digits.X[TRAIN], KINDS[kind]).fingerprint_


@pytest.mark.parametrize("name", [name for name, method in methods.METHODS.items() if method.takes])
def test_supervision_is_asked_for(name):
    with pytest.raises(ValueError, match=r"requires y to be passed, but the target y is None; \w+ learns from"):
        make(name).fit(digits.X[TRAIN])


@pytest.mark.parametrize("name", methods.METHODS)
@pytest.mark.parametrize(
    ("parameter", "value"),
    [("n_bits", 0), ("n_bits", 1025), ("n_bits", 10**6), ("n_bits", 8.0), ("n_jobs", 0), ("random_state", "x")],
)
def test_bad_parameters_are_named(name, parameter, value):
    with pytest.raises(ValueError, match=parameter):
        make(name, **{parameter: value}).fit(digits.X[TRAIN], digits.y[TRAIN])


@pytest.mark.parametrize("keyword", ["executor", "checkpoint", "callback"])
@pytest.mark.parametrize("name", [name for name in methods.METHODS if name != "gph"])
def test_a_way_of_training_that_a_method_does_not_know_is_refused_by_name(name, keyword):
    with pytest.raises(ValueError, match=rf"cannot use {keyword}='there'; leave {keyword} out"):
        make(name).fit(digits.X[TRAIN], digits.y[TRAIN], **{keyword: "there"})


def test_an_unknown_method_is_refused_with_a_list():
    with pytest.raises(ValueError, match=r"method='svm'; give one of 'gph', .*'lsh'"):
        methods.METHODS.find("svm")


def test_a_file_of_an_unknown_method_is_refused(tmp_path):
    container.write(tmp_path / "x", "model", {}, {}, {"method": "Newcomer"})
    with pytest.raises(container.FormatError, match=r"x' cannot be used: .*'Newcomer'; .*'gph'"):
        gphash.load(tmp_path / "x")


def test_a_method_of_ones_own_is_saved_under_its_name_and_loaded(tmp_path, monkeypatch):
    class Mine(gphash.hashers.LSH):
        """Locality-sensitive hashing by another name."""

    hasher = Mine(n_bits=8, random_state=0).fit(digits.X[TRAIN])
    with pytest.raises(ValueError, match=r"Mine is no registered method; register it"):
        hasher.save(tmp_path / "mine.gph")
    monkeypatch.setattr(methods.METHODS, "_things", dict(methods.METHODS._things))
    methods.METHODS.register("mine", Mine)
    hasher.save(tmp_path / "mine.gph")
    assert container.read(tmp_path / "mine.gph").remarks["method"] == "mine"
    assert type(gphash.load(tmp_path / "mine.gph")) is Mine


def crafted(stored, path, **changes):
    """The model with other parts, sealed."""
    parts = {"meta": stored.meta, "arrays": stored.arrays, "remarks": stored.remarks} | changes
    container.write(path, "model", parts["meta"], parts["arrays"], parts["remarks"])
    return path


def refused(path):
    with pytest.raises(container.FormatError, match=r"x\.gph' cannot be used: .*; fit the model again") as caught:
        gphash.load(path)
    return str(caught.value)


def test_fields_that_are_missing_or_of_another_type_are_refused(fitted, tmp_path):
    _, hasher = fitted
    path = tmp_path / "x.gph"
    hasher.save(path)
    stored = container.read(path)
    assert gphash.load(crafted(stored, path)).fingerprint_ == hasher.fingerprint_
    for part in ("meta", "arrays", "remarks"):
        whole = getattr(stored, part)
        for name in whole:
            less = {key: value for key, value in whole.items() if key != name}
            if name != "uncertainty" or hasattr(hasher, "bit_probabilities"):
                assert name in refused(crafted(stored, path, **{part: less}))
            strange = {"arrays": np.zeros(3, "S2"), "meta": [[3]], "remarks": 3}[part]
            assert name in refused(crafted(stored, path, **{part: {**whole, name: strange}}))
        assert "'new'" in refused(crafted(stored, path, **{part: {**whole, "new": strange}}))


def test_numbers_that_are_none_are_refused(fitted, tmp_path):
    _, hasher = fitted
    path = tmp_path / "x.gph"
    hasher.save(path)
    stored = container.read(path)
    for name, array in stored.arrays.items():
        for value in [np.nan, np.inf, -1e300] if array.dtype.kind == "f" else [np.iinfo(array.dtype).max]:
            if name == "thresholds" and not np.isnan(value):
                continue
            spoilt = array.copy()
            with np.errstate(over="ignore"):
                spoilt.flat[-1] = value
            assert name in refused(crafted(stored, path, arrays={**stored.arrays, name: spoilt}))
        shorter = {**stored.arrays, name: np.ascontiguousarray(array[..., :-1])}
        refused(crafted(stored, path, arrays=shorter))
        refused(crafted(stored, path, arrays={**stored.arrays, name: np.ascontiguousarray(array[..., :0])}))


def test_a_kernel_is_named_and_in_its_bounds(tmp_path):
    path = tmp_path / "x.gph"
    make("sdh", length_scale=0.9, ridge=0.01).fit(digits.X[:60], digits.y[:60]).save(path)
    stored = container.read(path)
    known = stored.meta["kernel"]
    assert known == {"name": "squared-exponential", "length_scale": 0.9, "signal_scale": 1.0}
    for kernel in (
        {**known, "name": "matern"},
        {**known, "length_scale": 0.0},
        {**known, "length_scale": -1.0},
        {**known, "signal_scale": 1e9},
        {**known, "signal_scale": "4"},
        {**known, "degree": 2},
        {"length_scale": 0.9, "signal_scale": 1.0},
        [0.9, 1.0],
    ):
        assert "kernel" in refused(crafted(stored, path, meta={**stored.meta, "kernel": kernel}))
    far = {**stored.arrays, "Z": stored.arrays["Z"] * np.float32(1e17)}
    near = {**known, "length_scale": 1e-10}
    assert "too far apart" in refused(crafted(stored, path, meta={**stored.meta, "kernel": near}, arrays=far))


def test_a_model_of_another_length_than_it_says_is_refused(fitted, tmp_path):
    _, hasher = fitted
    path = tmp_path / "x.gph"
    hasher.save(path)
    stored = container.read(path)
    parameters = {**stored.remarks["parameters"], "n_bits": 9}
    assert "9 bits" in refused(crafted(stored, path, remarks={**stored.remarks, "parameters": parameters}))
    with pytest.raises(ValueError, match="n_bits=9 was set after fit"):
        clone_of(hasher).set_params(n_bits=9).save(tmp_path / "other.gph")
    assert not (tmp_path / "other.gph").exists()


def clone_of(hasher):
    """A second one that has learned the same."""
    twin = clone(hasher)
    twin.__dict__.update(hasher.__dict__)
    return twin


def test_pairs_may_leave_rows_unnamed():
    pairs = Pairs([0, 1, 2, 3], [4, 5, 6, 7], [1, -1, 1, -1])
    for name, method in methods.METHODS.items():
        if "pairs" in method.takes:
            assert make(name).fit(digits.X[:50], pairs).encode(digits.X[:3]).shape == (3, 1)


@pytest.mark.parametrize("name", ["sdh", "ksh", "fasthash", "cca-itq"])
def test_rows_without_a_label_are_left_out(name):
    rows = np.arange(300) % 3 > 0
    with pytest.warns(UserWarning, match="left out 100 of 300 rows"):
        found = make(name).fit(digits.X[:300], np.where(rows, digits.y[:300], -1))
    wanted = make(name).fit(digits.X[:300][rows], digits.y[:300][rows])
    assert found.fingerprint_ == wanted.fingerprint_


def test_sample_weight_is_refused_where_it_cannot_be_used():
    with pytest.raises(TypeError, match="SDH cannot use sample_weight; leave it out"):
        make("sdh").fit(digits.X[:300], digits.y[:300], sample_weight=np.ones(300))
