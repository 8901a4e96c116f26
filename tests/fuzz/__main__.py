"""Fuzz files in processes of their own, so that a crash or a hang is noticed, and its file kept."""

import argparse
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import targets

PATIENCE = 10.0  # seconds for a file
STARTING = 180.0  # and for the first one, with everything that is compiled
MOST_MEMORY = 1000.0  # MB
OUTCOMES = ["refused", "right", "wrong", "error", "crash", "hang", "memory"]


def main():
    """Read the arguments, and be the parent or one of its children."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=1000, help="of each kind")
    parser.add_argument("--kind", default="all", choices=["all", *targets.KINDS])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--keep", type=Path, help="folder for files that were not handled rightly")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        be_child(given.kind, given.seed, given.first, given.files)
        return
    kinds = list(targets.KINDS) if given.kind == "all" else [given.kind]
    print("kind        files  " + "  ".join(f"{name:>7}" for name in OUTCOMES) + "  peak MB  seconds", flush=True)
    bad = 0
    for kind in kinds:
        began = time.perf_counter()
        counts, peak = fuzz(kind, given)
        bad += sum(counts[name] for name in OUTCOMES[2:])
        columns = "  ".join(f"{counts[name]:7,}" for name in OUTCOMES)
        print(f"{kind:10} {given.files:6,}  {columns}  {peak:7.0f}  {time.perf_counter() - began:7.0f}", flush=True)
    sys.exit(bad > 0)


def be_child(kind, seed, first, files):
    """Do files one after another, and tell what came of each."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (6 << 30, 6 << 30))
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        target = targets.KINDS[kind](Path(folder))
        for content in target.whole():  # which also compiles what there is to compile
            target.use(content)
        for number in range(first, first + files):
            outcome, told = targets.attempt(target, seed, number)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(number, outcome, peak, " ".join(told.split()), sep="\t", flush=True)


def fast_folder():
    """A folder in memory, where there is one."""
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def fuzz(kind, given):
    """Counts of what came of all files of a kind, and the most memory that was taken."""
    counts, peak = dict.fromkeys(OUTCOMES, 0), 0
    number, stop = given.first, given.first + given.files
    while number < stop:
        command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz", "--child", "--kind", kind]
        command += ["--seed", str(given.seed), "--first", str(number), "--files", str(stop - number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            ended, begun = "", False
            for line in lines(child):
                if line is None:
                    child.kill()
                    ended = "hang"
                    break
                begun = True
                done, outcome, megabytes, told = line.rstrip("\n").split("\t", 3)
                number, grown = int(done) + 1, int(megabytes) > max(peak, MOST_MEMORY)
                peak = max(peak, int(megabytes))
                outcome = "memory" if grown else outcome
                counts[outcome] += 1
                if outcome not in OUTCOMES[:2]:
                    report(kind, given, number - 1, outcome, told)
        if not begun or child.returncode == 1:
            sys.exit(f"{kind} {number}: the fuzzing itself failed")
        if number < stop:
            ended = ended or "crash"
            counts[ended] += 1
            report(kind, given, number, ended, f"exit code {child.returncode}")
            number += 1
    return counts, peak


def lines(child):
    """Lines of a child as they come; None if one takes too long."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(child.stdout, selectors.EVENT_READ)
        patience, rest = STARTING, ""
        while True:
            if not waiting.select(patience):
                yield None
                return
            text = os.read(child.stdout.fileno(), 1 << 16).decode()
            if not text:
                return
            patience = PATIENCE
            *whole, rest = (rest + text).split("\n")
            yield from whole


def report(kind, given, number, outcome, told):
    """Say which file it was, and keep it if that is wanted."""
    print(f"  {kind} {number} (seed {given.seed}): {outcome}: {told}", file=sys.stderr, flush=True)
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            target = targets.KINDS[kind](Path(folder))
            (given.keep / f"{kind}-{given.seed}-{number}").write_bytes(target.spoil(targets.random(given.seed, number)))


if __name__ == "__main__":
    main()
