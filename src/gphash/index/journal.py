"""The journal of an index: what was added and removed since its file was written, safe against crashes.

Its header of 4096 bytes has magic, format, mark of the index's file, own mark and SHA-256 of these, and at 1024 and at
2048 a slot each: number, length, chain, SHA-256 of these. Records follow: kind, length of the payload, payload, and
chain, the SHA-256 of the chain before it and of the record itself. Numbers are little-endian.

A record is written and forced to disk, then the slot that is not the latest is overwritten to say how long the journal
is now, and forced to disk; only then it is acknowledged. What is missing or altered before the length of the latest
valid slot is damage, and is reported. Behind it, whole records in the chain are taken as well (a crash, or damage to
the latest slot, came before their slot), and the torn rest of a crash, which was never acknowledged, is ignored.
"""

import contextlib
import hashlib
import os
import secrets
import struct
from pathlib import Path
from typing import NamedTuple

from gphash import files
from gphash.container import FormatError

MAGIC = b"\x89GPHJRN\n"
FORMAT = 1
ADD, REMOVE = 1, 2
START = 4096
SLOTS = (1024, 2048)

_HEAD = struct.Struct("<8sI32s32s")
_SLOT = struct.Struct("<QQ32s")
_RECORD = struct.Struct("<IQ")
_DIGEST = 32


class Slot(NamedTuple):
    """Up to where the journal counts: records so far, length of the file with the last of them, and its chain."""

    number: int
    length: int
    chain: bytes


class Journal(NamedTuple):
    """Mark (SHA-256) of the file that a journal goes on from, its own, up to where it counts, and what counts."""

    base: bytes
    mark: bytes
    slot: Slot
    records: list[tuple[int, bytes]]  # kind and payload


def create(path: Path, base: bytes, like: Path) -> None:
    """Write an empty journal for an index's file, with its permissions; one that is there is replaced."""
    head = _HEAD.pack(MAGIC, FORMAT, base, secrets.token_bytes(_DIGEST))
    header = bytearray(START)
    header[: len(head) + _DIGEST] = head + hashlib.sha256(head).digest()
    first = _seal(Slot(0, START, hashlib.sha256(head).digest()))
    header[SLOTS[0] : SLOTS[0] + len(first)] = first
    with files.replacing(path, like) as file:
        file.write(bytes(header))


def read(path: Path) -> Journal:
    """Read a journal and verify all that counts."""
    with open(path, "rb") as file:
        header, body = file.read(START), memoryview(file.read())

    def damaged(why: str) -> FormatError:
        return FormatError(f"{str(path)!r} is {why}")

    if len(header) < START:
        raise damaged(f"truncated: a journal has at least {START} bytes")
    magic, version, base, mark = _HEAD.unpack_from(header)
    if magic != MAGIC:
        raise damaged("no journal of an index")
    if version != FORMAT:
        raise damaged(f"a journal of format {version}, and this gphash knows {FORMAT}; a newer gphash reads it")
    chain = hashlib.sha256(header[: _HEAD.size]).digest()
    if header[_HEAD.size : _HEAD.size + _DIGEST] != chain:
        raise damaged("damaged: its header does not match its checksum")
    slots = [slot for place in SLOTS if (slot := _unseal(header, place)) is not None]
    if not slots:
        raise damaged("damaged: it does not say how long it is")
    slot = max(slots)
    sure = slot.length - START
    if len(body) < sure:
        raise damaged(f"truncated: it has {START + len(body)} bytes of {slot.length}")
    place, records = 0, []
    while place < sure:
        if (found := _record(body, sure, place, chain)) is None:
            raise damaged(f"damaged: the record at byte {START + place} does not match its checksum")
        records.append(found[:2])
        place, chain = found[2:]
    if chain != slot.chain:
        raise damaged("damaged: it does not end as its header says")
    while (found := _record(body, len(body), place, chain)) is not None:
        records.append(found[:2])
        place, chain = found[2:]
        slot = Slot(slot.number + 1, START + place, chain)
    return Journal(base, mark, slot, records)


class Writer:
    """Appends to a journal, whose rest behind the slot is cut off; whoever has one must hold the index's lock."""

    def __init__(self, path: Path, slot: Slot) -> None:
        self.slot = slot
        self._torn = False
        self._file = open(path, "r+b", buffering=0)  # noqa: SIM115, closed by close
        try:
            self._file.truncate(slot.length)
            # It may have been read from a record whose slot is missing: that comes first, or the next one would
            # overwrite the only slot that there is.
            self._write(SLOTS[slot.number % 2], _seal(slot))
            os.fsync(self._file.fileno())
        except BaseException:
            self._file.close()
            raise

    def append(self, kind: int, payload: bytes) -> None:
        """Write a record; when this returns, it is on disk and counts."""
        if self._torn:
            self._mend()
        head = _RECORD.pack(kind, len(payload))
        chain = hashlib.sha256(self.slot.chain + head + payload).digest()
        length = self.slot.length + len(head) + len(payload) + _DIGEST
        self._torn = True
        try:
            self._write(self.slot.length, head + payload + chain)
            os.fsync(self._file.fileno())
            slot = Slot(self.slot.number + 1, length, chain)
            self._write(SLOTS[slot.number % 2], _seal(slot))
            os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):  # else before the next record
                self._mend()
            raise
        self.slot = slot
        self._torn = False

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _mend(self) -> None:
        """Undo a record that was not finished.

        Its slot may have reached the disk: that goes first, lest it tell of a record that is cut off already.
        """
        self._write(SLOTS[(self.slot.number + 1) % 2], bytes(_SLOT.size + _DIGEST))
        os.fsync(self._file.fileno())
        self._file.truncate(self.slot.length)
        os.fsync(self._file.fileno())
        self._torn = False

    def _write(self, place: int, content: bytes) -> None:
        self._file.seek(place)
        view = memoryview(content)
        while len(view):
            view = view[self._file.write(view) :]


def _record(body: memoryview, stop: int, place: int, chain: bytes) -> tuple[int, bytes, int, bytes] | None:
    """Kind and payload of a record, where it ends, and its chain; None if it is not whole or not in the chain."""
    if (start := place + _RECORD.size) + _DIGEST > stop:
        return None
    kind, length = _RECORD.unpack_from(body, place)
    end = start + length
    after = hashlib.sha256(chain + bytes(body[place:end])).digest()
    if end + _DIGEST > stop or body[end : end + _DIGEST] != after:
        return None
    return kind, bytes(body[start:end]), end + _DIGEST, after


def is_ours(path: Path) -> bool:
    """Whether a file is a journal, whole or not."""
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _seal(slot: Slot) -> bytes:
    content = _SLOT.pack(*slot)
    return content + hashlib.sha256(content).digest()


def _unseal(header: bytes, place: int) -> Slot | None:
    """A slot; None if it is damaged, or says what no journal that can go on says."""
    content = header[place : place + _SLOT.size]
    if header[place + _SLOT.size : place + _SLOT.size + _DIGEST] != hashlib.sha256(content).digest():
        return None
    slot = Slot(*_SLOT.unpack(content))
    return slot if slot.length >= START and slot.number < 1 << 63 else None
