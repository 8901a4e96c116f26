"""Encoders: rows of texts and pictures by ONNX models and by objects, how they are stored, and what is refused."""

import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gphash.data import sources
from gphash.data.descriptors import described, encoders, given_encoder, networks
from gphash.data.descriptors.descriptor import Descriptor, check_same
from gphash.data.descriptors.encoders import MissingEncoderError
from gphash.data.headers import Roles
from gphash.data.texts import read_lines
from gphash.files import DataError
from tests import onnx_models as small

TEXTS = ["the cat sees a dog", "a bird", "the bank is a loan", "coin coin unknown", "the " * 700]


@pytest.fixture(autouse=True)
def cache_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for known in ("_loaded", "_places"):
        monkeypatch.setattr(networks, known, {})


@pytest.fixture
def folder(tmp_path):
    return small.text_model(tmp_path / "encoder")


def reference(texts, **how):
    return np.stack([small.text_row(text, **how) for text in texts])


# ---- Texts


def test_rows_of_texts(folder):
    encoder = encoders.open_encoder(folder)
    assert (encoder.takes, encoder.n_features, encoder.tokens) == ("texts", small.WIDTH, 512)
    found = encoder.describe_all(TEXTS, n_jobs=2)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, reference(TEXTS), atol=1e-6)
    np.testing.assert_array_equal(encoder.describe(TEXTS[2]), found[2])
    # By its file, too.
    assert encoders.open_encoder(folder / "onnx" / "model.onnx") == encoder


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last"])
def test_settings_go_before_files(folder, pooling):
    small.write_json(folder / "tokenizer_config.json", {"model_max_length": 9})
    encoder = encoders.open_encoder(folder, pooling=pooling, normalised=False, tokens=5)
    expected = reference(TEXTS, pooling=pooling, normalised=False, tokens=5)
    np.testing.assert_allclose(encoder.describe_all(TEXTS), expected, atol=1e-6)


def test_files_beside_the_model(folder):
    small.write_json(
        folder / "1_Pooling" / "config.json", {"pooling_mode_cls_token": True, "word_embedding_dimension": 6}
    )
    small.write_json(folder / "modules.json", [{"type": "sentence_transformers.models.Transformer"}])
    small.write_json(folder / "tokenizer_config.json", {"model_max_length": 1e30})
    small.write_json(folder / "sentence_bert_config.json", {"max_seq_length": 7})
    encoder = encoders.open_encoder(folder)
    assert (encoder.pooling, encoder.normalised, encoder.tokens) == ("cls", False, 7)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("modules.json", [{"type": "sentence_transformers.models.Dense"}], "'Dense', which is not in the ONNX model"),
        ("1_Pooling/config.json", {"pooling_mode_weightedmean_tokens": True}, "pooling_mode_weightedmean_tokens"),
    ],
)
def test_files_that_ask_for_more(folder, file, content, words):
    small.write_json(folder / file, content)
    with pytest.raises(DataError, match=words):
        encoders.open_encoder(folder)


def test_an_output_of_whole_texts_and_a_fixed_length(tmp_path):
    helper = small.onnx.helper
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
        helper.make_node("ReduceMax", ["rows"], ["sentence_embedding"], axes=[1], keepdims=0),
        helper.make_node("Identity", ["rows"], ["last_hidden_state"]),
    ]
    inputs = [(name, small.INT64, [1, 8]) for name in ("input_ids", "attention_mask")]
    outputs = [("last_hidden_state", small.FLOAT, [1, 8, 6]), ("sentence_embedding", small.FLOAT, [1, 6])]
    small.save(tmp_path / "e" / "model.onnx", nodes, inputs, outputs, {"table": small.table()})
    small.tokenizer().save(str(tmp_path / "e" / "tokenizer.json"))
    encoder = encoders.open_encoder(tmp_path / "e", tokens=8)
    assert encoder.output == "sentence_embedding"
    by_token = encoders.open_encoder(tmp_path / "e", tokens=8, output="last_hidden_state")
    # What fills up a fixed length counts for nothing.
    np.testing.assert_allclose(by_token.describe("a cat"), small.text_row("a cat"), atol=1e-6)
    with pytest.raises(ValueError, match=r"output='logits'; .* has 'last_hidden_state', 'sentence_embedding'"):
        encoders.open_encoder(tmp_path / "e", output="logits")


def test_it_is_stored_by_its_checksums(folder, tmp_path):
    encoder = encoders.open_encoder(folder)
    again = Descriptor.from_meta(json.loads(json.dumps(encoder.to_meta())))
    assert again == encoder
    assert again.is_at_hand()
    moved = tmp_path / "moved"
    shutil.move(folder, moved)
    networks._loaded.clear()
    networks._places.clear()
    assert not again.is_at_hand()
    with pytest.raises(MissingEncoderError, match="SHA-256"):
        again.describe("a cat")
    encoders.hand_in(moved, again, "mine")
    np.testing.assert_allclose(again.describe("a cat"), small.text_row("a cat"), atol=1e-6)
    # Where it lies decides about nothing.
    assert encoders.open_encoder(moved) == again
    assert encoders.open_encoder(moved).identity() == again.identity()


def test_another_encoder_is_refused(folder, tmp_path):
    encoder = encoders.open_encoder(folder)
    other = small.text_model(tmp_path / "other", seed=1)
    with pytest.raises(MissingEncoderError, match="is another one than 'mine' was made with: its model has SHA-256"):
        encoders.hand_in(other, encoder, "mine")
    with pytest.raises(ValueError, match="was trained on texts by the encoder"):
        check_same(encoder, encoders.open_encoder(other), "model", "data")
    # Nor is a file that was replaced where it lies.
    networks._loaded.clear()
    shutil.copy(other / "onnx" / "model.onnx", folder / "onnx" / "model.onnx")
    with pytest.raises(MissingEncoderError, match="has"):
        encoder.describe("a cat")
    with pytest.raises(ValueError, match="holds plain features"):
        encoders.hand_in(folder, None, "mine")


# ---- Bad input


def test_what_is_no_model(tmp_path, folder):
    path = tmp_path / "none.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(DataError, match="is not an ONNX model that can be run"):
        encoders.open_encoder(path)
    path.write_bytes((folder / "onnx" / "model.onnx").read_bytes()[:200])
    with pytest.raises(DataError, match="is not an ONNX model that can be run"):
        encoders.open_encoder(path)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        encoders.open_encoder(tmp_path / "gone.onnx")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no model\.onnx or onnx/model\.onnx"):
        encoders.open_encoder(tmp_path / "empty")


def test_custom_operators(tmp_path):
    node = small.onnx.helper.make_node("Mine", ["pixel_values"], ["out"], domain="my.domain")
    small.save(
        tmp_path / "m.onnx",
        [node],
        [("pixel_values", small.FLOAT, [1, 3, 8, 8])],
        [("out", small.FLOAT, [1, 4])],
        {},
    )
    with pytest.raises(DataError, match=r"can be run: .*my\.domain"):
        encoders.open_encoder(tmp_path / "m.onnx", mean=(0, 0, 0), deviation=(1, 1, 1))


def test_weights_in_another_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = small.picture_model(tmp_path / "m.onnx", (1, 3, 8, 8))
    model = small.onnx.load(path)
    small.onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    with pytest.raises(DataError, match="is not an ONNX model that can be run"):
        encoders.open_encoder(path, mean=(0, 0, 0), deviation=(1, 1, 1))


def test_other_inputs(tmp_path):
    folder = small.text_model(tmp_path / "more", inputs=("input_ids", "attention_mask", "pixel_values"))
    with pytest.raises(DataError, match="has the inputs input_ids, attention_mask, pixel_values; an encoder of texts"):
        encoders.open_encoder(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="an encoder of pictures has one"):
        encoders.open_encoder(folder)


def test_a_tokenizer_that_does_not_fit(tmp_path, folder):
    few = small.text_model(tmp_path / "few", n_words=5)
    with pytest.raises(DataError, match="does the tokenizer belong to the model"):
        encoders.open_encoder(few)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(DataError, match="is not a tokenizer"):
        encoders.open_encoder(folder)


def test_larger_than_memory(folder, monkeypatch):
    monkeypatch.setattr(networks, "_memory", lambda: 100)
    with pytest.raises(DataError, match="100 bytes of memory are free; twice the file is needed"):
        encoders.open_encoder(folder)
    os.truncate(folder / "onnx" / "model.onnx", networks.MOST_BYTES + 1)  # takes no room on the disk
    with pytest.raises(DataError, match="there may be at most"):
        encoders.open_encoder(folder)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pooling": "sum"}, "pooling='sum'; give one of mean, cls, max, last"),
        ({"tokens": 0}, "tokens=0"),
        ({"tokens": 10**6}, "tokens=1000000"),
        ({"normalised": "no"}, "normalised='no'"),
        ({"size": 8}, "size=8; an encoder of texts has pooling, normalised, tokens, output"),
    ],
)
def test_settings_that_cannot_be(folder, settings, words):
    with pytest.raises(ValueError, match=words):
        encoders.open_encoder(folder, **settings)


@pytest.mark.parametrize("change", [{"model": "x"}, {"width": 0}, {"width": True}, {"tokens": 1 << 40}, {"pooling": 1}])
def test_a_file_that_was_altered(folder, change):
    with pytest.raises(ValueError, match="descriptor 'text-encoder'"):
        Descriptor.from_meta(encoders.open_encoder(folder).to_meta() | change)


@pytest.mark.parametrize("text", ["", "  \n", None, 7])
def test_no_text(folder, text):
    with pytest.raises(ValueError, match="give a text that is not empty"):
        encoders.open_encoder(folder).describe(text)


def test_a_text_without_tokens(folder):
    models = small.tokenizers.models
    small.tokenizers.Tokenizer(models.BPE({"c": 3, "d": 4}, [])).save(str(folder / "tokenizer.json"))
    encoder = encoders.open_encoder(folder)
    np.testing.assert_array_equal(encoder.describe("xyz"), np.zeros(small.WIDTH))
    np.testing.assert_allclose(encoder.describe("d"), small.table()[4] / np.linalg.norm(small.table()[4]), atol=1e-6)
    # Others have no word for it.
    small.tokenizers.Tokenizer(models.WordLevel({"cat": 3})).save(str(folder / "tokenizer.json"))
    with pytest.raises(DataError, match="cannot cut the text 'unknown' into tokens"):
        encoders.open_encoder(folder).describe("unknown")


def test_half_a_letter(folder):
    with pytest.raises(DataError, match="cannot cut the text"):
        encoders.open_encoder(folder).describe("a cat \ud800")


def test_a_text_of_a_megabyte(folder):
    text = "the cat " * 125_000
    row = encoders.open_encoder(folder).describe(text)
    np.testing.assert_allclose(row, small.text_row(text), atol=1e-6)


# ---- Pictures


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


MEAN, DEVIATION = (0.1, 0.2, 0.3), (0.5, 0.25, 2.0)


def mixed(pixels, seed=0):
    colours = pixels.reshape(-1, 3).mean(axis=0) / 255
    return ((colours - MEAN) / DEVIATION) @ small.picture_weights(seed)


@pytest.mark.parametrize("shape", [("n", 3, "h", "w"), (1, 3, 16, 12), ("n", "h", "w", 3), (1, 16, 12, 3)])
def test_rows_of_pictures(tmp_path, shape):
    path = small.picture_model(tmp_path / "net.onnx", shape)
    size = {} if 16 in shape else {"size": (16, 12)}
    encoder = encoders.open_encoder(path, mean=MEAN, deviation=DEVIATION, **size)
    assert (encoder.takes, encoder.n_features, encoder.shape) == ("pictures", small.WIDTH, (16, 12))
    image = picture(16, 12)
    np.testing.assert_allclose(encoder.describe(image), mixed(image), atol=1e-4)
    grey = encoder.describe(image[:, :, 0])
    np.testing.assert_allclose(grey, mixed(np.stack([image[:, :, 0]] * 3, axis=2)), atol=1e-4)
    assert Descriptor.from_meta(json.loads(json.dumps(encoder.to_meta()))) == encoder


def test_a_preprocessor(tmp_path):
    path = small.picture_model(tmp_path / "net.onnx")
    told = {"image_mean": MEAN, "image_std": DEVIATION, "size": {"shortest_edge": 20}, "crop_size": 16, "resample": 3}
    small.write_json(tmp_path / "preprocessor_config.json", told)
    encoder = encoders.open_encoder(path)
    assert (encoder.shape, encoder.shorter, encoder.resample) == ((16, 16), 20, 3)
    image = picture(20, 40)
    np.testing.assert_allclose(encoder.describe(image), mixed(image[2:18, 12:28]), atol=1e-4)
    small.write_json(tmp_path / "preprocessor_config.json", {"image_mean": "x"})
    with pytest.raises(DataError, match="is not what a preprocessor's file should be"):
        encoders.open_encoder(path)


def test_what_no_file_says_has_to_be_given(tmp_path):
    path = small.picture_model(tmp_path / "net.onnx")
    with pytest.raises(ValueError, match=r"has no preprocessor_config\.json beside it that says size and mean and"):
        encoders.open_encoder(path)
    fixed = small.picture_model(tmp_path / "fixed.onnx", (1, 3, 16, 12))
    with pytest.raises(ValueError, match=r"size=\(8, 8\); .* takes pictures of \(16, 12\)"):
        encoders.open_encoder(fixed, size=8, mean=MEAN, deviation=DEVIATION)
    with pytest.raises(ValueError, match=r"deviation=.*give three numbers"):
        encoders.open_encoder(fixed, mean=MEAN, deviation=(1, 0, 1))
    for odd in (0.5, "0.5", None, ["a", "b", "c"]):
        with pytest.raises(ValueError, match=r"mean=.*; give three numbers, for red, green and blue"):
            encoders.open_encoder(fixed, mean=odd, deviation=DEVIATION)


def test_known_pictures(tmp_path):
    path = small.picture_model(tmp_path / "net.onnx")
    small.write_json(tmp_path / "preprocessor_config.json", {"image_mean": MEAN, "image_std": DEVIATION, "size": 8})
    found = sources.read("digits:test", descriptor=str(path))
    assert found.X.shape[1] == small.WIDTH
    assert found.descriptor.takes == "pictures"
    expected = mixed(np.stack([found.images[3]] * 3, axis=2))
    np.testing.assert_allclose(found.X[3], expected, atol=1e-4)


# ---- Objects


class Sentences:
    """As sentence-transformers has it."""

    def __init__(self, seed=0):
        self.seed, self.calls = seed, []

    def encode(self, texts):
        self.calls.append(len(texts))
        return np.stack([small.text_row(text, self.seed) for text in texts])


def test_anything_with_encode(tmp_path):
    (tmp_path / "t.txt").write_text("\n".join(TEXTS))
    encoder = Sentences()
    found = sources.read(tmp_path / "t.txt", descriptor=encoder)
    np.testing.assert_allclose(found.X, reference(text.strip() for text in TEXTS), atol=1e-6)
    assert encoder.calls == [len(given_encoder.PROBE_TEXTS), len(TEXTS)]
    assert str(found.descriptor) == "texts by the encoder Sentences"
    # What a file keeps of it: what it makes of a sentence.
    again = Descriptor.from_meta(json.loads(json.dumps(found.descriptor.to_meta())))
    assert again == found.descriptor
    with pytest.raises(MissingEncoderError, match="was made of texts by the encoder Sentences"):
        encoders.hand_in(Sentences(1), again, "mine")
    encoders.hand_in(Sentences().encode, again, "mine")  # a function will do


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        (lambda texts: np.zeros(3), "give numbers"),
        (lambda texts: np.full((len(texts), 2), np.nan), "NaN"),
        (lambda texts: np.zeros((len(texts), 2)), "gave nothing but zeros for each of 6 texts"),
        (7, "give a path, a function, or something with a method encode"),
    ],
)
def test_objects_that_are_no_encoders(tmp_path, encoder, words):
    (tmp_path / "t.txt").write_text("a cat")
    with pytest.raises(ValueError, match=words):
        sources.read(tmp_path / "t.txt", descriptor=encoder)


def test_objects_that_are_alike_on_some_texts():
    def counting(*words):
        return lambda texts: np.array([[text.count(word) for word in words] for text in texts], float)

    first, second = (given_encoder.hand_in(counting(*words), "texts") for words in (("cat", "?"), ("fox", "?")))
    assert np.array_equal(first.probe[0], second.probe[0])
    assert first != second
    assert given_encoder.hand_in(counting("cat", "?"), "texts") == first


def test_rows_of_objects_are_not_served_to_others():
    def counting(word):
        return lambda texts: np.array([[1, text.count(word)] for text in texts], float)

    for word, expected in (("zebra", 2), ("gnu", 1)):  # nothing that is tried tells these apart
        made = given_encoder.hand_in(counting(word), "texts")
        assert described.rows(["zebra zebra gnu"], made).X.tolist() == [[1, expected]]


def test_a_function_of_pictures():
    found = sources.read("digits:test", descriptor=lambda images: np.stack([[one.mean(), one.max()] for one in images]))
    assert found.X.shape[1] == 2
    assert found.descriptor.takes == "pictures"


# ---- Texts as data


def test_an_encoder_of_long_texts_is_opened_quickly(folder, monkeypatch):
    seen, run = [], networks.Network.run
    monkeypatch.setattr(
        networks.Network,
        "run",
        lambda self, output, feed: seen.append(feed["input_ids"].shape) or run(self, output, feed),
    )
    encoder = encoders.open_encoder(folder, tokens=4096)
    assert encoder.tokens == 4096
    assert seen == [(1, 512)]
    encoder.describe("the " * 5000)
    assert seen[-1] == (1, 4096)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_only_line_ends_end_a_text(tmp_path, end):
    texts = ["a\u2028cat", "a\x0cdog", "a\x85bird", "a\x1ccoin", "a\u2029\x0b\x1d\x1eloan"]
    (tmp_path / "t.txt").write_bytes((end.join(texts) + end).encode())
    found = read_lines(tmp_path / "t.txt")
    assert found.columns["text"] == texts
    assert found.skipped == ()


def test_each_text_is_encoded_once(folder, monkeypatch):
    encoder = encoders.open_encoder(folder)
    seen = []
    kind, describe = type(encoder), type(encoder).describe
    monkeypatch.setattr(kind, "describe", lambda self, text: seen.append(text) or describe(self, text))
    told = []
    found = described.rows([*TEXTS, TEXTS[0]], encoder, 1, lambda *done: told.append(done))
    assert len(seen) == len(TEXTS)
    assert told[-1] == (6, 6)
    np.testing.assert_array_equal(found.X[0], found.X[-1])
    np.testing.assert_array_equal(described.rows(TEXTS, encoder).X, found.X[:-1])
    assert len(seen) == len(TEXTS)
    # Other settings make other rows.
    described.rows(TEXTS, encoders.open_encoder(folder, pooling="max"))
    assert len(seen) == 2 * len(TEXTS)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table(folder, tmp_path, kind):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"id": [4, 5, 6, 7], "body": ["a cat", None, "a dog", "the bank"], "price": [1.5, 2, 3, 4]})
    table["label"] = ["x", "x", "x", "y"]
    path = tmp_path / f"t.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    found = sources.read(path, descriptor=str(folder), roles=Roles(text="body"))
    np.testing.assert_allclose(found.X, reference(["a cat", "a dog", "the bank"]), atol=1e-6)
    assert found.columns == {"text": ["a cat", "a dog", "the bank"], "price": [1.5, 3, 4]}
    assert (found.ids.tolist(), found.y.tolist()) == ([4, 6, 7], [0, 0, 1])
    assert [one.reason for one in found.skipped] == ["1 row(s) without a text, the first of them row 1"]
    # Without texts, rows of a model's encoder may come as features; a path that is given must be of use.
    plain = tmp_path / f"plain.{kind}"
    rows = pd.DataFrame(reference(TEXTS), columns=[f"f{place}" for place in range(small.WIDTH)])
    rows.to_csv(plain, index=False) if kind == "csv" else rows.to_parquet(plain)
    assert sources.read(plain, descriptor=encoders.open_encoder(folder)).descriptor is None
    with pytest.raises(ValueError, match="has no texts to encode"):
        sources.read(plain, descriptor=str(folder))
    with pytest.raises(ValueError, match="no such column"):
        sources.read(path, descriptor=str(folder), roles=Roles(text="boddy"))


def test_a_list_of_numbers_beside_texts_is_left_out(folder, tmp_path):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    pd.DataFrame({"text": ["a cat"], "vector": [[1.0, 2.0]]}).to_parquet(tmp_path / "t.parquet")
    found = sources.read(tmp_path / "t.parquet", descriptor=str(folder))
    assert found.X.shape == (1, small.WIDTH)
    assert [one.reason for one in found.skipped] == ["column 'vector': rows are made of the texts"]


@pytest.mark.parametrize("letters", [200_000, 1_000_000, 5_000_000])
def test_long_texts_in_a_table(folder, tmp_path, letters):
    pytest.importorskip("pyarrow")
    long = "dog bird\n" * (letters // 9)
    (tmp_path / "t.csv").write_text(f'text,label,price\n"the cat",a,1\n"{long}",b,2\ncoin,b,\n')
    found = sources.read(tmp_path / "t.csv", descriptor=str(folder))
    assert found.columns["text"] == ["the cat", long, "coin"]
    assert found.columns["price"] == [1, 2, None]
    np.testing.assert_allclose(found.X, reference(found.columns["text"]), atol=1e-6)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_table_in_another_encoding(folder, tmp_path, encoding):
    pytest.importorskip("pyarrow")
    (tmp_path / "t.csv").write_bytes("text,label\nsch\u00f6n,a\n".encode(encoding))
    with pytest.raises(DataError, match="not readable as CSV: 'utf-8' codec"):
        sources.read(tmp_path / "t.csv", descriptor=str(folder))


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.floats(), max_size=4)
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_spoiled_files_are_refused_or_right(data):
    """Whatever a file says of an encoder, it is refused with a ValueError, or is a descriptor that can be kept."""
    encoder = data.draw(st.sampled_from([TEXT_META, PICTURE_META, GIVEN_META]))
    name = data.draw(st.sampled_from(sorted(encoder)))
    try:
        found = Descriptor.from_meta(encoder | {name: data.draw(JUNK)})
    except ValueError:
        return
    assert Descriptor.from_meta(json.loads(json.dumps(found.to_meta()))) == found
    assert not found.is_at_hand()


DIGEST = "0123456789abcdef" * 4
TEXT_META = {"name": "text-encoder", "model": DIGEST, "tokenizer": DIGEST, "output": "x", "pooling": "mean"}
TEXT_META |= {"normalised": True, "tokens": 8, "width": 6, "model_path": "gone", "tokenizer_path": "gone"}
PICTURE_META = {"name": "picture-encoder", "model": DIGEST, "shape": [8, 8], "resized": [], "shorter": 9, "unit": 255.0}
PICTURE_META |= {"mean": [0, 0, 0], "deviation": [1, 1, 1], "resample": 2, "output": "x", "pooling": "cls"}
PICTURE_META |= {"normalised": False, "width": 6, "model_path": "gone"}
GIVEN_META = {"name": "given-encoder", "subject": "texts", "called": "x"}
GIVEN_META |= {"probe": {"shape": [2], "float32": "AACAPwAAgD8="}}


def test_a_folder_of_texts(folder, tmp_path):
    home = tmp_path / "texts"
    for name, content in {
        "animals/1.txt": b"a cat",
        "animals/2.txt": "the dog".encode("utf-16"),
        "money/1.txt": b"\xef\xbb\xbfa bank",
        "money/latin.txt": "sch\u00f6n".encode("latin-1"),
        "money/blank.txt": b" \n",
        "money/binary.txt": b"a\0b",
        "money/readme.md": b"# no",
    }.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)
    found = sources.read(home, descriptor=str(folder))
    assert found.columns == {"text": ["a cat", "the dog", "a bank"], "title": ["animals/1", "animals/2", "money/1"]}
    np.testing.assert_allclose(found.X, reference(found.columns["text"]), atol=1e-6)
    assert (found.classes, found.y.tolist(), found.folder) == (("animals", "money"), [0, 0, 1], None)
    reasons = "; ".join(one.reason for one in found.skipped)
    for words in ("byte 3 is not UTF-8; save the file as UTF-8", "is blank", "zero bytes", "is not a file .txt"):
        assert words in reasons
    assert len(found.skipped) == 4


def test_lines(folder, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("a cat\n\n  the dog \n")
    found = sources.read(path, descriptor=str(folder))
    assert found.columns == {"text": ["a cat", "the dog"]}
    assert "1 row(s) without a text" in found.skipped[0].reason
    path.write_bytes("a cat\nsch\u00f6n\n".encode("latin-1"))
    with pytest.raises(DataError, match="line 2: byte 9 is not UTF-8"):
        sources.read(path, descriptor=str(folder))
    path.write_text("\n \n")
    with pytest.raises(DataError, match="has no text"):
        sources.read(path, descriptor=str(folder))
    with pytest.raises(ValueError, match="give an encoder of texts"):
        sources.read(path)
    with pytest.raises(ValueError, match="has no texts to describe"):
        sources.read("digits", descriptor=str(folder))
