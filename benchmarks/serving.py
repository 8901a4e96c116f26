"""The service under load: requests a second and latencies, of searches and of everything but the search.

    python benchmarks/serving.py                                   # 1,000,000 codes, 64 clients, 60 seconds
    python benchmarks/serving.py --items 100000 --seconds 5        # a quick look
    python benchmarks/serving.py --data cifar10 --by features      # queries are rows, which the service encodes first
    python benchmarks/serving.py --pictures --items 60000           # items have labels and pictures

Items are the rows of the data set over and over, each a little different. They have keys and codes and nothing else: a
search by key takes the stored code. With --pictures, they have their labels and pictures, too: a search by key then
describes and encodes the item's picture first.

The server is a process of its own, as `gphash serve` starts it; clients are connections of another one that stay open,
each sending its next request when it has the answer to the last. The same is then done with the search removed: the
first one's hits answer all.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from gphash import GPHasher
from gphash.collection.collection import Collection
from gphash.collection.records import Hit, Query
from gphash.data import sources
from gphash.data.descriptors import described
from gphash.data.known import data_sets
from gphash.server import service
from gphash.server.settings import ServiceSettings

WARM_UP = 2.0  # seconds before anything is counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits", help="data set of the model (digits)")
    parser.add_argument("--items", type=int, default=1_000_000, help="codes (1,000,000)")
    parser.add_argument("--bits", type=int, default=32, help="length of a code (32)")
    parser.add_argument("--k", type=int, default=10, help="neighbours (10)")
    parser.add_argument("--by", choices=["key", "features"], default="key", help="what is searched for (key)")
    parser.add_argument("--clients", type=int, default=64, help="at once (64)")
    parser.add_argument("--seconds", type=float, default=60, help="of load (60)")
    parser.add_argument("--pictures", action="store_true", help="with labels and pictures of the items")
    parser.add_argument("--no-log", action="store_true", help="without a line for every request")
    parser.add_argument("--serve", nargs=2, metavar=("FOLDER", "SETTINGS"), help=argparse.SUPPRESS)
    parser.add_argument("--drive", nargs=2, metavar=("PORT", "FOLDER"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        folder, settings = args.serve
        chosen = json.loads(settings)
        if chosen.pop("search_removed", False):
            remove_search()
        service.run(Path(folder, "codes.gphash"), ServiceSettings(port=0, **chosen))
    elif args.drive:
        port, folder = args.drive
        bodies = json.loads(Path(folder, "bodies.json").read_text())
        print(json.dumps(asyncio.run(drive(int(port), bodies, args.clients, args.seconds))))
    else:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), args)


def remove_search() -> None:
    """Find what was found first: what everything but the search costs."""
    found: dict[int, list[Hit]] = {}
    search = Collection.search

    def constant(self: Collection, query: Query, k: int = 10, **how: Any) -> list[Hit]:
        if k not in found:
            found[k] = search(self, query, k, **how)
        return found[k]

    Collection.search = constant  # type: ignore[method-assign]


def measure(folder: Path, args: argparse.Namespace) -> None:
    n_codes = prepare(folder, args)
    kind = "labels and pictures" if args.pictures else "keys alone"
    print(
        f"{args.items:,} items ({kind}), {n_codes:,} distinct codes of {args.bits} bits, learned on {args.data}; "
        f"{args.k} nearest by {args.by}, {args.clients} clients, {args.seconds:g} s, {os.cpu_count()} cores"
    )
    with Server(folder, args) as server:
        idle(server, folder)
        whole = load("search", server, folder, args)
        idle(server, folder)
    with Server(folder, args, search_removed=True) as server:
        rest = load("search removed", server, folder, args)
    print(f"{whole / rest:.2f} of the throughput without the search")


def prepare(folder: Path, args: argparse.Namespace) -> int:
    """Write the model, the collection and the requests."""
    dataset = described.with_features(data_sets.load(args.data))
    hasher = GPHasher(args.bits, random_state=0, n_inducing=min(1000, len(dataset.train.y)))
    hasher.fit(dataset.train.X, dataset.train.y)
    hasher.save(folder / "model.gph")
    n_codes = build_collection(folder, args)
    generator = np.random.default_rng(2)
    if args.by == "key":
        questions = [{"key": int(number)} for number in generator.integers(args.items, size=10_000)]
    else:
        some = generator.integers(len(dataset.test.X), size=1000)
        questions = [{"features": [float(f"{x:.6g}") for x in dataset.test.X[row]]} for row in some]
    bodies = [json.dumps({**question, "k": args.k}) for question in questions]
    (folder / "bodies.json").write_text(json.dumps(bodies))
    return n_codes


def build_collection(folder: Path, args: argparse.Namespace) -> int:
    """Write a collection; how many codes it has."""
    source = sources.read(args.data)
    if args.pictures and (source.images is None or source.descriptor is None):
        raise SystemExit(f"--pictures: {args.data} has no pictures; give --data digits, mnist or cifar10.")
    rows = np.arange(args.items) % len(source.X)
    noise = np.random.default_rng(3).normal(scale=0.1 * source.X.std(), size=(args.items, source.X.shape[1]))
    X: Any = (source.X[rows] + noise).astype(np.float32)
    if args.pictures:
        X = source._replace(X=X, y=source.y[rows], images=np.asarray(source.images)[rows])
    with Collection.create(folder / "codes.gphash", folder / "model.gph", X) as collection:
        return collection.index.stats().n_codes


class Server:
    """The service in a process of its own."""

    def __init__(self, folder: Path, args: argparse.Namespace, **settings: object) -> None:
        chosen = {"log_requests": not args.no_log, **settings}
        self._log = open(folder / "log", "wb")  # noqa: SIM115, closed with the process
        command = [sys.executable, __file__, "--serve", str(folder), json.dumps(chosen)]
        self._process = subprocess.Popen(command, stderr=self._log)
        self._path = folder / "log"
        self.port = self._wait()

    def _wait(self) -> int:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in self._path.read_text().splitlines():
                if '"listening"' in line:
                    port = int(json.loads(line)["port"])
                    if b"200" in asyncio.run(once(port, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")):
                        return port
            time.sleep(0.2)
        raise RuntimeError(f"the server did not start: {self._path.read_text()[-2000:]}")

    @property
    def resident(self) -> float:
        """Memory in megabytes."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 1e6

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()


def load(title: str, server: Server, folder: Path, args: argparse.Namespace) -> float:
    """Drive the server from another process, and say what came of it; requests a second."""
    command = [sys.executable, __file__, "--drive", str(server.port), str(folder)]
    command += ["--clients", str(args.clients), "--seconds", str(args.seconds)]
    memory = [server.resident]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as driver:
        time.sleep(1 + WARM_UP)
        for _ in range(6):
            memory.append(server.resident)
            time.sleep(max(0.0, args.seconds - 2) / 6)
        result = json.loads(driver.communicate()[0])
    memory.append(server.resident)
    p50, p95, p99 = result["milliseconds"]
    print(
        f"{title:15s} {result['rate']:8,.0f} requests/s   50 % {p50:.2f} ms, 95 % {p95:.2f} ms, 99 % {p99:.2f} ms   "
        f"{result['errors']} errors of {result['requests']:,}   client {100 * result['busy']:.0f} % of a core"
    )
    print(f"{'':15s} resident MB: " + " ".join(f"{value:.1f}" for value in memory), flush=True)
    return float(result["rate"])


def idle(server: Server, folder: Path) -> None:
    """One client, one request after the other."""
    bodies = json.loads((folder / "bodies.json").read_text())[:500]
    result = asyncio.run(drive(server.port, bodies, 1, 3.0))
    print(
        f"idle            median {result['milliseconds'][0]:.2f} ms, 99 % {result['milliseconds'][2]:.2f} ms",
        flush=True,
    )


async def drive(port: int, bodies: list[str], n_clients: int, seconds: float) -> dict[str, object]:
    """Ask from so many connections for so long; what happens while warming up is not counted."""
    head = "POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
    messages = [f"{head}{len(body)}\r\n\r\n{body}".encode() for body in bodies]
    loop = asyncio.get_running_loop()
    begin = loop.time() + (WARM_UP if n_clients > 1 else 0.5)
    tally = Tally(begin, begin + seconds)
    clients = [Client(messages, number * 101, tally, loop) for number in range(n_clients)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)
    await asyncio.sleep(begin - loop.time())
    used = time.process_time()
    await asyncio.sleep(seconds)
    used = time.process_time() - used
    await asyncio.gather(*(client.done for client in clients))
    times = 1e3 * np.array(tally.seconds)
    return {
        "requests": len(times),
        "errors": tally.errors,
        "rate": len(times) / seconds,
        "milliseconds": np.percentile(times, [50, 95, 99]).tolist(),
        "busy": used / seconds,
    }


class Tally:
    """What all clients have seen between two moments."""

    def __init__(self, begin: float, end: float) -> None:
        self.begin, self.end = begin, end
        self.seconds: list[float] = []
        self.errors = 0


class Client(asyncio.Protocol):
    """One connection; a bare parser of answers, so that the server is what is measured."""

    def __init__(self, messages: list[bytes], first: int, tally: Tally, loop: asyncio.AbstractEventLoop) -> None:
        self._messages, self._next, self._tally, self._loop = messages, first, tally, loop
        self._buffer = b""
        self._sent = 0.0
        self.done: asyncio.Future[None] = loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._sent = self._loop.time()
        self._transport.write(self._messages[self._next % len(self._messages)])
        self._next += 1

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]):
            return
        self._buffer = b""
        now = self._loop.time()
        if self._tally.begin <= now < self._tally.end:
            self._tally.seconds.append(now - self._sent)
            if not head.startswith(b"HTTP/1.1 200") or b'"hits":[{' not in body:
                self._tally.errors += 1
        if now < self._tally.end:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._loop.time() < self._tally.end:
            self._tally.errors += 1
        if not self.done.done():
            self.done.set_result(None)


async def once(port: int, message: bytes) -> bytes:
    """The first bytes of the answer to one message."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(message)
    answer = await reader.read(100)
    writer.close()
    return answer


if __name__ == "__main__":
    main()
