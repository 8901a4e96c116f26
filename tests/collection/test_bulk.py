"""Codes and indexes of folders of blocks, in this process and on a real cluster."""

import threading
import time
from itertools import pairwise

import numpy as np
import pytest

from gphash import GPHasher
from gphash.collection import bulk, manifest
from gphash.collection.bulk import PLAN, read_plan
from gphash.collection.collection import Collection
from gphash.data import blocks
from gphash.execution.local import BlocksLostError, SerialExecutor
from gphash.files import DataError
from gphash.functions import model as models
from tests.digits import QUICK, X, y

ENDS = (0, 300, 300, 700, 1100, 1797)  # the second block is empty


def write_blocks(folder, ends=ENDS):
    folder.mkdir()
    for number, (start, stop) in enumerate(pairwise(ends)):
        np.save(folder / f"block-{number}.npy", X[start:stop].astype(np.float32))
    return folder


def codes_in(folder):
    return np.concatenate([np.load(folder / block.file) for block in read_plan(folder).blocks])


def states(folder):
    """The numbers that the system gave to files: others if they were written again."""
    return {path.name: path.stat().st_ino for path in folder.iterdir() if path.name != PLAN}


@pytest.fixture(scope="module")
def hasher():
    return GPHasher(**QUICK).fit(X[:600], y[:600])


@pytest.fixture(scope="module")
def model(hasher, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "digits.gph"
    hasher.save(path)
    return path


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_blocks(tmp_path_factory.mktemp("source") / "blocks")


@pytest.fixture(params=["here", pytest.param("cluster", marks=pytest.mark.slow)])
def executor(request):
    return None if request.param == "here" else request.getfixturevalue("cluster").address


def test_codes_are_those_of_the_hasher(hasher, model, source, tmp_path, executor):
    seen = []
    made = bulk.encode(model, source, tmp_path / "codes", executor, lambda done, total: seen.append((done, total)))
    np.testing.assert_array_equal(codes_in(tmp_path / "codes"), hasher.encode(X.astype(np.float32)))
    assert seen == sorted(seen)
    assert seen[-1] == (1797, 1797)
    assert sum(share.rows for share in made.workers.values()) == 1797
    assert [block.n_rows for block in made.plan.blocks] == [300, 0, 400, 400, 697]
    assert sorted(states(tmp_path / "codes")) == [*(f"block-{number}.codes.npy" for number in range(5)), "model.gph"]
    assert read_plan(tmp_path / "codes") == made.plan
    assert made.plan.finished


def said(n_rows=1797):
    return {"key": [f"row {row}" for row in range(n_rows)], "price": [row / 4 for row in range(n_rows)]}


def files_of(path):
    return {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}


def test_a_collection_in_parts_is_like_any_other(hasher, model, source, tmp_path, executor):
    """Searched, added to and compacted, whoever has written its parts."""
    path, seen = tmp_path / "parts.gphash", []
    made = Collection.create(
        path, model, source, said(), executor=executor, progress=lambda done, total: seen.append((done, total))
    )
    made.close()
    assert seen == sorted(seen)
    assert seen[-1] == (1797, 1797)
    whole = Collection.create(tmp_path / "whole.gphash", model, X.astype(np.float32), said(), writable=True)
    with Collection.open(path, writable=True) as parts, Collection.open(path) as reader:
        assert len(manifest.read(path).parts) == 5
        assert files_of(path) >= manifest.read(path).files
        for step in range(4):
            for collection in (parts, reader):
                assert len(collection) == len(whole)
                assert collection.search(X[:40], 15) == whole.search(X[:40], 15)
                asked = {"where": "price < ?", "params": [100]}
                assert collection.search(X[:9], 15, **asked) == whole.search(X[:9], 15, **asked)
            if step < 2:
                more = {"key": [f"{step}/{row}" for row in range(60)], "price": [1.5] * 60}
                for collection in (parts, whole):
                    collection.add(X[:60], more)
                    collection.remove([f"row {row}" for row in range(step, 1797, 7)])
            else:
                parts.compact()
                assert len(manifest.read(path).parts) == 1
        assert reader.item("row 5").values == {"price": 1.25}
    assert files_of(path) == manifest.read(path).files


def test_labels_of_blocks_are_kept(model, tmp_path):
    (tmp_path / "blocks").mkdir()
    for number, (start, stop) in enumerate(pairwise((0, 100, 250))):
        np.save(tmp_path / "blocks" / f"b{number}.npy", X[start:stop].astype(np.float32))
        np.save(tmp_path / "blocks" / f"b{number}.labels.npy", y[start:stop])
    with Collection.create(tmp_path / "a.gphash", model, tmp_path / "blocks") as collection:
        assert [item.labels for item in collection.items(range(250))] == [(str(label),) for label in y[:250]]


def test_another_collection_stays_until_the_new_one_is_whole(hasher, model, source, tmp_path):
    path = tmp_path / "parts.gphash"
    Collection.create(path, model, source).close()
    other = GPHasher(**{**QUICK, "random_state": 1}).fit(X[:600], y[:600])

    def stop(done, total):
        if done > 300:
            raise KeyboardInterrupt

    for changed in (source, write_blocks(tmp_path / "others", (0, 200, 600))):
        for made_with in (other, model):
            with Collection.open(path) as reader:
                before = reader.search(X[:5], 30)
            with pytest.raises(KeyboardInterrupt):
                Collection.create(path, made_with, changed, replace=True, progress=stop)
            with Collection.open(path) as reader:
                assert reader.search(X[:5], 30) == before
            with Collection.create(path, made_with, changed, replace=True) as collection:
                n = 1797 if changed is source else 600
                packed = (other if made_with is other else hasher).encode(X[:n].astype(np.float32))
                np.testing.assert_array_equal(collection.index.items()[0], packed)
            assert files_of(path) == manifest.read(path).files


def test_what_is_interrupted_goes_on_where_it_was(model, source, tmp_path):
    path = tmp_path / "parts.gphash"

    def stop(done, total):
        if done > 300:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Collection.create(path, model, source, progress=stop)
    with pytest.raises(FileNotFoundError, match=r"has no collection\.json"):
        Collection.open(path)
    begun = {file.name: file.stat().st_ino for file in (path / "parts").glob("*.index")}
    assert len(begun) == 2
    with Collection.create(path, model, source) as collection:
        assert len(collection) == 1797
    there = {file.name: file.stat().st_ino for file in (path / "parts").glob("*.index")}
    assert there.items() >= begun.items()
    assert files_of(path) == manifest.read(path).files


@pytest.mark.parametrize(("items", "message"), [({"key": ["a"]}, "1 values for 1797 rows"), ([3], "1 entries")])
def test_items_that_do_not_fit_the_blocks_are_refused(model, source, tmp_path, items, message):
    with pytest.raises(ValueError, match=message):
        Collection.create(tmp_path / "a.gphash", model, source, items)


def test_pieces_are_small(hasher, model, source, tmp_path, monkeypatch):
    read = []
    before = blocks.FolderPiece.read
    monkeypatch.setattr(bulk, "PIECE", 128)
    monkeypatch.setattr(blocks.FolderPiece, "read", lambda piece: (read.append(len(piece)), before(piece))[1])
    bulk.encode(model, source, tmp_path / "codes")
    assert max(read) == 128
    assert sum(read) == 1797
    np.testing.assert_array_equal(codes_in(tmp_path / "codes"), hasher.encode(X.astype(np.float32)))


def test_what_was_interrupted_goes_on(model, source, tmp_path):
    make = bulk.encode

    def stop(done, total):
        if done > 300:
            raise KeyboardInterrupt

    folder = tmp_path / "made"
    with pytest.raises(KeyboardInterrupt):
        make(model, source, folder, watch=stop)
    assert not read_plan(folder).finished
    before = states(folder)
    assert len(before) == 3  # of two blocks, and the model
    again = make(model, source, folder)
    assert states(folder).items() >= before.items()
    assert sum(share.blocks for share in again.workers.values()) == 3
    assert again.plan.finished
    made = states(folder)
    assert make(model, source, folder) == bulk.Made(again.plan, 5, {})
    assert states(folder) == made


def test_what_was_finished_is_mended(hasher, model, source, tmp_path, executor):
    folder = tmp_path / "codes"
    whole = bulk.encode(model, source, folder).plan
    (folder / "block-0.codes.npy").unlink()
    (folder / "block-2.codes.npy").write_bytes(b"damaged")
    np.save(folder / "block-3.codes.npy", np.zeros((400, 1), np.uint8))
    again = bulk.encode(model, source, folder, executor)
    assert again.plan == whole
    assert again.before == 2
    assert sum(share.blocks for share in again.workers.values()) == 3
    np.testing.assert_array_equal(codes_in(folder), hasher.encode(X.astype(np.float32)))


def test_a_worker_may_be_killed(hasher, model, mortal, tmp_path):
    source, folder = write_blocks(tmp_path / "blocks", [*range(0, 1797, 6), 1797]), tmp_path / "codes"
    mortal.have(3)

    def kill():
        while not list(folder.glob("*.codes.npy")):
            time.sleep(0.001)
        mortal.kill_worker()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        made = bulk.encode(model, source, folder, mortal.address)
    finally:
        killer.join()
    assert made.plan.finished
    assert made.before == 0
    np.testing.assert_array_equal(codes_in(folder), hasher.encode(X.astype(np.float32)))
    assert not list(folder.glob(".*"))


class Losing(SerialExecutor):
    """Loses workers: the numbers say after how many blocks."""

    def __init__(self, losses):
        self.losses = list(losses)

    def collect(self, work, *columns):
        for number, call in enumerate(zip(*columns, strict=True)):
            if self.losses and self.losses[0] == number:
                self.losses.pop(0)
                raise BlocksLostError("gone")
            yield work(*call)


def test_lost_blocks_are_done_again():
    assert list(bulk._collect(Losing([2, 0, 1, 0]), lambda task: task, [1, 2, 3, 4])) == [1, 2, 3, 4]


def test_workers_that_are_lost_all_the_time_are_given_up():
    cluster = pytest.importorskip("gphash.cluster.dask_executor", reason="a cluster needs Dask", exc_type=ImportError)
    with pytest.raises(cluster.ClusterError, match="again and again"):
        list(bulk._collect(Losing([2, 0, 0]), lambda task: task, [1, 2, 3, 4]))


def test_a_folder_of_another_kind_model_or_source_is_refused(model, source, tmp_path):
    folder = tmp_path / "made"
    bulk.encode(model, source, folder)
    before = states(folder)
    GPHasher(**{**QUICK, "random_state": 1}).fit(X[:600], y[:600]).save(tmp_path / "other.gph")
    with pytest.raises(ValueError, match="was made with the model"):
        bulk.encode(tmp_path / "other.gph", source, folder)
    with pytest.raises(ValueError, match="was made of other rows"):
        bulk.encode(model, write_blocks(tmp_path / "others"), folder)
    assert states(folder) == before


def test_folders_that_cannot_be_written_are_refused(model, source, tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("")
    with pytest.raises(ValueError, match="is a file; give a folder"):
        bulk.encode(model, source, tmp_path / "file")
    with pytest.raises(ValueError, match=r"has other files, such as 'mine\.txt'"):
        bulk.encode(model, source, tmp_path / "full")
    with pytest.raises(ValueError, match="does not exist"):
        bulk.encode(model, source, tmp_path / "no" / "codes")
    for inside in (source, source / "codes"):
        with pytest.raises(ValueError, match="folder that rows are read from"):
            bulk.encode(model, source, inside)


def test_rows_of_another_width_are_refused(model, tmp_path):
    (tmp_path / "narrow").mkdir()
    np.save(tmp_path / "narrow" / "a.npy", np.zeros((3, 5), np.float32))
    with pytest.raises(ValueError, match="has 5 features a row, and the model takes 64"):
        bulk.encode(model, tmp_path / "narrow", tmp_path / "codes")


def test_names_that_would_meet_are_refused(model, tmp_path):
    (tmp_path / "blocks").mkdir()
    for name in ("a.npy", "a.NPY"):
        with open(tmp_path / "blocks" / name, "wb") as file:
            np.save(file, X[:5].astype(np.float32))
    if len(list((tmp_path / "blocks").iterdir())) == 1:
        pytest.skip("this file system does not tell a.npy from a.NPY")
    with pytest.raises(ValueError, match=r"would both become 'a\.codes\.npy'"):
        bulk.encode(model, tmp_path / "blocks", tmp_path / "codes")


def test_a_block_that_is_bad_is_named(model, tmp_path, executor):
    source = write_blocks(tmp_path / "blocks")
    rows = X[700:1100].astype(np.float32)
    rows[7, 3] = np.nan
    np.save(source / "block-3.npy", rows)
    with pytest.raises(DataError, match=r"block-3\.npy', row 7, column 3: NaN"):
        bulk.encode(model, source, tmp_path / "codes", executor)
    assert not read_plan(tmp_path / "codes").finished


def test_a_block_that_goes_is_named(model, tmp_path):
    source = write_blocks(tmp_path / "blocks")
    with pytest.raises(DataError, match=r"block-4\.npy' is missing"):
        bulk.encode(
            model, source, tmp_path / "codes", watch=lambda *_: (source / "block-4.npy").unlink(missing_ok=True)
        )


def test_a_folder_that_workers_do_not_see_is_named(model, source, tmp_path):
    table = blocks.open_folder(source)
    plan = bulk._plan("codes", models.load(model), table, None)
    task = bulk._task(table, plan.blocks[0], tmp_path / "elsewhere", plan, None)
    with pytest.raises(FileNotFoundError, match="give a folder that all workers see"):
        bulk.encode_block(task)


def test_parquet_and_zarr(hasher, model, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    zarr = pytest.importorskip("zarr")
    rows = X[:500].astype(np.float32)
    (tmp_path / "tables").mkdir()
    names = [f"x{column}" for column in range(64)]
    pandas.DataFrame(rows[:200], columns=names).to_parquet(tmp_path / "tables" / "one.parquet")
    pandas.DataFrame(rows[200:], columns=names).to_parquet(tmp_path / "tables" / "two.parquet")
    zarr.create_array(str(tmp_path / "array"), data=rows, chunks=(100, 64))
    wanted = hasher.encode(rows)
    for name in ("tables", "array"):
        made = bulk.encode(model, tmp_path / name, tmp_path / f"{name}-codes")
        np.testing.assert_array_equal(codes_in(tmp_path / f"{name}-codes"), wanted)
        assert (len(made.plan.blocks) == 2) == (name == "tables")
    assert (tmp_path / "tables-codes" / "one.codes.npy").is_file()
    assert (tmp_path / "array-codes" / "rows-0-500.codes.npy").is_file()
