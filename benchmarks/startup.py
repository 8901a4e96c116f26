"""How long commands take to begin: warm, and at the first use after an installation; and what an idle service holds.

    python benchmarks/startup.py [--rounds 5] [--before DIR]

Times are the best of several rounds, in which all commands take turns, beside `python -c "import numpy, numba"`, the
unit. At the first use numba's cache is empty: one round, as nobody installs twice. --before names another checkout,
which is measured in the same rounds with the same interpreter.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
COMMANDS = {
    "gphash --help": ["--help"],
    "gphash search": ["search", "digits.gphash", "key:7"],
    "gphash search, expected": ["search", "digits.gphash", "key:7", "--ranking", "expected"],
    "gphash fit digits": ["fit", "digits", "-q", "-o", "again.gph"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="of warm commands (5)")
    parser.add_argument("--warm", action="store_true", help="without the first use")
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout to compare with")
    given = parser.parse_args()
    checkouts = {"now": HERE} | ({"before": given.before.resolve()} if given.before else {})
    with tempfile.TemporaryDirectory(prefix="gphash-startup-") as folder:
        report(checkouts, Path(folder), given.rounds, given.warm)


def report(checkouts: dict[str, Path], folder: Path, rounds: int, only_warm: bool) -> None:
    environments = {name: prepare(checkout, folder / name) for name, checkout in checkouts.items()}
    unit = [sys.executable, "-c", "import numpy, numba"]
    times: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        times.setdefault(("", "unit"), []).append(seconds(unit, folder, dict(os.environ)))
        for name, environment in environments.items():
            for label, words in COMMANDS.items():
                times.setdefault((name, label), []).append(seconds(gphash(*words), folder / name, environment))
    base = min(times["", "unit"])
    print(f"unit: python -c 'import numpy, numba': {base:.2f} s, best of {rounds}\n")
    print(f"{'':8s} {'':26s} {'warm':>8s} {'units':>7s} {'first use':>10s}")
    for name, environment in environments.items():
        for label, words in COMMANDS.items():
            best, first = min(times[name, label]), ""
            if not only_warm:
                with tempfile.TemporaryDirectory(prefix="gphash-numba-") as cache:
                    empty = environment | {"NUMBA_CACHE_DIR": cache}
                    first = f"{seconds(gphash(*words), folder / name, empty):8.1f} s"
            print(f"{name:8s} {label:26s} {best:6.2f} s {best / base:7.1f} {first}")
        (ready, memory), first = service(folder / name, environment), ""
        if not only_warm:
            with tempfile.TemporaryDirectory(prefix="gphash-numba-") as cache:
                first = f"{service(folder / name, environment | {'NUMBA_CACHE_DIR': cache})[0]:8.1f} s"
        print(f"{name:8s} {'gphash serve, until ready':26s} {ready:6.2f} s {ready / base:7.1f} {first}")
        print(f"{name:8s} {'idle service':26s} {memory / 1e6:5.0f} MB")


def prepare(checkout: Path, folder: Path) -> dict[str, str]:
    """A model and a collection of the digits, made by that checkout, whose commands are warm then."""
    folder.mkdir()
    environment = dict(os.environ) | {
        "PYTHONPATH": str(checkout / "src"),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "NO_COLOR": "1",
    }
    seconds(gphash("fit", "digits", "-q", "-o", "digits.gph"), folder, environment)
    seconds(gphash("index", "digits.gph", "digits", "-q", "-o", "digits.gphash"), folder, environment)
    for words in COMMANDS.values():
        seconds(gphash(*words), folder, environment)
    service(folder, environment)
    return environment


def gphash(*words: str) -> list[str]:
    return [sys.executable, "-m", "gphash", *words]


def seconds(command: list[str], folder: Path, environment: dict[str, str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    taken = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed: {done.stderr}")
    return taken


def service(folder: Path, environment: dict[str, str], rest: float = 3.0) -> tuple[float, int]:
    """Seconds until the service is ready, and its resident memory in bytes when it has nothing to do."""
    began = time.perf_counter()
    command = gphash("serve", "digits.gphash", "--port", "0")
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as run:
        try:
            port = next(port for line in run.stderr if (port := listening(line)))
            while True:
                with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        break
                time.sleep(0.02)
            ready = time.perf_counter() - began
            time.sleep(rest)
            pages = int(Path(f"/proc/{run.pid}/statm").read_text().split()[1])
        finally:
            run.terminate()
    return ready, pages * os.sysconf("SC_PAGE_SIZE")


def listening(line: bytes) -> int | None:
    """The port, of the line that tells it."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        return int(json.loads(line)["port"])
    return None


if __name__ == "__main__":
    main()
