"""Near-duplicates among embeddings: codes find candidates, cosines confirm them.

Plants noisy copies of some rows, makes a collection that keeps vectors, and looks for the copies again. The data set is
`jeopardy` if it is there, and otherwise handwritten digits.

    python examples/duplicates.py [--data digits] [--copies 100] [--noise 0.05]
"""

import argparse
import contextlib
import tempfile
import time
from pathlib import Path

import numpy as np

from gphash import Collection
from gphash.data import downloads
from gphash.data.known import data_sets
from gphash.hashers import ITQ


def main(arguments=None):
    there = data_sets.DATA_SETS["jeopardy"].is_there(downloads.data_dir(None))
    parser = argparse.ArgumentParser(description="Find near-duplicates that were planted among embeddings.")
    parser.add_argument("--data", default="jeopardy" if there else "digits", help="data set (jeopardy, or digits)")
    parser.add_argument("--copies", type=int, default=100, help="rows that are copied (100)")
    parser.add_argument("--noise", type=float, default=0.05, help="length of the noise, as a share of the row's (0.05)")
    given = parser.parse_args(arguments)

    rng = np.random.default_rng(0)
    rows = data_sets.load(given.data).train.X.astype(np.float32)
    chosen = rng.choice(len(rows), given.copies, replace=False)
    noise = rng.standard_normal((given.copies, rows.shape[1]))
    noise *= given.noise * np.linalg.norm(rows[chosen], axis=1, keepdims=True) / np.linalg.norm(noise, axis=1)[:, None]
    whole = np.concatenate([rows, rows[chosen] + noise.astype(np.float32)])
    planted = {(int(row), len(rows) + place) for place, row in enumerate(chosen)}
    print(f"{given.data}: {len(rows):,} rows, and noisy copies of {given.copies}")

    # Nothing is known of classes, and nothing needs to be: ITQ keeps what is near near.
    hasher = ITQ(min(64, rows.shape[1]), random_state=0).fit(rows)
    least = 1 - given.noise**2  # a copy has a cosine of about 1 − noise² / 2
    with contextlib.ExitStack() as held:
        path = Path(held.enter_context(tempfile.TemporaryDirectory()), "rows.gphash")
        # int8 would blur cosines by some thousandths, which is more than this noise does.
        collection = held.enter_context(Collection.create(path, hasher, whole, vectors="float16"))
        print("radius  pairs by codes  confirmed by cosine  planted ones found  seconds")
        for radius in (0, 2, 4, 6, 8):
            began = time.perf_counter()
            candidates = len(collection.index.pairs(radius).first)
            found = collection.duplicates(radius, min_cosine=least).pairs()
            hits = len(planted & {(one.first, one.second) for one in found})
            seconds = time.perf_counter() - began
            print(f"{radius:6}  {candidates:14,}  {len(found):19,}  {hits / len(planted):18.0%}  {seconds:7.2f}")
        clusters = collection.duplicates(8, min_cosine=least).clusters()
    print(f"{len(clusters)} clusters; the largest: {clusters[0] if clusters else 'none'}")


if __name__ == "__main__":
    main()
