"""A writer may be killed at any moment: what it has acknowledged is there, and nothing else but its last change."""

import contextlib
import gc
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from itertools import count

import numpy as np
import pytest

from gphash.collection import folder as folders
from gphash.collection import vectors
from gphash.collection.collection import Collection
from gphash.hashers import LSH

KILLS = int(os.environ.get("GPHASH_KILLS", "200"))
X = np.random.default_rng(0).standard_normal((4000, 6))
SEVERAL = (1, 30)  # items of a change


def change_of(seed, step, model):
    """What the writer does next: drawn from its seed, and from what it has done, so that the parent knows it too.

    For some 25 writers the collection grows, then for as many it shrinks.
    """
    rng = np.random.default_rng([seed, step])
    chances = [0.25, 0.45, 0.2, 0.1] if seed // 25 % 2 else [0.5, 0.2, 0.2, 0.1]
    kind = rng.choice(["add", "remove", "compact", "replace"], p=chances)
    if kind == "remove" and model:
        return kind, rng.choice(sorted(model), min(len(model), rng.integers(*SEVERAL)), replace=False).tolist()
    if kind in ("add", "replace"):
        n = rng.integers(*SEVERAL) if kind == "add" else rng.integers(50, 400)
        rows = rng.choice(len(X), n, replace=False).tolist()
        fresh = [row for row in rows if kind == "replace" or f"item {row}" not in model]
        return (kind, fresh) if fresh else ("compact", None)
    return "compact", None


def said_of(rows, seed, step):
    """What is told of the rows that are added."""
    return {
        "key": [f"item {row}" for row in rows],
        "label": [f"label {row % 7}" for row in rows],
        "title": [f"{seed}/{step} {row}" for row in rows],
        "price": [row / 8 for row in rows],
    }


def changed(model, change, seed, step):
    """What a collection holds after a change: the row and the title of every key."""
    kind, given = change
    if kind == "remove":
        return {key: told for key, told in model.items() if key not in set(given)}
    if kind == "compact":
        return model
    fresh = {f"item {row}": (row, f"{seed}/{step} {row}") for row in given}
    return fresh if kind == "replace" else model | fresh


def contents(collection, codes):
    """The row and the title of every key, of a collection whose index and items agree."""
    packed, numbers = collection.index.items()
    rows = {row.number: row for row in collection._store.items.all_rows()}
    assert sorted(rows) == numbers.tolist()
    found = {}
    for code, number in zip(packed, numbers.tolist(), strict=True):
        key, row = rows[number].key, int(rows[number].key.removeprefix("item "))
        assert code.tobytes() == rows[number].code == codes[row].tobytes()
        assert rows[number].values["price"] == row / 8
        assert rows[number].labels == (f"label {row % 7}",)
        found[key] = row, rows[number].values["title"]
    if collection.vectors is not None and found:
        kept = vectors.unpack(collection._store.vectors_of(numbers), "float16")
        own = [int(rows[number].key.removeprefix("item ")) for number in numbers.tolist()]
        np.testing.assert_allclose(kept, X[own], atol=2e-3)
    if found:
        key = min(found)
        query = collection.query(key=key)
        assert collection.search(query, 3, where="title = ?", params=[found[key][1]]) == []  # nobody else has it
        same = [other for other in found if codes[found[other][0]].tobytes() == query.code.tobytes()]
        hits = collection.search(collection.query(code=query.code), len(found), radius=0)
        assert sorted(hit.key for hit in hits) == sorted(same)
    return found


def write_until_killed(path, hasher, seed, model, acknowledge):
    folders.PENDING = 40  # so that changes are often folded in by themselves
    collection = Collection.open(path, writable=True)
    os.write(acknowledge, b"o")
    for step in count():
        change = kind, given = change_of(seed, step, model)
        if kind == "add":
            collection.add(X[given], said_of(given, seed, step))
        elif kind == "remove":
            collection.remove(given)
        elif kind == "compact":
            collection.compact()
        else:
            collection.close()
            collection = Collection.create(
                path,
                hasher,
                X[given],
                said_of(given, seed, step),
                replace=True,
                writable=True,
                n_jobs=1,
                vectors="float16",
            )
        os.write(acknowledge, b"x")
        model = changed(model, change, seed, step)


def run_and_kill(work, least, wait):
    """How many changes a writer has acknowledged before it was killed: so long after so many signs of life."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Python warns that threads and fork do not mix; the child uses no threads of its parent.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            gc.disable()
            os.close(reading)
            work(writing)
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


def files_of(path):
    return {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}


@pytest.mark.timeout(60 + 2 * KILLS)
@pytest.mark.parametrize("kills", [20, pytest.param(KILLS, marks=pytest.mark.slow)])
def test_a_killed_writer_loses_nothing_that_it_has_acknowledged(tmp_path, kills):
    path, rng = tmp_path / "things.gphash", np.random.default_rng(0)
    hasher = LSH(n_bits=20, random_state=0).fit(X)
    codes = hasher.encode(X)
    first = list(range(300))
    Collection.create(path, hasher, X[first], said_of(first, -1, -1), n_jobs=1, vectors="float16").close()
    model = changed({}, ("replace", first), -1, -1)
    kinds, sizes, in_flight, torn = dict.fromkeys(("add", "remove", "compact", "replace"), 0), [], 0, 0
    for seed in range(kills):

        def work(acknowledge, seed=seed, model=model):
            write_until_killed(path, hasher, seed, model, acknowledge)

        n_changes = run_and_kill(work, rng.integers(0, 9), rng.random() / 30)
        for step in range(n_changes):
            change = change_of(seed, step, model)
            kinds[change[0]] += 1
            model = changed(model, change, seed, step)
        unheard = changed(model, change_of(seed, n_changes, model), seed, n_changes)
        with Collection.open(path) as reader:
            found = contents(reader, codes)
            assert found in (model, unheard), f"after {n_changes} changes of kill {seed}"
            torn += files_of(path) - {f"{reader._store.manifest.items}-{end}" for end in ("wal", "shm")} != (
                reader._store.manifest.files
            )
        with Collection.open(path, writable=True) as writer:  # the lock has gone with its holder
            assert contents(writer, codes) == found
        assert files_of(path) == writer._store.manifest.files  # whoever may write sweeps up after the killed
        in_flight += found != model
        model = found
        sizes.append(len(found))
    print(
        f"{kills} kills; acknowledged: {kinds}; {in_flight} changes more were found, {torn} kills left files; "
        f"{min(sizes)} to {max(sizes)} items"
    )
    assert sum(kinds.values()) > kills


def served(path, port):
    """A service that may write, answering at a port."""
    command = [sys.executable, "-m", "gphash", "serve", str(path), "--writable", "--port", str(port), "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        asking = contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10))
        with contextlib.suppress(OSError), asking as asked:
            asked.request("GET", "/readyz")
            if asked.getresponse().read() == b'{"status":"ready"}':
                return process
        assert process.poll() is None, "the service ended by itself"
        time.sleep(0.05)
    raise TimeoutError("the service does not answer")


def post_until_killed(process, port, first, wait):
    """Add and remove items over HTTP until the service is killed: what was acknowledged, and what was under way."""
    killer = threading.Timer(wait, process.kill)
    killer.start()
    known, number = {}, first
    asking = contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10))
    with contextlib.suppress(OSError, http.client.HTTPException), asking as client:
        while True:
            key, gone = f"posted {number}", f"posted {number - 3}"
            body = json.dumps({"features": X[number % len(X)].tolist(), "key": key, "title": f"title {number}"})
            known[key] = "maybe"
            client.request("POST", "/items", body, {"Content-Type": "application/json"})
            answer = client.getresponse()
            answer.read()
            assert answer.status == 201
            known[key] = "there"
            if known.get(gone) == "there" and number % 2:
                known[gone] = "maybe"
                client.request("DELETE", f"/items/{gone.replace(' ', '%20')}")
                answer = client.getresponse()
                answer.read()
                assert answer.status == 204
                known[gone] = "gone"
            number += 1
    killer.join()
    process.wait()
    return known, number + 1


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
def test_a_killed_service_loses_nothing_that_it_has_acknowledged(tmp_path):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    path = tmp_path / "served.gphash"
    hasher = LSH(12, random_state=0).fit(X)
    Collection.create(path, hasher, X[:50], {"key": [f"item {row}" for row in range(50)]}).close()
    rng = np.random.default_rng(1)
    expected, number, acknowledged = {f"item {row}": "there" for row in range(50)}, 0, 0
    for _ in range(max(3, KILLS // 20)):
        process = served(path, port)
        known, number = post_until_killed(process, port, number, float(rng.uniform(0.05, 0.6)))
        acknowledged += sum(state != "maybe" for state in known.values())
        with Collection.open(path, writable=True) as collection:
            found = {row.key for row in collection._store.items.all_rows()}
            for key, state in (expected | known).items():
                assert state == "maybe" or (key in found) == (state == "there"), (key, state)
            assert len(collection) == len(found)
        expected = dict.fromkeys(found, "there")
        assert files_of(path) == collection._store.manifest.files
    print(f"{acknowledged} changes acknowledged over HTTP")
    assert acknowledged > 20
