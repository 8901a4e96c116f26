"""A writer may be killed at any moment: what it has acknowledged is there, and nothing else but its last change."""

import gc
import os
import signal
import time
import traceback
import warnings
from itertools import count

import numpy as np
import pytest

from gphash import HammingIndex
from gphash.codes import packing
from gphash.index import storage
from tests.index.test_durability import contents

KILLS = int(os.environ.get("GPHASH_KILLS", "200"))
N_BITS = 20


def change_of(seed, step, model):
    """What the writer does next: drawn from its seed, and from what it has done, so that the parent knows it too.

    For some 25 writers the index grows, then for as many it shrinks.
    """
    rng = np.random.default_rng([seed, step])
    kind = rng.choice(["add", "remove", "compact"], p=[0.3, 0.5, 0.2] if seed // 25 % 2 else [0.6, 0.2, 0.2])
    if kind == "add":
        fresh = np.setdiff1d(rng.integers(-2000, 2000, rng.integers(1, 30)), list(model))
        return kind, fresh, packing.pack(rng.integers(0, 2, (len(fresh), N_BITS)))
    if kind == "remove" and model:
        return kind, rng.choice(sorted(model), rng.integers(1, 30)), None
    return "compact", None, None


def changed(model, change):
    kind, ids, packed = change
    if kind == "add":
        return model | dict(zip(ids.tolist(), map(bytes, packed), strict=True))
    if kind == "remove":
        return {number: code for number, code in model.items() if number not in set(ids.tolist())}
    return model


def write_until_killed(path, seed, model, acknowledge):
    storage.LARGE = 3000  # so that journals are often folded in by themselves
    with HammingIndex.open(path, writable=True) as index:
        assert contents(index) == model
        os.write(acknowledge, b"o")
        for step in count():
            change = kind, ids, packed = change_of(seed, step, model)
            if kind == "add":
                index.add(packed, ids)
            elif kind == "remove":
                index.remove(ids)
            else:
                index.compact()
            os.write(acknowledge, b"x")
            model = changed(model, change)


def run_and_kill(path, seed, model, least, wait):
    """How many changes a writer has acknowledged before it was killed: so long after so many signs of life."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns that threads and fork do not mix; the child uses no threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            gc.disable()
            os.close(reading)
            write_until_killed(path, seed, model, writing)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        heard = b""
        while len(heard) < least and (more := os.read(reading, 1)):
            heard += more
        time.sleep(wait)
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    while more := os.read(reading, 1 << 16):
        heard += more
    os.close(reading)
    assert os.WIFSIGNALED(status), "the writer failed by itself"
    return heard.count(b"x")


@pytest.mark.parametrize("kills", [10, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_a_killed_writer_loses_nothing_that_it_has_acknowledged(tmp_path, kills):
    path = tmp_path / "index"
    rng = np.random.default_rng(0)
    packed = packing.pack(rng.integers(0, 2, (300, N_BITS)))
    built = HammingIndex.build(packed, n_bits=N_BITS)
    built.save(path)
    model = contents(built)
    acknowledged, in_flight, sizes = 0, 0, []
    for seed in range(kills):
        n_changes = run_and_kill(path, seed, model, rng.integers(0, 7), rng.random() / 60)
        for step in range(n_changes):
            model = changed(model, change_of(seed, step, model))
        unheard = changed(model, change_of(seed, n_changes, model))
        with HammingIndex.open(path) as index:
            found = contents(index)
        assert found in (model, unheard), f"after {n_changes} changes of kill {seed}"
        with HammingIndex.open(path, writable=True) as index:  # the lock has gone with its holder
            assert contents(index) == found
        acknowledged, in_flight = acknowledged + n_changes, in_flight + (found != model)
        sizes.append(len(found))
        model = found
    with HammingIndex.open(path, writable=True):
        assert not list(tmp_path.glob(".gphash-*.tmp"))  # whoever may write sweeps up after the killed
    print(
        f"{kills} kills, {acknowledged} changes acknowledged, {in_flight} more found; "
        f"{min(sizes)} to {max(sizes)} items"
    )
    assert acknowledged > kills
