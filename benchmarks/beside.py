"""A benchmark of this tree and of an older checkout, in turns: every figure it prints, before and after.

    git worktree add ../before v0.1.0
    python benchmarks/beside.py --before ../before --rounds 3 -- training.py --rows 20000

Each tree runs its own script on its own package. Lines are matched by their words; of every figure the median over the
rounds is shown, with the ratio after / before.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="the older checkout")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each tree, in turns (default 3)")
    parser.add_argument("command", nargs="+", help="the script in benchmarks/ and its arguments, after --")
    given = parser.parse_args()
    trees = {"before": given.before.resolve(), "after": HERE}
    found: dict[str, dict[tuple[str, int], list[list[float]]]] = {name: {} for name in trees}
    for _ in range(given.rounds):
        for name, tree in trees.items():
            for key, figures in figures_of(run(tree, given.command)).items():
                found[name].setdefault(key, []).append(figures)
    for key, before in found["before"].items():
        if after := found["after"].get(key):
            print(compared(key[0], before, after))
    for name, other in (("before", "after"), ("after", "before")):
        for words, _ in found[name].keys() - found[other].keys():
            print(f"only {name}: {words}")


def run(tree: Path, command: list[str]) -> str:
    """What a benchmark of a tree prints."""
    environment = os.environ | {"PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree / 'benchmarks'}"}
    script = [sys.executable, str(tree / "benchmarks" / command[0]), *command[1:]]
    return subprocess.run(script, cwd=tree, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def figures_of(text: str) -> dict[tuple[str, int], list[float]]:
    """Figures of every line by its words, and by how often these have come before."""
    found: dict[tuple[str, int], list[float]] = {}
    for line in text.splitlines():
        if figures := [float(figure.replace(",", "")) for figure in NUMBER.findall(line)]:
            words = " ".join(NUMBER.sub("#", line).split())
            place = sum(known == words for known, _ in found)
            found[words, place] = figures
    return found


def compared(words: str, before: list[list[float]], after: list[list[float]]) -> str:
    """A line with the medians of its figures and their ratios."""
    pairs = [
        tuple(statistics.median(round_[place] for round_ in rounds) for rounds in (before, after))
        for place in range(min(map(len, before + after)))
    ]
    shown = iter(
        f"{old:g} → {new:g} ({new / old if old else 1:.2f} ×)" if old != new else f"{old:g}" for old, new in pairs
    )
    return re.sub("#", lambda _: next(shown, "#"), words)


if __name__ == "__main__":
    main()
