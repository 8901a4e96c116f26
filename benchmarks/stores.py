"""A store in PostgreSQL with 1,000,000 codes: how fast it loads and answers, beside scans of all items.

    python benchmarks/stores.py                              # codes from a GPH model on CIFAR-10
    python benchmarks/stores.py --data digits --items 100000 # a quick look
    GPHASH_POSTGRES=FOLDER python benchmarks/stores.py       # the server's programs, such as those of one with pgvector

Codes and queries are drawn from a model's bit probabilities, as in benchmarks/search.py. The server is a temporary one
on a socket in a folder of its own, with 1 GB of shared buffers and without fsync, so loading shows what the server has
to compute and not what a disk takes. The scan is `ORDER BY bit_count(code # query), id LIMIT k` over the table of
items, or `bit_count(code # query) <= 2`, in two workers and the leader if the server wants them; pgvector's is
`code <~> query` over a table of its own with codes as bit(n), if the extension is installed. Queries come one by one
over one connection, a few to warm up first. What is found is compared with HammingIndex.
"""

import argparse
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
from search import draw

from gphash import GPHasher, HammingIndex
from gphash.data.descriptors import described
from gphash.data.known import data_sets
from gphash.index import engines
from gphash.index.postgres.postgres_index import PostgresIndex

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import postgresql as server

SETTINGS = ["shared_buffers=1GB", "work_mem=64MB", "maintenance_work_mem=512MB", "max_wal_size=8GB"]
WARM_UP = 8  # queries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="data set of the model (cifar10)")
    parser.add_argument("--items", type=int, default=1_000_000, help="codes (1,000,000)")
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 32], help="lengths (16 32)")
    parser.add_argument("--queries", type=int, default=300, help="of a store; a scan answers a tenth of them (300)")
    args = parser.parse_args()
    dataset = described.with_features(data_sets.load(args.data))
    with server.running(*SETTINGS) as conninfo:
        for n_bits in args.bits:
            hasher = GPHasher(n_bits, random_state=0, n_inducing=min(1000, len(dataset.train.y)))
            hasher.fit(dataset.train.X, dataset.train.y)
            chances = hasher.bit_probabilities(dataset.test.X)
            print(f"\n{n_bits} bits, learned on {dataset.name}", flush=True)
            report(conninfo, n_bits, *draw(chances, args.items, args.queries))


def report(conninfo, n_bits, codes, queries, chances):
    """Load, compare, ask."""
    index = HammingIndex.build(codes, n_bits=n_bits)
    index.warm()
    began = time.perf_counter()
    store = PostgresIndex.from_index(conninfo, f"codes_{n_bits}", index)
    took = time.perf_counter() - began
    stats = store.stats()
    print(
        f"  {stats.n_items:,} items, {stats.n_codes:,} codes, {stats.bytes / 1e6:.0f} MB; loaded in {took:.1f} "
        f"s with indexes and VACUUM, {stats.n_items / took:,.0f} items a second\n"
        f"  {'milliseconds':22s} {'median':>9s} {'99 %':>9s} {'scan':>18s} {'by pgvector':>18s} {'HammingIndex':>13s}",
        flush=True,
    )
    few = max(len(queries) // 10, WARM_UP + 2)
    with_pgvector = has_pgvector(store, n_bits)
    rows = [
        ("10 nearest", "search", 10, queries),
        ("100 nearest", "search", 100, queries),
        ("1,000 nearest", "search", 1000, queries[: len(queries) // 3]),
        ("radius 2", "within", 2, queries),
        ("10 nearest, expected", "search_expected", 10, chances[: len(queries) // 3]),
    ]
    for name, method, number, asked in rows:
        ours, theirs = partial(ask, store, method, number), partial(ask, index, method, number)
        for found, wanted in zip(ours(asked[:20]), theirs(asked[:20]), strict=True):
            assert np.array_equal(found, wanted), "something else was found"
        times = timed(ours, asked)
        scans = ["", ""]
        if method != "search_expected":
            for place, engine in enumerate(["plain", "pgvector"] if with_pgvector else ["plain"]):
                scanned = np.median(timed(scan(store, n_bits, engine, index, method, number, asked), asked[:few]))
                scans[place] = f"{scanned:.1f} ({scanned / np.median(times):.1f} ×)"
        inside = np.median(timed(theirs, asked))
        print(
            f"  {name:22s} {np.median(times):9.2f} {np.percentile(times, 99):9.2f} {scans[0]:>18s} {scans[1]:>18s} "
            f"{inside:13.3f}",
            flush=True,
        )
    store.close()


def ask(index, method, number, one):
    """Search in a store or an index."""
    return getattr(index, method)(one, number)


def scan(store, n_bits, engine, index, method, number, queries):
    """A function that scans all items in plain SQL, once compared with the index."""
    table, wanted = f"codes_{n_bits}_items", f"%s::bit({n_bits})"
    away = f"bit_count(code # {wanted})"
    if engine == "pgvector":
        table, away = f"vectors_{n_bits}", f"code <~> {wanted}"
    elif n_bits <= 64:
        away = "bit_count((code # %s::bigint)::bit(64))"
    statement = f"SELECT id, {away} FROM {table} ORDER BY 2, 1 LIMIT {number}"
    if method == "within":
        statement = (
            f"SELECT id, d FROM (SELECT id, {away} AS d FROM {table}) AS items WHERE d <= {number} ORDER BY 2, 1"
        )

    def ask_all(packed):
        known = engines.as_bigint(packed, n_bits).tolist() if "bigint" in away else engines.as_text(packed, n_bits)
        with store._server.connection() as connection:
            return connection.execute(statement, (known[0],), prepare=True, binary=True).fetchall()

    found = [number for number, _ in ask_all(queries[:1])]
    assert found == ask(index, method, number, queries[:1]).ids.ravel().tolist(), "the scan finds something else"
    return ask_all


def timed(ask, queries):
    """Milliseconds of every query by itself."""
    times = []
    for number in range(len(queries)):
        began = time.perf_counter()
        ask(queries[number : number + 1])
        times.append(1e3 * (time.perf_counter() - began))
    return times[WARM_UP:]


def has_pgvector(store, n_bits):
    """Whether the extension can be used; a table for it is made then."""
    with store._server.connection() as connection:
        run = connection.execute
        if not run("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchall():
            return False
        run("CREATE EXTENSION IF NOT EXISTS vector")
        run(f"CREATE TABLE vectors_{n_bits} AS SELECT id, code::bit({n_bits}) AS code FROM codes_{n_bits}_items")
        run(f"VACUUM (ANALYZE) vectors_{n_bits}")
    return True


if __name__ == "__main__":
    main()
