"""Files are replaced as a whole, never over what is not ours, and what killed writers leave goes."""

import errno
import os
import time
import warnings

import pytest

from gphash import HammingIndex, files
from gphash.evaluation import report
from gphash.hashers import methods
from tests import digits


def killed_while_writing(path):
    """A process that is gone in the middle of writing a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads; the child does next to nothing
        child = os.fork()
    if child == 0:
        with files.replacing(path) as file:
            file.write(b"half of it")
            file.flush()
            os._exit(9)
    os.waitpid(child, 0)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    """As a process that has not written anything yet."""
    monkeypatch.setattr(files, "_swept", set())


def test_what_a_killed_writer_left_goes_with_the_next_one(tmp_path):
    for name in ("a", "b", "a"):
        killed_while_writing(tmp_path / name)
        assert len(names(tmp_path)) == 1
    files.write_text(tmp_path / "c", "whole")
    assert names(tmp_path) == ["c"]


def test_what_is_being_written_stays(tmp_path):
    with files.replacing(tmp_path / "a") as file:
        file.write(b"one")
        files.sweep(tmp_path)
        killed_while_writing(tmp_path / "a")
        assert len(names(tmp_path)) == 2
        files.sweep(tmp_path)
        assert len(names(tmp_path)) == 1
    assert (tmp_path / "a").read_bytes() == b"one"


def test_what_others_may_be_writing_stays_for_a_day(tmp_path):
    elsewhere = tmp_path / f"{files.PREFIX}00000000-0123456789abcdef.tmp"
    elsewhere.write_text("of another machine")
    (tmp_path / "notes.tmp").write_text("not ours")
    files.sweep(tmp_path)
    assert len(names(tmp_path)) == 2
    long_ago = time.time() - files.LONG_PAST - 1
    os.utime(elsewhere, (long_ago, long_ago))
    files.sweep(tmp_path)
    assert names(tmp_path) == ["notes.tmp"]


def test_every_writer_sweeps(tmp_path):
    hasher = methods.METHODS.find("lsh")(n_bits=4, random_state=0).fit(digits.X[:20])
    index = HammingIndex.build(hasher.encode(digits.X[:20]), n_bits=4)
    for number, write in enumerate((hasher.save, index.save, lambda path: report.write(path, {"format": 1}))):
        folder = tmp_path / str(number)
        folder.mkdir()
        killed_while_writing(folder / "a")
        write(folder / "b")
        assert names(folder) == ["b"]


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    with pytest.raises(OSError, match=r"No space left on device: '.*full'"), files.replacing(tmp_path / "full"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["model", "index", "report"])
def test_a_file_that_is_not_ours_is_not_replaced(tmp_path, kind):
    hasher = methods.METHODS.find("lsh")(n_bits=4, random_state=0).fit(digits.X[:20])
    index = HammingIndex.build(hasher.encode(digits.X[:20]), n_bits=4)
    write = {
        "model": hasher.save,
        "index": index.save,
        "report": lambda path: report.write(path, {"format": 1, "results": {}}),
    }[kind]
    write(tmp_path / "first")
    write(tmp_path / "first")
    (tmp_path / "empty").touch()
    write(tmp_path / "empty")
    (tmp_path / "precious.txt").write_text("months of work")
    (tmp_path / "other").write_text('{"format": "other"}')
    index.save(tmp_path / "i") if kind == "model" else hasher.save(tmp_path / "i")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name in ("precious.txt", "other", "i"):
        with pytest.raises(FileExistsError, match=f"{name}' already exists and is no {kind}"):
            write(tmp_path / name)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
