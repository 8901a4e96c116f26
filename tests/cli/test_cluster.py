"""Folders of blocks from the command line, in this process and on a real cluster: fit, encode, index, search, info."""

import contextlib

import numpy as np
import pytest

from gphash import HammingIndex, load
from gphash.cli import shown
from gphash.collection import bulk
from tests.cli.running import QUICK, gphash, inside, told
from tests.digits import X, y

FIT = ("fit", "blocks", "--bits", 8, "--set", "block_size=256", *QUICK)


def write_blocks(folder):
    folder.mkdir()
    for number, start in enumerate(range(0, 1797, 300)):
        np.save(folder / f"block-{number}.npy", X[start : start + 300].astype(np.float32))
        np.save(folder / f"block-{number}.labels.npy", y[start : start + 300])


def failed(*arguments, cwd, code=1):
    """What a command that fails says: one line."""
    with contextlib.chdir(cwd):
        found = inside(*arguments)
    assert found.exit_code == code, found.output
    assert found.stdout == ""
    (line,) = [line for line in found.stderr.splitlines() if not line.startswith("fitting ")]
    return line


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with blocks, a model of them, and queries."""
    folder = tmp_path_factory.mktemp("trained")
    write_blocks(folder / "blocks")
    np.save(folder / "rows.npy", X[:3].astype(np.float32))
    told(*FIT, "-o", "near.gph", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def indexed(trained):
    told("index", "near.gph", "blocks", cwd=trained)
    return trained


@pytest.fixture
def copied(trained, tmp_path):
    """Blocks and a model that a test may spoil."""
    write_blocks(tmp_path / "blocks")
    (tmp_path / "near.gph").write_bytes((trained / "near.gph").read_bytes())
    return tmp_path


def test_a_cluster_trains_the_same_model(trained, cluster):
    far = told(*FIT, "-o", "far.gph", "--cluster", cluster.address, cwd=trained)
    assert far["fingerprint"] == load(trained / "near.gph").fingerprint_ == load(trained / "far.gph").fingerprint_
    assert (far["rows"], far["features"]) == (1797, 64)
    assert len(far["workers"]) == 2
    assert all(done["received"] > 0 and done["seconds"] for done in far["workers"].values())
    assert told("info", "far.gph", cwd=trained)["trained_with"] == "1,797 rows of blocks"


def test_a_fit_tells_what_every_worker_did(trained, cluster):
    found = gphash(*FIT, "-o", "shown.gph", "--cluster", cluster.address, cwd=trained)
    told = [line for line in found.stderr.splitlines() if line.startswith("tcp://127.0.0.1:")]
    assert len(told) == 2
    assert all("received" in line and line.endswith("at work") for line in told)
    assert found.stdout.splitlines()[-1].startswith("wrote shown.gph")


def test_a_model_of_blocks_is_evaluated(trained):
    report = told("evaluate", "near.gph", "digits:test", "-o", "report.json", cwd=trained)
    assert report["protocol"]["share_of_training_rows_met"] is None


@pytest.mark.parametrize("where", ["here", pytest.param("cluster", marks=pytest.mark.slow)])
def test_codes_and_index_are_written_block_by_block(trained, tmp_path, where, request):
    there = () if where == "here" else ("--cluster", request.getfixturevalue("cluster").address)
    made = told("encode", "near.gph", "blocks", "-o", tmp_path / "codes", *there, cwd=trained)
    assert (made["rows"], made["blocks"], made["blocks_made_now"], made["bits"]) == (1797, 6, 6, 8)
    assert sum(share["rows"] for share in made["workers"].values()) == 1797
    packed = load(trained / "near.gph").encode(X.astype(np.float32))
    found = [np.load(tmp_path / "codes" / f"block-{number}.codes.npy") for number in range(6)]
    np.testing.assert_array_equal(np.concatenate(found), packed)
    again = told("encode", "near.gph", "blocks", "-o", tmp_path / "codes", *there, cwd=trained)
    assert (again["blocks"], again["blocks_made_now"], again["workers"]) == (6, 0, {})

    made = told("index", "near.gph", "blocks", "-o", tmp_path / "made.gphash", *there, cwd=trained)
    assert (made["items"], made["bits"], made["classes"]) == (1797, 8, 10)
    results = told("search", tmp_path / "made.gphash", "rows.npy", "-k", 4, cwd=trained)["results"]
    wanted = HammingIndex.build(packed, n_bits=8).search(packed[:3], 4)
    assert [[one["key"] for one in found["neighbours"]] for found in results] == wanted.ids.tolist()
    assert [[one["distance"] for one in found["neighbours"]] for found in results] == wanted.distances.tolist()
    labels = [[one["labels"] for one in found["neighbours"]] for found in results]
    assert labels == [[[str(y[key])] for key in found] for found in wanted.ids]
    explained = told("info", tmp_path / "made.gphash", cwd=trained)
    assert (explained["items"], explained["parts"]) == (1797, 6)


@pytest.mark.parametrize("where", ["here", pytest.param("cluster", marks=pytest.mark.slow)])
def test_a_collection_in_parts_is_changed_like_any_other(trained, tmp_path, where, request):
    there = () if where == "here" else ("--cluster", request.getfixturevalue("cluster").address)
    place = tmp_path / "made.gphash"
    told("index", "near.gph", "blocks", "-o", place, *there, cwd=trained)
    assert told("add", place, "rows.npy", cwd=trained)["keys"] == [1797, 1798, 1799]
    assert told("remove", place, 0, 1798, cwd=trained)["items"] == 1798
    before = told("search", place, "rows.npy", "-k", 1800, cwd=trained)["results"]
    keys = {one["key"] for one in before[0]["neighbours"]}
    assert keys == set(range(1800)) - {0, 1798}
    assert told("compact", place, cwd=trained)["items"] == 1798
    assert told("search", place, "rows.npy", "-k", 1800, cwd=trained)["results"] == before
    assert told("info", place, cwd=trained)["parts"] == 1


def test_people_are_told_what_was_written(trained, cluster, tmp_path):
    with contextlib.chdir(trained):
        found = inside("encode", "near.gph", "blocks", "-o", tmp_path / "codes", "--cluster", cluster.address)
        assert found.exit_code == 0, found.output
        again = inside("encode", "near.gph", "blocks", "-o", tmp_path / "codes")
    assert " rows" in found.stderr  # of every worker
    assert found.stdout.endswith(f"wrote {tmp_path / 'codes'}: codes of 1,797 rows, 8 bits, in 6 files\n")
    assert again.stdout.endswith("in 6 files, 6 of them there before\n")


def test_search_by_key_radius_and_expected_distance(indexed):
    index = HammingIndex.build(load(indexed / "near.gph").encode(X.astype(np.float32)), n_bits=8)
    (found,) = told("search", "blocks.gphash", "key:7", "-k", 5, "--ranking", "hamming", cwd=indexed)["results"]
    ids, _ = index.search(index.codes_of([7]), 6)
    assert [one["key"] for one in found["neighbours"]] == [int(one) for one in ids[0] if one != 7][:5]
    assert found["neighbours"][0]["bits"] == found["query"]["bits"]
    near = told("search", "blocks.gphash", "rows.npy", "-k", 2000, "--radius", 3, "--ranking", "hamming", cwd=indexed)
    near = near["results"][0]
    ball = index.within(load(indexed / "near.gph").encode(X[:1].astype(np.float32)), 3)
    assert [one["key"] for one in near["neighbours"]] == ball.ids.tolist()
    assert [one["distance"] for one in near["neighbours"]] == ball.distances.tolist()
    only = told("search", "blocks.gphash", "rows.npy", "-k", 5, "--where", "label = ?", "--param", 3, cwd=indexed)
    assert {one["labels"][0] for found in only["results"] for one in found["neighbours"]} == {"3"}
    chances = load(indexed / "near.gph").bit_probabilities(X[:3].astype(np.float32))
    expected = told("search", "blocks.gphash", "rows.npy", "-k", 5, "--ranking", "expected", cwd=indexed)["results"]
    assert [[one["key"] for one in found["neighbours"]] for found in expected] == index.search_expected(
        chances, 5
    ).ids.tolist()
    with contextlib.chdir(indexed):
        shown_to_people = inside("search", "blocks.gphash", "key:7", "-k", 3).stdout.splitlines()
    assert shown_to_people[1].split()[0] == "key:7"
    assert len(shown_to_people) == 7


def test_info_explains_the_folder(trained, tmp_path):
    told("encode", "near.gph", "blocks", "-o", tmp_path / "codes", cwd=trained)
    found = told("info", tmp_path / "codes", cwd=trained)
    assert found["kind"] == "codes of a folder of blocks"
    assert found["finished"] is True
    assert (found["rows"], found["bits"], found["files"], found["files_there"]) == (1797, 8, 6, 6)
    assert found["model"] == load(trained / "near.gph").fingerprint_


def test_info_names_what_is_missing(copied):
    told("encode", "near.gph", "blocks", "-o", "made", cwd=copied)
    for name in ("block-1.codes.npy", "block-4.codes.npy"):
        (copied / "made" / name).unlink()
    said = failed("info", "made", cwd=copied)
    assert "'made' is not whole: 2 of 7 files are missing (block-1.codes.npy, block-4.codes.npy); run the same" in said
    (copied / "made" / "model.gph").unlink()
    assert "gphash encode again" in failed("info", "made", cwd=copied)
    told("encode", "near.gph", "blocks", "-o", "made", cwd=copied)
    assert told("info", "made", cwd=copied)["files_there"] == 6


def test_a_part_that_is_missing_is_named(copied):
    told("index", "near.gph", "blocks", "-o", "made.gphash", cwd=copied)
    part = sorted((copied / "made.gphash" / "parts").glob("*.index"))[2]
    part.unlink()
    for command in (
        ("info", "made.gphash"),
        ("search", "made.gphash", "key:7"),
        ("add", "made.gphash", "blocks/block-0.npy"),
    ):
        assert f"{part.name}' is missing; make the collection again" in failed(*command, cwd=copied)


def test_info_explains_the_codes_of_a_block(trained, tmp_path):
    told("encode", "near.gph", "blocks", "-o", tmp_path / "codes", cwd=trained)
    found = told("info", tmp_path / "codes" / "block-5.codes.npy", cwd=trained)
    assert (found["kind"], found["block"]) == ("codes of a block", "block-5.npy")
    assert (found["rows"], found["first_row"], found["bits"]) == (297, 1500, 8)
    assert "is not a file of gphash" in failed("info", "rows.npy", cwd=trained)
    assert "describes a folder of pictures" in failed("info", tmp_path, cwd=trained)


def test_data_describes_blocks(trained):
    found = told("data", "blocks", cwd=trained)
    assert (found["name"], found["kind"], found["blocks"]) == ("blocks", "npy", 6)
    assert (found["rows"], found["features"], found["dtype"]) == (1797, 64, "float32")
    assert found["supervision"] == "labels"
    assert found["classes"] == {str(digit): int((y == digit).sum()) for digit in range(10)}
    with contextlib.chdir(trained):
        lines = inside("data", "blocks").stdout.splitlines()
    assert lines[0].split(maxsplit=1) == ["name", "blocks"]
    assert lines[-10].split() == ["0", "178"]


def test_data_describes_blocks_of_other_kinds(tmp_path):
    zarr = pytest.importorskip("zarr", reason="zarr is not installed")
    group = zarr.open_group(tmp_path / "tagged", mode="w")
    group.create_array("X", data=X[:50])
    group.create_array("tags", data=np.eye(3, dtype=np.uint8)[y[:50] % 3])
    found = told("data", "tagged", cwd=tmp_path)
    assert (found["kind"], found["rows"], found["dtype"], found["supervision"]) == ("zarr", 50, "float64", "tags")
    assert sum(found["classes"].values()) == 50
    (tmp_path / "bare").mkdir()
    np.save(tmp_path / "bare" / "a.npy", X[:50])
    found = told("data", "bare", cwd=tmp_path)
    assert (found["supervision"], found["classes"]) == ("none", {})


@pytest.mark.parametrize("command", ["encode", "index"])
def test_ctrl_c_leaves_whole_files_and_the_same_command_goes_on(copied, monkeypatch, command):
    def stop(meter, done, total):
        if done >= 900:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(shown.Meter, "__call__", stop)
        said = failed(command, "near.gph", "blocks", "-o", "made", cwd=copied, code=130)
    assert said == "gphash: interrupted; run the same command again to go on where it stopped."
    marks = [".gphash-unfinished"] if command == "index" else []  # what tells that the folder is ours
    assert [path.name for path in (copied / "made").glob(".*")] == marks
    assert told("info", "made", cwd=copied)["finished"] is False
    if command == "index":
        assert "make it again if it was interrupted" in failed("search", "made", "key:0", cwd=copied)
    files = {path: path.stat().st_ino for path in (copied / "made").rglob("*block-*")}
    assert 0 < len(files) < 6
    again = told(command, "near.gph", "blocks", "-o", "made", cwd=copied)
    assert {path: path.stat().st_ino for path in files} == files
    assert again["rows" if command == "encode" else "items"] == 1797
    if command == "encode":
        assert again["blocks_made_now"] == 6 - len(files)
        assert bulk.read_plan(copied / "made").finished


@pytest.mark.parametrize("command", [FIT, ("encode", "near.gph", "blocks"), ("index", "near.gph", "blocks")])
def test_a_wrong_address_is_one_line(copied, monkeypatch, command):
    pytest.importorskip("distributed", reason="a cluster needs Dask")
    monkeypatch.setattr("gphash.cluster.dask_executor.ANSWERING", 0.5)
    said = failed(*command, "--cluster", "tcp://127.0.0.1:1", cwd=copied)
    assert said.startswith("gphash: no Dask scheduler answers at 'tcp://127.0.0.1:1'")
    assert sorted(path.name for path in copied.iterdir()) == ["blocks", "near.gph"]


def test_a_block_that_is_missing_or_bad_is_named(copied, cluster):
    there = ("--cluster", cluster.address)
    rows = X[300:600].astype(np.float32)
    rows[5, 9] = np.inf
    np.save(copied / "blocks" / "block-1.npy", rows)
    for command in (FIT, ("encode", "near.gph", "blocks")):
        assert "block-1.npy', row 5, column 9: inf" in failed(*command, *there, cwd=copied)
    (copied / "blocks" / "block-1.npy").unlink()
    for command in (FIT, ("encode", "near.gph", "blocks", "-o", "others")):
        assert "but not 'block-1.npy'" in failed(*command, *there, cwd=copied)
    np.save(copied / "blocks" / "block-1.npy", rows[:, :9])
    assert "block-1.npy' has 9 columns" in failed(*FIT, *there, cwd=copied)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("fit", "blocks", "-m", "sdh"), "sdh needs all rows in memory"),
        (("search", "blocks.gphash", "key:1797"), "there is no item 1797."),
        (("search", "blocks.gphash", "key:7", "--ranking", "expected"), "no probabilities (its picture or text"),
        (("search", "blocks.gphash", "key:7", "--show", "x.png"), "item 7 has no picture"),
        (("info", "blocks"), "'blocks' is a folder; gphash data blocks describes a folder of blocks."),
        (("data", "blocks.gphash"), "gphash info blocks.gphash explains it"),
    ],
)
def test_what_cannot_be_is_one_line(indexed, command, complaint):
    assert complaint in failed(*command, cwd=indexed)


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("fit", "blocks", "-m", "sdh", "--cluster", "x"), "--cluster 'x': sdh trains without it"),
        (("fit", "digits", "--cluster", "x"), "--cluster reads a folder of .npy or .parquet blocks"),
        (("encode", "near.gph", "digits", "--cluster", "x"), "--cluster reads a folder"),
        (("index", "near.gph", "digits", "--cluster", "x"), "--cluster reads a folder"),
        (("fit", "blocks", "--set", "executor=x"), "give --cluster instead"),
        (("encode", "near.gph", "blocks", "-p"), "--probabilities is for rows in one file"),
        (("encode", "near.gph", "blocks", "-o", "near.gph"), "is a file"),
        (("index", "near.gph", "blocks", "-o", "no/index"), "does not exist; make it first"),
        (("add", "blocks.gphash", "blocks"), "'blocks' is a folder of blocks; gphash index makes a collection of one."),
    ],
)
def test_what_cannot_be_said_is_a_matter_of_usage(indexed, command, complaint):
    with contextlib.chdir(indexed):
        found = inside(*command)
    assert found.exit_code == 2
    assert complaint in " ".join(found.stderr.split())


def test_blocks_without_labels_teach_nothing(tmp_path):
    (tmp_path / "blocks").mkdir()
    np.save(tmp_path / "blocks" / "a.npy", X[:50].astype(np.float32))
    assert "has neither labels nor tags to learn from" in failed("fit", "blocks", cwd=tmp_path)


def test_a_collection_is_replaced_only_when_told_to(indexed):
    told(*FIT, "-o", "other.gph", "--seed", 1, cwd=indexed)
    before = told("search", "blocks.gphash", "key:7", cwd=indexed)
    with contextlib.chdir(indexed):
        refused = inside("index", "other.gph", "blocks")
    assert refused.exit_code == 2
    assert "--replace" in refused.stderr
    assert told("search", "blocks.gphash", "key:7", cwd=indexed) == before
    told("index", "other.gph", "blocks", "-o", "again.gphash", cwd=indexed)
    told("index", "near.gph", "blocks", "-o", "again.gphash", "--replace", cwd=indexed)
    assert told("search", "again.gphash", "key:7", cwd=indexed) == before


def test_help_teaches_it():
    for command in ("fit", "encode", "index"):
        assert "--cluster tcp://10.0.0.1:8786" in inside(command, "--help").stdout
