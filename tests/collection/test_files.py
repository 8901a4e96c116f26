"""Files of a collection belong together, or are refused; pictures never leave their folder."""

import io
import json
import os
import shutil
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gphash import HammingIndex, container
from gphash.collection import items, manifest
from gphash.collection.collection import Collection
from gphash.collection.records import NoPictureError, UnknownItemError
from gphash.container import FormatError
from gphash.data.descriptors.greys import Pixels
from gphash.functions.model import Model
from gphash.index.storage import LockedError
from gphash.server import answers
from gphash.server.settings import ServiceSettings
from tests.collection import sources
from tests.collection.test_changes import KilledError, folder_of, killed

SOURCE = sources.of_digits()


def items_of(path):
    return path.with_name(path.name + ".items")


def next_of(path):
    return path.with_name(path.name + ".items.next")


def backwards():
    """The same digits in another order, so that ids have other codes."""
    return sources.of_digits(X=SOURCE.X[::-1], y=SOURCE.y[::-1], images=SOURCE.images[::-1])


@pytest.fixture
def folder(model, tmp_path):
    """A collection of files, below the folder of the index."""
    shutil.copy(model, tmp_path / "model.gph")
    source = sources.folder_of_pictures(tmp_path / "bilder")
    Collection.build(tmp_path / "bilder.index", tmp_path / "model.gph", source).close()
    return tmp_path


def test_files_come_as_they_are_if_browsers_show_them(folder):
    source = sources.folder_of_pictures(folder / "bilder")
    collection = Collection.open(folder / "bilder.index")
    assert collection.name == "bilder"
    types = [collection.picture(number).media_type for number in range(7)]
    assert types == [f"image/{kind}" for kind in ("png", "png", "jpeg", "gif", "webp", "png", "png")]
    for number, path in enumerate(source.images):
        content = collection.picture(number).content
        if path.suffix in (".bmp", ".tif"):
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(content)))[..., 0], SOURCE.images[number])
        else:
            assert content == path.read_bytes()
    assert collection.query(id=7).probabilities is not None


def test_a_large_picture_is_shown_small_and_made_once(folder, monkeypatch):
    path = sources.folder_of_pictures(folder / "bilder").images[5]
    large = np.random.default_rng(0).integers(0, 256, (1500, 2500, 3), dtype=np.uint8)
    Image.fromarray(large).save(path)
    collection = Collection.open(folder / "bilder.index")
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
    (tmp_path / "indexes").mkdir()
    path = tmp_path / "indexes" / "bilder.index"
    source = sources.folder_of_pictures(tmp_path / "bilder")
    with Collection.build(path, model, source) as collection:  # the source has named them
        assert collection.picture(6).content == source.images[6].read_bytes()
    assert items.read(items_of(path)).folder == "../bilder"
    with Collection.open(path) as collection:
        assert collection.hidden_folder == tmp_path / "bilder"
        assert not collection.has_pictures
        assert not collection.item(6).has_picture
        with pytest.raises(NoPictureError, match="pictures="):
            collection.picture(6)
        assert collection.query(id=6).probabilities is None
        with pytest.raises(ValueError, match="pictures="):
            collection.search(collection.query(id=6), ranking="expected")
    with Collection.open(path, pictures=tmp_path / "bilder") as collection:
        assert collection.hidden_folder is None
        assert collection.picture(6).content == source.images[6].read_bytes()
        assert collection.query(id=6).probabilities is not None
    (tmp_path / "bilder").rename(tmp_path / "moved")
    assert Collection.open(path, pictures=tmp_path / "moved").picture(6).content.startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"pictures=.*no folder"):
        Collection.open(path, pictures=tmp_path / "bilder")


def test_an_index_from_anywhere_shows_nothing_but_what_came_with_it(folder, tmp_path_factory):
    private = tmp_path_factory.mktemp("private")
    shutil.move(folder / "bilder", private / "bilder")
    target = private / "bilder"
    stored = container.read(items_of(folder / "bilder.index"))
    meta = stored.meta | {"folder": os.path.relpath(target, folder)}
    container.write(items_of(folder / "bilder.index"), items.KIND, meta, stored.arrays)
    collection = Collection.open(folder / "bilder.index")
    assert collection.hidden_folder == target
    for number in range(30):
        with pytest.raises(NoPictureError):
            collection.picture(number)


def test_links_are_no_way_out(folder):
    moved = folder.with_name(folder.name + "-moved")
    (folder / "bilder").rename(moved)
    (folder / "bilder").symlink_to(moved)
    assert Collection.open(folder / "bilder.index").hidden_folder == moved
    (folder / "bilder").unlink()
    moved.rename(folder / "bilder")
    collection = Collection.open(folder / "bilder.index")
    assert collection.picture(6).content.startswith(b"\x89PNG")
    (folder / "bilder").rename(moved)  # once it is open
    (folder / "bilder").symlink_to(moved)
    with pytest.raises(NoPictureError, match="leads out"):
        collection.picture(6)


def test_pictures_described_in_another_way_are_refused(tmp_path):
    kinds = [Pixels((8, 8)), Pixels((4, 16))]
    sources.hasher().save(tmp_path / "model.gph", descriptor=kinds[0])
    Collection.build(tmp_path / "a.index", tmp_path / "model.gph", sources.of_digits(descriptor=kinds[0])).close()
    for known in (None, kinds[0]):
        Collection.build(tmp_path / "b.index", tmp_path / "model.gph", sources.of_digits(descriptor=known)).close()
    with pytest.raises(ValueError, match=r"digits.*4 × 16.*model\.gph.*8 × 8.*fit a model"):
        Collection.build(tmp_path / "c.index", tmp_path / "model.gph", sources.of_digits(descriptor=kinds[1]))
    assert not (tmp_path / "c.index").exists()
    stored = container.read(items_of(tmp_path / "a.index"))
    meta = stored.meta | {"descriptor": kinds[1].to_meta()}
    container.write(items_of(tmp_path / "a.index"), items.KIND, meta, stored.arrays)
    with pytest.raises(ValueError, match="4 × 16"):
        Collection.open(tmp_path / "a.index")


@pytest.mark.parametrize("threads", [1, 2])
def test_so_many_threads_encode(model, tmp_path, monkeypatch, threads):
    seen = set()
    encode = Model.encode
    monkeypatch.setattr(Model, "encode", lambda self, X: seen.add(self.n_jobs) or encode(self, X))
    Collection.build(tmp_path / "digits.index", model, SOURCE, n_jobs=threads).close()
    assert seen == {threads}


def test_an_absolute_folder_or_model_is_refused(folder):
    stored = container.read(items_of(folder / "bilder.index"))
    for change in ({"folder": str(folder / "bilder")}, {"model": str(folder / "model.gph")}):
        container.write(items_of(folder / "bilder.index"), items.KIND, stored.meta | change, stored.arrays)
        with pytest.raises(FormatError, match="must be relative to the index"):
            Collection.open(folder / "bilder.index")


def test_a_collection_may_be_moved_with_its_model_and_pictures(folder, tmp_path):
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for name in ("bilder", "bilder.index", "bilder.index.items", "model.gph"):
        shutil.move(folder / name, moved / name)
    collection = Collection.open(moved / "bilder.index")
    assert collection.picture(6).content.startswith(b"\x89PNG")
    shutil.rmtree(moved / "bilder")
    assert collection.query(id=6).probabilities is None
    with pytest.raises(NoPictureError, match="any more"):
        collection.picture(6)
    collection = Collection.open(moved / "bilder.index")
    assert not collection.item(6).has_picture
    assert not collection.has_pictures


def test_links_out_of_the_folder_are_refused(folder):
    collection = Collection.open(folder / "bilder.index")
    path = sources.folder_of_pictures(folder / "bilder").images[6]
    secret = folder / "secret.png"
    path.rename(secret)
    path.symlink_to(secret)
    with pytest.raises(NoPictureError, match="leads out"):
        collection.picture(6)
    path.unlink()
    path.mkdir()
    with pytest.raises(NoPictureError, match="no file"):
        collection.picture(6)
    path.rmdir()
    path.write_bytes(b"<script>alert(1)</script>")
    with pytest.raises(NoPictureError, match="cannot be read"):
        collection.picture(6)


@pytest.mark.parametrize("name", ["../model.gph", "/etc/passwd", "a/../../model.gph", "a\0b", "..", "."])
def test_names_never_lead_out_of_the_folder(folder, name):
    with pytest.raises(NoPictureError):
        items.file_of(folder / "bilder", name)


def test_a_source_of_files_outside_its_folder_is_refused(model, tmp_path):
    source = sources.folder_of_pictures(tmp_path / "bilder")
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match="not in the folder"):
        Collection.build(tmp_path / "x.index", model, source._replace(folder=tmp_path / "other"))
    assert not (tmp_path / "x.index").exists()
    collection = Collection.build(tmp_path / "x.index", model, source._replace(folder=None))
    assert collection.picture(6).content == source.images[6].read_bytes()


def test_the_model_may_be_elsewhere(copy, tmp_path):
    copy.with_name("model.gph").rename(tmp_path / "moved.gph")
    with pytest.raises(FileNotFoundError, match=r"model=.* is not there; give the file"):
        Collection.open(copy)
    assert len(Collection.open(copy, model=tmp_path / "moved.gph")) == 300


@pytest.mark.parametrize("n_bits", [8, 12])
def test_another_model_is_refused(copy, tmp_path, n_bits):
    sources.hasher(n_bits, seed=1).save(tmp_path / "other.gph")
    with pytest.raises(ValueError, match="build the index again"):
        Collection.open(copy, model=tmp_path / "other.gph", writable=True)
    Collection.open(copy, writable=True).close()  # the lock was given back
    packed = np.zeros((5, 1), np.uint8)
    HammingIndex.build(packed, n_bits=8).save(tmp_path / "plain.index")
    if n_bits != 8:
        with pytest.raises(ValueError, match="codes of 12 bits"):
            Collection.open(tmp_path / "plain.index", model=tmp_path / "other.gph")


def test_data_of_another_width_are_refused(model, tmp_path):
    source = sources.of_digits(X=SOURCE.X[:, :10])
    with pytest.raises(ValueError, match=r"has 10 features, and the model .* takes 64"):
        Collection.build(tmp_path / "x.index", model, source)
    with pytest.raises(ValueError, match="no rows"):
        Collection.build(tmp_path / "x.index", model, sources.of_digits(0))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.full(300, 10)}, "goes from 10 to 10"),
        ({"y": SOURCE.y[:10]}, "for 300 rows"),
        ({"y": np.zeros((300, 2), np.uint8)}, "2 tags and source.classes 10"),
        ({"images": SOURCE.images[:10]}, "10 pictures for 300 rows"),
        ({"ids": np.zeros(300, np.int64)}, "give every id once"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(model, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        Collection.build(tmp_path / "x.index", model, sources.of_digits(**changes))
    assert not (tmp_path / "x.index").exists()


def test_progress_is_told(model, tmp_path, monkeypatch):
    monkeypatch.setattr("gphash.collection.manifest.ROWS", 100)
    told = []
    Collection.build(tmp_path / "x.index", model, SOURCE, progress=lambda *numbers: told.append(numbers))
    assert told == [(100, 300), (200, 300), (300, 300)]


def test_a_collection_replaces_another(copy, model):
    with Collection.open(copy, writable=True) as collection:
        collection.add(features=SOURCE.X[0], label="extra")
    with pytest.raises(ValueError, match=r"1 item\(s\) that were added"):
        Collection.build(copy, model, backwards())
    assert Collection.open(copy).item(300).labels == ("extra",)
    with Collection.build(copy, model, backwards(), discard_added=True) as collection:
        assert len(collection) == 300
        assert collection.item(0).labels == (SOURCE.classes[SOURCE.y[299]],)
        assert "extra" not in collection.classes
    assert os.listdir(folder_of(copy)) == []
    assert not next_of(copy).exists()


def test_an_index_that_is_being_written_is_not_replaced(copy, model):
    with Collection.open(copy, writable=True) as collection:
        with pytest.raises(LockedError):
            Collection.build(copy, model, backwards())
        collection.add(features=SOURCE.X[0], label="extra")
    assert not next_of(copy).exists()
    assert Collection.open(copy).item(300).labels == ("extra",)


@pytest.mark.parametrize("name", ["model.gph", "digits.index.items", "foreign"])
def test_what_is_no_index_is_not_replaced(copy, name):
    path = copy.with_name(name)
    if name == "foreign":
        path.write_text("something of mine")
    before = path.read_bytes()
    with pytest.raises(FileExistsError, match="no index; give another name"):
        Collection.build(path, copy.with_name("model.gph"), SOURCE)
    assert path.read_bytes() == before


def test_killed_before_the_index_took_its_place(copy, model, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(HammingIndex, "save", killed)
        with pytest.raises(KilledError):
            Collection.build(copy, model, backwards())
    for writable in (False, True):
        with Collection.open(copy, writable=writable) as collection:
            assert collection.item(0).labels == (SOURCE.classes[SOURCE.y[0]],)
    Collection.build(copy, model, backwards()).close()
    assert not next_of(copy).exists()


def test_killed_after_the_index_took_its_place(copy, model, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("gphash.collection.manifest.settle", killed)
        with pytest.raises(KilledError):
            Collection.build(copy, model, backwards())
    for writable in (False, True, False):
        with Collection.open(copy, writable=writable) as collection:
            assert collection.item(0).labels == (SOURCE.classes[SOURCE.y[299]],)
    assert not next_of(copy).exists()


def test_a_build_that_fails_leaves_nothing_and_takes_nothing(copy, model, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("gphash.collection.manifest.settle", killed)
        with pytest.raises(KilledError):
            Collection.build(copy, model, backwards())
    assert next_of(copy).exists()
    # Those items still wait for their place; the next build must not take it from them.
    with monkeypatch.context() as patch:
        patch.setattr(HammingIndex, "save", killed)
        with pytest.raises(KilledError):
            Collection.build(copy, model, SOURCE)
    assert not next_of(copy).exists()
    assert Collection.open(copy).item(0).labels == (SOURCE.classes[SOURCE.y[299]],)


def test_killed_as_the_index_took_its_place(copy, model, monkeypatch):
    save = HammingIndex.save

    def save_and_die(index, path):
        save(index, path)
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(HammingIndex, "save", save_and_die)
        with pytest.raises(KilledError):
            Collection.build(copy, model, backwards())
    assert Collection.open(copy).item(0).labels == (SOURCE.classes[SOURCE.y[299]],)


def test_two_builds_do_not_meet(copy, model, monkeypatch):
    settle = manifest.settle

    def build_meanwhile(path):
        found = []
        other = threading.Thread(target=lambda: found.append(outcome(lambda: Collection.build(copy, model, SOURCE))))
        other.start()
        other.join()
        assert found == [LockedError]
        settle(path)

    def outcome(build):
        try:
            build().close()
        except LockedError as error:
            return type(error)

    monkeypatch.setattr(manifest, "settle", build_meanwhile)
    Collection.build(copy, model, backwards()).close()
    monkeypatch.undo()
    assert Collection.open(copy).item(0).labels == (SOURCE.classes[SOURCE.y[299]],)
    with Collection.open(copy, writable=True) as collection:  # the lock was given back
        assert len(collection) == 300


def test_a_first_index_never_appears_without_its_items(model, tmp_path, monkeypatch):
    path = tmp_path / "new.index"
    with monkeypatch.context() as patch:
        patch.setattr(HammingIndex, "save", killed)
        with pytest.raises(KilledError):
            Collection.build(path, model, SOURCE)
    with pytest.raises(FileNotFoundError):
        Collection.open(path)
    with monkeypatch.context() as patch:
        patch.setattr("gphash.collection.manifest.settle", killed)
        with pytest.raises(KilledError):
            Collection.build(path, model, SOURCE)
    assert Collection.open(path).item(0).labels == (SOURCE.classes[SOURCE.y[0]],)


def test_items_of_another_index_are_refused(copy, model, tmp_path):
    Collection.build(tmp_path / "other.index", model, backwards()).close()
    shutil.copy(items_of(tmp_path / "other.index"), items_of(copy))
    for writable in (False, True):
        with pytest.raises(FormatError, match=r"does not belong to the index .* other codes"):
            Collection.open(copy, writable=writable)


def test_items_of_other_ids_are_refused(copy, model, tmp_path):
    Collection.build(tmp_path / "other.index", model, sources.of_digits(ids=np.arange(300) + 1000)).close()
    shutil.copy(items_of(tmp_path / "other.index"), items_of(copy))
    with pytest.raises(FormatError, match="knows none of the items"):
        Collection.open(copy)


def test_items_of_another_model_are_refused(copy, tmp_path):
    sources.hasher(seed=1).save(tmp_path / "other.gph")
    Collection.build(tmp_path / "other.index", tmp_path / "other.gph", SOURCE).close()
    shutil.copy(items_of(tmp_path / "other.index"), items_of(copy))
    with pytest.raises(FormatError, match="made with the model"):
        Collection.open(copy)


@pytest.mark.parametrize("place", [10, 200, -50])
def test_damaged_items_are_refused(copy, place):
    path = items_of(copy)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"digits\.index\.items"):
        Collection.open(copy)


@pytest.mark.parametrize("content", [b"", b"foreign", b"\x89GPHASH\n"])
def test_foreign_items_are_refused(copy, content):
    items_of(copy).write_bytes(content)
    with pytest.raises(FormatError, match=r"digits\.index\.items"):
        Collection.open(copy)
    shutil.copy(copy, items_of(copy))
    with pytest.raises(FormatError, match="holds 'index'; it must hold 'items'"):
        Collection.open(copy)


@pytest.mark.parametrize(
    ("meta", "arrays"),
    [
        ({"classes": ["0"]}, {}),
        ({"classes": 3}, {}),
        ({"descriptor": {"name": "other"}}, {}),
        ({"folder": 3}, {}),
        ({}, {"labels": np.zeros(299, np.int32)}),
        ({}, {"labels": np.full(300, -2, np.int32)}),
        ({}, {"tags": np.zeros((300, 3), np.uint8)}),
        ({}, {"pixels": np.zeros((300, 8), np.uint8)}),
        ({}, {"names": np.zeros(5, np.uint8)}),
        ({"folder": "."}, {"names": np.zeros(5, np.uint8), "offsets": np.full(301, 9)}),
        ({}, {"ids": np.zeros(300)}),
    ],
)
def test_items_that_do_not_go_together_are_refused(copy, meta, arrays):
    stored = container.read(items_of(copy))
    container.write(items_of(copy), items.KIND, stored.meta | meta, stored.arrays | arrays)
    with pytest.raises(FormatError, match=r"digits\.index\.items"):
        Collection.open(copy)


def test_items_without_their_fields_are_refused(copy):
    container.write(items_of(copy), items.KIND, {}, {})
    with pytest.raises(FormatError, match=r"items' cannot be used: the field .* is missing"):
        Collection.open(copy)


def test_an_index_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError):
        Collection.open(tmp_path / "nothing.index")


def test_records_of_a_collection_that_was_replaced_are_strays(copy, model):
    with Collection.open(copy, writable=True) as collection:
        collection.add(features=SOURCE.X[0], label="extra")
    record = (folder_of(copy) / "300.item").read_bytes()
    more = sources.of_digits(400)
    Collection.build(copy, model, more, discard_added=True).close()
    (folder_of(copy) / "300.item").write_bytes(record)
    for writable in (False, True):
        with Collection.open(copy, writable=writable) as collection:
            assert collection.item(300).labels == (more.classes[more.y[300]],)
    assert os.listdir(folder_of(copy)) == ["300.item"]  # whoever builds an index does without, opening deletes nothing


def test_items_that_came_by_the_index_alone_are_unknown(copy):
    with HammingIndex.open(copy, writable=True) as index:
        index.add(index.items()[0][:1], [777])
    with Collection.open(copy) as collection:
        assert collection.item(777)[1:] == ((), collection.item(0).bits, False, None)
        with pytest.raises(NoPictureError):
            collection.picture(777)
        with pytest.raises(UnknownItemError):
            collection.item(778)


def test_a_link_to_an_index_finds_what_is_beside_it(copy, tmp_path):
    link = tmp_path / "link.index"
    link.symlink_to(copy)
    assert Collection.open(link).item(0).labels == (SOURCE.classes[SOURCE.y[0]],)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are texts elsewhere")
def test_names_that_are_no_utf8_are_shown_and_opened(model, tmp_path):
    place = tmp_path / os.fsdecode(b"ph\xff")
    source = sources.folder_of_pictures(place, 10)
    path = Path(os.fsdecode(bytes(place) + b"/caf\xe9.png"))
    source.images[6].rename(path)
    source.images[6] = path
    classes = (os.fsdecode(b"n\xfcll"), *source.classes[1:])
    Collection.build(tmp_path / "bilder.index", model, source._replace(classes=classes)).close()
    collection = Collection.open(tmp_path / "bilder.index")
    shown = [
        collection.name,
        *collection.classes,
        collection.item(6).name,
        *(one.name for one in found_by(collection, 6)),
    ]
    assert "".join(shown).isprintable()
    assert "caf" in collection.item(6).name
    assert json.loads(answers.item(collection, 6))["name"] == collection.item(6).name
    assert json.loads(answers.summary(collection, ServiceSettings()))["classes"][0] == collection.classes[0]
    assert collection.picture(6).content == path.read_bytes()


def found_by(collection, number):
    return collection.search(collection.query(id=number), 9)


@pytest.mark.parametrize("suffix", [".items", ".items.next"])
def test_a_foreign_file_beside_the_index_is_not_replaced(model, tmp_path, suffix):
    shutil.copy(model, tmp_path / "model.gph")
    (tmp_path / f"new.index{suffix}").write_text("precious")
    with pytest.raises(FileExistsError, match="new.index" + suffix.replace(".", r"\.")):
        Collection.build(tmp_path / "new.index", tmp_path / "model.gph", SOURCE)
    assert (tmp_path / f"new.index{suffix}").read_text() == "precious"
    assert not (tmp_path / "new.index").exists()
