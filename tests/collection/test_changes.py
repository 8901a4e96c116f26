"""What was added is there when `add` returns, and stays; what was removed is gone."""

import os
import threading

import numpy as np
import pytest

from gphash import files
from gphash.collection import changes
from gphash.collection.collection import Collection
from gphash.collection.records import KnownItemError, NoPictureError, UnknownItemError
from gphash.container import FormatError
from gphash.data.pictures import PictureError
from gphash.index.storage import LockedError
from tests.collection import sources

SOURCE = sources.of_digits(400)
PICTURE = sources.png_of(SOURCE.images[350])


class KilledError(BaseException):
    """Stands for the end of the process."""


def killed(*_, **__):
    raise KilledError


def folder_of(path):
    return path.with_name(path.name + ".added")


def test_an_added_picture_is_found_again(copy):
    with Collection.open(copy, writable=True) as collection:
        item = collection.add(picture=PICTURE, label="eight", id=None)
        assert (item.id, item.labels, item.has_picture) == (300, ("eight",), True)
        assert collection.classes[-1] == "eight"
        assert collection.item(300) == item
    with Collection.open(copy) as collection:
        assert collection.item(300) == item
        assert collection.classes[-1] == "eight"
        assert collection.picture(300).content == PICTURE
        query = collection.query(id=300)
        assert query.probabilities is not None
        (found,) = collection.search(query, allowed="eight")
        assert (found.id, found.distance, found.relevant) == (300, 0, True)
        assert len(collection) == 301


def test_a_reader_changes_nothing(collection):
    for change in (lambda: collection.add(features=SOURCE.X[350]), lambda: collection.remove(3)):
        with pytest.raises(ValueError, match="open it with writable=True"):
            change()


def test_ids_and_what_comes_with_them(copy):
    with Collection.open(copy, writable=True) as collection:
        assert collection.add(features=SOURCE.X[350], id=1000).id == 1000
        assert collection.add(features=SOURCE.X[350], tags=["a", "b", "a"]).labels == ("a", "b")
        assert collection.item(1001).labels == ("a", "b")
        assert collection.add(features=SOURCE.X[351], id=-5, label=" 3 ").labels == ("3",)
        for taken in (1000, 3, -5):
            with pytest.raises(KnownItemError, match=f"id={taken} is in the collection already"):
                collection.add(features=SOURCE.X[350], id=taken)
        found = collection.search(collection.query(id=3), 1000, allowed="3")
        wanted = [row for row in range(300) if SOURCE.y[row] == 3]
        assert sorted(neighbour.id for neighbour in found) == [-5, *wanted]
        # Features decide the code, even with a picture to look at.
        item = collection.add(features=SOURCE.X[360], picture=PICTURE)
        own = np.unpackbits(collection.model.encode(SOURCE.X[360:361]), count=collection.n_bits)
        assert item.bits == "".join(map(str, own))
        assert collection.query(id=item.id).probabilities is None
        with pytest.raises(NoPictureError):
            collection.picture(1000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "neither features nor picture"),
        ({"features": [1.0]}, "give one row of 64"),
        ({"features": SOURCE.X[0], "label": ""}, "label has ''"),
        ({"features": SOURCE.X[0], "label": "a\nb"}, "label has"),
        ({"features": SOURCE.X[0], "label": "a" * 257}, "1 to 256"),
        ({"features": SOURCE.X[0], "label": 3}, "label has 3"),
        ({"features": SOURCE.X[0], "tags": "abc"}, "give a list of names"),
        ({"features": SOURCE.X[0], "label": "a", "tags": ["b"]}, "label and tags given"),
        ({"features": SOURCE.X[0], "id": 2**63}, "64 bits"),
        ({"features": SOURCE.X[0], "id": "7"}, "id='7'"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(copy, given, message):
    with Collection.open(copy, writable=True) as collection:
        with pytest.raises(ValueError, match=message):
            collection.add(**given)
        assert len(collection) == 300
        assert not folder_of(copy).exists()


@pytest.mark.parametrize("features", [None, SOURCE.X[0]])
def test_what_is_no_picture_is_refused(copy, features):
    with Collection.open(copy, writable=True) as collection:
        with pytest.raises(PictureError):
            collection.add(picture=PICTURE[:100], features=features)
        assert len(collection) == 300


def test_the_largest_id_has_no_successor(copy):
    with Collection.open(copy, writable=True) as collection:
        collection.add(features=SOURCE.X[0], id=2**63 - 1)
        with pytest.raises(ValueError, match="give a free one"):
            collection.add(features=SOURCE.X[0])


def test_removed_items_are_gone(copy):
    with Collection.open(copy, writable=True) as collection:
        collection.add(picture=PICTURE, label="eight")
        for number in (3, 300):
            collection.remove(number)
            for ask in (collection.item, collection.picture, collection.remove):
                with pytest.raises(UnknownItemError):
                    ask(number)
        assert os.listdir(folder_of(copy)) == ["301.next"]
        assert collection.search(collection.query(features=SOURCE.X[0]), allowed="eight") == []
        with pytest.raises(UnknownItemError):
            collection.remove(2**70)
    with Collection.open(copy) as collection:
        assert len(collection) == 299


def test_an_id_that_is_used_again_is_another_item(copy):
    with Collection.open(copy, writable=True) as collection:
        before = collection.item(3)
        other = next(
            row
            for row in range(300, 400)
            if collection.encode(SOURCE.X[row : row + 1])[0] != collection.query(id=3).code
        )
        collection.remove(3)
        after = collection.add(picture=sources.png_of(SOURCE.images[other]), label="new", id=3)
        assert after.bits != before.bits
    with Collection.open(copy, writable=True) as collection:
        assert collection.item(3) == after
        assert 3 not in [n.id for n in collection.search(collection.query(id=3), 300, allowed=before.labels[0])]
        assert sum(sum(bucket.labels.values()) for bucket in collection.buckets(256)) == 300
        collection.remove(3)
    with Collection.open(copy) as collection, pytest.raises(UnknownItemError):
        collection.item(3)


def test_killed_between_picture_and_journal(copy, monkeypatch):
    collection = Collection.open(copy, writable=True)
    monkeypatch.setattr(collection.index, "add", killed)
    with pytest.raises(KilledError):
        collection.add(picture=PICTURE, label="eight")
    collection.index.close()
    assert os.listdir(folder_of(copy)) == ["300.item"]
    with Collection.open(copy) as reader:
        assert len(reader) == 300
        assert "eight" not in reader.classes
        with pytest.raises(UnknownItemError):
            reader.item(300)
        assert os.listdir(folder_of(copy)) == ["300.item"]
    with Collection.open(copy, writable=True) as collection:
        assert os.listdir(folder_of(copy)) == []
        assert collection.add(features=SOURCE.X[351], label="other").id == 300


def test_killed_between_journal_and_deletion(copy, monkeypatch):
    collection = Collection.open(copy, writable=True)
    collection.add(picture=PICTURE, label="eight")
    with monkeypatch.context() as patch:
        patch.setattr(changes, "delete", killed)
        with pytest.raises(KilledError):
            collection.remove(300)
    collection.index.close()
    with Collection.open(copy, writable=True) as collection:
        assert len(collection) == 300
        assert os.listdir(folder_of(copy)) == ["301.next"]


def test_the_id_of_a_removed_item_is_not_given_out_again(copy):
    def add(collection):
        return collection.add(features=SOURCE.X[350], label="x").id

    with Collection.open(copy, writable=True) as collection:
        collection.remove(299)
        assert [add(collection) for _ in range(3)] == [300, 301, 302]
        collection.remove(301)
        collection.remove(302)
        collection.remove(300)
        assert add(collection) == 303
        collection.remove(303)
    with Collection.open(copy, writable=True) as collection:
        assert add(collection) == 304
        assert collection.add(features=SOURCE.X[350], id=302).id == 302  # whoever asks for it gets it
    assert [name for name in os.listdir(folder_of(copy)) if name.endswith(".next")] == ["304.next"]


def test_records_stay_where_the_items_are_missing(copy, model):
    with Collection.open(copy, writable=True) as collection:
        collection.add(picture=PICTURE, label="eight")
    items = copy.with_name(copy.name + ".items")
    items.rename(copy.with_name("away"))
    with pytest.raises(FormatError, match=r"digits\.index\.items' is missing, and .* holds 1 items"):
        Collection.open(copy, model=model, writable=True)
    with Collection.open(copy, model=model) as collection:
        assert collection.item(300).labels == ()
    copy.with_name("away").rename(items)
    with Collection.open(copy, writable=True) as collection:
        assert collection.item(300).labels == ("eight",)
        assert collection.picture(300).content == PICTURE


def test_items_may_be_added_to_an_index_made_in_python(copy, model):
    copy.with_name(copy.name + ".items").unlink()
    for number in (300, 301):
        with Collection.open(copy, model=model, writable=True) as collection:
            assert collection.add(features=SOURCE.X[350], label="eight").id == number
    with Collection.open(copy, model=model) as collection:
        assert collection.item(300).labels == ("eight",)


def test_an_unknown_item_does_not_wait_for_a_change(copy, monkeypatch):
    with Collection.open(copy, writable=True) as collection:
        begun, go_on = threading.Event(), threading.Event()
        add = collection.index.add

        def slow(*given):
            begun.set()
            go_on.wait(30)
            add(*given)

        monkeypatch.setattr(collection.index, "add", slow)
        writer = threading.Thread(target=lambda: collection.add(features=SOURCE.X[350]))
        writer.start()
        assert begun.wait(30)
        told = []

        def ask():
            with pytest.raises(UnknownItemError):
                collection.query(id=999)
            told.append(True)

        reader = threading.Thread(target=ask)
        reader.start()
        reader.join(10)
        assert told
        go_on.set()
        writer.join()
        reader.join()


def test_what_is_not_ours_is_not_swept(copy):
    with Collection.open(copy, writable=True) as collection:
        collection.add(picture=PICTURE, label="eight")
    folder = folder_of(copy)
    (folder / "notes.txt").write_text("mine")
    (folder / f"{files.PREFIX}{files._machine()}-0123456789abcdef.tmp").write_text("left by a killed writer")
    (folder / "17.item").write_bytes(b"a stray that cannot be read")
    Collection.open(copy).close()
    assert len(os.listdir(folder)) == 4
    Collection.open(copy, writable=True).close()
    # 17 is an item of the index, so that its file may hold something; it is not ours to judge.
    assert sorted(os.listdir(folder)) == ["17.item", "300.item", "notes.txt"]
    with Collection.open(copy) as collection:
        assert collection.item(17).labels == (SOURCE.classes[SOURCE.y[17]],)


def test_a_damaged_record_costs_its_labels_only(copy):
    with Collection.open(copy, writable=True) as collection:
        collection.add(picture=PICTURE, label="eight")
        collection.add(picture=PICTURE, label="nine")
    file = folder_of(copy) / "300.item"
    content = bytearray(file.read_bytes())
    content[40] ^= 1
    file.write_bytes(content)
    for writable in (True, False):
        with Collection.open(copy, writable=writable) as collection:
            assert (collection.item(300).labels, collection.item(300).has_picture) == ((), False)
            assert collection.item(301).labels == ("nine",)
            with pytest.raises(NoPictureError):
                collection.picture(300)


def test_a_damaged_picture_is_none(copy):
    with Collection.open(copy, writable=True) as collection:
        collection.add(picture=PICTURE, label="eight")
        file = folder_of(copy) / "300.item"
        content = bytearray(file.read_bytes())
        content[-40] ^= 1
        file.write_bytes(content)
        with pytest.raises(NoPictureError, match="checksum"):
            collection.picture(300)
        assert collection.query(id=300).probabilities is None


def test_there_is_one_writer(copy):
    with Collection.open(copy, writable=True), pytest.raises(LockedError):
        Collection.open(copy, writable=True)
    Collection.open(copy, writable=True).close()


def test_threads_search_while_others_change(copy):
    """Items come and go under fixed ids, with a label that tells which of two codes they have."""
    rows = {"one": 310, "two": 311}
    failures = []
    stop = threading.Event()
    with Collection.open(copy, writable=True) as collection:
        codes = {name: collection.encode(SOURCE.X[row : row + 1])[0] for name, row in rows.items()}
        texts = {name: collection.query(code=code[0]) for name, code in codes.items()}
        for name in rows:
            collection.add(features=SOURCE.X[rows[name]], label=name)
        bits = {name: collection.item(300 + place).bits for place, name in enumerate(rows)}

        def change(seed):
            rng = np.random.default_rng(seed)
            try:
                for _ in range(25):
                    name = str(rng.choice(list(rows)))
                    number = 500 + seed
                    collection.add(features=SOURCE.X[rows[name]], label=name, id=number)
                    collection.remove(number)
            except BaseException as error:
                failures.append(error)

        def search(seed):
            rng = np.random.default_rng(seed)
            try:
                while not stop.is_set():
                    name = str(rng.choice(list(rows)))
                    allowed = name if rng.random() < 0.5 else None
                    found = collection.search(texts[name], 300, radius=8, allowed=allowed)
                    for neighbour in found:
                        if neighbour.id >= 500:
                            (label,) = neighbour.labels
                            assert neighbour.bits == bits[label]
                            difference = sum(a != b for a, b in zip(neighbour.bits, bits[name], strict=True))
                            assert neighbour.distance == difference
                    collection.buckets(3)
                    collection.item(int(rng.integers(300)))
            except BaseException as error:
                failures.append(error)

        searchers = [threading.Thread(target=search, args=(seed,)) for seed in range(2)]
        writers = [threading.Thread(target=change, args=(seed,)) for seed in range(2)]
        for thread in searchers + writers:
            thread.start()
        for thread in writers:
            thread.join()
        stop.set()
        for thread in searchers:
            thread.join()
        assert failures == []
        assert len(collection) == 302
    with Collection.open(copy) as collection:
        assert len(collection) == 302


@pytest.mark.parametrize("comes_back", [False, True])
@pytest.mark.parametrize("label", [None, "one"])
def test_a_change_between_the_search_and_the_looking_up(copy, monkeypatch, comes_back, label):
    with Collection.open(copy, writable=True) as collection:
        collection.add(features=SOURCE.X[310], label="one")
        query = collection.query(id=collection.add(features=SOURCE.X[310], label="one").id)
        other = next(
            row
            for row in range(300, 400)
            if collection.encode(SOURCE.X[row : row + 1])[0].tobytes() != query.code.tobytes()
        )
        search = collection.index.search

        def disturbed(*given, **named):
            found = search(*given, **named)
            monkeypatch.undo()
            collection.remove(301)
            if comes_back:
                collection.add(features=SOURCE.X[other], label="two", id=301)
            return found

        monkeypatch.setattr(collection.index, "search", disturbed)
        found = {neighbour.id: neighbour for neighbour in collection.search(query, 302, allowed=label)}
        assert 300 in found
        assert (301 in found) == (comes_back and label is None)
        if 301 in found:
            assert found[301].labels == ("two",)
            assert found[301].distance == sum(
                a != b for a, b in zip(found[301].bits, collection.item(300).bits, strict=True)
            )
            assert found[301].distance > 0


def test_threads_that_add_get_different_ids(copy):
    with Collection.open(copy, writable=True) as collection:
        ids = []

        def add():
            ids.extend(collection.add(features=SOURCE.X[350], label="x").id for _ in range(10))

        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(ids) == list(range(300, 320))
    with Collection.open(copy) as collection:
        assert {collection.item(number).labels for number in ids} == {("x",)}


def test_what_is_added_while_another_index_is_built_is_not_lost(tmp_path):
    sources.hasher().save(tmp_path / "model.gph")
    path = tmp_path / "some.index"
    Collection.build(path, tmp_path / "model.gph", SOURCE).close()

    def add(done, total):
        if done == total:
            with Collection.open(path, writable=True) as other:
                other.add(features=SOURCE.X[0], id=5000)

    with pytest.raises(ValueError, match="added to it"):
        Collection.build(path, tmp_path / "model.gph", SOURCE, progress=add)
    with Collection.open(path) as collection:
        assert collection.item(5000).id == 5000
