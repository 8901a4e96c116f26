"""An ONNX file gives the codes that the model gives, but for bits whose sign rounding decides."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gphash
from gphash import GPHasher
from gphash.data.descriptors import encoders
from gphash.data.downloads import DataMissingError
from gphash.data.known.data_sets import DATA_SETS
from gphash.functions import exporting, onnx_forms
from gphash.functions import model as models
from gphash.functions.onnx_encoders import EncoderGraph
from gphash.functions.projections import LinearFunction
from gphash.hashers import methods
from gphash.method import kernels, scaling
from gphash.method.hashing import HashFunction, Uncertainty
from gphash.method.kernels import Kernel, Matern32, SquaredExponential
from gphash.method.scaling import Scaling
from tests import digits
from tests import onnx_models as small

onnx = pytest.importorskip("onnx", reason="graphs need the extra 'onnx'")
onnxruntime = pytest.importorskip("onnxruntime", reason="graphs are run by the extra 'onnx'")

ROWS = digits.X[1200:].astype(np.float32)
TRAIN = slice(0, 400)
GIVEN = {
    "posterior": ("gph", {}, digits.y[TRAIN]),
    "centred": ("gph", {"scaling": "centre", "length_scale": 30.0}, digits.y[TRAIN]),
    "matern": ("gph", {"kernel": "matern-3/2"}, digits.y[TRAIN]),
    "exponential": ("gph", {"kernel": "exponential"}, digits.y[TRAIN]),
    "tags": ("gph", {}, digits.tags[TRAIN]),
    "sampled": ("gph", {"codes": "sampled", "max_sweeps": 4}, digits.y[TRAIN]),
    "joined": ("gph", {"n_free_bits": 5}, digits.y[TRAIN]),
    "joined tags": ("gph", {"n_free_bits": 5}, digits.tags[TRAIN]),
    "joined pairs": ("gph", {"n_free_bits": 5, "max_sweeps": 4}, digits.pairs(400, 4000)),
    "pairs": ("gph", {"max_sweeps": 4}, digits.pairs(400, 4000)),
    "sdh": ("sdh", {"n_inducing": 50}, digits.y[TRAIN]),
    "classifier": ("classifier-codes", {"n_inducing": 50}, digits.y[TRAIN]),
    "itq": ("itq", {}, None),
    "lsh": ("lsh", {}, None),
    "spectral": ("spectral", {}, None),
    "trees": ("fasthash", {"n_trees": 5, "depth": 3}, digits.y[TRAIN]),
}
PROBABLE = {"posterior", "centred", "matern", "exponential", "tags", "joined", "joined tags"}


@pytest.fixture(scope="module", params=GIVEN)
def fitted(request):
    name, parameters, y = GIVEN[request.param]
    own = {**digits.QUICK, **parameters} if name == "gph" else {"random_state": 0, **parameters}
    return request.param, methods.METHODS.find(name)(**{**own, "n_bits": 12}).fit(digits.X[TRAIN], y)


@pytest.fixture(scope="module")
def hasher():
    return GPHasher(**{**digits.QUICK, "n_bits": 12}).fit(digits.X[TRAIN], digits.y[TRAIN])


def run(path, **inputs):
    session = onnxruntime.InferenceSession(path)
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


def test_every_form_gives_the_same_codes(fitted, tmp_path):
    name, hasher = fitted
    told = hasher.to_onnx(tmp_path / "codes.onnx")
    assert told.n_rows == exporting.TRIED
    assert told.n_doubtful < 0.01 * told.n_rows * 12
    assert told.inputs == ["rows"]
    found = run(tmp_path / "codes.onnx", rows=ROWS)
    assert list(found) == told.outputs
    doubtful = exporting.form_of(hasher.hash_function_).doubtful(hasher.hash_function_, ROWS)
    bits = np.unpackbits(found["codes"], axis=1, count=12)
    np.testing.assert_array_equal(bits[~doubtful], hasher.transform(ROWS)[~doubtful])
    assert (found["codes"].dtype, found["codes"].shape) == (np.uint8, (len(ROWS), 2))
    assert not (found["codes"][:, 1] & 0b1111).any()
    has_bits, has_classes = name in PROBABLE | {"sampled", "pairs", "joined pairs"}, name in PROBABLE | {"sampled"}
    assert told.outputs == ["codes", *["bit_probabilities"] * has_bits, *["class_probabilities"] * has_classes]
    if has_bits:
        np.testing.assert_allclose(found["bit_probabilities"], hasher.bit_probabilities(ROWS), atol=1e-4)
    if has_classes:
        np.testing.assert_allclose(found["class_probabilities"], hasher.predict_proba(ROWS), atol=1e-4)
    assert all(one.dtype == np.float32 for key, one in found.items() if key != "codes")


def test_another_runtime_gives_them_as_well(fitted, tmp_path):
    name, hasher = fitted
    if name == "trees":
        pytest.skip("the reference evaluator of onnx walks trees in Python")
    from onnx.reference import ReferenceEvaluator

    hasher.to_onnx(tmp_path / "codes.onnx", codes_only=True)
    (codes,) = ReferenceEvaluator(str(tmp_path / "codes.onnx")).run(None, {"rows": ROWS})
    doubtful = exporting.form_of(hasher.hash_function_).doubtful(hasher.hash_function_, ROWS)
    bits = np.unpackbits(codes, axis=1, count=12)
    np.testing.assert_array_equal(bits[~doubtful], hasher.transform(ROWS)[~doubtful])


def test_any_number_of_rows(hasher, tmp_path):
    hasher.to_onnx(tmp_path / "codes.onnx")
    whole = run(tmp_path / "codes.onnx", rows=ROWS)["codes"]
    for n in (0, 1, 2, 33):
        np.testing.assert_array_equal(run(tmp_path / "codes.onnx", rows=ROWS[:n])["codes"], whole[:n])
    centre = hasher.hash_function_.scaling.mean.astype(np.float32)[None]  # a row of no length
    found = run(tmp_path / "codes.onnx", rows=centre)
    np.testing.assert_array_equal(found["codes"], hasher.encode(centre))
    assert np.isfinite(found["class_probabilities"]).all()


def test_the_default_is_what_any_runtime_has(hasher):
    model = exporting.draw(hasher.hash_function_, {})
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 17)]
    assert model.ir_version == 8
    doubles = onnx.TensorProto.DOUBLE
    assert all(one.data_type != doubles for one in model.graph.initializer)
    casts = [one.i for node in model.graph.node for one in node.attribute if node.op_type == "Cast"]
    assert doubles not in casts


def test_the_metadata_name_model_and_classes(tmp_path):
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "neun"])
    hasher = GPHasher(**digits.QUICK).fit(digits.X[TRAIN], names[digits.y[TRAIN]])
    hasher.to_onnx(tmp_path / "codes.onnx")
    told = onnxruntime.InferenceSession(tmp_path / "codes.onnx").get_modelmeta().custom_metadata_map
    assert told["gphash_fingerprint"] == hasher.fingerprint_
    assert told["gphash_bits"] == "8"
    assert json.loads(told["gphash_classes"]) == hasher.classes_.tolist()
    hasher.save(tmp_path / "model.gph")
    assert models.load(tmp_path / "model.gph").class_names == hasher.classes_.tolist()


def test_tags_are_named_by_their_columns(tmp_path):
    hasher = GPHasher(**digits.QUICK).fit(digits.X[TRAIN], digits.tags[TRAIN])
    hasher.save(tmp_path / "model.gph")
    assert models.load(tmp_path / "model.gph").class_names == ["0", "1", "2"]
    hasher.save(tmp_path / "model.gph", {"classes": ["even", "large", "round"]})
    assert models.load(tmp_path / "model.gph").class_names == ["even", "large", "round"]


def test_what_differs_is_not_written(hasher, tmp_path, monkeypatch):
    path = tmp_path / "codes.onnx"
    hasher.to_onnx(path)
    before = path.read_bytes()
    right = onnx_forms.PosteriorsGraph.outputs

    def wrong(self, function, rows, codes_only):
        found = right(self, function, rows, codes_only)
        return {**found, "margins": found["margins"] - 1e-2}

    def unsure(self, function, rows, codes_only):
        found = right(self, function, rows, codes_only)
        return {**found, "class_probabilities": found["class_probabilities"] * 0.9}

    for bad, message in ((wrong, "other ones than the model"), (unsure, "probabilities are up to 0.1 off")):
        monkeypatch.setattr(onnx_forms.PosteriorsGraph, "outputs", bad)
        for target in (path, tmp_path / "other.onnx"):
            with pytest.raises(ValueError, match=message):
                hasher.to_onnx(target)
    assert [one.name for one in tmp_path.iterdir()] == ["codes.onnx"]
    assert path.read_bytes() == before


def test_only_a_graph_of_ours_is_replaced(hasher, tmp_path):
    path = tmp_path / "codes.onnx"
    hasher.to_onnx(path)
    size = path.stat().st_size
    hasher.to_onnx(path, codes_only=True)
    assert path.stat().st_size < size
    other = onnx.load(path)
    other.producer_name = "somebody"
    onnx.save(other, path)
    with pytest.raises(FileExistsError, match="is no ONNX graph of gphash"):
        hasher.to_onnx(path)


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_package_is_named(hasher, tmp_path, monkeypatch, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'gphash\[onnx\]'"):
        hasher.to_onnx(tmp_path / "codes.onnx")
    assert not list(tmp_path.iterdir())


def machine(n_features, n_inducing, n_bits, kernel, unit_length, rank, seed):
    generator = np.random.default_rng(seed)
    metric = None if rank is None else generator.normal(size=(n_features, rank))
    scaled = Scaling(3 * generator.normal(size=n_features), unit_length, metric)
    Z = scaling.apply(scaled, scaled.mean + generator.normal(size=(n_inducing, n_features)))
    weights = generator.normal(size=(n_inducing, n_bits)).astype(np.float32)
    columns = (0.1 * generator.normal(size=(n_inducing, n_inducing))).astype(np.float32)
    uncertainty = Uncertainty(0.5, columns, n_inducing // 2)
    return HashFunction(scaled, kernel, Z, weights, generator.normal(size=n_bits), uncertainty)


@given(
    st.integers(1, 40),
    st.integers(1, 30),
    st.integers(1, 40),
    st.sampled_from([SquaredExponential(0.7, 2.0), SquaredExponential(0.05, 1.0), Matern32(1.0, 3.0)]),
    st.booleans(),
    st.none() | st.integers(1, 8),
    st.integers(0, 1000),
)
def test_any_kernel_machine(n_features, n_inducing, n_bits, kernel, unit_length, rank, seed):
    function = machine(n_features, n_inducing, n_bits, kernel, unit_length, rank, seed)
    session = exporting.session(exporting.draw(function, {}).SerializeToString())
    rows = np.random.default_rng(seed).normal(size=(50, n_features)).astype(np.float32) * 3
    told = exporting.compare(function, session, {"rows": rows})
    assert told.probability_error < 1e-3 + exporting.form_of(function).slack(function)


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 1000))
def test_any_hyperplanes_with_ties(n_features, n_bits, unit_length, seed):
    generator = np.random.default_rng(seed)
    weights = generator.integers(-2, 3, (n_features, n_bits)).astype(np.float64)
    function = LinearFunction(Scaling(np.zeros(n_features), unit_length), weights, np.zeros(n_bits))
    rows = generator.integers(-2, 3, (60, n_features)).astype(np.float32)
    session = exporting.session(exporting.draw(function, {}).SerializeToString())
    (codes,) = session.run(["codes"], {"rows": rows})
    np.testing.assert_array_equal(codes, np.packbits(function.margins(rows) >= 0, axis=1))


def test_a_kernel_of_ones_own_is_drawn_from_its_formula(hasher):
    @dataclasses.dataclass(frozen=True)
    class Cauchy(Kernel):
        def correlation(self, squared):
            return 1 / (1 + squared)

    function = machine(10, 20, 8, Cauchy(0.8, 1.0), True, None, 0)
    session = exporting.session(exporting.draw(function, {}).SerializeToString())
    rows = np.random.default_rng(0).normal(size=(500, 10)).astype(np.float32)
    assert exporting.compare(function, session, {"rows": rows}).n_doubtful < 40

    @dataclasses.dataclass(frozen=True)
    class Stepped(Kernel):
        def correlation(self, squared):
            return np.floor(squared)

    with pytest.raises(ValueError, match="numpy's floor has no operator"):
        exporting.draw(machine(10, 20, 8, Stepped(0.8, 1.0), True, None, 0), {})

    @dataclasses.dataclass(frozen=True)
    class Linear(Kernel):
        def evaluate(self, landmarks, A):
            return A @ kernels.squared_norms(landmarks)

    with pytest.raises(ValueError, match="evaluates itself"):
        exporting.draw(machine(10, 20, 8, Linear(0.8, 1.0), True, None, 0), {})


def pixels(path, opset=17):
    """Pictures [n, 1, 8, 8] to rows: an encoder whose answer everybody knows."""
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    nodes = [node("Flatten", ["pixels"], ["flat"], axis=1), node("Mul", ["flat", "two"], ["embedding"])]
    graph = onnx.helper.make_graph(
        nodes,
        "encoder",
        [info("pixels", 1, ["batch", 1, 8, 8])],
        [info("embedding", 1, ["batch", 64])],
        [onnx.numpy_helper.from_array(np.float32(2), "two")],
    )
    return write(path, graph, opset)


def tokens(path, opset=17, masked=True):
    """Words to vectors, [n, t, 64], as an encoder of texts has them, with another output before."""
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    table = np.random.default_rng(0).normal(size=(200, 64)).astype(np.float32)
    nodes = [node("Gather", ["table", "input_ids"], ["last_hidden_state"]), node("Identity", ["input_ids"], ["echo"])]
    inputs = [info("input_ids", 7, ["batch", "sequence"])]
    if masked:
        inputs.append(info("attention_mask", 7, ["batch", "sequence"]))
    outputs = [info("echo", 7, ["batch", "sequence"]), info("last_hidden_state", 1, ["batch", "sequence", 64])]
    constants = [onnx.numpy_helper.from_array(table, "table")]
    return write(path, onnx.helper.make_graph(nodes, "encoder", inputs, outputs, constants), opset), table


def write(path, graph, opset):
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_behind_an_encoder_of_pictures(hasher, tmp_path, opset):
    encoder = pixels(tmp_path / "encoder.onnx", opset)
    told = hasher.to_onnx(tmp_path / "codes.onnx", behind=EncoderGraph(encoder))
    assert told.inputs == ["pixels"]
    assert told.outputs == ["codes", "bit_probabilities", "class_probabilities", "rows"]
    assert told.n_rows > exporting.TRIED
    found = run(tmp_path / "codes.onnx", pixels=ROWS.reshape(-1, 1, 8, 8) / 2)
    np.testing.assert_array_equal(found["rows"], ROWS)
    np.testing.assert_array_equal(found["codes"], hasher.encode(ROWS))


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_behind_an_encoder_of_texts(hasher, tmp_path, pooling, masked, normalize):
    encoder, table = tokens(tmp_path / "encoder.onnx", masked=masked)
    how = EncoderGraph(encoder, "last_hidden_state", pooling, normalize)
    hasher.to_onnx(tmp_path / "codes.onnx", behind=how)
    generator = np.random.default_rng(1)
    ids = generator.integers(200, size=(30, 9))
    mask = (np.arange(9) < generator.integers(1, 10, (30, 1))).astype(np.int64)
    given = {"input_ids": ids, "attention_mask": mask} if masked else {"input_ids": ids}
    weights = (mask if masked else np.ones_like(mask))[:, :, None]
    rows = table[ids[:, 0]] if pooling == "cls" else (table[ids] * weights).sum(axis=1) / weights.sum(axis=1)
    if normalize:
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    found = run(tmp_path / "codes.onnx", **given)
    np.testing.assert_allclose(found["rows"], rows, atol=1e-5)
    doubtful = exporting.form_of(hasher.hash_function_).doubtful(hasher.hash_function_, found["rows"])
    bits = np.unpackbits(found["codes"], axis=1, count=12)
    np.testing.assert_array_equal(bits[~doubtful], hasher.transform(found["rows"])[~doubtful])


def test_an_encoder_that_is_no_use(hasher, tmp_path):
    path, encoder = tmp_path / "codes.onnx", tmp_path / "encoder.onnx"
    pixels(encoder, opset=12)
    with pytest.raises(ValueError, match=r"has opset 12; give an encoder of opset 13 or newer"):
        hasher.to_onnx(path, behind=EncoderGraph(encoder))
    tokens(encoder)
    with pytest.raises(ValueError, match=r"no output 'echo' of the model's 64 features.* it has 'echo'"):
        hasher.to_onnx(path, behind=EncoderGraph(encoder, "echo"))
    with pytest.raises(ValueError, match="pooling='max'; give one of mean, cls"):
        hasher.to_onnx(path, behind=EncoderGraph(encoder, pooling="max"))
    with pytest.raises(ValueError, match=r"the graph does not run.*give a sample"):
        hasher.to_onnx(path, behind=EncoderGraph(encoder, "last_hidden_state", sample={"ids": [[1]]}))
    nothing = {"input_ids": np.zeros((0, 4), np.int64), "attention_mask": np.zeros((0, 4), np.int64)}
    with pytest.raises(ValueError, match="the encoder gives no rows"):
        hasher.to_onnx(path, behind=EncoderGraph(encoder, sample=nothing))
    info, node = onnx.helper.make_tensor_value_info, onnx.helper.make_node
    strange = onnx.helper.make_graph(
        [node("Strange", ["x"], ["y"], domain="mine")], "encoder", [info("x", 1, ["n", 64])], [info("y", 1, ["n", 64])]
    )
    imports = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("mine", 1)]
    onnx.save(onnx.helper.make_model(strange, opset_imports=imports, ir_version=8), encoder)
    with pytest.raises(ValueError, match="onnxruntime cannot load the graph"):
        hasher.to_onnx(path, behind=EncoderGraph(encoder))
    encoder.write_bytes(b"no graph at all")
    with pytest.raises(ValueError, match="is no ONNX graph that can be used"):
        hasher.to_onnx(path, behind=EncoderGraph(encoder))
    with pytest.raises(FileNotFoundError):
        hasher.to_onnx(path, behind=EncoderGraph(tmp_path / "none.onnx"))
    assert not path.exists()


@pytest.mark.parametrize(("pooling", "normalised"), [("mean", True), ("cls", False)])
def test_the_encoder_is_that_of_training(tmp_path, pooling, normalised):
    path, texts = (
        small.text_model(tmp_path / "a", n_words=100) / "onnx/model.onnx",
        [*small.WORDS[3:], "the cat", "a dog sees"],
    )
    encoder = encoders.open_encoder(tmp_path / "a", pooling=pooling, normalised=normalised)
    X = encoder.describe_all(texts) + np.linspace(0, 1, 12)[:, None].astype(np.float32)
    hasher = GPHasher(n_bits=8, n_inducing=12, n_starts=1, length_scale=1.0, random_state=0).fit(X, np.arange(12) % 2)
    hasher.save(tmp_path / "m.gph", descriptor=encoder)
    learned = gphash.load(tmp_path / "m.gph")
    learned.to_onnx(tmp_path / "codes.onnx", behind=EncoderGraph(path))
    ids = np.array([[1, 9, 3, 2]])
    rows = run(tmp_path / "codes.onnx", input_ids=ids, attention_mask=np.ones_like(ids))["rows"]
    np.testing.assert_allclose(rows[0], encoder.describe("the cat"), atol=1e-5)
    (tmp_path / "codes.onnx").unlink()
    other = small.text_model(tmp_path / "b", seed=1, n_words=100) / "onnx/model.onnx"
    with pytest.raises(ValueError, match=r"behind=.*b/onnx/model\.onnx' has SHA-256 .*, and the model was trained on"):
        learned.to_onnx(tmp_path / "codes.onnx", behind=EncoderGraph(other))
    wrong = "cls" if pooling == "mean" else "mean"
    with pytest.raises(ValueError, match=f"pooling='{wrong}', and the model was trained with '{pooling}'"):
        learned.to_onnx(tmp_path / "codes.onnx", behind=EncoderGraph(path, pooling=wrong))
    for unknown in ("max", "last"):
        learned.descriptor_ = dataclasses.replace(encoder, pooling=unknown)
        with pytest.raises(ValueError, match=f"pooling='{unknown}'; give one of mean, cls"):
            learned.to_onnx(tmp_path / "codes.onnx", behind=EncoderGraph(path))
    assert not (tmp_path / "codes.onnx").exists()


def test_a_form_without_a_graph_is_named(monkeypatch):
    monkeypatch.delitem(onnx_forms.GRAPHS._things, "linear")
    function = LinearFunction(Scaling(np.zeros(3), True), np.ones((3, 2)), np.zeros(2))
    with pytest.raises(ValueError, match=r"of the form 'linear' have no ONNX graph; those of kernel"):
        exporting.draw(function, {})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jeopardy", "cifar10_resnet50"])
def test_embeddings_of_others(name, tmp_path):
    try:
        data = DATA_SETS[name].load(download=False)
    except DataMissingError as error:
        pytest.skip(f"{name} is not there: {', '.join(error.files)}")
    hasher = GPHasher(**{**digits.QUICK, "n_bits": 32, "n_inducing": 300}).fit(data.train.X[:2000], data.train.y[:2000])
    hasher.to_onnx(tmp_path / "codes.onnx")
    X = data.test.X.astype(np.float32)
    told = exporting.compare(hasher.hash_function_, exporting.session(str(tmp_path / "codes.onnx")), {"rows": X})
    assert told.n_doubtful < 0.01 * len(X) * 32
