"""What was added is there when `add` returns, and stays; what was removed is gone."""

import os
import shutil
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest

from gphash.collection import folder as folders
from gphash.collection.collection import Collection
from gphash.collection.records import NoPictureError, UnknownItemError
from gphash.collection.rows import KnownKeyError
from gphash.data.pictures import PictureError
from gphash.files import LockedError
from tests.collection import sources

SOURCE = sources.of_digits(400)
PICTURE = sources.png_of(SOURCE.images[350])


def names_in(path):
    return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())


def test_an_added_picture_is_found_again(copy):
    with Collection.open(copy, writable=True) as collection:
        assert collection.add(items={"label": ["eight"], "title": ["An 8"]}, pictures_of=[PICTURE]) == [300]
        item = collection.item(300)
        assert item[:2] == (300, ("eight",))
        assert (item.has_picture, item.values) == (True, {"title": "An 8"})
        assert collection.classes[-1] == "eight"
    with Collection.open(copy) as collection:
        assert collection.item(300) == item
        assert collection.classes[-1] == "eight"
        assert collection.picture(300).content == PICTURE
        query = collection.query(key=300)
        assert query.probabilities is not None
        assert collection.search(query, label="eight") == []
        (found,) = collection.search(query._replace(key=None), label="eight")
        assert (found.key, found.distance, found.relevant) == (300, 0, True)
        assert len(collection) == 301


def test_a_reader_changes_nothing(collection):
    for change in (
        lambda: collection.add(SOURCE.X[350:351]),
        lambda: collection.remove([3]),
        collection.compact,
    ):
        with pytest.raises(ValueError, match="open it with writable=True"):
            change()
    assert len(collection) == 300


def test_keys_and_what_comes_with_them(copy):
    with Collection.open(copy, writable=True) as collection:
        assert collection.add(SOURCE.X[350:351], {"key": [1000]}) == [1000]
        assert collection.add(SOURCE.X[350:352], {"tags": [["a", "b", "a"], []]}) == [1001, 1002]
        assert collection.item(1001).labels == ("a", "b")
        assert collection.item(1002).labels == ()
        assert collection.add(SOURCE.X[351:352], [{"key": -5, "label": "3"}]) == [-5]
        for taken in ([1000], [3], [-5], [2000, 3]):
            with pytest.raises(KnownKeyError, match="a key is in the collection already"):
                collection.add(SOURCE.X[350 : 350 + len(taken)], {"key": taken})
        with pytest.raises(UnknownItemError):
            collection.item(2000)
        found = collection.search(SOURCE.X[3], 1000, label="3")
        wanted = [row for row in range(300) if SOURCE.y[row] == 3]
        assert sorted(neighbour.key for neighbour in found) == [-5, *wanted]
        # Features decide the code, even with a picture to look at.
        (key,) = collection.add(SOURCE.X[360:361], pictures_of=[PICTURE])
        own = np.unpackbits(collection.model.encode(SOURCE.X[360:361]), count=collection.n_bits)
        assert collection.item(key).bits == "".join(map(str, own))
        assert collection.query(key=key).probabilities is None
        with pytest.raises(NoPictureError):
            collection.picture(1000)


def test_a_source_is_added_with_its_labels_and_pictures(copy):
    more = sources.of_digits(X=SOURCE.X[300:], y=SOURCE.y[300:], images=SOURCE.images[300:])
    with Collection.open(copy, writable=True) as collection:
        assert collection.add(more, {"title": [f"number {row}" for row in range(100)]}) == list(range(300, 400))
        item = collection.item(350)
        assert item.labels == (str(SOURCE.y[350]),)
        assert (item.has_picture, item.values["title"]) == (True, "number 50")
        assert collection.query(key=350).probabilities is not None


def test_texts_as_keys(model, tmp_path):
    said = {"key": [f"sku-{row}" for row in range(20)]}
    with Collection.create(tmp_path / "a.gphash", model, SOURCE.X[:20], said, writable=True) as collection:
        assert collection.add(SOURCE.X[20:22], {"key": ["it's", "ä\n"]}) == ["it's", "ä\n"]
        collection.remove(["sku-3", "it's"])
        with pytest.raises(KnownKeyError):
            collection.add(SOURCE.X[:1], {"key": ["sku-4"]})
        assert collection.add(SOURCE.X[30:31], {"key": ["sku-3"]}) == ["sku-3"]
        assert collection.query(key="sku-3").key == "sku-3"
        with pytest.raises(UnknownItemError, match='there is no item "it\'s"'):
            collection.item("it's")
        with pytest.raises(ValueError, match="give a list of keys"):
            collection.remove("sku-3")
        with pytest.raises(ValueError, match="give a list of keys"):
            collection.items("sku-3")
        keys = [hit.key for hit in collection.search(SOURCE.X[0], 100)]
        assert sorted(keys) == sorted([*(f"sku-{row}" for row in range(20)), "ä\n"])


@pytest.mark.parametrize(
    ("X", "given", "message"),
    [
        (None, {}, "not every item has a picture"),
        (None, {"pictures_of": [PICTURE, None]}, "not every item has a picture"),
        ([[1.0]], {}, r"\[n, 64\]"),
        (SOURCE.X[:0], {}, r"\[n, 64\]"),
        (SOURCE.X[:2], {"pictures_of": [PICTURE]}, "pictures_of has 1 entries for 2 rows"),
        (SOURCE.X[:1], {"items": {"key": ["7"]}}, "whole numbers"),
        (SOURCE.X[:1], {"items": {"price": [3]}}, "does not have"),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_nothing(copy, X, given, message):
    with Collection.open(copy, writable=True) as collection:
        with pytest.raises(ValueError, match=message):
            collection.add(X, **given)
        assert len(collection) == 300
        assert collection._store.items.count() == 300


@pytest.mark.parametrize("X", [None, SOURCE.X[:1]], ids=["described", "features"])
def test_what_is_no_picture_is_refused(copy, X):
    with Collection.open(copy, writable=True) as collection:
        with pytest.raises(PictureError):
            collection.add(X, pictures_of=[PICTURE[:100]])
        with pytest.raises(PictureError):
            collection.add(X, pictures_of=[PICTURE], max_pixels=10)
        assert len(collection) == 300


def test_the_largest_key_has_no_successor(copy):
    with Collection.open(copy, writable=True) as collection:
        collection.add(SOURCE.X[:2], {"key": [2**63 - 1, -(2**63) + 1]})
        with pytest.raises(ValueError, match="give keys"):
            collection.add(SOURCE.X[:1])
        assert collection.add(SOURCE.X[:1], {"key": [5000]}) == [5000]
        collection.compact()
    with Collection.open(copy) as collection:
        assert collection.items([2**63 - 1, -(2**63) + 1])[1].key == -(2**63) + 1
        assert len(collection.search(SOURCE.X[0], 1000)) == 303


def test_removed_items_are_gone(copy):
    with Collection.open(copy, writable=True) as collection:
        collection.add(items={"label": ["eight"]}, pictures_of=[PICTURE])
        for number in (3, 300):
            collection.remove([number, number])
            for ask in (collection.item, collection.picture, lambda key: collection.remove([key])):
                with pytest.raises(UnknownItemError, match=f"no item {number}"):
                    ask(number)
        assert collection.search(SOURCE.X[0], label="eight") == []
        with pytest.raises(UnknownItemError):
            collection.remove([4, 2**70])
        assert collection.item(4).key == 4
        collection.remove([])
        collection.remove(np.array([4]))
    with Collection.open(copy) as collection:
        assert len(collection) == 298


def test_a_key_that_is_used_again_is_another_item(copy):
    with Collection.open(copy, writable=True) as collection:
        before = collection.item(3)
        packed = collection.encode(SOURCE.X)[0]
        other = next(row for row in range(300, 400) if packed[row] != packed[3])
        collection.remove([3])
        collection.add(SOURCE.X[other : other + 1], {"key": [3], "label": ["new"]})
        after = collection.item(3)
        assert after.bits != before.bits
        assert not after.has_picture
    with Collection.open(copy, writable=True) as collection:
        for _ in range(2):
            assert collection.item(3) == after
            assert 3 not in [hit.key for hit in collection.search(SOURCE.X[3], 300, label=before.labels[0])]
            assert sum(sum(bucket.labels.values()) for bucket in collection.buckets(256)) == 300
            collection.compact()
        collection.remove([3])
    with Collection.open(copy) as collection, pytest.raises(UnknownItemError):
        collection.item(3)


@pytest.mark.parametrize("compacting", [False, True])
def test_the_number_of_a_removed_item_is_not_given_out_again(copy, compacting):
    def add(collection):
        (key,) = collection.add(SOURCE.X[350:351])
        if compacting:
            collection.compact()
        return key

    with Collection.open(copy, writable=True) as collection:
        collection.remove([299])
        assert [add(collection) for _ in range(3)] == [300, 301, 302]
        collection.remove([301, 302, 300])
        assert add(collection) == 303
        collection.remove([303])
    with Collection.open(copy, writable=True) as collection:
        assert add(collection) == 304
        assert collection.add(SOURCE.X[350:351], {"key": [302]}) == [302]  # whoever asks for it gets it
        assert add(collection) == 305


def test_compaction_folds_changes_into_parts(copy):
    with Collection.open(copy, writable=True) as collection, Collection.open(copy) as reader:
        collection.add(SOURCE.X[300:320], {"label": ["new"] * 20})
        collection.remove([3, 305])
        reader.search(SOURCE.X[0])
        before, old = collection.search(SOURCE.X[:5], 400), reader._store.index.contents
        collection.compact()
        assert collection._store.items.changes(0)[1].tolist() == []
        assert names_in(copy / "parts") == ["0001.index"]
        assert collection.search(SOURCE.X[:5], 400) == reader.search(SOURCE.X[:5], 400) == before
        assert old.n_items == 318  # whoever has the old parts keeps them
        mark = (copy / "collection.json").read_bytes()
        collection.compact()  # nothing to do
        assert (copy / "collection.json").read_bytes() == mark
    with Collection.open(copy) as reader:
        assert reader.search(SOURCE.X[:5], 400) == before


def test_many_changes_are_folded_in_by_themselves(copy, monkeypatch):
    monkeypatch.setattr(folders, "PENDING", 30)
    with Collection.open(copy, writable=True) as collection:
        for first in range(300, 400, 10):
            collection.add(SOURCE.X[first : first + 10])
            assert len(collection._store.items.changes(0)[1]) <= 50
        assert collection._store.manifest.folded > 0
        keys = sorted(hit.key for hit in collection.search(SOURCE.X[0], 1000))
    assert keys == list(range(400))
    with Collection.open(copy) as reader:
        assert sorted(hit.key for hit in reader.search(SOURCE.X[0], 1000)) == keys


def test_large_parts_stay_as_they_are(copy, monkeypatch):
    monkeypatch.setattr(folders, "SMALL", 50)
    with Collection.open(copy, writable=True) as collection:
        collection.add(SOURCE.X[300:310])
        collection.compact()
        assert names_in(copy / "parts") == ["0000.index", "0001.index"]
        collection.add(SOURCE.X[310:320])
        collection.remove([305])
        collection.compact()  # the small one is joined with what came
        assert names_in(copy / "parts") == ["0000.index", "0002.index"]
        collection.remove([7])
        collection.compact()
        assert "parts/0000.index" not in collection._store.manifest.files
        wanted = [key for key in range(320) if key not in (305, 7)]
        assert sorted(hit.key for hit in collection.search(SOURCE.X[0], 1000)) == wanted


def test_there_is_one_writer(copy, model):
    with Collection.open(copy, writable=True) as collection:
        with pytest.raises(LockedError, match=r"copy\.gphash' is being written to by somebody else"):
            Collection.open(copy, writable=True)
        with pytest.raises(LockedError):
            Collection.create(copy, model, SOURCE, replace=True)
        program = (
            "import sys; from gphash import Collection; from gphash.files import LockedError\n"
            "try: Collection.open(sys.argv[1], writable=True)\n"
            "except LockedError: print('locked')\n"
            "print(len(Collection.open(sys.argv[1])))"
        )
        collection.add(SOURCE.X[:1])
        run = subprocess.run([sys.executable, "-c", program, str(copy)], capture_output=True, text=True, check=True)
        assert run.stdout.split() == ["locked", "301"]
    Collection.open(copy, writable=True).close()


READER = """
import sys
from gphash import Collection
with Collection.open(sys.argv[1]) as collection:
    row = [0.0] * collection.model.n_features
    for line in sys.stdin:
        hits = collection.search(row, 10_000)
        print(len(collection), len(hits), sum(hit.key for hit in hits), flush=True)
"""


def test_readers_in_other_processes_see_what_is_acknowledged(copy, model):
    command = [sys.executable, "-c", READER, str(copy)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    readers = [subprocess.Popen(command, **pipes) for _ in range(2)]

    def check(keys):
        for reader in readers:
            print(file=reader.stdin, flush=True)
            assert reader.stdout.readline().split() == [str(len(keys)), str(len(keys)), str(sum(keys))]

    try:
        keys = set(range(300))
        check(keys)
        with Collection.open(copy, writable=True) as collection:
            check(keys)
            for step in range(8):
                keys |= set(collection.add(SOURCE.X[300 + step : 305 + step]))
                check(keys)
                gone = sorted(keys)[step::60]
                collection.remove(gone)
                keys -= set(gone)
                check(keys)
                if step % 3 == 2:
                    collection.compact()
                    check(keys)
        check(keys)
        Collection.create(copy, model, SOURCE.X[:50], replace=True).close()  # all of it made anew
        check(set(range(50)))
        Collection.create(copy, model, SOURCE.X[:70], replace=True).close()
        check(set(range(70)))
        with Collection.open(copy, writable=True) as collection:
            collection.add(SOURCE.X[:1])
            check(set(range(71)))
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()
    Collection.open(copy, writable=True).close()
    assert names_in(copy) == sorted(Collection.open(copy)._store.manifest.files)


def test_a_reader_follows_a_collection_that_is_made_anew(copy, tmp_path):
    other = sources.hasher(n_bits=12, seed=1)
    source = sources.folder_of_pictures(tmp_path / "pictures", 20)
    with Collection.open(copy) as reader:
        assert reader.n_bits == 8
        Collection.create(copy, other, source, replace=True).close()
        assert len(reader.search(source.X[0], 100)) == 20
        assert (reader.n_bits, reader.model.fingerprint) == (12, other.fingerprint_)
        assert reader.picture(3).content == source.images[3].read_bytes()


def test_a_reader_whose_folder_is_gone_keeps_what_it_has(copy):
    with Collection.open(copy) as reader:
        before = reader.search(SOURCE.X[0], 20)
        shutil.rmtree(copy)
        assert reader.search(SOURCE.X[0], 20) == before


def test_a_reader_never_sees_half_a_change(copy):
    """Another process replaces items by others with the same keys; what is found has the code that it was found by."""
    program = (
        "import sys; import numpy as np; from gphash import Collection\n"
        "X, rng = np.load(sys.argv[2]), np.random.default_rng(0)\n"
        "with Collection.open(sys.argv[1], writable=True) as collection:\n"
        "    print('ready', flush=True)\n"
        "    for step in range(150):\n"
        "        rows = rng.integers(0, len(X), 3)\n"
        "        keys = [500 + step % 5 * 3 + place for place in range(3)]\n"
        "        collection.remove([key for key in keys if step >= 5])\n"
        "        collection.add(X[rows], {'key': keys, 'title': list(map(str, rows))})\n"
        "        if step % 10 == 9: collection.compact()\n"
    )
    np.save(copy.parent / "X.npy", SOURCE.X)
    command = [sys.executable, "-c", program, str(copy), str(copy.parent / "X.npy")]
    with Collection.open(copy) as reader, subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        codes = reader.model.encode(SOURCE.X)
        query, seen = reader.query(features=SOURCE.X[0]), 0
        writer.stdout.readline()
        while writer.poll() is None:
            for hit in reader.search(query, 1000):
                if hit.key < 500:
                    continue
                seen += 1
                bits = np.unpackbits(codes[int(hit.values["title"])])
                assert hit.bits == "".join(map(str, bits))
                assert hit.distance == np.bitwise_count(codes[int(hit.values["title"])] ^ query.code).sum()
        assert writer.returncode == 0
        assert seen > 100
        assert len(reader) == 315


def test_a_forked_process_does_not_write(copy):
    collection = Collection.open(copy, writable=True)
    collection.add(SOURCE.X[:1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            collection._store.add([], [])
        except ValueError as error:
            told = "another process" in str(error)
            collection.close()
            os._exit(0 if told else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(LockedError):
        Collection.open(copy, writable=True)
    collection.add(SOURCE.X[:1])
    collection.close()
    with Collection.open(copy, writable=True) as again:
        assert len(again) == 302


def test_what_is_closed_says_so(copy):
    with Collection.open(copy, writable=True) as collection:
        pass
    for ask in (lambda: collection.add(SOURCE.X[:1]), lambda: collection.search(SOURCE.X[0]), collection.compact):
        with pytest.raises(ValueError, match="closed"):
            ask()
    collection.close()


def test_a_closed_collection_has_no_files_beside(copy):
    before = [name for name in names_in(copy) if not name.endswith(("-wal", "-shm"))]  # of the one it is a copy of
    with Collection.open(copy, writable=True) as collection:
        with Collection.open(copy) as reader:
            collection.add(SOURCE.X[:1])
            assert len(reader) == 301
        assert set(names_in(copy)) == {*before, "items.sqlite-wal", "items.sqlite-shm"}
    assert names_in(copy) == before


def test_threads_search_while_others_change(copy):
    """Items come and go under fixed keys, with a label that tells which of two codes they have."""
    rows = {"one": 310, "two": 311}
    failures = []
    stop = threading.Event()
    with Collection.open(copy, writable=True) as collection:
        texts = {name: collection.query(features=SOURCE.X[row]) for name, row in rows.items()}
        collection.add(SOURCE.X[[310, 311]], {"label": list(rows)})
        bits = {name: collection.item(300 + place).bits for place, name in enumerate(rows)}

        def change(seed):
            rng = np.random.default_rng(seed)
            try:
                for step in range(25):
                    name, key = str(rng.choice(list(rows))), 500 + seed
                    collection.add(SOURCE.X[[rows[name]]], {"key": [key], "label": [name]})
                    if step % 10 == 5:
                        collection.compact()
                    collection.remove([key])
            except BaseException as error:
                failures.append(error)

        def search(seed):
            rng = np.random.default_rng(seed)
            try:
                while not stop.is_set():
                    name = str(rng.choice(list(rows)))
                    label = name if rng.random() < 0.5 else None
                    for hit in collection.search(texts[name], 300, radius=8, label=label):
                        if hit.key >= 500:
                            (found,) = hit.labels
                            assert hit.bits == bits[found]
                            difference = sum(a != b for a, b in zip(hit.bits, bits[name], strict=True))
                            assert hit.distance == difference
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
        collection.add(SOURCE.X[[310, 310]], {"label": ["one", "one"]})
        query = collection.query(features=SOURCE.X[310])
        packed = collection.encode(SOURCE.X)[0]
        other = next(row for row in range(300, 400) if packed[row] != packed[310])
        nearest = collection._store.nearest

        def disturbed(*given):
            found = nearest(*given)
            monkeypatch.undo()
            collection.remove([301])
            if comes_back:
                collection.add(SOURCE.X[[other]], {"key": [301], "label": ["two"]})
            return found

        monkeypatch.setattr(collection._store, "nearest", disturbed)
        found = {hit.key: hit for hit in collection.search(query, 302, label=label)}
        assert 300 in found
        assert (301 in found) == (comes_back and label is None)
        if 301 in found:
            assert found[301].labels == ("two",)
            assert found[301].distance == np.bitwise_count(packed[other] ^ packed[310]).sum() > 0


def test_threads_that_add_get_different_keys(copy):
    with Collection.open(copy, writable=True) as collection:
        keys = []

        def add():
            for _ in range(10):
                keys.extend(collection.add(SOURCE.X[350:351], {"label": ["x"]}))

        threads = [threading.Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(keys) == list(range(300, 320))
    with Collection.open(copy) as collection:
        assert {item.labels for item in collection.items(keys)} == {("x",)}
