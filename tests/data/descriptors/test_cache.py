"""Descriptors on disk: served when whole, computed anew otherwise, and never in the way."""

import sqlite3
import subprocess
import sys
import warnings

import pytest

from gphash.data.descriptors import cache

ENTRIES = {bytes([number]) * 32: bytes([number]) * 2048 for number in range(200)}


@pytest.fixture(autouse=True)
def forget_warnings(monkeypatch):
    monkeypatch.setattr(cache, "_warned", set())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "made" / "on demand" / "cache.sqlite"


def test_what_was_written_is_read(path):
    assert cache.read(path, ENTRIES) == {}
    cache.write(path, ENTRIES)
    cache.write(path, {b"another": b""})
    assert cache.read(path, [*ENTRIES, b"another", b"missing"]) == ENTRIES | {b"another": b""}


def test_many_keys_at_once(path):
    many = {number.to_bytes(32, "big"): b"x" for number in range(40_000)}
    cache.write(path, many)
    assert cache.read(path, many.keys()) == many


@pytest.mark.parametrize("content", [b"no database at all, but some text" * 100, None])
def test_a_damaged_file_is_made_anew(path, content):
    cache.write(path, ENTRIES)
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    path.write_bytes(path.read_bytes()[:6000] if content is None else content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.read(path, ENTRIES)
        cache.write(path, ENTRIES)
        assert cache.read(path, ENTRIES) == ENTRIES


def test_a_damaged_entry_is_not_served(path):
    cache.write(path, ENTRIES)
    first, second, *_ = ENTRIES
    with sqlite3.connect(path) as base:
        base.execute("UPDATE kept SET value = substr(value, 1, 100) WHERE key = ?", (first,))
        base.execute("UPDATE kept SET key = ? WHERE key = ?", (b"moved", second))
    base.close()
    assert cache.read(path, [*ENTRIES, b"moved"]) == {
        key: ENTRIES[key] for key in ENTRIES if key not in (first, second)
    }


def test_what_was_used_least_recently_goes(path, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 3 << 20)
    today = cache._today()
    for day in range(20):
        monkeypatch.setattr(cache, "_today", lambda day=day: today + 2 * day)
        cache.write(path, {b"%d-" % day + key: content for key, content in ENTRIES.items()})
        monkeypatch.setattr(cache, "_today", lambda day=day: today + 2 * day + 1)
        assert len(cache.read(path, {b"0-" + key for key in ENTRIES})) == 200  # those of the first day stay in use
    assert cache.read(path, {b"1-" + key for key in ENTRIES}) == {}
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    base.close()
    assert path.stat().st_size < 4 << 20


def test_where_nothing_can_be_written_there_is_one_warning(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(RuntimeWarning, match="cannot keep descriptors"):
        cache.write(tmp_path / "file" / "cache", ENTRIES)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.read(tmp_path / "file" / "cache", ENTRIES) == {}


def test_a_locked_file_is_not_waited_for_without_end(path, monkeypatch):
    cache.write(path, ENTRIES)
    monkeypatch.setattr(cache, "WAIT_SECONDS", 0.01)
    with sqlite3.connect(path, isolation_level=None) as base:
        base.execute("BEGIN EXCLUSIVE")
        with pytest.warns(RuntimeWarning, match="locked"):
            cache.write(path, ENTRIES)
    base.close()


def test_several_processes_write_at_once(path):
    code = (
        "import sys; from pathlib import Path; from gphash.data.descriptors import cache\n"
        "for n in range(20): cache.write(Path(sys.argv[1]), {f'{sys.argv[2]}-{n}'.encode(): b'x' * 2048})"
    )
    running = [subprocess.Popen([sys.executable, "-W", "error", "-c", code, path, str(n)]) for n in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    keys = [f"{n}-{m}".encode() for n in range(3) for m in range(20)]
    assert len(cache.read(path, keys)) == 60
