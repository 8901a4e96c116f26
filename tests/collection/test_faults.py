"""Full disks, read-only folders and damaged files: an error names the file, and nothing wrong is told."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest

from gphash.collection.collection import Collection
from gphash.collection.records import NoPictureError, UnknownItemError
from gphash.container import FormatError
from tests.collection import sources
from tests.collection.test_changes import names_in

SOURCE = sources.of_digits(330)
PICTURE = sources.png_of(SOURCE.images[310])


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    """A small collection with tags, pictures, columns, and changes that no part has."""
    path = tmp_path_factory.mktemp("whole") / "some.gphash"
    said = {
        "key": [f"item {row}" for row in range(60)],
        "tags": [[f"tag {row % 4}", f"tag {row % 3}"] for row in range(60)],
        "title": [f"title {row}" for row in range(60)],
        "price": [row / 8 for row in range(60)],
    }
    source = sources.of_digits(60, y=None, classes=())
    with Collection.create(path, model, source, said, writable=True, vectors="int8") as collection:
        more = {"key": [f"new {row}" for row in range(12)], "label": ["late"] * 12, "title": ["late"] * 12}
        collection.add(SOURCE.X[300:312], more, pictures_of=[PICTURE] * 12)
        collection.remove(["item 3", "new 3"])
    return path


KEYS = [f"item {row}" for row in range(60) if row != 3] + [f"new {row}" for row in range(12) if row != 3]


def answers(path):
    """All that a collection tells; a function for each, so that one that fails does not hide others."""
    with Collection.open(path) as collection:
        yield "items", lambda: collection.items(KEYS)
        for key in KEYS[::9]:
            yield f"item {key}", lambda key=key: collection.item(key)
            yield f"picture {key}", lambda key=key: collection.picture(key)
        yield "search", lambda: collection.search(SOURCE.X[:3], 100)
        yield "rerank", lambda: collection.search(SOURCE.X[:3], 20, rerank=100)
        yield "classes", lambda: collection.classes
        yield "where", lambda: collection.search(SOURCE.X[0], 100, where="price < ?", params=[4])
        for label in ("late", "tag 1"):
            yield f"label {label}", lambda label=label: collection.search(SOURCE.X[0], 100, label=label)


def told_by(path):
    return {name: ask() for name, ask in answers(path)}


def check_damaged(path, wanted, damaged):
    """Whether a damaged collection was refused by name; whatever it tells instead is right, or leaves something out.

    SQLite finds items by a condition, a label or a key, and pictures by a number, in pages that have no marks: what is
    found is checked, but damage may hide some.
    """
    try:
        for name, ask in answers(path):
            try:
                found = ask()
            except (UnknownItemError, NoPictureError):
                demand(name.startswith(("items", "item ", "picture")), name)
                continue
            if name.startswith(("where", "label")):
                known = {hit.key: without_picture(hit) for hit in wanted[name]}
                demand(all(known.get(hit.key) == without_picture(hit) for hit in found), name)
            else:
                demand(without_picture(found) == without_picture(wanted[name]), name)
    except (FormatError, OSError, ValueError) as error:
        demand(str(damaged) in str(error) or "is no label of the collection" in str(error), str(error))
        return True
    return False


def demand(holds, otherwise):
    if not holds:
        raise AssertionError(otherwise)


def without_picture(found):
    if isinstance(found, list):
        return [without_picture(one) for one in found]
    return found._replace(has_picture=None) if hasattr(found, "has_picture") else found


def ask_all(path):
    """Ask a collection for everything, as a reader."""
    for _, ask in answers(path):
        ask()


def change_all(path):
    """Ask a writer for everything."""
    with Collection.open(path, writable=True) as collection:
        collection.search(SOURCE.X[0], 100)
        collection.items(KEYS)


def add_until_it_fails(collection, kept):
    for step in range(10_000):
        kept += collection.add(SOURCE.X[:20], {"key": [f"{step}/{row}" for row in range(20)]})


FILES = ["collection.json", "model.gph", "items.sqlite", "parts/0000.index", "parts/0000.vectors"]


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(whole, tmp_path, name):
    path = shutil.copytree(whole, tmp_path / "copy.gphash")
    data = (path / name).read_bytes()
    for length in np.linspace(0, len(data.rstrip()) - 1, 26).astype(int).tolist():
        (path / name).write_bytes(data[:length])
        for ask in (ask_all, change_all, change_all):
            with pytest.raises((FormatError, OSError)) as caught:
                ask(path)
            assert str(path / name) in str(caught.value)
    (path / name).unlink()
    with pytest.raises((FormatError, OSError), match=os.path.basename(name)):
        Collection.open(path)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_an_altered_file_is_named_or_tells_the_same(whole, tmp_path, name, mask):
    path = shutil.copytree(whole, tmp_path / "copy.gphash")
    wanted, data = told_by(whole), (path / name).read_bytes()
    places = np.random.default_rng(mask).choice(len(data), min(len(data), 150), replace=False).tolist()
    refused = 0
    for place in places:
        damaged = bytearray(data)
        damaged[place] ^= mask
        (path / name).write_bytes(damaged)
        refused += check_damaged(path, wanted, path / name)
    # Nobody reads the vectors of items that are gone.
    least = {"items.sqlite": 10, "parts/0000.vectors": len(places) - 10}
    assert refused > least.get(name, len(places) - 1)


def test_a_whole_file_passes_its_check_and_a_damaged_one_does_not(whole, tmp_path):
    path = shutil.copytree(whole, tmp_path / "copy.gphash")
    with Collection.open(path) as collection:
        collection._store.items.check()
    data = bytearray((path / "items.sqlite").read_bytes())
    place = data.index(PICTURE[20:50])
    data[place] ^= 1
    (path / "items.sqlite").write_bytes(data)
    with Collection.open(path) as collection, pytest.raises(FormatError, match=r"items\.sqlite' is damaged"):
        collection._store.items.check()


def test_a_folder_that_cannot_be_written_to_is_searched(whole, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root can write to any folder")
    path = shutil.copytree(whole, tmp_path / "copy.gphash")
    path.chmod(0o555)
    try:
        assert told_by(path) == told_by(whole)
        with pytest.raises(OSError, match=r"copy\.gphash"):
            Collection.open(path, writable=True)
    finally:
        path.chmod(0o755)


@pytest.fixture
def mounted(tmp_path):
    """A file system of one megabyte, which can be mounted again."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options):
        return subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], capture_output=True).returncode

    if os.geteuid() != 0 or sys.platform != "linux" or mount("size=1m"):
        pytest.skip("nothing can be mounted")
    try:
        yield place, mount
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_a_disk_that_is_read_only_is_searched(whole, mounted):
    place, mount = mounted
    path = shutil.copytree(whole, place / "copy.gphash")
    (path / "items.sqlite-wal").touch()  # as a writer leaves it that closes while somebody reads
    assert mount("remount,ro") == 0
    assert not os.access(path, os.W_OK)
    assert told_by(path) == told_by(whole)
    with pytest.raises(OSError, match=r"copy\.gphash"):
        Collection.open(path, writable=True)
    with pytest.raises(OSError, match=r"copy\.gphash"):
        Collection.create(path, path / "model.gph", SOURCE.X[:3], replace=True)
    assert told_by(path) == told_by(whole)


def test_changes_that_nobody_finished_are_told_where_nothing_can_be_written(whole, mounted):
    place, mount = mounted
    path = shutil.copytree(whole, place / "copy.gphash")
    with Collection.open(path, writable=True) as collection:
        collection.add(SOURCE.X[:1], {"key": ["x"]})
        for name in names_in(path):
            (place / "other" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path / name, place / "other" / name)  # as it is after a kill
    assert mount("remount,ro") == 0
    with Collection.open(place / "other") as reader:  # SQLite has the notes of the writer
        assert reader.item("x").key == "x"
    assert mount("remount,rw") == 0
    (place / "other" / "items.sqlite-shm").unlink()
    assert mount("remount,ro") == 0
    with pytest.raises(FormatError, match=r"items\.sqlite' has changes in 'items\.sqlite-wal' that a writer did not"):
        Collection.open(place / "other")
    assert mount("remount,rw") == 0
    with Collection.open(place / "other") as reader:
        assert reader.item("x").key == "x"


def test_a_full_disk_takes_nothing_and_loses_nothing(whole, mounted, model):
    place, mount = mounted
    path, n = shutil.copytree(whole, place / "copy.gphash"), len(KEYS)
    with Collection.open(path, writable=True) as collection:
        kept = list(KEYS)
        with pytest.raises(OSError, match=r"items\.sqlite"):
            add_until_it_fails(collection, kept)
        assert len(kept) > n
        assert len(collection) == len(kept) == len(collection.search(SOURCE.X[0], 10**6))
        with contextlib.suppress(OSError), open(place / "filler", "wb", 0) as filler:
            while True:
                filler.write(bytes(1024))
        with pytest.raises(OSError, match=r"0001\.vectors"):
            collection.compact()
        assert len(collection) == len(kept)
        assert len(collection.items(kept)) == len(kept)
        with pytest.raises(OSError, match=r"copy2\.gphash"):
            Collection.create(place / "copy2.gphash", model, SOURCE.X)
    (place / "filler").unlink()
    assert mount("remount,size=4m") == 0
    with Collection.open(path, writable=True) as collection:
        assert len(collection.items(kept)) == len(kept) == len(collection)
        collection.remove(kept[n:])
        collection.compact()
    with Collection.open(path) as collection:
        assert len(collection) == n
    assert set(names_in(path)) == collection._store.manifest.files


LIMITED = """
import resource, sys
import numpy as np
from gphash import Collection
path, X = sys.argv[1], np.load(sys.argv[2])
with Collection.open(path, writable=True) as collection:
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    kept = len(collection)
    try:
        for step in range(10_000):
            kept += len(collection.add(X[:20], {"key": [f"{step}/{row}" for row in range(20)]}))
    except OSError as error:
        assert "items.sqlite" in str(error), error
        print(kept, len(collection), flush=True)
"""


def test_a_limit_on_files_is_like_a_full_disk(whole, tmp_path):
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    path = shutil.copytree(whole, tmp_path / "copy.gphash")
    np.save(tmp_path / "X.npy", SOURCE.X)
    command = [sys.executable, "-c", LIMITED, str(path), str(tmp_path / "X.npy")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    kept, shown = map(int, run.stdout.split())
    assert kept == shown > len(KEYS)
    with Collection.open(path, writable=True) as collection:
        assert len(collection) == kept == len(collection.search(SOURCE.X[0], 10**6))
