"""A collection of 1,000,000 items beside its bare index: creating, opening, searching, filtering and adding.

    python benchmarks/collection.py                      # a folder, and PostgreSQL where a server is installed
    python benchmarks/collection.py --items 100000       # a quick look

Rows are digits with noise, encoded by a model of 32 bits that was learned on digits. Every item has a label, a title, a
price and `rare`, which has 1,000 values. Everything is timed in one process; searches in turns, the median of the
rounds. A query is one row; encoding it is timed apart and not counted. "Beside encoding" is the time of `create` less
that of encoding the same rows. An add is one row, encoded, and durable when it returns: what it takes depends on the
disk, so a file that is written and synced as often is timed too. PostgreSQL is a temporary server on a socket, and
syncs; a copy of the collection is searched there by the same calls.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from gphash import Collection, GPHasher, HammingIndex
from gphash.collection.records import Query

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import postgresql as server

K = 10
RARE = {"where": "rare = ?", "params": [7]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=1_000_000, help="items (1,000,000)")
    parser.add_argument("--queries", type=int, default=500, help="searches one by one, and of a batch (500)")
    parser.add_argument("--adds", type=int, default=1000, help="single adds (1,000)")
    parser.add_argument("--rounds", type=int, default=5, help="batches (5)")
    parser.add_argument("--no-postgres", action="store_true", help="leave PostgreSQL out")
    args = parser.parse_args()
    hasher, X, items = material(args.items)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "digits.gphash"
        codes = create(path, hasher, X, items)
        index = HammingIndex.build(codes, n_bits=hasher.n_bits)
        index.warm()
        open_and_search(path, X)
        with Collection.open(path) as collection:
            print(f"\n{'microseconds a query':34s} {'one by one':>12s} {'in a batch':>12s}")
            queries = [Query(code, None) for code in codes[:: max(1, len(codes) // args.queries)][: args.queries]]
            alone = rows_of("HammingIndex, numbers only", index_search(index), queries, args.rounds)
            for name, narrowed in (("collection, with items", {}), ("  1 in 1,000 items by where", RARE)):
                found = rows_of(name, collection_search(collection, narrowed), queries, args.rounds)
                if not narrowed:
                    limit("1.2 x the index + 200", *(1.2 * one + 200 for one in alone))
                    plain = found
            limit("3 x without where", *(3 * one for one in plain))
            fresh_filter(collection, queries[0])
        add(path, X, args.adds, folder)
        if not args.no_postgres and server.program("initdb"):
            postgres(path, queries[: max(20, len(queries) // 5)], X, args.adds // 5)


def material(n_items):
    """A model, rows, and what is known of them."""
    X, y = load_digits(return_X_y=True)
    hasher = GPHasher(n_bits=32, n_inducing=200, random_state=0).fit(X, y)
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(X), n_items)
    rows = (X[chosen] + rng.normal(0, 1.5, (n_items, X.shape[1]))).astype(np.float32)
    items = {"label": y[chosen].astype(str).tolist(), "title": [f"digit {number}" for number in range(n_items)]}
    items |= {"price": rng.random(n_items).tolist(), "rare": rng.integers(0, 1000, n_items).tolist()}
    return hasher, rows, items


def create(path, hasher, X, items):
    began = time.perf_counter()
    codes = hasher.encode(X)
    encoding = time.perf_counter() - began
    began = time.perf_counter()
    Collection.create(path, hasher, X, items).close()
    beside = time.perf_counter() - began - encoding
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    print(
        f"created: {len(X):,} items, {encoding:.1f} s encoding, {beside:.1f} s beside it: {len(X) / beside:,.0f} items "
        f"a second (aim 200,000); {size / len(X):.0f} bytes an item",
        flush=True,
    )
    return codes


def open_and_search(path, X):
    began = time.perf_counter()
    with Collection.open(path) as collection:
        opened = time.perf_counter()
        collection.search(X[0], K)
        searched = time.perf_counter()
    print(
        f"opened in {1e3 * (opened - began):.0f} ms (aim 500); first search {1e3 * (searched - opened):.0f} ms, which "
        "reads and checks all codes"
    )


def index_search(index):
    return lambda queries: index.search(np.stack([query.code for query in queries]), K)


def collection_search(collection, narrowed):
    return lambda queries: collection.search(queries, K, **narrowed)


def rows_of(name, search, queries, rounds):
    """Median microseconds a query, one by one and in a batch."""
    search(queries[:1])
    search(queries)
    single, batch = [], []
    for query in queries:
        began = time.perf_counter()
        search([query])
        single.append(time.perf_counter() - began)
    for _ in range(rounds):
        began = time.perf_counter()
        search(queries)
        batch.append((time.perf_counter() - began) / len(queries))
    found = 1e6 * statistics.median(single), 1e6 * statistics.median(batch)
    print(f"{name:34s} {found[0]:12.0f} {found[1]:12.0f}", flush=True)
    return found


def limit(what, single, batch):
    print(f"{'  limit: ' + what:34s} {single:12.0f} {batch:12.0f}")


def fresh_filter(collection, query):
    taken = []
    for value in range(20):
        began = time.perf_counter()
        collection.search(query, K, where="rare = ?", params=[100 + value])
        taken.append(time.perf_counter() - began)
    print(f"a condition for the first time: {1e3 * statistics.median(taken):.0f} ms, kept until something changes")


def add(path, X, n, folder):
    began = time.perf_counter()
    with open(Path(folder) / "synced", "wb", buffering=0) as file:
        for _ in range(n):
            file.write(bytes(4096))
            os.fsync(file.fileno())
    disk = n / (time.perf_counter() - began)
    with Collection.open(path, writable=True) as collection:
        collection.add(X[:1])
        began = time.perf_counter()
        for row in range(n):
            collection.add(X[row : row + 1], [{"label": "3", "price": 0.5, "rare": 3}])
        rate = n / (time.perf_counter() - began)
        began = time.perf_counter()
        collection.compact()
        folding = time.perf_counter() - began
    print(
        f"\nsingle durable adds: {60 * rate:,.0f} a minute (aim 10,000); the disk syncs {60 * disk:,.0f} times a "
        f"minute; folded into the parts in {folding:.1f} s"
    )


def postgres(path, queries, X, adds):
    from gphash.collection import copying

    with server.running("shared_buffers=1GB", "fsync=on", "max_wal_size=8GB") as conninfo:
        place = f"postgresql://gphash@/postgres?host={conninfo.split()[0].removeprefix('host=')}&collection=digits"
        began = time.perf_counter()
        n_items = copying.to_database(path, place)
        print(f"\nPostgreSQL: copied at {n_items / (time.perf_counter() - began):,.0f} items a second")
        with Collection.open(place, writable=True) as collection:
            for name, narrowed in (("PostgreSQL, with items", {}), ("  1 in 1,000 items by where", RARE)):
                rows_of(name, collection_search(collection, narrowed), queries, 1)
            began = time.perf_counter()
            for row in range(adds):
                collection.add(X[row : row + 1], [{"label": "3", "price": 0.5, "rare": 3}])
            print(f"single durable adds: {60 * adds / (time.perf_counter() - began):,.0f} a minute")


if __name__ == "__main__":
    main()
