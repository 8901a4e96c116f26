"""What codes make of embeddings: floats, rounded floats, quantisers and codes on the same rows, in one run.

    python benchmarks/embeddings.py --data jeopardy
    python benchmarks/embeddings.py --data cifar10_resnet50 --bits 64
    python benchmarks/embeddings.py --data digits --quick

Every test row is searched for among the other test rows; rows of the same class are what is to be found. Ties are
averaged over. All methods learn from the training rows alone; settings are the defaults.

"re-ranked" takes so many candidates by their codes (by P(similar) where the method knows it), and orders these by the
cosines of vectors that are kept as int8, as a collection does; all other rows follow as the codes have them. Bytes of
an item are those of its code, and of its vector if that is kept. Times of a query are for the 10 nearest among all rows
of the data set, with one thread, queries in one batch; the best of three. Floats are searched by one product of
matrices, sign bits by all distances. float16, int8, PQ and RaBitQ are those of faiss (`pip install faiss-cpu`), and
left out without it.
"""

import argparse
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from measuring import best
from threadpoolctl import threadpool_limits

from gphash import GPHasher, HammingIndex
from gphash.codes import distance, packing
from gphash.collection import vectors
from gphash.collection.vectors import VectorKind
from gphash.data.descriptors import described
from gphash.data.known import data_sets
from gphash.evaluation import metrics, retrieval
from gphash.evaluation.retrieval import Beliefs, Queries
from gphash.hashers import ITQ, ClassifierCodes, HadamardRidge
from gphash.supervision import targets

NEAREST, TIMED = 10, 500
BLOCK_BYTES = 1 << 27
KEPT = VectorKind("int8")


class Rows(NamedTuple):
    """Rows of unit length to learn from and to search among, as float32, their classes, and the rows as they came."""

    train: np.ndarray
    test: np.ndarray
    y_train: np.ndarray
    y_test: np.ndarray
    raw_train: np.ndarray
    raw_test: np.ndarray

    @property
    def everything(self) -> np.ndarray:
        return np.concatenate([self.test, self.train])


class Line(NamedTuple):
    """A line of the table; microseconds are those of a query."""

    name: str
    n_bits: int | None
    ranked_by: str
    map: float
    precision: float
    n_bytes: int
    encoding: float
    searching: float
    training: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="jeopardy", help="data set (jeopardy)")
    parser.add_argument("--bits", type=int, nargs="+", help="lengths (16 32 64 128 256)")
    parser.add_argument("--candidates", type=int, nargs="+", default=[100, 400], help="that are re-ranked (100 400)")
    parser.add_argument("--quick", action="store_true", help="300 inducing inputs, and 64 bits unless told")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # or threads of faiss that wait would keep others from working
    lengths, n_inducing = ([64], 300) if args.quick else ([16, 32, 64, 128, 256], 1000)
    rows = read(args.data)
    print(f"{args.data}: {len(rows.train):,} rows to learn from, {len(rows.test):,} to search among, ", end="")
    print(f"{rows.test.shape[1]} numbers each, {len(np.unique(rows.y_test))} classes\n")
    print("| rows kept as | bits | ranked by | mAP | of floats' | precision at 10 | of floats' | ", end="")
    print("bytes an item | encoding, µs a query | search, µs a query | training, s |\n|" + "---|" * 11, flush=True)
    floats = by_floats(rows)
    show(floats, floats)
    for line in lines(rows, args.bits or lengths, args.candidates, n_inducing):
        show(line, floats)


def read(name: str) -> Rows:
    dataset = described.with_features(data_sets.load(name))
    train, test = (np.ascontiguousarray(part.X, np.float32) for part in (dataset.train, dataset.test))
    return Rows(unit(train), unit(test), np.asarray(dataset.train.y), np.asarray(dataset.test.y), train, test)


def unit(X: np.ndarray) -> np.ndarray:
    return (X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)).astype(np.float32)


def lines(rows: Rows, lengths: list[int], candidates: list[int], n_inducing: int) -> Iterator[Line]:
    n_features = rows.test.shape[1]
    if has_faiss := importlib.util.find_spec("faiss") is not None:
        for name, factory in (("float16", "SQfp16"), ("int8", "SQ8")):
            yield by_faiss(rows, name, None, factory)
        yield by_faiss(rows, "RaBitQ, rotated", n_features, f"RR{n_features},RaBitQ")
    yield from signs(rows)
    for n_bits in lengths:
        if has_faiss and n_bits % 8 == 0 and n_features % (n_bits // 8) == 0:
            yield by_faiss(rows, "PQ", n_bits, f"PQ{n_bits // 8}x8")
        if n_bits <= n_features:
            if has_faiss:
                yield by_faiss(rows, "RaBitQ of principal components", n_bits, f"PCAR{n_bits},RaBitQ")
            yield from by_method(rows, "ITQ", ITQ(n_bits, random_state=0, n_jobs=1), candidates)
        for method in (HadamardRidge, ClassifierCodes, GPHasher):
            hasher = method(n_bits, random_state=0, n_inducing=min(n_inducing, len(rows.train)))
            yield from by_method(rows, method.__name__, hasher, candidates)


def show(line: Line, floats: Line) -> None:
    bits = "" if line.n_bits is None else line.n_bits
    found = f"{line.map:.3f} | {line.map / floats.map:.2f} × | {line.precision:.3f} | "
    found += f"{line.precision / floats.precision:.3f} × | {line.n_bytes:,}"
    times = f"{line.encoding:.1f} | {line.searching:.1f} | {line.training:.1f}"
    print(f"| {line.name} | {bits} | {line.ranked_by} | {found} | {times} |", flush=True)


def judged(costs: Callable[[slice], np.ndarray], y: np.ndarray) -> tuple[float, float]:
    """mAP and precision at 10 of the rankings that costs of all rows, [b, n], give to blocks of queries."""
    n, parts = len(y), []
    block = max(1, BLOCK_BYTES // (32 * n))
    depths, harmonic = np.array([min(NEAREST, n - 1), n - 1]), metrics.harmonic_numbers(n - 1)
    for start in range(0, n, block):
        rows = slice(start, min(n, start + block))
        found = costs(rows)
        others = np.arange(n) != np.arange(rows.start, rows.stop)[:, None]
        found = found[others].reshape(len(found), n - 1)
        hit = (y == y[rows, None])[others].reshape(found.shape)
        order = np.argsort(found, axis=1)
        found, hit = np.take_along_axis(found, order, axis=1), np.take_along_axis(hit, order, axis=1)
        tie = np.concatenate([np.zeros((len(found), 1), np.int64), np.cumsum(np.diff(found) > 0, axis=1)], axis=1)
        place = (tie + (n - 1) * np.arange(len(tie))[:, None]).ravel()
        sizes = np.bincount(place, minlength=tie.size).reshape(tie.shape)
        hits = np.bincount(place, hit.ravel(), minlength=tie.size).astype(np.int64).reshape(tie.shape)
        ranking = metrics.rank(sizes, hits, depths, harmonic)
        parts.append([metrics.METRICS[name].measure(ranking) for name in ("map", "precision_at_k")])
    found_map, precision = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    return metrics.mean(found_map), metrics.mean(precision[:, 0])


def microseconds(work: Callable[[], object], n_queries: int) -> float:
    with threadpool_limits(1):
        work()
        return 1e6 * best(work, 3) / n_queries


def by_floats(rows: Rows) -> Line:
    asked, stored = rows.test[:TIMED], rows.everything

    def nearest() -> None:
        scores = asked @ stored.T
        first = np.argpartition(-scores, NEAREST, axis=1)[:, :NEAREST]
        np.argsort(-np.take_along_axis(scores, first, axis=1), axis=1)

    found = judged(lambda some: -(rows.test[some] @ rows.test.T), rows.y_test)
    n_bytes = 4 * rows.test.shape[1]
    return Line("float32", None, "cosine", *found, n_bytes, 0, microseconds(nearest, len(asked)), 0)


def by_faiss(rows: Rows, name: str, n_bits: int | None, factory: str) -> Line:
    import faiss

    began = time.perf_counter()
    # Of rows of unit length, the nearest are those with the largest cosine.
    index = faiss.index_factory(rows.test.shape[1], factory, faiss.METRIC_L2)
    index.train(rows.train)
    seconds = time.perf_counter() - began
    index.add(rows.test)

    def costs(some: slice) -> np.ndarray:
        distances, numbers = index.search(rows.test[some], len(rows.test))
        found = np.full(distances.shape, np.inf, np.float32)
        np.put_along_axis(found, numbers, distances, axis=1)
        return found

    found = judged(costs, rows.y_test)
    index.reset()
    index.add(rows.everything)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    searching = microseconds(lambda: index.search(rows.test[:TIMED], NEAREST), len(rows.test[:TIMED]))
    faiss.omp_set_num_threads(threads)
    return Line(name, n_bits, "its distance", *found, index.sa_code_size(), 0, searching, seconds)


def signs(rows: Rows) -> Iterator[Line]:
    """One bit for every number: its sign, as it is, about the mean, and after a random rotation about the mean."""
    n_features, mean = rows.test.shape[1], rows.train.mean(axis=0)
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((n_features, n_features)))[0].astype(np.float32)
    for name, encode in (
        ("sign bits", lambda X: packing.pack(X >= 0)),
        ("sign bits, centred", lambda X: packing.pack(X - mean >= 0)),
        ("sign bits, centred and rotated", lambda X: packing.pack((X - mean) @ rotation >= 0)),
    ):
        packed = encode(rows.test)
        encoding = microseconds(lambda encode=encode: encode(rows.test[:TIMED]), len(rows.test[:TIMED]))
        stored, asked = encode(rows.everything), packed[:TIMED]

        def nearest(stored: np.ndarray = stored, asked: np.ndarray = asked) -> None:  # an index takes up to 1,024 bits
            np.argpartition(distance.pairwise(asked, stored), NEAREST, axis=1)

        searching = microseconds(nearest, len(asked))
        yield Line(
            name, n_features, "Hamming", *by_codes(rows, packed, n_features), packed.shape[1], encoding, searching, 0
        )


def by_codes(rows: Rows, packed: np.ndarray, n_bits: int, **known: Any) -> tuple[float, float]:
    signatures = targets.signatures(rows.y_test, len(packed))
    asked, stored = Queries(packed, signatures, leave_one_out=True, **known), retrieval.store(packed, signatures)
    found = retrieval.measure(asked, stored, n_bits, depths=[NEAREST], names=["map", "precision_at_k"])
    return metrics.mean(found["map"]), metrics.mean(found["precision_at_k"][:, 0])


def search_time(index: HammingIndex, queries: np.ndarray, k: int = NEAREST, **options: Any) -> float:
    index.warm()
    return microseconds(lambda: index.search(queries, k, n_jobs=1, **options), len(queries))


def by_method(rows: Rows, name: str, hasher: Any, candidates: list[int]) -> Iterator[Line]:
    """A line for every ranking that a method has, and for every number of candidates."""
    began = time.perf_counter()
    hasher.fit(rows.raw_train, rows.y_train)
    training, n_bits, asked = time.perf_counter() - began, hasher.n_bits, rows.raw_test[:TIMED]
    packed, n_bytes = hasher.encode(rows.raw_test), -(-n_bits // 8)
    everything = np.concatenate([packed, hasher.encode(rows.raw_train)])
    index = HammingIndex.build(everything, n_bits=n_bits, model=hasher)
    hasher.n_jobs = 1
    rankings: dict[str, tuple[Callable[[np.ndarray], np.ndarray], dict[str, Any]]] = {"hamming": (hasher.encode, {})}
    if hasattr(hasher, "bit_probabilities"):
        chances = hasher.bit_probabilities
        rankings["expected"] = chances, {"probabilities": chances(rows.raw_test)}
    if getattr(hasher, "reader_", None) is not None:
        tell = hasher.predict_proba
        rankings["similarity"] = tell, {"beliefs": Beliefs(tell(rows.raw_test), hasher.reader_)}
    shown = {"hamming": "Hamming", "expected": "expected distance", "similarity": "P(similar)"}
    for ranking, (encode, known) in rankings.items():
        found = by_codes(rows, packed, n_bits, **known)
        encoding = microseconds(lambda encode=encode: encode(asked), len(asked))
        options = {"ranking": ranking, "model": hasher}
        searching = search_time(index, encode(asked), **options)
        yield Line(name, n_bits, shown[ranking], *found, n_bytes, encoding, searching, training)
    # The last ranking is the best that the method has; so is what it asks of a query.
    order = index_order(packed, n_bits, hasher, encode(rows.raw_test), options)
    kept, n_kept = vectors.pack(rows.everything, KEPT.form), n_bytes + KEPT.n_bytes(rows.test.shape[1])
    queries = encode(asked)
    for n_candidates in candidates:
        found = judged(reranked(rows, order, kept[: len(rows.test)], n_candidates), rows.y_test)

        def nearest(n_candidates: int = n_candidates) -> None:
            numbers = index.search(queries, min(n_candidates, len(index)), n_jobs=1, **options).ids
            for query, own in zip(rows.test[:TIMED], numbers, strict=True):
                np.argsort(-vectors.scores(query, kept[own], KEPT))[:NEAREST]

        searching = microseconds(nearest, len(asked))
        words = f"{shown[ranking]}, {n_candidates} re-ranked"
        yield Line(name, n_bits, words, *found, n_kept, encoding, searching, training)


def index_order(packed: np.ndarray, n_bits: int, hasher: Any, queries: np.ndarray, options: Any) -> np.ndarray:
    """All test rows as a search orders them for every one of them, [n, n]."""
    index = HammingIndex.build(packed, n_bits=n_bits, model=hasher)
    blocks = (queries[at : at + 256] for at in range(0, len(queries), 256))
    return np.concatenate([index.search(block, len(packed), **options).ids.astype(np.int32) for block in blocks])


def reranked(rows: Rows, order: np.ndarray, kept: np.ndarray, n_candidates: int) -> Callable[[slice], np.ndarray]:
    """Costs by which the first candidates, the query not among them, are ordered by cosine, before all others."""
    stored = unit(vectors.unpack(kept, KEPT.form))

    def costs(some: slice) -> np.ndarray:
        place = np.empty((some.stop - some.start, len(stored)), np.float32)
        np.put_along_axis(place, order[some], np.arange(len(stored), dtype=np.float32)[None], axis=1)
        own = place[np.arange(len(place)), np.arange(some.start, some.stop)]
        place -= place > own[:, None]
        # A cost of less than 2 for candidates, and of their places beyond it for others.
        return np.where(place < n_candidates, -(rows.test[some] @ stored.T), place + 2)

    return costs


if __name__ == "__main__":
    main()
