"""From embeddings to a collection: 64 bits for each, search with probabilities, and re-rank by cosine.

Learns codes from embeddings and their topics, keeps the codes and int8 vectors of rows that training has not seen, and
searches among these: by P(similar), by cosine among the candidates, and, to compare, by the cosine of all. The data set
is `jeopardy`, sentence embeddings in 40 topics, if it is there. Otherwise handwritten digits stand in: their
rows are pixels, and no embeddings, but all steps are the same.

    python examples/embeddings.py [--data digits] [--bits 64] [--candidates 100]
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from gphash import Collection, GPHasher
from gphash.data import downloads
from gphash.data.known import data_sets

QUERIES = 100


def main(arguments=None):
    there = data_sets.DATA_SETS["jeopardy"].is_there(downloads.data_dir(None))
    parser = argparse.ArgumentParser(description="Search embeddings by short codes, and re-rank what they find.")
    parser.add_argument("--data", default="jeopardy" if there else "digits", help="data set (jeopardy, or digits)")
    parser.add_argument("--bits", type=int, default=64, help="length of a code (64)")
    parser.add_argument("--candidates", type=int, default=100, help="candidates that are re-ranked (100)")
    given = parser.parse_args(arguments)
    data = data_sets.load(given.data)
    if given.data == "digits":
        print("handwritten digits stand in for embeddings; GPHASH_DATA names a folder with others")
    print(f"{data.name}: {len(data.train.X):,} rows of {data.train.X.shape[1]} numbers to learn from")

    # 1. Learn codes from embeddings and what they are about.
    began = time.perf_counter()
    hasher = GPHasher(given.bits, n_inducing=min(1000, len(data.train.X)), random_state=0)
    hasher.fit(data.train.X, data.train.y)
    print(f"learned {given.bits} bits in {time.perf_counter() - began:.1f} s")

    # 2. Keep the codes of other rows, with their vectors. The last rows are what will be searched for.
    topics = np.array(data.classes)[data.test.y]
    stored, asked = data.test.X[:-QUERIES], data.test.X[-QUERIES:]
    items = {"label": topics[:-QUERIES].tolist()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "embeddings.gphash")
        with Collection.create(path, hasher, stored, items, vectors="int8") as collection:
            n_bytes, floats = given.bits // 8, stored.shape[1] * 4
            print(f"{len(collection):,} items; {n_bytes} bytes a code, where float32 takes {floats:,}\n")
            search(collection, asked, topics, given.candidates)


def search(collection, asked, topics, n_candidates):
    """One query with its answers, and how many answers of all queries are of the right topic."""
    # 3. Every answer comes with the probability that it is about the same.
    similarity = {"k": 10, "ranking": "similarity"}
    print(f"the most probably similar to an item about “{topics[-QUERIES]}”:")
    for hit in collection.search(asked[0], **similarity)[:5]:
        print(f"  item {hit.key:5}   P(similar) {hit.probability:.2f}   {hit.labels[0]}")

    # 4. Among the candidates that codes have found, the vectors put the nearest first.
    print(f"the nearest by cosine, among {n_candidates} candidates:")
    for hit in collection.search(asked[0], **similarity, rerank=n_candidates)[:5]:
        print(f"  item {hit.key:5}   P(similar) {hit.probability:.2f}   cosine {hit.score:.2f}   {hit.labels[0]}")

    print(f"\n{QUERIES} queries, 10 answers each               right topic")
    for name, options in (
        ("codes, by P(similar)", {}),
        (f"codes, {n_candidates} candidates by cosine", {"rerank": n_candidates}),
        ("all items by cosine, whatever the codes", {"rerank": len(collection)}),
    ):
        answers = collection.search(asked, **similarity, **options)
        right = [hit.labels == (topic,) for topic, hits in zip(topics[-QUERIES:], answers, strict=True) for hit in hits]
        print(f"{name:40} {np.mean(right):11.3f}", flush=True)


if __name__ == "__main__":
    main()
