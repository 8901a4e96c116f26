"""A store in PostgreSQL with 1,000,000 codes: how fast it loads and answers, beside a scan of all items in plain SQL.

    python benchmarks/stores.py                              # codes from a GPH model on CIFAR-10
    python benchmarks/stores.py --data digits --items 100000 # a quick look

Codes and queries are drawn from a model's bit probabilities, as in benchmarks/search.py. The server is a temporary one
on a socket in a folder of its own, with 1 GB of shared buffers and without fsync, so loading shows what the server has
to compute and not what a disk takes. The scan is `ORDER BY bit_count(code # query), id LIMIT 10` over the table of
items, in two workers and the leader if the server wants them; pgvector's is `code <~> query`, if it is installed.
Queries come one by one over one connection, a few to warm up first. What is found is compared with HammingIndex.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from search import draw

from gphash import GPHasher, HammingIndex
from gphash.datasets import described, registry
from gphash.index import engines
from gphash.stores.postgres_index import PostgresIndex

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
    dataset = described.by_gist(registry.load(args.data))
    with server.running(*SETTINGS) as conninfo:
        for n_bits in args.bits:
            hasher = GPHasher(n_bits, random_state=0, n_inducing=min(1000, len(dataset.train.y)))
            hasher.fit(dataset.train.X, dataset.train.y)
            chances = hasher.bit_probabilities(dataset.test.X)
            print(f"\n{n_bits} bits, learned on {dataset.name}", flush=True)
            report(conninfo, n_bits, *draw(chances, args.items, args.queries))


def report(conninfo, n_bits, codes, queries, chances):
    """Load, ask, compare."""
    index = HammingIndex.build(codes, n_bits=n_bits)
    began = time.perf_counter()
    store = PostgresIndex.from_index(conninfo, f"codes_{n_bits}", index)
    took = time.perf_counter() - began
    stats = store.stats()
    print(
        f"  {stats.n_items:,} items, {stats.n_codes:,} codes, {stats.bytes / 1e6:.0f} MB; loaded in {took:.1f} "
        f"s with indexes and VACUUM, {stats.n_items / took:,.0f} items a second",
        flush=True,
    )
    for found, wanted in (
        (store.search(queries[:50], 10), index.search(queries[:50], 10)),
        (store.within(queries[:50], 2), index.within(queries[:50], 2)),
        (store.search_expected(chances[:10], 10), index.search_expected(chances[:10], 10)),
    ):
        assert all(np.array_equal(a, b) for a, b in zip(found, wanted, strict=True)), "something else was found"
    few = max(len(queries) // 10, WARM_UP + 2)
    slow = {"scan, 10 nearest": scan(store, n_bits, "bit_count({code} # {wanted})", index, queries, 10)}
    slow["scan, radius 2"] = scan(store, n_bits, "bit_count({code} # {wanted})", index, queries, None)
    if has_pgvector(conninfo):
        slow["pgvector's scan, 10 nearest"] = scan(store, n_bits, "{code} <~> {wanted}", index, queries, 10)
    scanned = {name: timed(ask, queries[:few]) for name, ask in slow.items()}
    asked = {
        "10 nearest": timed(lambda one: store.search(one, 10), queries),
        "radius 2": timed(lambda one: store.within(one, 2), queries),
        "10 nearest, expected": timed(lambda one: store.search_expected(one, 10), chances[: len(queries) // 3]),
        "HammingIndex, 10 nearest": timed(lambda one: index.search(one, 10), queries),
        "HammingIndex, radius 2": timed(lambda one: index.within(one, 2), queries),
    }
    for name, times in (scanned | asked).items():
        against = scanned.get(f"scan, {name}")
        told = (
            "" if against is None else f"   {np.median(against) / np.median(times):.0f} × faster than the scan (median)"
        )
        print(
            f"  {name:28s} median {np.median(times):9.3f} ms, 99 % {np.percentile(times, 99):9.3f} ms{told}", flush=True
        )
    store.close()


def scan(store, n_bits, distance, index, queries, k):
    """A function that scans all items in plain SQL, once compared with the index."""
    code, wanted = ("code", "%s::bigint") if n_bits <= 64 else ("code", f"%s::bit({n_bits})")
    if n_bits <= 64 and "bit_count" in distance:
        distance = "bit_count(({code} # {wanted})::bit(64))"
    elif n_bits <= 64:
        code, wanted = f"code::bit({n_bits})", f"%s::bit({n_bits})"
    away = distance.format(code=code, wanted=wanted)
    table = f"codes_{n_bits}_items"
    statement = f"SELECT id, {away} FROM {table} ORDER BY 2, 1 LIMIT {k}"
    if k is None:
        statement = f"SELECT id, d FROM (SELECT id, {away} AS d FROM {table}) AS all_items WHERE d <= 2 ORDER BY 2, 1"

    def ask(packed):
        numbers = (
            engines.as_bigint(packed, n_bits).tolist() if wanted.endswith("bigint") else engines.as_text(packed, n_bits)
        )
        with store._database.session() as session:
            return session.connection.execute(statement, (numbers[0],), prepare=True, binary=True).fetchall()

    found = [number for number, _ in ask(queries[:1])]
    assert found == (index.search(queries[:1], k).ids[0] if k else index.within(queries[:1], 2).ids).tolist()
    return ask


def timed(ask, queries):
    """Milliseconds of every query by itself."""
    times = []
    for number in range(len(queries)):
        began = time.perf_counter()
        ask(queries[number : number + 1])
        times.append(1e3 * (time.perf_counter() - began))
    return times[WARM_UP:]


def has_pgvector(conninfo):
    import psycopg

    with psycopg.connect(conninfo, autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'").fetchall():
            print("  pgvector is not installed, and left out")
            return False
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    return True


if __name__ == "__main__":
    main()
