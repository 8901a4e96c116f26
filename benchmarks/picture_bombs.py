"""Pictures made to hurt (see bombs.py), through everything that opens pictures: what each costs in time and memory.

    python benchmarks/picture_bombs.py                        # all kinds: some minutes
    python benchmarks/picture_bombs.py black lossless         # some
    python benchmarks/picture_bombs.py --pixels 64000000      # as if more were allowed

Every kind is asked for by `gphash search`, a process of its own each time, and sent to a service, one for all; in the
end all of them lie in the folder that one `gphash fit` learns from. A kind is answered, or refused with one line;
memory is the peak of the process (of the service since the picture before), as Linux counts it.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import bombs
import httpx
import numpy as np
from PIL import Image

from gphash.data import pictures

AIM = 800  # MB
CLASSES = ("dark", "light")
SAID = ("gphash: ", "reading ", "fitting ", "sweep ", "encoding")  # what commands say beside their results
# The command line, which writes down its peak in the end.
RUN = """
import sys
from gphash.cli.main import main
peak = sys.argv.pop(1)
try:
    main()
finally:
    with open("/proc/self/status") as status, open(peak, "w") as file:
        file.write(status.read())
"""


class Cost(NamedTuple):
    outcome: str
    seconds: float
    megabytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(bombs.KINDS)}")
    parser.add_argument("--pixels", type=int, default=pictures.MAX_PIXELS, help="that bombs are made for")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        prepare(folder)
        measure(folder, args.kinds or list(bombs.KINDS), args.pixels)


def prepare(folder: Path) -> None:
    """A few pictures, a model and an index of them."""
    rng = np.random.default_rng(0)
    for name, level in zip(CLASSES, (0, 150), strict=True):
        (folder / "few" / name).mkdir(parents=True)
        for number in range(8):
            pixels = rng.integers(level, level + 100, (48, 48, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "few" / name / f"{number}.png")
    for command in (("fit", "few", "--bits", "4", "-o", "few.gph"), ("index", "few.gph", "few")):
        cost, said = run(folder, *command)
        assert cost.outcome == "done", said


def measure(folder: Path, kinds: list[str], pixels: int) -> None:
    print(f"{'kind':26s} {'bytes':>11s}" + "".join(f"   {way:>8s}       s     MB" for way in ("search", "service")))
    worst: dict[str, Cost] = {}
    few = folder / "few" / CLASSES[0]
    good = (few / "0.png").read_bytes()
    with service(folder) as (client, process):
        for kind in ["(a good picture)", *kinds]:
            name, content = bombs.make(kind, pixels) if kind in bombs.KINDS else ("good.png", good)
            (few / name).write_bytes(content)
            costs = {
                "search": run(folder, "search", "few.gphash", str(few / name))[0],
                "service": send(client, process, name, content),
            }
            row = "".join(f"   {cost.outcome:>8s} {cost.seconds:7.1f} {cost.megabytes:6.0f}" for cost in costs.values())
            print(f"{kind:26s} {len(content):11,}{row}", flush=True)
            for way, cost in costs.items():
                worst[way] = max(worst.get(way, cost), cost, key=lambda one: one.megabytes)
        answers = send(client, process, "good.png", good).outcome
    worst["fit"], said = run(folder, "fit", "few", "--bits", "4", "-o", "again.gph")
    print(f"\n{len(kinds)} kinds; afterwards the service says of a good picture: {answers}")
    left_out = next((line for line in said.splitlines() if "left out" in line), "nothing was left out")
    print(f"fit with all of them in its folder: {worst['fit'].outcome}; {left_out[:200]} …")
    for way, cost in worst.items():
        print(f"{way:8s} at most {cost.megabytes:5.0f} MB   (aim: at most {AIM})")


def run(folder: Path, *arguments: str) -> tuple[Cost, str]:
    """What a command costs, and what it says beside its result."""
    peak = folder / "peak"
    began = time.perf_counter()
    found = subprocess.run(
        [sys.executable, "-c", RUN, str(peak), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    outcome = {0: "done", 1: "refused"}.get(found.returncode, "CRASHED")
    if "Traceback" in found.stderr or any(not line.startswith(SAID) for line in found.stderr.splitlines()):
        outcome = "NOISY"
    return Cost(outcome, seconds, megabytes(peak.read_text()) if peak.exists() else np.nan), found.stderr


def send(client: httpx.Client, process: subprocess.Popen[bytes], name: str, content: bytes) -> Cost:
    """What a picture costs the service."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # forget the peak so far
    began = time.perf_counter()
    status = client.post("/search", files={"picture": (name, content)}).status_code
    seconds = time.perf_counter() - began
    outcome = {200: "done", 413: "refused", 422: "refused"}.get(status, f"{status}!")
    return Cost(outcome, seconds, megabytes(Path(f"/proc/{process.pid}/status").read_text()))


def megabytes(status: str) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1000


@contextmanager
def service(folder: Path) -> Iterator[tuple[httpx.Client, "subprocess.Popen[bytes]"]]:
    command = [sys.executable, "-m", "gphash", "serve", "few.gphash", "--port", "0", "--quiet"]
    with open(folder / "log", "wb") as log, subprocess.Popen(command, cwd=folder, stderr=log) as process:
        try:
            while not (found := re.search(r'"port": (\d+)', (folder / "log").read_text())):
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.1)
            with httpx.Client(base_url=f"http://127.0.0.1:{found[1]}", timeout=120) as client:
                while client.get("/readyz").status_code != 200:
                    time.sleep(0.1)
                yield client, process
        finally:
            process.terminate()
    strange = [line for line in (folder / "log").read_text().splitlines() if not line.startswith("{")]
    print(f"lines in the service's log that are no JSON: {len(strange)}")


if __name__ == "__main__":
    main()
