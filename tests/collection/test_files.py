"""Files of a collection belong together, or are refused; pictures never leave their folder."""

import io
import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gphash.collection import building, manifest, showing
from gphash.collection.collection import Collection
from gphash.collection.items import Items
from gphash.collection.records import NoPictureError
from gphash.container import FormatError
from gphash.data.descriptors.greys import Pixels
from gphash.files import LockedError
from gphash.functions.model import Model
from tests.collection import sources
from tests.collection.test_changes import names_in

SOURCE = sources.of_digits()


class KilledError(BaseException):
    """Stands for the end of the process."""


def killed(*_, **__):
    raise KilledError


def backwards():
    """The same digits in another order, so that keys have other codes."""
    return sources.of_digits(X=SOURCE.X[::-1], y=SOURCE.y[::-1], images=SOURCE.images[::-1])


def rewrite(path, **changes):
    """Change the manifest, and seal it again."""
    told = json.loads((path / manifest.NAME).read_text())
    del told["checksum"]
    told |= changes
    (path / manifest.NAME).write_text(json.dumps(told | {"checksum": manifest._checksum(told)}))


@pytest.fixture
def folder(model, tmp_path):
    """A collection of files, beside their folder."""
    source = sources.folder_of_pictures(tmp_path / "bilder")
    Collection.create(tmp_path / "bilder.gphash", model, source).close()
    return tmp_path


def test_a_folder_has_these_files(copy):
    assert names_in(copy) == ["collection.json", "items.sqlite", "model.gph", "parts/0000.index"]
    told = manifest.read(copy)
    assert (told.name, told.n_bits, told.pictures, told.folded) == ("digits", 8, None, 0)
    assert told.descriptor == Pixels((8, 8)).to_meta()
    assert told.parts[0][2:] == (300, 0, 299, None, None)


def test_a_folder_may_be_copied_moved_and_linked_to(copy, tmp_path):
    with Collection.open(copy, writable=True) as collection:
        collection.add(SOURCE.X[:1], {"title": ["new"]})
    moved = shutil.move(copy, tmp_path / "moved")
    (tmp_path / "link").symlink_to(moved)
    archive = shutil.make_archive(str(tmp_path / "zipped"), "zip", moved)
    shutil.unpack_archive(archive, tmp_path / "unzipped")
    for place in ("moved", "link", "unzipped"):
        with Collection.open(tmp_path / place, writable=True) as collection:
            assert collection.item(300).values == {"title": "new"}
            assert len(collection.search(SOURCE.X[0], 1000)) == 301


def test_files_come_as_they_are_if_browsers_show_them(folder):
    source = sources.folder_of_pictures(folder / "bilder")
    collection = Collection.open(folder / "bilder.gphash")
    assert collection.name == "bilder"
    types = [collection.picture(number).media_type for number in range(7)]
    assert types == [f"image/{kind}" for kind in ("png", "png", "jpeg", "gif", "webp", "png", "png")]
    for number, path in enumerate(source.images):
        content = collection.picture(number).content
        if path.suffix in (".bmp", ".tif"):
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(content)))[..., 0], SOURCE.images[number])
        else:
            assert content == path.read_bytes()
    assert collection.query(key=7).probabilities is not None
    assert collection.item(7).values["name"] == os.path.relpath(source.images[7], folder / "bilder")


def test_a_large_picture_is_shown_small_and_made_once(folder, monkeypatch):
    path = sources.folder_of_pictures(folder / "bilder").images[5]
    large = np.random.default_rng(0).integers(0, 256, (1500, 2500, 3), dtype=np.uint8)
    Image.fromarray(large).save(path)
    collection = Collection.open(folder / "bilder.gphash")
    with pytest.raises(NoPictureError, match="allowed are at most 1000000"):
        collection.picture(5, max_pixels=1_000_000)
    content = collection.picture(5).content
    assert Image.open(io.BytesIO(content)).size == (834, 500)
    with monkeypatch.context() as patch:
        patch.setattr("gphash.data.pictures.open_picture", killed)
        assert collection.picture(5).content == content
    Image.fromarray(large[::-1]).save(path)
    assert collection.picture(5).content != content


def test_pictures_elsewhere_are_shown_to_whoever_names_them(model, tmp_path):
    (tmp_path / "collections").mkdir()
    path = tmp_path / "collections" / "bilder.gphash"
    source = sources.folder_of_pictures(tmp_path / "bilder")
    with Collection.create(path, model, source) as collection:  # the source has named them
        assert collection.picture(6).content == source.images[6].read_bytes()
    assert manifest.read(path).pictures == "../../bilder"
    with Collection.open(path) as collection:
        assert collection.hidden_folder == tmp_path / "bilder"
        assert not collection.has_pictures
        assert not collection.item(6).has_picture
        with pytest.raises(NoPictureError, match="pictures="):
            collection.picture(6)
        assert collection.query(key=6).probabilities is None
        with pytest.raises(ValueError, match="pictures="):
            collection.search(collection.query(key=6), ranking="expected")
    with Collection.open(path, pictures=tmp_path / "bilder") as collection:
        assert collection.hidden_folder is None
        assert collection.picture(6).content == source.images[6].read_bytes()
        assert collection.query(key=6).probabilities is not None
    (tmp_path / "bilder").rename(tmp_path / "moved")
    assert Collection.open(path, pictures=tmp_path / "moved").picture(6).content.startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"pictures=.*no folder"):
        Collection.open(path, pictures=tmp_path / "bilder")


def test_a_collection_from_anywhere_shows_nothing_but_what_came_with_it(folder, tmp_path_factory):
    private = tmp_path_factory.mktemp("private")
    shutil.move(folder / "bilder", private / "bilder")
    rewrite(folder / "bilder.gphash", pictures=os.path.relpath(private / "bilder", folder / "bilder.gphash"))
    collection = Collection.open(folder / "bilder.gphash")
    assert collection.hidden_folder == private / "bilder"
    for number in range(30):
        with pytest.raises(NoPictureError):
            collection.picture(number)


def test_links_are_no_way_out(folder):
    moved = folder.with_name(folder.name + "-moved")
    (folder / "bilder").rename(moved)
    (folder / "bilder").symlink_to(moved)
    assert Collection.open(folder / "bilder.gphash").hidden_folder == moved
    (folder / "bilder").unlink()
    moved.rename(folder / "bilder")
    collection = Collection.open(folder / "bilder.gphash")
    assert collection.picture(6).content.startswith(b"\x89PNG")
    (folder / "bilder").rename(moved)  # once it is open
    (folder / "bilder").symlink_to(moved)
    with pytest.raises(NoPictureError, match="leads out"):
        collection.picture(6)


def test_links_out_of_the_folder_are_refused(folder):
    collection = Collection.open(folder / "bilder.gphash")
    path = sources.folder_of_pictures(folder / "bilder").images[6]
    secret = folder / "secret.png"
    path.rename(secret)
    path.symlink_to(secret)
    with pytest.raises(NoPictureError, match="leads out"):
        collection.picture(6)
    path.unlink()
    with pytest.raises(NoPictureError, match="any more"):
        collection.picture(6)
    path.mkdir()
    with pytest.raises(NoPictureError, match="no file"):
        collection.picture(6)
    path.rmdir()
    path.write_bytes(b"<script>alert(1)</script>")
    with pytest.raises(NoPictureError, match="cannot be read"):
        collection.picture(6)
    assert collection.query(key=6).probabilities is None


@pytest.mark.parametrize("name", ["../model.gph", "/etc/passwd", "a/../../model.gph", "a\0b", "..", "."])
def test_names_never_lead_out_of_the_folder(folder, name):
    with pytest.raises(NoPictureError):
        showing._file_of(folder / "bilder", name)


def test_a_picture_that_leads_out_of_its_folder_is_not_shown(model, tmp_path):
    (tmp_path / "secret.png").write_bytes(sources.png_of(SOURCE.images[0]))
    (tmp_path / "bilder").mkdir()
    Collection.create(tmp_path / "a.gphash", model, SOURCE.X[:1], {"picture": ["../secret.png"]}).close()
    collection = Collection.open(tmp_path / "a.gphash", pictures=tmp_path / "bilder")
    with pytest.raises(NoPictureError, match="leads out"):
        collection.picture(0)


def test_a_source_of_files_outside_its_folder_is_refused(model, tmp_path):
    source = sources.folder_of_pictures(tmp_path / "bilder")
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="not in the folder"):
        Collection.create(tmp_path / "x.gphash", model, source._replace(folder=tmp_path / "other"))
    assert not (tmp_path / "x.gphash").exists()
    collection = Collection.create(tmp_path / "x.gphash", model, source._replace(folder=None))
    assert collection.picture(6).content == source.images[6].read_bytes()


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are texts elsewhere")
def test_names_that_are_no_utf8_are_shown_and_opened(model, tmp_path):
    place = tmp_path / os.fsdecode(b"ph\xff")
    source = sources.folder_of_pictures(place, 10)
    path = Path(os.fsdecode(bytes(place) + b"/caf\xe9.png"))
    source.images[6].rename(path)
    source.images[6] = path
    classes = (os.fsdecode(b"n\xfcll"), *source.classes[1:])
    Collection.create(tmp_path / "bilder.gphash", model, source._replace(classes=classes)).close()
    collection = Collection.open(tmp_path / "bilder.gphash")
    name = collection.item(6).values["name"]
    shown = [collection.name, *collection.classes, name]
    assert "".join(shown).isprintable()
    "".join(shown).encode()
    assert "caf" in name
    assert collection.picture(6).content == path.read_bytes()


def test_pictures_described_in_another_way_are_refused(tmp_path):
    kinds = [Pixels((8, 8)), Pixels((4, 16))]
    sources.hasher().save(tmp_path / "model.gph", descriptor=kinds[0])
    Collection.create(tmp_path / "a.gphash", tmp_path / "model.gph", sources.of_digits(descriptor=kinds[0])).close()
    with pytest.raises(ValueError, match=r"digits.*4 × 16.*model\.gph.*8 × 8.*fit a model"):
        Collection.create(tmp_path / "c.gphash", tmp_path / "model.gph", sources.of_digits(descriptor=kinds[1]))
    assert not (tmp_path / "c.gphash").exists()
    collection = Collection.open(tmp_path / "a.gphash", writable=True)
    with pytest.raises(ValueError, match="4 × 16"):
        collection.add(sources.of_digits(descriptor=kinds[1]))


@pytest.mark.parametrize("threads", [1, 2])
def test_so_many_threads_encode(model, tmp_path, monkeypatch, threads):
    seen = set()
    encode = Model.encode
    monkeypatch.setattr(Model, "encode", lambda self, X: seen.add(self.n_jobs) or encode(self, X))
    Collection.create(tmp_path / "digits.gphash", model, SOURCE, n_jobs=threads).close()
    assert seen == {threads}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pictures": "/etc"}, "must be relative"),
        ({"model": "/etc/passwd"}, "leads out of the folder"),
        ({"model": "../model.gph"}, "leads out of the folder"),
        ({"items": "../digits.gphash/items.sqlite"}, "leads out of the folder"),
        ({"items": "parts/../../items.sqlite"}, "leads out of the folder"),
        ({"model": "deep/in/model.gph"}, "leads out of the folder"),
        ({"model": "items.sqlite"}, "not a gphash file"),
        ({"items": "model.gph"}, "is damaged: file is not a database"),
        ({"items": "other.sqlite"}, r"other\.sqlite' is missing"),
        ({"model": "other.gph"}, r"other\.gph' is missing"),
        ({"parts": [{"file": "../0", "fingerprint": "0" * 64, "n_items": 1, "first": 0, "last": 0}]}, "leads out"),
        ({"parts": [{"file": "parts/0", "fingerprint": "0" * 64, "n_items": 1, "first": 0, "last": 0}]}, "is missing"),
        ({"parts": 3}, "the field 'parts' is 3"),
        ({"n_bits": 12}, "is not the model that made its codes"),
        ({"fingerprint": "0" * 64}, "is not the model that made its codes"),
        ({"id": "0" * 32}, r"items\.sqlite' belongs to another collection"),
        ({"format": 2}, "has format 2, newer than 1: use a newer gphash"),
        ({"format": 10**6, "new": 3}, "use a newer gphash"),
        ({"format": 0}, "the field 'format' is 0"),
        ({"folded": -1}, "the field 'folded' is -1"),
        ({"descriptor": {"name": "other"}}, r"collection\.json'"),
        ({"descriptor": Pixels((4, 4)).to_meta()}, "is not the model that made its codes"),
        ({"colour": "red"}, "the field 'colour' is unknown"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(copy, changes, message):
    rewrite(copy, **changes)
    before = names_in(copy)
    for writable in (False, True):
        with pytest.raises((FormatError, OSError, ValueError), match=message) as caught:
            Collection.open(copy, writable=writable)
        assert str(copy) in str(caught.value)
    assert names_in(copy) == before


def test_a_part_of_another_collection_is_refused(copy, model, tmp_path):
    Collection.create(tmp_path / "other.gphash", model, backwards()).close()
    shutil.copy(tmp_path / "other.gphash" / "parts" / "0000.index", copy / "parts" / "0000.index")
    with Collection.open(copy) as collection:
        for _ in range(2):
            with pytest.raises(FormatError, match=r"0000\.index' is not the file that collection\.json names"):
                collection.search(SOURCE.X[0])


def test_items_of_another_collection_are_refused(copy, model, tmp_path):
    Collection.create(tmp_path / "other.gphash", model, SOURCE).close()
    shutil.copy(tmp_path / "other.gphash" / "items.sqlite", copy / "items.sqlite")
    with pytest.raises(FormatError, match=r"items\.sqlite' belongs to another collection"):
        Collection.open(copy)


def test_another_model_is_refused(copy):
    sources.hasher(seed=1).save(copy / "model.gph")
    for writable in (False, True):
        with pytest.raises(FormatError, match=r"collection\.json' cannot be used: 'model\.gph' is not the model"):
            Collection.open(copy, writable=writable)


def test_items_of_a_newer_format_are_refused(copy):
    import sqlite3

    connection = sqlite3.connect(copy / "items.sqlite")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(FormatError, match=r"items\.sqlite' .* use a newer gphash"):
        Collection.open(copy)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER more AFTER INSERT ON items BEGIN DELETE FROM items; END",
        "CREATE VIEW more AS SELECT * FROM items",
        "CREATE TABLE more (a)",
        "DROP TABLE tags",
        "DROP INDEX items_label",
        "ALTER TABLE items ADD COLUMN more TEXT",
        "ALTER TABLE items RENAME COLUMN title TO other",
        "DELETE FROM state",
        "INSERT INTO state SELECT * FROM state",
        "UPDATE state SET layout = '[]'",
        "UPDATE state SET layout = 'no JSON'",
        """UPDATE state SET layout = '{"keys": "text", "columns": {}}'""",
        """UPDATE state SET layout = '{"keys": "integer", "columns": []}'""",
        """UPDATE state SET layout = '{"keys": "integer", "columns": {"a": "blob"}}'""",
        "UPDATE state SET folded = 17",
        "UPDATE state SET folded = 'x'",
    ],
)
def test_items_with_other_tables_are_refused(copy, statement):
    import sqlite3

    connection = sqlite3.connect(copy / "items.sqlite", isolation_level=None)
    connection.execute(statement)
    connection.close()
    for writable in (False, True):
        with pytest.raises(FormatError, match=r"items\.sqlite' "):
            Collection.open(copy, writable=writable)


def test_where_there_is_no_collection(tmp_path, model):
    with pytest.raises(FileNotFoundError, match=r"nothing' is not there; give the folder of a collection"):
        Collection.open(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match=r"has no collection\.json"):
        Collection.open(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"digits\.gph' is a file; give the folder"):
        Collection.open(model)


def test_data_that_do_not_fit_are_refused(model, tmp_path):
    for X in (SOURCE.X[:, :10], SOURCE.X[:0], SOURCE.X[0], np.full((2, 64), np.nan)):
        with pytest.raises(ValueError, match=r"\[n, 64\]|NaN"):
            Collection.create(tmp_path / "x.gphash", model, X)
    for changes, message in [
        ({"y": np.full(300, 10)}, "goes from 10 to 10"),
        ({"y": SOURCE.y[:10]}, "for 300 rows"),
        ({"ids": np.zeros(300, np.int64)}, "has 0 twice"),
        ({"classes": ("a",) * 10}, "a name twice"),
    ]:
        with pytest.raises(ValueError, match=message):
            Collection.create(tmp_path / "x.gphash", model, sources.of_digits(**changes))
    with pytest.raises(ValueError, match="executor is given"):
        Collection.create(tmp_path / "x.gphash", model, SOURCE, executor="tcp://127.0.0.1:1")
    with pytest.raises(FileNotFoundError, match=r"model=.*is not there"):
        Collection.create(tmp_path / "x.gphash", tmp_path / "no.gph", SOURCE)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Collection.create(tmp_path / "no" / "x.gphash", model, SOURCE)
    assert os.listdir(tmp_path) == []


def test_progress_is_told(model, tmp_path, monkeypatch):
    monkeypatch.setattr(building, "ROWS", 100)
    told = []
    Collection.create(tmp_path / "x.gphash", model, SOURCE, progress=lambda *numbers: told.append(numbers)).close()
    assert told == [(100, 300), (200, 300), (300, 300)]


def test_a_collection_replaces_another_only_if_that_is_said(copy, model):
    with pytest.raises(FileExistsError, match="replace=True"):
        Collection.create(copy, model, backwards())
    for source in (backwards(), SOURCE):
        with Collection.create(copy, copy / manifest.read(copy).model, source, replace=True) as collection:
            assert len(collection) == 300
            assert collection.item(0).labels == (source.classes[source.y[0]],)
        assert set(names_in(copy)) == manifest.read(copy).files


@pytest.mark.parametrize("name", ["model.gph", "items.txt", "notes.txt", "parts/mine.jpg", "collection"])
def test_a_folder_of_somebody_else_is_left_alone(model, tmp_path, name):
    path = tmp_path / "mine"
    (path / name).parent.mkdir(parents=True)
    shutil.copy(model, path / name)
    with pytest.raises(FileExistsError, match="has other files, such as"):
        Collection.create(path, path / name, SOURCE, replace=True)
    assert names_in(path) == [name]


def test_a_file_is_not_replaced(model, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(FileExistsError, match="is a file"):
        Collection.create(tmp_path / "file", model, SOURCE, replace=True)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("thing", "name"), [(Items, "create"), (Items, "finish"), (manifest, "write"), (manifest, "sweep")], ids=str
)
@pytest.mark.parametrize("there", [True, False])
def test_a_creation_that_fails_leaves_what_was_there(copy, model, tmp_path, monkeypatch, thing, name, there):
    path = copy if there else tmp_path / "new.gphash"
    before = names_in(copy)
    with monkeypatch.context() as patch:
        patch.setattr(thing, name, killed)
        with pytest.raises(KilledError):
            Collection.create(path, model, backwards(), replace=True)
    if name == "sweep":  # as if it was killed, before anything was begun
        assert names_in(copy) == before
    elif there:
        assert names_in(copy) == before
        assert Collection.open(copy).item(0).labels == (SOURCE.classes[SOURCE.y[0]],)
    else:
        assert not path.exists()
    Collection.create(path, model, backwards(), replace=True).close()
    assert set(names_in(path)) == manifest.read(path).files


def test_two_creations_do_not_meet(model, tmp_path):
    path = tmp_path / "new.gphash"

    def create(*_):
        with pytest.raises(LockedError):
            Collection.create(path, model, SOURCE)

    with Collection.create(path, model, backwards(), progress=create) as collection:
        assert collection.item(0).labels == (SOURCE.classes[SOURCE.y[299]],)


def test_remote_file_systems_are_not_written_to(copy, model, tmp_path, monkeypatch):
    monkeypatch.setattr(manifest, "file_system", lambda path: "nfs4")
    with Collection.create(tmp_path / "new.gphash", model, SOURCE) as made:  # as a cluster must
        assert len(made) == 300
    with pytest.raises(OSError, match=r"network file system \(nfs4\)"):
        Collection.create(copy, model, SOURCE, replace=True)
    with pytest.raises(OSError, match=r"network file system \(nfs4\)"):
        Collection.open(copy, writable=True)
    assert len(Collection.open(copy)) == 300
    monkeypatch.undo()
    assert manifest.file_system(Path("/proc")) == "proc"
