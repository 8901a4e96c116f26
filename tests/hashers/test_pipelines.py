"""Pipelines of scikit-learn in one file: the same codes as the pipeline's, and no pickle."""

import json

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.decomposition import NMF, PCA, IncrementalPCA, TruncatedSVD
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    RobustScaler,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

import gphash
from gphash import Collection, GPHasher, container, schema
from gphash.codes import packing
from gphash.functions import model as models
from gphash.functions.prepared import PreparedFunction
from gphash.hashers import ITQ, FastHash, pipelines
from tests import digits

TRAIN, TEST = slice(0, 300), slice(1000, 1200)
X, y = digits.X, digits.y
COUNTS = scipy.sparse.csr_array(digits.X.astype(np.int64))
STEPS = {
    "scaler": lambda: [StandardScaler()],
    "scaler and components": lambda: [StandardScaler(), PCA(20)],
    "scaler, not centred": lambda: [StandardScaler(with_mean=False)],
    "scaler, not scaled": lambda: [StandardScaler(with_std=False)],
    "least and most": lambda: [MinMaxScaler((-1, 2))],
    "largest": lambda: [MaxAbsScaler()],
    "robust": lambda: [RobustScaler(unit_variance=True)],
    "robust, not centred": lambda: [RobustScaler(with_centering=False)],
    "white components": lambda: [PCA(10, whiten=True)],
    "in batches": lambda: [IncrementalPCA(10)],
    "singular vectors": lambda: [TruncatedSVD(10, random_state=0)],
    "random directions": lambda: [GaussianRandomProjection(30, random_state=0), MaxAbsScaler()],
    "sparse directions": lambda: [SparseRandomProjection(30, random_state=0)],
    "unit length": lambda: [Normalizer()],
    "unit length between": lambda: [StandardScaler(), Normalizer(), PCA(20), Normalizer("l1"), MinMaxScaler()],
    "a pipeline within": lambda: [make_pipeline(StandardScaler(), "passthrough"), PCA(20)],
    "tf-idf": lambda: [TfidfTransformer(), TruncatedSVD(12, random_state=0), Normalizer()],
    "tf": lambda: [TfidfTransformer(use_idf=False, norm="l1")],
    "tf-idf alone": lambda: [TfidfTransformer(norm=None)],
}


def quick(**own):
    return GPHasher(**{**digits.QUICK, "n_bits": 12, **own})


@pytest.fixture(scope="module", params=STEPS)
def pipeline(request):
    rows = COUNTS if request.param.startswith("tf") else X
    return make_pipeline(*STEPS[request.param](), quick()).fit(rows[TRAIN], y[TRAIN]), rows


def test_a_file_gives_the_codes_of_the_pipeline(pipeline, tmp_path):
    fitted, rows = pipeline
    before = fitted[-1].fingerprint_
    mark = gphash.save(fitted, tmp_path / "model.gph")
    loaded = gphash.load(tmp_path / "model.gph")
    assert (loaded.n_features_in_, loaded.fingerprint_, fitted[-1].fingerprint_) == (64, mark, before)
    inner, earlier = fitted[-1], fitted[:-1].transform(rows[TEST])
    np.testing.assert_array_equal(loaded.encode(rows[TEST]), inner.encode(earlier))
    np.testing.assert_array_equal(loaded.transform(rows[TEST]), fitted.transform(rows[TEST]))
    for name in ("bit_probabilities", "predict_proba", "familiarity"):
        expected = getattr(inner, name)(earlier)
        np.testing.assert_allclose(getattr(loaded, name)(rows[TEST]), expected, atol=1e-5, err_msg=name)
    np.testing.assert_array_equal(loaded.predict(rows[TEST]), fitted.predict(rows[TEST]))
    assert loaded.score(rows[TEST], y[TEST]) == pytest.approx(fitted.score(rows[TEST], y[TEST]))
    # Whoever encodes without scikit-learn has the same.
    model = models.load(tmp_path / "model.gph")
    np.testing.assert_array_equal(model.encode(rows[TEST]), loaded.encode(rows[TEST]))
    assert model.look(rows[TEST]).classes.shape == (200, 10)
    # A row's code does not depend on its neighbours, nor on whether it is sparse.
    np.testing.assert_array_equal(loaded.encode(rows[1001:1002]), loaded.encode(rows[TEST])[1:2])
    np.testing.assert_array_equal(loaded.encode(scipy.sparse.csr_array(X[TEST])), loaded.encode(X[TEST]))
    assert loaded.save(tmp_path / "again.gph") == mark


@pytest.mark.parametrize(
    "hasher", [ITQ(12, random_state=0), FastHash(12, n_trees=3, depth=2, random_state=0), quick(n_free_bits=4)]
)
def test_any_method_may_end_a_pipeline(hasher, tmp_path):
    fitted = make_pipeline(StandardScaler(), PCA(20), hasher).fit(X[TRAIN], y[TRAIN])
    gphash.save(fitted, tmp_path / "model.gph")
    loaded = gphash.load(tmp_path / "model.gph")
    np.testing.assert_array_equal(loaded.transform(X[TEST]), fitted.transform(X[TEST]))


def test_a_hasher_alone_is_saved_as_by_its_own_method(tmp_path):
    hasher = ITQ(12, random_state=0).fit(X[TRAIN])
    assert gphash.save(hasher, tmp_path / "one.gph", {"of": "digits"}) == hasher.save(tmp_path / "other.gph")
    assert container.read(tmp_path / "one.gph", models.KIND).remarks["origin"] == {"of": "digits"}
    alone = make_pipeline("passthrough", hasher)
    assert pipelines.folded(alone) is hasher


def test_collections_take_pipelines(tmp_path):
    fitted = make_pipeline(StandardScaler(), PCA(20), quick()).fit(X[TRAIN], y[TRAIN])
    with Collection.create(tmp_path / "own", fitted, X[TEST], {"label": y[TEST].astype(str)}) as made:
        ours, theirs = packing.unpack(made.model.encode(X[:5]), 12), fitted.transform(X[:5])
        np.testing.assert_array_equal(ours, theirs)
        (hits,) = made.search(X[1000:1001], k=3)
        assert hits[0].probability > 0.5
        assert made.model.n_features == 64
    with pytest.raises(ValueError, match="model is a pipeline that ends in LogisticRegression"):
        Collection.create(tmp_path / "no", make_pipeline(MinMaxScaler(), LogisticRegression()).fit(X[:99], y[:99]), X)
    assert not (tmp_path / "no").exists()


def test_an_export_begins_with_the_steps(pipeline, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="graphs are run by the extra 'onnx'")
    hasher = pipelines.folded(pipeline[0])
    told = hasher.to_onnx(tmp_path / "model.onnx")
    assert told.n_different <= told.n_doubtful
    rows = X[TEST].astype(np.float32)
    (codes,) = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(["codes"], {"rows": rows})
    differ = np.unpackbits(codes ^ hasher.encode(rows), axis=1).mean()
    assert differ < 1e-3


def test_names_of_features_are_those_of_the_first_step(tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[TRAIN], columns=[f"c{at}" for at in range(64)])
    gphash.save(make_pipeline(StandardScaler(), ITQ(8, random_state=0)).fit(frame), tmp_path / "model.gph")
    assert gphash.load(tmp_path / "model.gph").feature_names_in_[1] == "c1"


class Scaler(StandardScaler):
    """What it does nobody knows."""


WRONG = {
    "function": (
        FunctionTransformer(np.log1p),
        "step 'functiontransformer' of the pipeline is FunctionTransformer, which",
    ),
    "factors": (
        NMF(3, max_iter=1000),
        "is NMF, which no model file can hold; those that can be kept are StandardScaler",
    ),
    "derived": (Scaler(), "is Scaler, which no model file can hold"),
    "clipped": (
        MinMaxScaler(clip=True),
        "MinMaxScaler, which no model file can hold with clip=True. Apply it yourself",
    ),
    "logarithm": (TfidfTransformer(sublinear_tf=True), "with sublinear_tf=True"),
    "norm": (Normalizer("max"), "with norm='max'"),
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", WRONG)
def test_other_steps_are_refused(name, tmp_path):
    step, words = WRONG[name]
    rows = COUNTS if name == "logarithm" else X
    fitted = make_pipeline(clone(step), ITQ(3, random_state=0)).fit(rows[TRAIN])
    with pytest.raises(ValueError, match=words):
        gphash.save(fitted, tmp_path / "model.gph")
    assert not (tmp_path / "model.gph").exists()


def test_what_is_no_fitted_hasher_is_refused(tmp_path):
    with pytest.raises(NotFittedError):
        gphash.save(make_pipeline(StandardScaler(), ITQ(8)), tmp_path / "model.gph")
    for model, words in ((StandardScaler(), "model is StandardScaler"), (None, "model is NoneType")):
        with pytest.raises(ValueError, match=words):
            gphash.save(model, tmp_path / "model.gph")
    texts = make_pipeline(TfidfVectorizer(), ITQ(1, random_state=0)).fit(["a text", "another text"])
    with pytest.raises(ValueError, match="is TfidfVectorizer, which no model file can hold"):
        gphash.save(texts, tmp_path / "model.gph")


def test_rows_that_steps_make_too_large_are_refused():
    fitted = make_pipeline(StandardScaler(), ITQ(8, random_state=0)).fit(X[TRAIN] * 1e-12)
    with pytest.raises(ValueError, match="X holds values as large as"):
        pipelines.folded(fitted).encode(np.full((1, 64), 1e15))


def spoiled(change):
    fitted = make_pipeline(StandardScaler(), Normalizer(), PCA(20), ITQ(8, random_state=0)).fit(X[TRAIN])
    meta, arrays = models.content(pipelines.folded(fitted).hash_function_)
    meta, arrays = json.loads(json.dumps(meta)), dict(arrays)
    assert isinstance(models.restore(meta, arrays), PreparedFunction)
    change(meta, arrays)
    return meta, arrays


@pytest.mark.parametrize(
    "change",
    [
        lambda meta, arrays: meta.update(norms=["l2", "l3"]),
        lambda meta, arrays: meta.update(norms=[]),
        lambda meta, arrays: meta.update(norms=["l2"] * 200),
        lambda meta, arrays: meta.update(behind=3),
        lambda meta, arrays: meta["behind"].update(form="prepared"),
        lambda meta, arrays: arrays.pop("0.offset"),
        lambda meta, arrays: arrays.update({"1.weights": arrays["1.weights"][:, 1:].copy()}),
        lambda meta, arrays: arrays.update({"1.weights": arrays["1.weights"][1:].copy()}),
        lambda meta, arrays: arrays.update({"0.weights": np.full(64, np.nan)}),
        lambda meta, arrays: arrays.update({"0.weights": arrays["0.weights"].astype(np.float32)}),
        lambda meta, arrays: arrays.update({"2.weights": np.ones(3)}),
        lambda meta, arrays: arrays.update({"1.weights": np.ones((64, 3)), "1.offset": np.ones(3)}),
    ],
)
def test_files_that_make_no_sense_are_refused(change):
    with pytest.raises(schema.FaultError):
        models.restore(*spoiled(change))
