"""Collections of texts: made with an encoder, searched by text, added to, and refused another encoder."""

import shutil

import numpy as np
import pytest

from gphash import GPHasher
from gphash.collection.collection import Collection
from gphash.data import sources
from gphash.data.descriptors import encoders, networks
from gphash.data.descriptors.encoders import MissingEncoderError
from tests import onnx_models as small

ANIMALS, MONEY = ("cat", "dog", "bird"), ("bank", "loan", "coin")
TEXTS = [f"the {one} sees a {other}" for words in (ANIMALS, MONEY) for one in words for other in words]
LABELS = ["animals"] * 9 + ["money"] * 9


@pytest.fixture(autouse=True)
def cache_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for known in ("_loaded", "_places"):
        monkeypatch.setattr(networks, known, {})


@pytest.fixture
def encoder(tmp_path):
    return small.text_model(tmp_path / "encoder")


def fitted(X):
    return GPHasher(n_bits=8, n_inducing=18, n_starts=1, length_scale=1.0, random_state=0).fit(X, np.repeat([0, 1], 9))


@pytest.fixture
def made(tmp_path, encoder):
    """A collection of the texts, by the path of the encoder."""
    X = encoders.open_encoder(encoder).describe_all(TEXTS)
    items = [{"label": label} for label in LABELS]
    with Collection.create(tmp_path / "t.gphash", fitted(X), TEXTS, items, encoder=encoder, writable=True) as found:
        yield found


def test_search_by_text(made):
    assert made.descriptor.takes == "texts"
    assert made.item(3).values["text"] == TEXTS[3]
    for text, label in (("a dog sees the dog", "animals"), ("a coin is the loan", "money")):
        query = made.query(text=text)
        row = small.text_row(text).astype(np.float32)
        np.testing.assert_array_equal(query.code, made.encode(row[None])[0][0])
        assert {hit.labels for hit in made.search(query, 1)} == {(label,)}
        assert query.probabilities is not None


def test_an_item_is_described_by_its_text(made):
    query = made.query(key=4)
    expected = made.query(text=TEXTS[4])
    np.testing.assert_allclose(query.probabilities, expected.probabilities)
    np.testing.assert_array_equal(query.code, expected.code)
    assert made.query(key=4, certainty=False).probabilities is None


def test_add_by_text(made):
    (key,) = made.add(items=[{"text": "a bird is a bird", "label": "animals"}])
    np.testing.assert_array_equal(made.query(key=key).code, made.query(text="a bird is a bird").code)
    for items in ([{"label": "animals"}], [{"text": " "}], None):
        with pytest.raises(ValueError, match="not every item has a text"):
            made.add(items=items)
    (other,) = made.add(small.text_row("a cat")[None], [{"text": "another thing"}])
    assert made.query(key=other).probabilities is None  # nobody says that the row was made of the text


@pytest.mark.parametrize("kind", ["numpy", "objects", "pandas", "polars", "arrow"])
def test_texts_of_any_kind_of_column(encoder, tmp_path, kind):
    if kind in ("numpy", "objects"):
        given = np.array(TEXTS, None if kind == "numpy" else object)
    elif kind == "pandas":
        given = pytest.importorskip("pandas").Series(TEXTS, index=np.arange(18) + 0.5)
    else:
        given = {"polars": "polars", "arrow": "pyarrow"}[kind]
        library = pytest.importorskip(given)
        given = library.Series(TEXTS) if kind == "polars" else library.chunked_array([TEXTS])
    X = encoders.open_encoder(encoder).describe_all(TEXTS)
    with Collection.create(tmp_path / "t.gphash", fitted(X), given, encoder=encoder) as found:
        assert [found.item(key).values["text"] for key in range(18)] == TEXTS
        np.testing.assert_array_equal(found.query(text=TEXTS[3]).code, found.encode(X[3:4])[0][0])


def test_columns_that_are_no_texts(encoder, tmp_path):
    model = fitted(encoders.open_encoder(encoder).describe_all(TEXTS))
    with pytest.raises(ValueError, match="X has None in row 1, and texts in others; give a text in each"):
        Collection.create(tmp_path / "t.gphash", model, ["a cat", None], encoder=encoder)
    with pytest.raises(ValueError, match=r"has rows of shape \(6,\), and the model takes \[n, 6\]"):
        Collection.create(tmp_path / "t.gphash", model, np.arange(6.0), encoder=encoder)


def test_add_by_a_frame_of_texts(made):
    pd = pytest.importorskip("pandas")
    (key, _) = made.add(items=pd.DataFrame({"text": ["a bird", "the loan"], "label": ["animals", "money"]}))
    np.testing.assert_array_equal(made.query(key=key).code, made.query(text="a bird").code)
    with pytest.raises(ValueError, match="not every item has a text"):
        made.add(items=pd.DataFrame({"label": ["animals"]}))


def test_what_is_asked_must_fit(made, tmp_path):
    with pytest.raises(ValueError, match="picture given, but the collection is one of texts"):
        made.query(picture=b"x")
    for text in ("", " \n"):
        with pytest.raises(ValueError, match="give a text that is not empty"):
            made.query(text=text)
    with pytest.raises(ValueError, match="give exactly one of features, picture, text, key and code"):
        made.query(text="a", key=1)
    rows = np.eye(6)[[0, 1] * 9].astype(float)
    with Collection.create(tmp_path / "plain.gphash", fitted(rows), rows) as plain:
        with pytest.raises(ValueError, match="text given, but the collection holds plain features"):
            plain.query(text="a cat")
        with pytest.raises(ValueError, match="holds plain features"):
            Collection.open(tmp_path / "plain.gphash", encoder=tmp_path)


def test_an_encoder_that_was_moved(made, encoder, tmp_path):
    made.close()
    shutil.move(encoder, tmp_path / "moved")
    networks._loaded.clear()
    networks._places.clear()
    with Collection.open(tmp_path / "t.gphash") as found:
        assert found.query(key=4).probabilities is None  # its code is known all the same
        assert len(found.search(found.query(key=4), 3)) == 3
        with pytest.raises(MissingEncoderError, match="SHA-256"):
            found.query(text="a cat")
    with Collection.open(tmp_path / "t.gphash", encoder=tmp_path / "moved") as found:
        assert found.search(found.query(text="a dog"), 1)[0].labels == ("animals",)
    other = small.text_model(tmp_path / "other", seed=1)
    with pytest.raises(MissingEncoderError, match="another one than"):
        Collection.open(tmp_path / "t.gphash", encoder=other)


class Sentences:
    def __init__(self, seed=0):
        self.seed = seed

    def encode(self, texts):
        return np.stack([small.text_row(text, self.seed) for text in texts])


def test_an_object(tmp_path, monkeypatch):
    from gphash.data.descriptors import given_encoder

    monkeypatch.setattr(given_encoder, "_handed_in", {})
    X = Sentences().encode(TEXTS)
    items = {"label": LABELS, "text": TEXTS}
    place = tmp_path / "t.gphash"
    with Collection.create(place, fitted(X), X, items, encoder=Sentences()) as made:
        assert made.search(made.query(text="a dog"), 1)[0].labels == ("animals",)
        code = made.query(text="a dog").code
    given_encoder._handed_in.clear()
    with Collection.open(place) as found, pytest.raises(MissingEncoderError, match="give encoder="):
        found.query(text="a dog")
    with pytest.raises(MissingEncoderError, match="needs the same"):
        Collection.open(place, encoder=Sentences(1))
    with Collection.open(place, encoder=Sentences().encode) as found:
        np.testing.assert_array_equal(found.query(text="a dog").code, code)
        assert found.query(key=2).probabilities is not None


def test_an_encoder_that_does_not_fit_the_model(tmp_path, encoder):
    rows = np.random.default_rng(0).normal(size=(18, 4))
    with pytest.raises(ValueError, match="gives 6 numbers, and the model takes 4"):
        Collection.create(tmp_path / "t.gphash", fitted(rows), rows, encoder=encoder)
    with pytest.raises(ValueError, match="give the path of an ONNX model"):
        Collection.create(tmp_path / "t.gphash", fitted(rows), rows, encoder="gist")
    assert not (tmp_path / "t.gphash").exists()


def test_a_source_of_texts(tmp_path, encoder):
    for label in ("animals", "money"):
        (tmp_path / "texts" / label).mkdir(parents=True)
    for place, (text, label) in enumerate(zip(TEXTS, LABELS, strict=True)):
        (tmp_path / "texts" / label / f"{place:02}.txt").write_text(text)
    source = sources.read(tmp_path / "texts", descriptor=str(encoder))
    with Collection.create(tmp_path / "t.gphash", fitted(source.X), source, writable=True) as made:
        assert made.name == "texts"
        assert made.item(0).values["title"] == "animals/00"
        assert made.search(made.query(text="a coin"), 1)[0].labels == ("money",)
        assert made.query(key=1).probabilities is not None
        made.add(sources.read(tmp_path / "texts" / "money", descriptor=made.descriptor))
        assert len(made) == 27


def test_rows_of_another_encoder_are_not_added(made, encoder, tmp_path):
    assert made.model.descriptor is None  # the collection alone knows the encoder
    (tmp_path / "more.txt").write_text("a cat\na dog\n")
    other = small.text_model(tmp_path / "other", seed=1)
    with pytest.raises(ValueError, match=r"more\.txt' has texts by the encoder .* was trained on texts by the encoder"):
        made.add(sources.read(tmp_path / "more.txt", descriptor=str(other)))
    assert len(made) == 18
    made.add(sources.read(tmp_path / "more.txt", descriptor=str(encoder)))
    assert len(made) == 20


def test_blocks_are_of_the_encoder_of_the_model(encoder, tmp_path):
    opened = encoders.open_encoder(encoder)
    X = opened.describe_all(TEXTS)
    fitted(X).save(tmp_path / "m.gph", descriptor=opened)
    (tmp_path / "blocks").mkdir()
    np.save(tmp_path / "blocks" / "0.npy", X)
    other = small.text_model(tmp_path / "other", seed=1)
    given = tmp_path / "t.gphash", tmp_path / "m.gph", str(tmp_path / "blocks")
    with pytest.raises(ValueError, match=r"blocks' has texts by the encoder .* was trained on texts by the encoder"):
        Collection.create(*given, encoder=other)
    with Collection.create(*given) as made:
        assert made.descriptor == opened
        np.testing.assert_array_equal(made.query(text=TEXTS[3]).code, made.query(features=X[3]).code)


def test_in_a_database(made, conninfo, tmp_path):
    pytest.importorskip("psycopg")
    from gphash.collection import copying

    made.close()
    host = conninfo.split()[0].removeprefix("host=")
    address = f"postgresql://gphash@/postgres?host={host}&collection=texts"
    copying.to_database(tmp_path / "t.gphash", address)
    with Collection.open(address, encoder=tmp_path / "encoder") as found:
        assert found.search(found.query(text="a dog"), 1)[0].labels == ("animals",)
        assert found.query(key=4).probabilities is not None
    copying.to_folder(address, tmp_path / "again.gphash")
    with Collection.open(tmp_path / "again.gphash") as found:
        assert found.descriptor.takes == "texts"
        assert found.query(key=4).probabilities is not None
