"""The service while others keep it waiting: is a well-behaved client still answered, and how quickly?

    python benchmarks/overload.py                        # 512 idle connections, 50 one-byte bodies, 67 slow forms
    python benchmarks/overload.py --seconds 3 --alone    # a quick look: each attack alone, not all at once
    python benchmarks/overload.py --attackers 127.0.0.2  # attackers have an address of their own

`gphash serve` is started on loopback with a small collection. Each attack opens so many connections and opens them
again a second after they were closed:

idle    connections that never say a word; there is room for them, as it is the proxy that has to close them
bodies  searches of which one byte of the body comes, and then nothing
forms   pictures that come a byte a second
deaf    searches of which no answer is read; these are not opened again

Meanwhile a well-behaved client asks again and again: a search on a connection of its own, a search on one that stays
open, a search by a picture, and /healthz. Everything is bounded: so many connections, so many seconds. More bodies than
the service lets be on their way (128) take the places of all others: it is the proxy that has to keep those away.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

Counts = tuple[int, int, int, int]  # idle, bodies, forms, deaf

PATIENCE = 5.0  # seconds that the well-behaved client waits for an answer
PAUSE = 0.02  # between two of its questions
AGAIN = 1.0  # seconds after which an attacker comes back

SEARCH = json.dumps({"key": 7}).encode()
JSON = "Content-Type: application/json"
FORM = "Content-Type: multipart/form-data; boundary=edge"
PART = b'--edge\r\nContent-Disposition: form-data; name="picture"; filename="a.pgm"\r\n\r\n'


def head(path: str, kind: str | None = None, length: int = 0) -> bytes:
    lines = [f"{'POST' if kind else 'GET'} {path} HTTP/1.1", "Host: localhost"]
    lines += [kind, f"Content-Length: {length}"] if kind else []
    return "\r\n".join([*lines, "", ""]).encode()


def with_body(kind: str, body: bytes) -> bytes:
    return head("/search", kind, len(body)) + body


PICTURE = PART + b"P5 8 8 255\n" + bytes(range(0, 192, 3)) + b"\r\n--edge--\r\n"
# An answer that does not fit between the two, and another one that waits for it.
MUCH = with_body(JSON, json.dumps({"key": 7, "k": 1000}).encode()) + with_body(JSON, SEARCH)
# What is asked, and whether on a connection that stays open.
QUESTIONS = {
    "search": (with_body(JSON, SEARCH), False),
    "search, kept open": (with_body(JSON, SEARCH), True),
    "picture": (with_body(FORM, PICTURE), False),
    "/healthz": (head("/healthz"), False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=512, help="connections that say nothing (512)")
    parser.add_argument("--bodies", type=int, default=50, help="bodies of which one byte comes (50)")
    parser.add_argument("--forms", type=int, default=67, help="slow forms (67)")
    parser.add_argument("--deaf", type=int, default=260, help="clients who do not read (260)")
    parser.add_argument("--seconds", type=float, default=8, help="of each attack (8)")
    parser.add_argument("--attackers", default="127.0.0.1", help="address that they come from (127.0.0.1)")
    parser.add_argument("--alone", action="store_true", help="not all at once")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.attack:
        asyncio.run(attack(*json.loads(args.attack)))
        return
    attacks = {"nobody": (0, 0, 0, 0), "idle": (args.idle, 0, 0, 0), "bodies": (0, args.bodies, 0, 0)}
    attacks |= {"forms": (0, 0, args.forms, 0), "deaf": (0, 0, 0, args.deaf)}
    if not args.alone:
        # Not the deaf ones: what they ask for is work, and what it costs is measured by benchmarks/serving.py.
        attacks["all at once"] = (args.idle, args.bodies, args.forms, 0)
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        print(f"{'attack':12s} {'asked':18s} answered refused failed   median ms  worst ms")
        for name, counts in attacks.items():
            # Each finds a service of its own: what the one before has left behind would count against the next.
            with serving(Path(folder)) as port:
                for line in told(asyncio.run(attacked(port, counts, args.seconds, args.attackers))):
                    print(f"{name:12s} {line}", flush=True)


def gphash(*arguments: str, folder: Path) -> None:
    command = [sys.executable, "-m", "gphash", *arguments, "--quiet"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)


def prepare(folder: Path) -> None:
    """Make the model and the collection."""
    gphash("fit", "digits", "--method", "lsh", "--bits", "16", "--output", "model.gph", folder=folder)
    gphash("index", "model.gph", "digits", "--output", "small.gphash", folder=folder)


@contextlib.contextmanager
def serving(folder: Path):
    """The service as a process; its port."""
    log = folder / "log"
    command = [sys.executable, "-m", "gphash", "serve", "small.gphash", "--port", "0", "--max-connections", "4096"]
    with open(log, "wb") as file:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=file)
    try:
        yield _ready(process, log)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(process: subprocess.Popen[bytes], log: Path) -> int:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            if '"listening"' in line:
                port = int(json.loads(line)["port"])
                if asyncio.run(Client(port).ask(head("/readyz"), False))[0] == 200:
                    return port
        time.sleep(0.2)
    raise RuntimeError(f"the service did not start: {log.read_text()[-2000:]}")


async def attacked(port: int, counts: Counts, seconds: float, source: str) -> dict[str, list]:
    """Ask for a while, as everybody else does his worst; for every question, what came of it each time."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    # In a process of their own, so that it is the service that is waited for.
    given = json.dumps([port, counts, seconds, source])
    attackers = await asyncio.create_subprocess_exec(sys.executable, __file__, "--attack", given)
    found: dict[str, list] = {name: [] for name in QUESTIONS}
    client = Client(port)
    try:
        await asyncio.sleep(1)  # they come first
        while loop.time() < end:
            for name, (message, kept) in QUESTIONS.items():
                found[name].append(await client.ask(message, kept))
                await asyncio.sleep(PAUSE)
    finally:
        client.close()
        with contextlib.suppress(ProcessLookupError):
            attackers.kill()
        await attackers.wait()
    return found


async def attack(port: int, counts: Counts, seconds: float, source: str) -> None:
    """Do one's worst for so long."""
    end = asyncio.get_running_loop().time() + seconds
    n_idle, n_bodies, n_forms, n_deaf = counts
    one_byte, slow = head("/search", JSON, 100) + b"{", head("/search", FORM, 10_000) + PART
    attackers = [keep(port, b"", b"", end, source) for _ in range(n_idle)]
    attackers += [keep(port, one_byte, b"", end, source) for _ in range(n_bodies)]
    attackers += [keep(port, slow, b"x", end, source) for _ in range(n_forms)]
    # One after the other: it is their deafness that counts, not the work of so many searches at once.
    attackers += [ignore(port, MUCH, number * seconds / (2 * n_deaf), end, source) for number in range(n_deaf)]
    await asyncio.gather(*attackers)


async def keep(port: int, first: bytes, more: bytes, end: float, source: str) -> None:
    """Occupy a connection, and another one whenever it is closed."""
    loop = asyncio.get_running_loop()
    while loop.time() < end:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            try:
                writer.write(first)
                while loop.time() < end:
                    writer.write(more)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(1):
                            if not await reader.read(1 << 16):
                                break
            finally:
                writer.close()
        await asyncio.sleep(AGAIN)


async def ignore(port: int, message: bytes, delay: float, end: float, source: str) -> None:
    """Ask, and never read."""
    await asyncio.sleep(delay)
    loop = asyncio.get_running_loop()
    with contextlib.closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        connection.bind((source, 0))
        with contextlib.suppress(OSError):
            await loop.sock_connect(connection, ("127.0.0.1", port))
            await loop.sock_sendall(connection, message)
            await asyncio.sleep(end - loop.time())


class Client:
    """Somebody who asks, sends all of it at once, and reads the answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._kept: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, message: bytes, kept: bool) -> tuple[int, float]:
        """Status of the answer, 0 if there is none, and the seconds it took."""
        began = time.perf_counter()
        status = 0
        with contextlib.suppress(OSError, ValueError, IndexError, asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(PATIENCE):
                status = await self._ask(message, kept)
        if kept and not status:
            self.close()
        return status, time.perf_counter() - began

    async def _ask(self, message: bytes, kept: bool) -> int:
        if kept and self._kept is not None and self._kept[0].at_eof():
            self.close()  # the service may close what is idle at any time
        streams = self._kept if kept else None
        reader, writer = streams or await asyncio.open_connection("127.0.0.1", self._port)
        if kept:
            self._kept = reader, writer
        try:
            writer.write(message)
            top = await reader.readuntil(b"\r\n\r\n")
            length = int(top.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
            await reader.readexactly(length)
            return int(top.split()[1])
        finally:
            if not kept:
                writer.close()

    def close(self) -> None:
        """Give up the connection that stays open."""
        if self._kept is not None:
            self._kept[1].close()
            self._kept = None


def told(found: dict[str, list]) -> list[str]:
    """A line for every question: all that is not answered is refused, with a status, or failed, with none."""
    lines = []
    for name, results in found.items():
        kinds = Counter("answered" if status == 200 else "refused" if status else "failed" for status, _ in results)
        counts = f"{kinds['answered']:8d} {kinds['refused']:7d} {kinds['failed']:6d}"
        times = [1e3 * seconds for status, seconds in results if status == 200]
        latency = f"{statistics.median(times):11.1f} {max(times):9.1f}" if times else f"{'-':>11s} {'-':>9s}"
        lines.append(f"{name:18s} {counts} {latency}")
    return lines


if __name__ == "__main__":
    main()
