"""What must not happen to a collection, found by reading."""

import numpy as np
import pytest

from gphash.collection import folder, items, stores
from gphash.collection.collection import Collection
from gphash.container import FormatError
from tests.collection import sources

SOURCE = sources.of_digits(400)


def test_a_writer_removes_only_what_collections_make(copy):
    own = ["items-backup.sqlite", "model-v1.gph", "notes.txt", "parts/thesis.docx", "parts/.cache/x"]
    for name in own:
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("months of work")
    (copy / "parts" / "0099.index").write_text("left by a killed writer")
    Collection.open(copy, writable=True).close()
    assert [name for name in own if not (copy / name).exists()] == []
    assert not (copy / "parts" / "0099.index").exists()


def test_links_are_refused_and_what_they_lead_to_stays(copy, tmp_path):
    (copy / "parts").rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "0099.index").write_text("somebody's")
    (copy / "parts").symlink_to(tmp_path / "elsewhere")
    for writable in (False, True):
        with pytest.raises(FormatError, match="leads out of the folder"):
            Collection.open(copy, writable=writable)
    assert (tmp_path / "elsewhere" / "0099.index").exists()


def test_marks_are_the_same_in_every_python():
    assert items._mark((7, b"\x01\xff", 0, "hi \U0001fae8", None, 1e22, -3)) == 2402676183


@pytest.mark.parametrize("kind", ["add", "remove"])
def test_a_change_on_disk_that_was_not_applied_is_not_folded_away(copy, monkeypatch, kind):
    with Collection.open(copy, writable=True) as collection:
        with monkeypatch.context() as patched:

            def fail(*_):
                raise MemoryError

            patched.setattr(folder.FolderStore, "_apply", fail)
            with pytest.raises(MemoryError):
                collection.add(SOURCE.X[350:351]) if kind == "add" else collection.remove([5])
        n = 301 if kind == "add" else 299
        assert len(collection.search(SOURCE.X[350], 1000)) == n
        collection.compact()
        assert len(collection.search(SOURCE.X[350], 1000)) == n
    with Collection.open(copy) as collection:
        assert len(collection) == collection._store.items.count() == n


def test_parts_of_an_empty_collection_stay(copy, model):
    with Collection.open(copy, writable=True) as collection:
        collection.remove(collection._store.index.ids.tolist())
        collection.compact()
    with pytest.raises(ValueError, match="shape"):
        Collection.create(copy, model, SOURCE.X[:, :3], replace=True)
    (copy / "parts").rmdir() if (copy / "parts").exists() and not any((copy / "parts").iterdir()) else None
    with Collection.open(copy, writable=True) as collection:
        collection.add(SOURCE.X[:2])
        collection.compact()
        assert len(collection) == 2


def test_a_writer_does_not_wait_for_a_reader_that_looks_at_one_moment(copy):
    with (
        Collection.open(copy) as reader,
        reader._store.items.moment(),
        Collection.open(copy, writable=True) as writer,
    ):
        assert writer.add(SOURCE.X[:1]) == [300]


def test_a_query_of_another_model_is_refused(copy, tmp_path):
    with Collection.open(copy) as collection:
        query = collection.query(features=SOURCE.X[0])
        sources.hasher(seed=3).save(tmp_path / "other.gph")
        Collection.create(copy, tmp_path / "other.gph", SOURCE.X[:50], replace=True).close()
        assert len(collection) == 50
        with pytest.raises(ValueError, match="another model"):
            collection.search(query)
        assert collection.search(SOURCE.X[0], 1)[0].distance == 0
        assert len(collection.search((collection.query(key=1), collection.query(key=2)))) == 2


def test_a_slow_condition_ends(copy):
    slow = " + ".join(f"length(lower(label)) * {number}" for number in range(1, 60)) + " < 0"
    with Collection.open(copy, condition_seconds=0.0) as collection:
        with pytest.raises(ValueError, match=r"takes more than 0 s; give a simpler one"):
            collection.search(SOURCE.X[0], where=slow)
        assert len(collection.search(SOURCE.X[0])) == 10
    with Collection.open(copy) as collection:
        assert collection.search(SOURCE.X[0], where=slow) == []


def test_pictures_of_a_parent_are_not_shown(copy):
    with Collection.open(copy) as collection:
        for named, shown in (("..", False), ("../..", False), ("../beside", True), ("inside", True), ("../a/b", False)):
            collection._store.pictures = (str(copy), named)
            assert (collection._shown.folder is not None) is shown, named


def test_no_password_is_shown():
    secret = "postgresql://me:se@cret@host/shop?collection=a&password=secret"
    assert "cret" not in stores.hidden(secret)
    assert stores.hidden(secret).startswith("postgresql://me@host/shop?collection=a")
    for ask in (
        lambda: Collection.create(secret, "m.gph", np.zeros((2, 2))),
        lambda: folder.FolderStore.open(secret, False),
    ):
        with pytest.raises(ValueError, match="an address was given") as caught:
            ask()
        assert "cret" not in str(caught.value)
