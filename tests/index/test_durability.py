"""What an index has acknowledged is in its files, whatever happens to them; damage is reported, never believed."""

import contextlib
import errno
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from gphash import HammingIndex, container, files
from gphash.codes import packing
from gphash.container import FormatError
from gphash.index import buckets as bucketing
from gphash.index import journal, storage
from tests.test_container import with_header

N_BITS = 12


def contents(index):
    """The code of every id."""
    whole = index._contents.whole()
    packed = bucketing.to_packed(bucketing.spread(whole), index.n_bits)
    return dict(zip(whole.ids.tolist(), map(bytes, packed), strict=True))


def stored(path):
    """What somebody who opens the index finds."""
    with HammingIndex.open(path) as index:
        return contents(index)


def codes(seed, n, n_bits=N_BITS):
    return packing.pack(np.random.default_rng(seed).integers(0, 2, (n, n_bits)))


def abandon(index):
    """Leave an index as a process that ends without closing it does."""
    index._files.close()


def journal_of(path):
    return path.with_name(path.name + ".journal")


@pytest.fixture
def path(tmp_path):
    """A saved index of 40 items."""
    path = tmp_path / "items.index"
    HammingIndex.build(codes(0, 40), n_bits=N_BITS, model="abc").save(path)
    return path


@pytest.fixture
def busy(path):
    """The same with a journal of some records, and what it holds."""
    index = HammingIndex.open(path, writable=True)
    index.add(codes(1, 5), range(100, 105))
    index.remove([3, 101, 7])
    index.add(codes(2, 2), [3, -(2**62)])
    index.remove([104])
    found = contents(index)
    abandon(index)
    assert len(found) == 40 + 5 - 3 + 2 - 1
    return path, found


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    n_bits=st.sampled_from([1, 16, 17, 64, 65, 1024]),
    ids=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 50), unique=True, max_size=20),
    model=st.none() | st.text(max_size=5),
    writable=st.booleans(),
)
def test_round_trip(tmp_path, n_bits, ids, model, writable):
    path = tmp_path / "a"
    index = HammingIndex.build(codes(len(ids), len(ids), n_bits), ids, n_bits=n_bits, model=model)
    mark = index.save(path)
    assert mark == container.describe(path).fingerprint
    with HammingIndex.open(path, writable=writable) as opened:
        assert contents(opened) == contents(index)
        assert (opened.n_bits, opened.model, len(opened)) == (n_bits, model, len(ids))
        assert opened.stats()[:4] == index.stats()[:4]
    assert mark == container.describe(path).fingerprint


def test_an_opened_index_searches_in_its_file(path):
    index = HammingIndex.build(codes(0, 40), n_bits=N_BITS)
    opened = HammingIndex.open(path)
    for array in opened._contents.parts[0].buckets[:3]:
        assert not array.flags.writeable
        assert not array.flags.owndata
    queries, chances = codes(3, 4), np.random.default_rng(4).random((4, N_BITS))
    for found, wanted in [
        (opened.search(queries, 20), index.search(queries, 20)),
        (opened.search_expected(chances, 20), index.search_expected(chances, 20)),
        (opened.within(queries, 3), index.within(queries, 3)),
    ]:
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(a, b)
    assert list(opened.iterate(chances[0])) == list(index.iterate(chances[0]))
    assert sorted(file.name for file in path.parent.iterdir()) == ["items.index"]


def test_a_reader_changes_nothing(busy):
    path, found = busy
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    reader = HammingIndex.open(path)
    for change in (
        lambda: reader.add(codes(5, 1), [500]),
        lambda: reader.remove([1]),
        lambda: reader.remove([12345]),
        lambda: reader.add(codes(5, 0), []),
        reader.compact,
        lambda: reader.save(path),
    ):
        with pytest.raises(ValueError, match="opened to be read"):
            change()
    assert contents(reader) == found
    assert before == {file.name: file.read_bytes() for file in path.parent.iterdir()}


def test_what_is_closed_is_not_written_to(path):
    with HammingIndex.open(path, writable=True) as index:
        index.add(codes(5, 1), [500])
    with pytest.raises(ValueError, match="closed"):
        index.add(codes(5, 1), [501])
    index.close()
    assert sorted(stored(path)) == [*range(40), 500]


def test_a_reader_keeps_what_it_has_opened(path):
    with HammingIndex.open(path, writable=True) as writer:
        readers = []
        for step in range(12):
            readers.append((HammingIndex.open(path), contents(writer)))
            if step % 4 == 3:
                writer.compact()
            elif step % 4 == 2:
                assert writer.remove([step, step + 10, -1]) == 2
            else:
                writer.add(codes(step, 3), [100 * step + 200 + i for i in range(3)])
        for reader, then in readers:
            assert contents(reader) == then
            queries = codes(6, 2)
            assert sorted(reader.rank(queries).ids[0].tolist()) == sorted(then)
        last = contents(writer)
    assert stored(path) == last


def test_a_second_writer_is_refused(path):
    with HammingIndex.open(path, writable=True) as first:
        with pytest.raises(storage.LockedError, match="one writer"):
            HammingIndex.open(path, writable=True)
        with pytest.raises(storage.LockedError):
            HammingIndex.build(codes(0, 2), n_bits=N_BITS).save(path)
        program = (
            "import sys; from gphash.index import storage\n"
            "try: storage.open_files(sys.argv[1], True)\n"
            "except storage.LockedError: print('locked')\n"
            "print(len(storage.open_files(sys.argv[1], False).buckets.ids))"
        )
        run = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
        assert run.stdout.split() == ["locked", "40"]
        first.add(codes(1, 1), [90])
    with HammingIndex.open(path, writable=True) as second:
        assert len(second) == 41


def test_a_failed_opening_gives_the_lock_back(busy):
    path, found = busy
    data = journal_of(path).read_bytes()
    journal_of(path).write_bytes(data[:-1])
    with pytest.raises(FormatError):
        HammingIndex.open(path, writable=True)
    journal_of(path).write_bytes(data)
    with HammingIndex.open(path, writable=True) as index:
        assert contents(index) == found


def test_a_journal_is_replayed(busy):
    path, found = busy
    assert stored(path) == found
    for _ in range(3):
        with HammingIndex.open(path, writable=True) as index:
            assert contents(index) == found
            assert index.ids.tolist() == sorted(found)


def test_compaction_folds_the_journal_in(busy):
    path, found = busy
    with HammingIndex.open(path, writable=True) as index:
        mark = index.compact()
        assert container.describe(path).fingerprint == mark
        assert contents(index) == stored(path) == found
        assert journal_of(path).stat().st_size == journal.START
        index.remove([0])
        assert 0 not in stored(path)
        assert index.save(path) == container.describe(path).fingerprint != mark
        assert journal_of(path).stat().st_size == journal.START
    assert stored(path) == {number: code for number, code in found.items() if number}


def test_a_journal_grown_large_is_folded_in(path, monkeypatch):
    monkeypatch.setattr(storage, "LARGE", 1000)
    first = container.describe(path).fingerprint
    with HammingIndex.open(path, writable=True) as index:
        for step in range(60):
            index.add(codes(step, 2), [1000 + 2 * step, 1001 + 2 * step])
            assert journal_of(path).stat().st_size <= journal.START + max(1000, path.stat().st_size // 2)
        index.remove(range(20))
        found = contents(index)
    assert container.describe(path).fingerprint != first
    assert sorted(stored(path)) == [*range(20, 40), *range(1000, 1120)]
    assert stored(path) == found


def test_compaction_that_fails_by_itself_is_no_failed_change(path, monkeypatch):
    monkeypatch.setattr(storage, "LARGE", 0)
    monkeypatch.setattr(Path, "stat", sized(Path.stat, path, 0))
    with HammingIndex.open(path, writable=True) as index:
        with monkeypatch.context() as patch:
            patch.setattr(storage, "write", full)
            with pytest.warns(RuntimeWarning, match="could not be folded.*No space"):
                index.add(codes(1, 2), [100, 101])
            assert index.remove([5]) == 1  # not tried again before the journal has doubled
            assert contents(index) == stored(path)
        index.add(codes(2, 9), range(102, 111))
        assert journal_of(path).stat().st_size == journal.START
        monkeypatch.setattr(storage, "LARGE", 10**6)
        index.remove(range(103, 111))
        found = contents(index)
        with monkeypatch.context() as patch:
            patch.setattr(storage, "write", full)
            with pytest.warns(RuntimeWarning, match="nothing is lost"):
                index.close()
    assert stored(path) == found
    assert sorted(found) == [*range(5), *range(6, 40), 100, 101, 102]


def sized(stat, path, size):
    """`Path.stat` with another size for one file."""

    def told(self, **options):
        found = stat(self, **options)
        return os.stat_result((*found[:6], size, *found[7:10])) if self == path else found

    return told


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupt(*_, **__):
    raise KeyboardInterrupt


# Where a compaction may end: before the new file is in its place, just after, and before the new journal is.
@pytest.mark.parametrize("failure", [full, interrupt])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        (os, "fsync"),
        (os, "replace"),
        (files, "sync_folder"),
        (journal, "create"),
        (journal, "Writer"),
    ],
    ids=str,
)
def test_an_interrupted_compaction_loses_nothing(busy, monkeypatch, tmp_path_factory, module, name, failure):
    path, found = busy
    with HammingIndex.open(path, writable=True) as index:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, failure)
            with pytest.raises((OSError, KeyboardInterrupt)):
                index.compact()
        assert contents(index) == stored(path) == found
        # As a crash would have left it.
        crashed = tmp_path_factory.mktemp("crashed") / path.name
        for file in (path, journal_of(path)):
            shutil.copy(file, crashed.parent)
        with HammingIndex.open(crashed, writable=True) as other:
            assert contents(other) == found
            other.add(codes(8, 1), [800])
        assert stored(crashed).keys() == found.keys() | {800}
        # The writer goes on, and what it acknowledges counts.
        index.add(codes(9, 2), [900, 901])
        index.remove([900, 0])
        assert stored(path) == contents(index)
        assert stored(path).keys() == found.keys() - {0} | {901}
        index.compact()
        assert stored(path) == contents(index)


def failing_calls(numbers, call):
    """The same function, but some of its calls fail."""
    count = iter(range(10**6))

    def fail(*arguments):
        if next(count) in numbers:
            raise OSError(errno.ENOSPC, "No space left on device")
        return call(*arguments)

    return fail


@pytest.mark.parametrize("failing", [{0}, {1}, {0, 1}, {1, 2}, {0, 2}, {1, 3}, {0, 1, 2, 3}], ids=str)
@pytest.mark.parametrize("change", ["add", "remove"])
def test_a_disk_that_does_not_take_a_change(busy, monkeypatch, failing, change):
    path, found = busy
    with HammingIndex.open(path, writable=True) as index:
        make = {"add": lambda: index.add(codes(3, 2), [200, 201]), "remove": lambda: index.remove([1, 2])}[change]
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing_calls(failing, os.fsync))
            with pytest.raises(OSError, match="No space"):
                make()
            assert contents(index) == found
            attempted = stored(path)  # if it could not be undone, it may be there until it is
            assert attempted == found or len(failing) > 1
            assert attempted.keys() in (found.keys(), found.keys() | {200, 201}, found.keys() - {1, 2})
        index.add(codes(4, 1), [300])
        assert stored(path) == contents(index)
        assert stored(path).keys() == found.keys() | {300}
        make()
        assert stored(path) == contents(index)
    assert stored(path) == contents(index)


@pytest.mark.parametrize("room", [0, 1, 30, 80, 120, 150])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_disk_that_takes_a_part_of_a_change(busy, monkeypatch, room, error):
    path, found = busy
    write = journal.Writer._write

    def write_a_part(self, place, content):
        nonlocal room
        write(self, place, content[: max(room, 0)])
        if room < len(content):
            room = 10**6
            raise error
        room -= len(content)

    with HammingIndex.open(path, writable=True) as index:
        with monkeypatch.context() as patch:
            patch.setattr(journal.Writer, "_write", write_a_part)
            with pytest.raises(type(error)):
                index.add(codes(3, 5), range(200, 205))
        assert contents(index) == found
        assert stored(path).keys() in (found.keys(), found.keys() | set(range(200, 205)))
        index.add(codes(4, 1), [300])
        index.add(codes(5, 1), [200])
        assert stored(path) == contents(index)
    assert stored(path).keys() == found.keys() | {300, 200}


def test_a_crash_after_an_undo_that_failed(busy, monkeypatch):
    """A slot that reached the disk without being acknowledged must not make the next record look like damage."""
    path, found = busy
    with HammingIndex.open(path, writable=True) as index:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing_calls({1, 2}, os.fsync))  # of the slot, and of its removal
            with pytest.raises(OSError, match="No space"):
                index.add(codes(3, 2), [200, 201])
        with monkeypatch.context() as patch:
            patch.setattr(journal.Writer, "_write", full)
            with pytest.raises(OSError, match="No space"):
                index.add(codes(3, 1), [202])
            assert stored(path).keys() in (found.keys(), found.keys() | {200, 201})
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", failing_calls({2}, os.fsync))  # cleared away; then the record's own
            with pytest.raises(OSError, match="No space"):
                index.add(codes(3, 1), [203])
        assert stored(path) == found
    with HammingIndex.open(path, writable=True) as index:
        assert contents(index) == found


def opened_or_refused(path):
    """What an index holds; None if it says that it is damaged, and which file it is."""
    try:
        return stored(path)
    except FormatError as error:
        message = str(error)
    assert str(path) in message
    return None


@pytest.mark.parametrize("file", ["base", "journal"])
def test_every_truncation_is_reported(busy, file):
    path, _ = busy
    damaged = path if file == "base" else journal_of(path)
    data = damaged.read_bytes()
    for length in [*range(0, len(data) - 700, 97), *range(len(data) - 700, len(data), 7), len(data) - 1]:
        damaged.write_bytes(data[: max(length, 0)])
        assert opened_or_refused(path) is None
    damaged.write_bytes(data)
    assert opened_or_refused(path) is not None


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_altered_byte_of_the_base_is_reported(busy, mask):
    path, found = busy
    data = path.read_bytes()
    for position in range(mask % 3, len(data), 3):
        damaged = bytearray(data)
        damaged[position] ^= mask
        path.write_bytes(damaged)
        assert opened_or_refused(path) is None, position
    path.write_bytes(data)
    assert stored(path) == found


@pytest.mark.parametrize("mask", [0x01, 0x80, 0xFF])
def test_every_altered_byte_of_a_journal_is_reported_or_harmless(busy, mask):
    path, found = busy
    beside = journal_of(path)
    data = beside.read_bytes()
    head = 8 + 4 + 32 + 32 + 32
    slots = [place + offset for place in journal.SLOTS for offset in range(8 + 8 + 32 + 32)]
    for position in [*range(head), *slots, *range(head, journal.START, 61), *range(journal.START, len(data))]:
        damaged = bytearray(data)
        damaged[position] ^= mask
        beside.write_bytes(damaged)
        # One slot is enough: without the latest, the records behind the other one are in the chain all the same.
        meaningless = head <= position < journal.START
        assert opened_or_refused(path) == (found if meaningless else None), position
    beside.write_bytes(data)
    assert stored(path) == found


def test_a_journal_without_slots_is_reported(busy):
    path, _ = busy
    damaged = bytearray(journal_of(path).read_bytes())
    for place in journal.SLOTS:
        damaged[place] ^= 1
    journal_of(path).write_bytes(damaged)
    with pytest.raises(FormatError, match="does not say how long it is"):
        HammingIndex.open(path)


@pytest.mark.parametrize("slot", [0, 1])
def test_writing_goes_on_after_damage_to_a_slot(busy, slot):
    path, found = busy
    damaged = bytearray(journal_of(path).read_bytes())
    damaged[journal.SLOTS[slot] + 9] ^= 1
    journal_of(path).write_bytes(damaged)
    for number in (600, 601, 602):
        with HammingIndex.open(path, writable=True) as index:
            index.add(codes(number, 1), [number])
        assert stored(path) == contents(index)
    assert stored(path).keys() == found.keys() | {600, 601, 602}


@pytest.mark.parametrize("tail", [b"\0", b"\1\0\0\0", bytes(500), b"\1\0\0\0\5" + bytes(100), b"x" * 1000])
def test_the_torn_rest_of_a_crash_is_ignored(busy, tail):
    path, found = busy
    with open(journal_of(path), "ab") as file:
        file.write(tail)
    assert stored(path) == found
    with HammingIndex.open(path, writable=True) as index:
        assert contents(index) == found
        index.add(codes(7, 1), [700])
    assert stored(path).keys() == found.keys() | {700}


def test_a_record_whose_slot_is_missing_counts(busy):
    path, found = busy
    header = journal_of(path).read_bytes()[: journal.START]
    index = HammingIndex.open(path, writable=True)
    index.add(codes(7, 2), [700, 701])
    after = contents(index)
    abandon(index)
    body = journal_of(path).read_bytes()[journal.START :]
    journal_of(path).write_bytes(header + body)
    assert stored(path) == after
    for length in range(len(body) - 71, len(body)):
        journal_of(path).write_bytes(header + body[:length])
        torn = stored(path)
        assert torn == found
    journal_of(path).write_bytes(header + body)
    with HammingIndex.open(path, writable=True) as index:
        index.remove([700])
    assert stored(path).keys() == found.keys() | {701}


def test_a_lost_base_is_a_missing_file(busy):
    path, _ = busy
    path.unlink()
    for writable in (False, True):
        with pytest.raises(FileNotFoundError, match="does not exist"):
            HammingIndex.open(path, writable=writable)


def test_another_byte_order_is_refused(path):
    data = path.read_bytes()
    entries = [
        {"name": name, "dtype": entry.dtype.replace("<", ">"), "shape": entry.shape, "offset": entry.offset}
        for name, entry in container.describe(path).arrays.items()
    ]
    path.write_bytes(with_header(data, arrays=entries))
    with pytest.raises(FormatError, match="dtype '>"):
        HammingIndex.open(path)


def test_newer_formats_are_refused(busy):
    path, found = busy
    data, beside = path.read_bytes(), journal_of(path).read_bytes()
    path.write_bytes(with_header(data, format_version=container.FORMAT_VERSION + 1))
    with pytest.raises(FormatError, match="newer"):
        HammingIndex.open(path)
    path.write_bytes(data)
    journal_of(path).write_bytes(beside[:8] + struct.pack("<I", journal.FORMAT + 1) + beside[12:])
    with pytest.raises(FormatError, match="newer"):
        HammingIndex.open(path)
    journal_of(path).write_bytes(beside)
    assert stored(path) == found


def test_files_that_are_no_index_are_refused(path):
    journal_of(path).write_bytes(b"x" * 5000)
    with pytest.raises(FormatError, match="no journal"):
        HammingIndex.open(path)
    journal_of(path).unlink()
    container.write(path, "model", {}, {})
    with pytest.raises(FormatError, match="holds 'model'"):
        HammingIndex.open(path)
    path.write_bytes(b"something else")
    with pytest.raises(FormatError, match="not a gphash file"):
        HammingIndex.open(path)


def test_a_record_of_an_unknown_kind_is_refused(busy):
    path, _ = busy
    slot = journal.read(journal_of(path)).slot
    with contextlib.closing(journal.Writer(journal_of(path), slot)) as writer:
        writer.append(7, bytes(8))
    with pytest.raises(FormatError, match="does not know"):
        HammingIndex.open(path)


def test_a_journal_of_another_index_is_refused(busy, tmp_path):
    path, _ = busy
    other = tmp_path / "other.index"
    HammingIndex.build(codes(9, 40), n_bits=N_BITS).save(other)
    shutil.copy(journal_of(path), journal_of(other))
    for writable in (False, True):
        with pytest.raises(FormatError, match="belongs to another index"):
            HammingIndex.open(other, writable=writable)


@pytest.mark.parametrize("state", ["whole", "damaged", "not removed"])
def test_saving_over_an_index_with_a_journal(busy, monkeypatch, state):
    path, _ = busy
    index = HammingIndex.build(codes(11, 7), range(50, 57), n_bits=N_BITS)
    if state == "damaged":
        journal_of(path).write_bytes(journal.MAGIC + b"x" * 5000)
    with monkeypatch.context() as patch:
        if state == "not removed":  # a crash comes between the file and its journal
            patch.setattr(Path, "unlink", interrupt)
            with pytest.raises(KeyboardInterrupt):
                index.save(path)
        else:
            index.save(path)
    assert stored(path) == contents(index)
    with HammingIndex.open(path, writable=True) as again:
        again.add(codes(12, 1), [1])
    assert stored(path).keys() == contents(index).keys() | {1}


def test_saving_elsewhere_leaves_the_index_where_it_is(busy, tmp_path):
    path, found = busy
    with HammingIndex.open(path, writable=True) as index:
        index.save(tmp_path / "copy")
        index.add(codes(13, 1), [1300])
    assert stored(tmp_path / "copy") == found
    assert stored(path).keys() == found.keys() | {1300}


def test_an_index_behind_a_link(busy, tmp_path_factory):
    path, found = busy
    link = tmp_path_factory.mktemp("links") / "link"
    link.symlink_to(path)
    with HammingIndex.open(link, writable=True) as index:
        with pytest.raises(storage.LockedError):
            HammingIndex.open(path, writable=True)
        index.add(codes(14, 1), [1400])
        index.save(link)
    assert link.is_symlink()
    assert stored(path) == stored(link)
    assert stored(path).keys() == found.keys() | {1400}


def test_an_index_without_a_file_is_compacted_in_memory():
    index = HammingIndex.build(codes(0, 30), n_bits=N_BITS)
    index.add(codes(1, 5), range(100, 105))
    index.remove([3, 101])
    before = contents(index)
    assert index.compact() == ""
    assert contents(index) == before
    (part,) = index._contents.parts
    assert not len(part.alive)
    index.close()


def test_a_closed_index_is_one_file(path):
    with HammingIndex.open(path, writable=True) as index:
        index.add(codes(1, 5), range(100, 105))
        assert journal_of(path).exists()
        found = contents(index)
    assert not journal_of(path).exists()
    elsewhere = path.with_name("copy")
    shutil.copy(path, elsewhere)
    assert stored(elsewhere) == found


def test_threads_may_change_one_index(path):
    with HammingIndex.open(path, writable=True) as index:
        failures = []

        def change(first):
            try:
                for step in range(15):
                    index.add(codes(first + step, 2), [first + 2 * step, first + 2 * step + 1])
                    index.remove([first + 2 * step])
                    if step % 5 == 0:
                        index.compact()
                    assert index.search(codes(0, 1), 1000).ids.shape[1] >= 40
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=change, args=(first,)) for first in (1000, 2000, 3000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        found = contents(index)
        assert sorted(found) == index.ids.tolist()
        abandon(index)
    assert sorted(found) == [*range(40), *(first + odd for first in (1000, 2000, 3000) for odd in range(1, 30, 2))]
    assert stored(path) == found


def test_a_forked_process_does_not_write(path):
    index = HammingIndex.open(path, writable=True)
    index.add(codes(1, 1), [100])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            index.add(codes(2, 1), [101])
        except ValueError as error:
            told = "another process" in str(error)
            index.close()
            os._exit(0 if told else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(storage.LockedError):
        HammingIndex.open(path, writable=True)
    index.add(codes(3, 1), [102])
    index.close()
    assert sorted(stored(path)) == [*range(40), 100, 102]
    with HammingIndex.open(path, writable=True):
        pass


def test_permissions_stay(path):
    path.chmod(0o600)
    with HammingIndex.open(path, writable=True) as index:
        assert journal_of(path).stat().st_mode & 0o777 == 0o600
        index.add(codes(1, 1), [100])
        index.compact()
        assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_foreign_journal_is_not_deleted(tmp_path):
    diary = tmp_path / "notes.journal"
    diary.write_text("my diary")
    with pytest.raises(FileExistsError, match="no journal of an index"):
        HammingIndex.build(codes(0, 3), n_bits=N_BITS).save(tmp_path / "notes")
    assert diary.read_text() == "my diary"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("starts", np.array([0, 2**31], np.uint32)),
        ("starts", np.array([1, 3], np.uint32)),
        ("starts", np.array([0], np.uint32)),
        ("ids", np.arange(3, dtype=np.int32)),
        ("codes", np.zeros(1, np.uint64)),
        ("codes", np.zeros((1, 2), np.uint16)),
    ],
)
def test_arrays_that_do_not_go_together_are_refused(tmp_path, name, value):
    arrays = {"codes": np.zeros(1, np.uint16), "starts": np.array([0, 3], np.uint32), "ids": np.arange(3)}
    meta = {"n_bits": N_BITS, "model": None, "folded": None}
    container.write(tmp_path / "good", storage.KIND, meta, arrays)
    assert len(HammingIndex.open(tmp_path / "good")) == 3
    container.write(tmp_path / "bad", storage.KIND, meta, {**arrays, name: value})
    with pytest.raises(FormatError, match=r"bad' cannot be used: .*; build the index again"):
        HammingIndex.open(tmp_path / "bad")


def test_where_nothing_can_be_saved(tmp_path):
    index = HammingIndex.build(codes(0, 3), n_bits=N_BITS)
    with pytest.raises(FileNotFoundError, match=r"'.*nowhere' does not exist"):
        index.save(tmp_path / "nowhere" / "x")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        index.save(tmp_path)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        HammingIndex.open(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_file_replaced_while_it_is_opened(busy, monkeypatch):
    """A reader that looks at the file before, and at its journal after, looks again."""
    path, found = busy
    read = journal.read

    def after(change):
        def read_later(beside):
            monkeypatch.setattr(journal, "read", read)
            change()
            return read(beside)

        return read_later

    def compact():
        with HammingIndex.open(path, writable=True) as index:
            index.add(codes(15, 1), [1500])
            index.compact()

    monkeypatch.setattr(journal, "read", after(compact))
    assert stored(path).keys() == found.keys() | {1500}
    other = HammingIndex.build(codes(16, 3), n_bits=N_BITS)
    monkeypatch.setattr(journal, "read", after(lambda: other.save(path)))
    assert stored(path) == contents(other)


class Machine(RuleBasedStateMachine):
    """A writer and a dict, changed in the same ways; what is on disk is always what was acknowledged."""

    def __init__(self):
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "index"

    @initialize(n=st.integers(0, 30), n_bits=st.sampled_from([5, 20, 70]))
    def begin(self, n, n_bits):
        self.n_bits = n_bits
        built = HammingIndex.build(codes(n, n, n_bits), n_bits=n_bits)
        built.save(self.path)
        self.model = contents(built)
        self.index = HammingIndex.open(self.path, writable=True)

    @rule(ids=st.sets(st.integers(0, 60), max_size=6), seed=st.integers(0, 99))
    def add(self, ids, seed):
        fresh = sorted(ids - self.model.keys())
        packed = codes(seed, len(fresh), self.n_bits)
        self.index.add(packed, fresh)
        self.model.update(zip(fresh, map(bytes, packed), strict=True))

    @rule(ids=st.sets(st.integers(0, 60), max_size=10))
    def remove(self, ids):
        assert self.index.remove(sorted(ids)) == len(ids & self.model.keys())
        self.model = {number: code for number, code in self.model.items() if number not in ids}

    @rule()
    def compact(self):
        self.index.compact()

    @rule()
    def open_again(self):
        self.index.close()
        self.index = HammingIndex.open(self.path, writable=True)

    @rule(call=st.sampled_from(["_write", "fsync", "create"]), compacting=st.booleans())
    def fail(self, call, compacting):
        module = {"_write": journal.Writer, "fsync": os, "create": journal}[call]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, call, full)
            with contextlib.suppress(OSError):
                self.index.compact() if compacting else self.index.add(codes(0, 0, self.n_bits), [])

    @invariant()
    def has_everything(self):
        if hasattr(self, "index"):
            assert contents(self.index) == self.model == stored(self.path)

    def teardown(self):
        if hasattr(self, "index"):
            self.index.close()
        self.folder.cleanup()


def test_any_sequence_of_changes(monkeypatch):
    monkeypatch.setattr(storage, "LARGE", journal.START + 300)
    run_state_machine_as_test(Machine, settings=settings(max_examples=30, stateful_step_count=20))
