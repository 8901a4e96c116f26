"""From data to figures in half a minute: `make demo`.

Learns codes for scikit-learn's handwritten digits, compares them with random projections, walks through one query and
draws what it finds.

    python examples/demo.py [--figures figures]
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from gphash import GPHasher
from gphash.codes import distance, packing
from gphash.evaluation import metrics

LENGTHS = (8, 16, 32)
SHOWN = 16  # bits of the hasher that is looked at more closely
RADIUS = 2
WRONG = "#E66100"
# Green to purple without the darkest ends; told apart with any colour vision, and from the orange of a wrong neighbour.
MAP = LinearSegmentedColormap.from_list("bits", plt.get_cmap("PRGn_r")(np.linspace(0.1, 0.9, 256)))
BEGAN = time.perf_counter()


def say(text):
    print(f"[{time.perf_counter() - BEGAN:4.1f} s] {text}", flush=True)


def project(train, rows, n_bits, seed):
    """Random-projection hashing (LSH): the signs of random linear functions of the centred rows, packed."""
    planes = np.random.default_rng(seed).standard_normal((train.shape[1], n_bits))
    return packing.pack(((rows - train.mean(axis=0)) @ planes >= 0).astype(np.uint8))


def among_themselves(packed):
    """Hamming distances of every row to all others, [n, n − 1]."""
    return without_diagonal(distance.pairwise(packed, packed))


def without_diagonal(square):
    n = len(square)
    return square[~np.eye(n, dtype=bool)].reshape(n, n - 1)


def precision_within(distances, relevant, radius=RADIUS):
    """Mean share of relevant rows within the Hamming radius; a query that finds nothing counts 0."""
    inside = distances <= radius
    return float(np.mean((inside & relevant).sum(axis=1) / np.maximum(inside.sum(axis=1), 1)))


def rank(packed, probabilities):
    """Neighbours of every row among the others, nearest first, [n, n − 1], and all Hamming distances, [n, n].

    Rows at equal distance follow by the distance to be expected of their probabilities, Σ p (1 − q) + q (1 − p).
    """
    hamming = distance.pairwise(packed, packed)
    p = probabilities
    order = np.lexsort((p @ (1 - p).T + (1 - p) @ p.T, hamming))
    others = order != np.arange(len(p))[:, None]
    return order[others].reshape(len(p), -1), hamming


def choose_queries(y, order, n_each=4, n_neighbours=9):
    """The first row of as many digits, and the rows with the most neighbours of another digit."""
    first = [int(np.flatnonzero(y == digit)[0]) for digit in (0, 2, 5, 9)[:n_each]]
    faults = (y[order[:, :n_neighbours]] != y[:, None]).sum(axis=1)
    return first, np.argsort(-faults, kind="stable")[:n_each].tolist()


def walk_through(query, y, order, hamming, packed, probabilities):
    """One query in words."""
    bits = np.unpackbits(packed, axis=1, count=probabilities.shape[1])
    unsure = np.argsort(np.abs(probabilities[query] - 0.5))[:3]
    print(f"\n  the query with the least certain bit: test row {query}, a {y[query]}")
    print(
        f"    code       {''.join(map(str, bits[query]))}  (bytes {' '.join(f'{byte:02x}' for byte in packed[query])})"
    )
    doubts = ", ".join(f"bit {bit} is 1 with probability {probabilities[query, bit]:.2f}" for bit in unsure)
    print(f"    least sure {doubts}")
    print("    neighbour  digit  code              distance")
    for row in order[query, :5]:
        print(f"    {row:9d}  {y[row]:5d}  {''.join(map(str, bits[row]))}  {hamming[query, row]:8d}")
    print()


def draw(images, y, probabilities, order, hamming, groups, n_neighbours=9):
    """A row of pictures for every query: the query, then its nearest neighbours, each above its bits."""
    wide, tall, gap, left, top, bottom = 1.3, 1.85, 0.45, 1.15, 0.95, 1.25
    width = left + (n_neighbours + 1) * wide + gap
    height = top + sum(len(rows) for _, rows in groups) * tall + (len(groups) - 1) * gap + bottom
    with plt.rc_context({"font.family": "DejaVu Sans", "font.size": 8}):
        figure = plt.figure(figsize=(8.4, 8.4 * height / width))
        canvas = figure.add_axes((0, 0, 1, 1))
        canvas.text(left + 0.5, 0.5, "query", ha="center", va="center", weight="bold")
        middle = left + wide + gap + (n_neighbours * wide - 0.3) / 2
        canvas.text(middle, 0.5, "nearest codes, with their Hamming distances", ha="center", va="center", weight="bold")

        down = top
        for number, (title, queries) in enumerate(groups):
            if number:
                canvas.plot([left, width - 0.3], [down - 0.05] * 2, color="#B0B0B0", linewidth=0.6)
                down += gap
            canvas.text(0.5, down + len(queries) * tall / 2 - 0.2, title, rotation=90, ha="center", va="center")
            for query in queries:
                for place, row in enumerate([query, *order[query, :n_neighbours]]):
                    across = left + place * wide + (gap if place else 0)
                    box = across, across + 1
                    canvas.imshow(images[row], cmap="gray_r", extent=(*box, down + 1, down))
                    strip = probabilities[row][None]
                    canvas.imshow(strip, cmap=MAP, vmin=0, vmax=1, extent=(*box, down + 1.3, down + 1.08))
                    edge = (WRONG, 2.5) if y[row] != y[query] else ("#C0C0C0", 0.6)
                    frame = plt.Rectangle(
                        (across, down), 1, 1, fill=False, edgecolor=edge[0], linewidth=edge[1], zorder=3
                    )
                    canvas.add_patch(frame)
                    if place:
                        canvas.text(across + 0.5, down + 1.5, hamming[query, row], ha="center", va="center", fontsize=7)
                down += tall

        canvas.add_patch(plt.Rectangle((left, down + 0.25), 0.5, 0.5, fill=False, edgecolor=WRONG, linewidth=2.5))
        canvas.text(left + 0.75, down + 0.5, "another digit than the query", va="center")
        right = left + wide + gap + n_neighbours * wide - 0.3
        ramp = np.linspace(0, 1, 256)[None]
        canvas.imshow(ramp, cmap=MAP, extent=(right - 3.2, right - 0.2, down + 0.61, down + 0.39))
        canvas.text(right - 3.35, down + 0.5, "P(bit = 1):  0", ha="right", va="center")
        canvas.text(right - 0.05, down + 0.5, "1", ha="left", va="center")
        canvas.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
        canvas.axis("off")
    return figure


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Learn codes for handwritten digits and look at them.")
    parser.add_argument("--figures", type=Path, default=Path("figures"), help="folder for the pictures (figures)")
    folder = parser.parse_args(arguments).figures

    digits = load_digits()
    rows = np.arange(len(digits.target))
    train, test = train_test_split(rows, test_size=500, stratify=digits.target, random_state=0)
    X, y = digits.data[train], digits.target[train]
    X_test, y_test = digits.data[test], digits.target[test]
    same = without_diagonal(y_test[:, None] == y_test)
    say(f"digits: {len(X):,} rows to train on, {len(X_test)} to search among, {X.shape[1]} features")

    say("compiling, in the first run only")
    GPHasher(n_bits=2, n_inducing=20, n_starts=1, random_state=0).fit(X[:100], y[:100])
    say("training")
    hashers, table = {}, []
    for n_bits in LENGTHS:
        began = time.perf_counter()
        hasher = hashers[n_bits] = GPHasher(n_bits=n_bits, n_inducing=300, random_state=0).fit(X, y)
        seconds = time.perf_counter() - began
        found = among_themselves(hasher.encode(X_test))
        many = np.tile(X_test, (40, 1))
        began = time.perf_counter()
        hasher.encode(many)
        speed = len(many) / (time.perf_counter() - began)
        table.append((n_bits, "GPH", hasher.score(X_test, y_test), precision_within(found, same), seconds, speed))
        draws = [among_themselves(project(X, X_test, n_bits, seed)) for seed in range(5)]
        quality = np.mean([metrics.mean_average_precision(found, same) for found in draws])
        precision = np.mean([precision_within(found, same) for found in draws])
        table.append((n_bits, "random projections", quality, precision, None, None))
        say(f"{n_bits} bits: {len(hasher.sweeps_)} sweeps, {seconds:.1f} s")

    print("\n  bits  method                mAP   precision, radius 2   training   codes per second")
    for n_bits, name, quality, precision, seconds, speed in table:
        cost = f"{seconds:7.1f} s   {speed:16,.0f}" if seconds else ""
        print(f"  {n_bits:4d}  {name:18s}  {quality:5.3f}   {precision:19.3f}   {cost}".rstrip())

    packed, probabilities = hashers[SHOWN].encode(X_test), hashers[SHOWN].bit_probabilities(X_test)
    order, hamming = rank(packed, probabilities)
    first, worst = choose_queries(y_test, order)
    unsure = int(np.abs(probabilities - 0.5).min(axis=1).argmin())
    right = y_test[order[:, 0]] == y_test
    sure = np.maximum(probabilities, 1 - probabilities).mean(axis=1)
    print(f"\n  {SHOWN} bits: the nearest code is of the same digit for {right.mean():.1%} of the queries")
    print(
        f"  mean certainty of a query's bits: {sure[right].mean():.2f} where it is, {sure[~right].mean():.2f} where not"
    )
    walk_through(unsure, y_test, order, hamming, packed, probabilities)

    say("drawing")
    groups = [("the first 0, 2, 5 and 9", first), ("where it errs most", worst)]
    figure = draw(digits.images[test], y_test, probabilities, order, hamming, groups)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "demo.png", dpi=120)
    plt.close(figure)
    print(f"wrote {folder / 'demo.png'}")
    say("done")


if __name__ == "__main__":
    main()
