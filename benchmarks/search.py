"""Search among 1,000,000 codes: HammingIndex against faiss, usearch and numpy, all exact, in one run.

    python benchmarks/search.py                    # codes from a GPH model on CIFAR-10, or on digits with --data digits
    python benchmarks/search.py --bits 16 --quick  # fewer queries and repeats

Codes are drawn from the bit probabilities that a model gives to test rows (row after row, every draw a new item), which
is how codes of a large collection of the same kind pile up; and uniformly at random, where nothing can be gained. All
engines get the same codes and number of threads, one if queries come one by one; slow ones answer the first 16 queries
only. Times are the best of several interleaved rounds. What the exact engines find is compared with what the index
finds. faiss's hash tables are set up to be exact within radius 2: one table of 16 bits with 2 flips, or tables of 16
bits of which a near code must match one but for a flip. For the k nearest they look no further than that: they are not
exact, and shown for their time alone. Balls of faiss and numpy are unordered. Peers need
`pip install faiss-cpu usearch`; what is missing is left out.
"""

import argparse
import importlib.util
import resource
import time
from functools import partial

import numpy as np

from gphash import GPHasher, HammingIndex
from gphash.codes import packing
from gphash.data.descriptors import described
from gphash.data.known import data_sets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="cifar10", help="data set of the model (cifar10)")
    parser.add_argument("--items", type=int, default=1_000_000, help="codes (1,000,000)")
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 32, 64], help="lengths (16 32 64)")
    parser.add_argument("--queries", type=int, default=512, help="queries of a batch (512)")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (5)")
    parser.add_argument("--threads", type=int, default=2, help="for every engine (2)")
    parser.add_argument("--quick", action="store_true", help="64 queries, 2 rounds")
    parser.add_argument("--scale", action="store_true", help="also 10 times as many codes at 16 bits")
    args = parser.parse_args()
    if args.quick:
        args.queries, args.rounds = 64, 2
    dataset = described.with_features(data_sets.load(args.data))
    for n_bits in args.bits:
        hasher = GPHasher(n_bits, random_state=0, n_inducing=min(1000, len(dataset.train.y)))
        hasher.fit(dataset.train.X, dataset.train.y)
        chances = hasher.bit_probabilities(dataset.test.X)
        codes, queries, asked = draw(chances, args.items, args.queries)
        unsure = chances[asked], hasher.predict_proba(dataset.test.X[asked]), hasher
        report(f"{n_bits} bits, learned on {dataset.name}", codes, queries, n_bits, args, unsure)
        if args.scale and n_bits == 16:
            scale(chances, args)
    generator = np.random.default_rng(0)
    random = generator.integers(0, 256, (args.items + args.queries, 8), dtype=np.uint8)
    report("64 bits, uniformly random", random[: args.items], random[args.items :], 64, args)


def draw(chances, n_items, n_queries):
    """Packed codes drawn from bit probabilities, row after row; queries are drawn likewise, from rows that are told."""
    generator = np.random.default_rng(1)
    rows = np.arange(n_items) % len(chances)
    packed = np.concatenate(
        [
            packing.pack(generator.random((len(part), chances.shape[1])) < chances[part])
            for part in np.array_split(rows, max(1, n_items // 50_000))
        ]
    )
    asked = generator.choice(len(chances), n_queries)
    return packed, packing.pack(generator.random((n_queries, chances.shape[1])) < chances[asked]), asked


def report(title, codes, queries, n_bits, args, unsure=None):
    """Times of all engines, in microseconds a query, and how often faster the index is than the best exact peer."""
    before = memory()
    began = time.perf_counter()
    index = HammingIndex.build(codes, n_bits=n_bits)
    index.warm()
    built = time.perf_counter() - began
    stats = index.stats()
    plain = codes.nbytes + 8 * len(codes)
    print(
        f"\n{title}: {stats.n_items:,} items, {stats.n_codes:,} distinct codes, largest bucket {stats.largest_bucket:,}"
    )
    print(
        f"built in {built:.2f} s; {stats.bytes / 1e6:.1f} MB, {stats.bytes / plain:.2f} times codes and ids "
        f"({(memory() - before) / plain:.2f} resident growth at the peak of building)"
    )
    engines = {"HammingIndex": index, **peers(codes)}
    for what, k in (("10 nearest", 10), ("100 nearest", 100), ("radius 2", None)):
        for how in ("batch", "one by one"):
            calls, threads = {}, args.threads if how == "batch" else 1
            set_threads(threads)
            for name, engine in engines.items():
                ask = asker(name, engine, n_bits, k, threads)
                if ask is not None:
                    some = queries if how == "batch" else queries[:64]
                    some = some[:16] if name in ("numpy", "usearch exact") else some  # slow ones answer fewer
                    calls[name] = partial(ask, some) if how == "batch" else partial(singly, ask, some), len(some)
            exact = {name for name in calls if name != "faiss hash" or k is None}
            for name in exact:
                assert agrees(name, engines, queries[:16], n_bits, k), f"{name} finds something else"
            show(what, how, race(calls, args.rounds), exact)
    if unsure is not None:
        chances, classes, hasher = unsure
        ways = {
            "Hamming distance": (index.search, queries),
            "expected distance": (index.search_expected, chances),
            "P(similar)": (partial(index.search, ranking="similarity", model=hasher), classes),
        }
        for how, threads in (("batch", args.threads), ("one by one", 1)):
            calls = {}
            for name, (search, given) in ways.items():
                ask = partial(search, k=10, n_jobs=threads)
                some = given if how == "batch" else given[:64]
                calls[name] = partial(ask, some) if how == "batch" else partial(singly, ask, some), len(some)
            micros = race(calls, args.rounds)
            print(f"  10 best, {how}: " + ", ".join(f"by {name} {time:.1f} µs" for name, time in micros.items()))


def peers(codes):
    """Exact engines that are installed, filled."""
    found = {}
    if importlib.util.find_spec("faiss"):
        import faiss

        width = 8 * codes.shape[1]
        heap = faiss.IndexBinaryFlat(width)
        heap.add(codes)
        heap.use_heap = True
        counting = faiss.IndexBinaryFlat(width)
        counting.add(codes)
        counting.use_heap = False
        tables = width // 16
        if tables == 1:
            table = faiss.IndexBinaryHash(width, 16)
            table.nflip = 2
        else:
            table = faiss.IndexBinaryMultiHash(width, tables, 16)
            table.nflip = 2 // tables  # two differing bits among so many tables leave one with no more
        table.add(codes)
        found |= {"faiss flat, heap": heap, "faiss flat, counting": counting, "faiss hash": table}
    if importlib.util.find_spec("usearch"):
        found["usearch exact"] = codes
    return found | {"numpy": packing.words(codes)}


def asker(name, engine, n_bits, k, threads):
    """A function of query codes that asks an engine; None if it cannot answer."""
    if name == "HammingIndex":
        if k is None:
            return lambda some: engine.within(some, 2, n_jobs=threads)
        return lambda some: engine.search(some, k, n_jobs=threads)
    if name.startswith("faiss"):
        if k is None:
            return (lambda some: engine.range_search(some, 3)) if name != "faiss flat, heap" else None
        return lambda some: engine.search(some, k)
    if name == "usearch exact":
        if k is None:
            return None
        from usearch.index import MetricKind, search

        return lambda some: search(engine, some, k, MetricKind.Hamming, exact=True, threads=threads)
    words = engine

    def by_numpy(some):
        found = []
        for query in packing.words(some):
            distances = np.bitwise_count(words ^ query).sum(axis=1, dtype=np.uint16)
            if k is None:
                found.append(np.flatnonzero(distances <= 2))
            else:
                nearest = np.argpartition(distances, k)[:k]
                found.append(np.sort(distances[nearest]))
        return found

    return by_numpy


def set_threads(threads):
    """Of faiss; the others are told with every call."""
    if importlib.util.find_spec("faiss"):
        import faiss

        faiss.omp_set_num_threads(threads)


def agrees(name, engines, queries, n_bits, k):
    """Whether an engine finds what the index finds."""
    ask = asker(name, engines[name], n_bits, k, 1)
    wanted = asker("HammingIndex", engines["HammingIndex"], n_bits, k, 1)(queries)
    found = ask(queries)
    if k is not None:
        theirs = (
            found if name == "numpy" else found.distances if name in ("HammingIndex", "usearch exact") else found[0]
        )
        return np.array_equal(np.sort(np.asarray(theirs, dtype=np.int64), axis=1), wanted.distances)
    if name == "HammingIndex":
        return True
    if name == "numpy":
        parts = found
    else:
        limits, _, ids = found
        parts = [ids[limits[i] : limits[i + 1]] for i in range(len(queries))]
    own = [wanted.ids[wanted.offsets[i] : wanted.offsets[i + 1]] for i in range(len(queries))]
    return all(np.array_equal(np.sort(a), np.sort(b)) for a, b in zip(parts, own, strict=True))


def singly(ask, some):
    """One query after another."""
    for number in range(len(some)):
        ask(some[number : number + 1])


def race(calls, rounds):
    """Best microseconds a query of every call, in interleaved rounds; one to warm up."""
    best = dict.fromkeys(calls, np.inf)
    for number in range(rounds + 1):
        for name, (call, n_queries) in calls.items():
            began = time.perf_counter()
            call()
            if number:
                best[name] = min(best[name], 1e6 * (time.perf_counter() - began) / n_queries)
    return best


def show(what, how, micros, exact):
    """One line."""
    own = micros["HammingIndex"]
    peers = {name: value for name, value in micros.items() if name in exact and name != "HammingIndex"}
    best = min(peers, key=peers.__getitem__, default=None)
    ratio = f"{peers[best] / own:7.1f} × the best exact peer ({best})" if best else ""
    rest = "  ".join(
        f"{name}{'' if name in exact else ' (not exact)'} {value:,.0f}"
        for name, value in micros.items()
        if name != "HammingIndex"
    )
    print(f"  {what:12s} {how:10s} {own:9.1f} µs  {ratio}   [{rest}]", flush=True)


def scale(chances, args):
    """Ten times as many codes of the same kind."""
    some, many = (draw(chances, n, args.queries) for n in (args.items, 10 * args.items))
    small, large = (HammingIndex.build(part[0], n_bits=chances.shape[1]) for part in (some, many))
    large.warm()
    micros = race(
        {
            "small": (partial(small.search, some[1], 10, n_jobs=args.threads), args.queries),
            "large": (partial(large.search, some[1], 10, n_jobs=args.threads), args.queries),
        },
        args.rounds,
    )
    print(f"  {10 * args.items:,} codes cost {micros['large'] / micros['small']:.2f} times as much as {args.items:,}")


def memory():
    """Largest resident memory so far, in bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
