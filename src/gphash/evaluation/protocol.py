"""Protocols: who is searched for among whom, so that a figure means the same thing every time.

`leave_one_out` searches for every row of a test set among the others of that set, as in the paper: nothing retrieved
was seen in training. `database` searches for one set's rows among another's. Both rank by Hamming distance and, for
methods that tell bit probabilities, by expected Hamming distance; ties are averaged over in closed form.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash import validation
from gphash.arrays import Floats
from gphash.coding.similarity import Signatures
from gphash.evaluation import diagnostics, report, retrieval
from gphash.evaluation.metrics import mean
from gphash.evaluation.retrieval import Database, Retrieval

TIES = "averaged over all orders within equal distance, in closed form"
NOTHING = "queries with nothing to find are left out of mAP and recall, and count 0 for precision"
AT = (1, 10, 100, 1000)
CURVE_POINTS = 60
SKETCH = 256  # rows that stand for those of training


class Hasher(Protocol):
    """What a method must offer to be measured; `bit_probabilities(X)` besides, if it has them."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and supervision."""

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Codes as 0/1, [n, m]."""

    def encode(self, X: Any) -> NDArray[np.uint8]:
        """Packed codes."""


class Rows(NamedTuple):
    """Features and supervision of some rows.

    X
        [n, d].
    y
        Labels [n] or 0/1 tags [n, c].
    """

    X: ArrayLike
    y: ArrayLike


def leave_one_out(hasher: Hasher, test: Rows, train: Rows | None = None, radius: int = 2) -> dict[str, Any]:
    """Search for every test row among the others; `train` serves to find the codes that calibration is judged by."""
    return _measure(hasher, test, None, train, radius)


def database(hasher: Hasher, queries: Rows, stored: Rows, train: Rows | None = None, radius: int = 2) -> dict[str, Any]:
    """Search for query rows among stored rows."""
    return _measure(hasher, queries, stored, train, radius)


def run(
    make: Callable[[int], Hasher],
    train: Rows,
    test: Rows,
    data: Mapping[str, Any],
    *,
    seed: int = 0,
    stored: Rows | None = None,
    radius: int = 2,
) -> dict[str, Any]:
    """Train one method with one seed and report on it.

    Parameters
    ----------
    make
        Gives an untrained hasher for a seed.
    train, test
        Rows to learn from, and rows to search for.
    data
        Name, features and checksum of the data set, for the report.
    seed
        Of the method.
    stored
        Rows to search among; None leaves each test row out of the other test rows.
    radius
        Of the Hamming ball.
    """
    _check_data(data)
    hasher = make(seed)
    began = time.perf_counter()
    hasher.fit(train.X, train.y)
    seconds = time.perf_counter() - began
    return _report(hasher, test, stored, train, data, seed, seconds, radius)


def judge(
    hasher: Hasher, test: Rows, data: Mapping[str, Any], *, stored: Rows | None = None, radius: int = 2
) -> dict[str, Any]:
    """Report on a method that is trained already; which rows it has seen is not known.

    Parameters
    ----------
    hasher
        Trained.
    test, data, stored, radius
        As for `run`.
    """
    _check_data(data)
    seed = parameters(hasher).get("random_state")
    seconds = sum(getattr(hasher, "seconds_", {}).values()) or None
    return _report(hasher, test, stored, None, data, seed, seconds, radius)


def _check_data(data: Mapping[str, Any]) -> None:
    if missing := [name for name in ("name", "features", "checksum") if not data.get(name)]:
        raise ValueError(f"data lacks {', '.join(missing)}; a report says which data it was made from.")


def _report(
    hasher: Hasher,
    test: Rows,
    stored: Rows | None,
    train: Rows | None,
    data: Mapping[str, Any],
    seed: Any,
    seconds: float | None,
    radius: int,
) -> dict[str, Any]:
    results = _measure(hasher, test, stored, train, radius)
    sets = {"training": train, "queries": test, "database": stored}
    kept = test if stored is None else stored
    protocol = {
        "name": "leave one out within the test rows" if stored is None else "test rows against a database",
        "training_rows": None if train is None else len(np.asarray(train.y)),
        "queries": len(np.asarray(test.y)),
        "database_rows": len(np.asarray(kept.y)) - (stored is None),
        # Rows that training has seen inflate the figures of supervised methods.
        "database_rows_seen_in_training": None if train is None else _count_shared(kept, train),
        "queries_in_database": None if stored is None else _count_shared(test, stored),
        "seed": seed,
        "ties": TIES,
        "nothing_to_find": NOTHING,
        "rankings": [name for name in ("hamming", "expected") if name in results],
        "radius": radius,
    }
    described = {**data, "rows": {name: _checksum(rows) for name, rows in sets.items() if rows is not None}}
    times = {"training_seconds": seconds, "encoding_microseconds": 1e6 * _encoding_seconds(hasher, test.X)}
    return report.make(protocol, described, {**_method(hasher), **times}, results)


def repeat(
    make: Callable[[int], Hasher], train: Rows, test: Rows, data: Mapping[str, Any], seeds: Iterable[int], **how: Any
) -> dict[str, Any]:
    """Run several seeds: every run's report, and mean and spread over them, in one record; `how` as for `run`."""
    runs = [run(make, train, test, data, seed=seed, **how) for seed in seeds]
    return {"format": report.FORMAT, "summary": summarise(runs), "runs": runs}


def summarise(reports: Iterable[dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Mean and standard deviation over seeds of every single figure of the results, by dotted name.

    The reports must differ in their seeds, and in nothing else that was decided; the spread of one report is None.
    """
    given = list(reports)
    if not given:
        raise ValueError("no reports were given; give at least one.")
    if any(_decided(one) != _decided(given[0]) for one in given):
        raise ValueError("the reports differ in more than their seeds (data, protocol, method or parameters).")
    seeds = [one["protocol"]["seed"] for one in given]
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"the reports have the seeds {seeds}; give each seed once.")
    figures = [dict(_figures(one["results"])) for one in given]
    names = [name for name in figures[0] if all(name in other for other in figures)]
    values = {name: np.array([figure[name] for figure in figures]) for name in names}
    return {
        name: {"mean": float(found.mean()), "spread": float(found.std(ddof=1)) if len(found) > 1 else None}
        for name, found in values.items()
    }


def _decided(one: dict[str, Any]) -> dict[str, Any]:
    """What reports of several seeds must have in common."""
    protocol = {name: value for name, value in one["protocol"].items() if name != "seed"}
    parameters = {name: value for name, value in one["method"]["parameters"].items() if name != "random_state"}
    return {"protocol": protocol, "data": one["data"], "method": one["method"]["name"], "parameters": parameters}


def _checksum(rows: Rows) -> str:
    """SHA-256 of the very numbers that were worked on."""
    digest = hashlib.sha256()
    for part in (np.asarray(rows.X), np.asarray(rows.y)):
        plain = part.astype(str) if part.dtype.kind == "O" else part
        digest.update(f"{plain.dtype.str} {plain.shape} ".encode())
        digest.update(np.ascontiguousarray(plain).tobytes())
    return digest.hexdigest()


def sketch(X: ArrayLike) -> list[str]:
    """Marks of a few rows, from which `share_met` can tell whether others are the same: those with the least hashes."""
    return sorted(_marks(X))[:SKETCH]


def share_met(known: Sequence[str], X: ArrayLike) -> float:
    """About which share of the rows that were sketched is among others."""
    return len(set(known) & _marks(X)) / len(known) if known else 0.0


def _marks(X: ArrayLike) -> set[str]:
    rows = np.ascontiguousarray(X, dtype="<f4")
    return {hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in rows}


def _count_shared(some: Rows, others: Rows) -> int:
    """How many of some rows' features are also features of other rows."""
    known = {row.tobytes() for row in np.ascontiguousarray(others.X)}
    return sum(row.tobytes() in known for row in np.ascontiguousarray(some.X))


def _measure(hasher: Hasher, queries: Rows, stored: Rows | None, train: Rows | None, radius: int) -> dict[str, Any]:
    if radius != int(radius) or radius < 0:
        raise ValueError(f"radius={radius!r}; give a whole number of at least 0.")
    for name, rows in (("queries", queries), ("stored", stored)):
        if rows is not None and len(np.asarray(rows.X)) != len(np.asarray(rows.y)):
            raise ValueError(f"{name} has {len(np.asarray(rows.X))} rows of X and {len(np.asarray(rows.y))} of y.")
    own, others = _signatures(queries.y, None if stored is None else stored.y)
    bits, packed = _codes(hasher, queries.X, "queries")
    kept = packed if stored is None else _codes(hasher, stored.X, "stored")[1]
    collection = retrieval.store(kept, others)
    alone = stored is None
    depths = _depths(collection, alone)
    hamming = retrieval.rank_by_hamming(
        packed, own, collection, bits.shape[1], leave_one_out=alone, radius=radius, depths=depths
    )
    found: dict[str, Any] = {"hamming": _figures_of(hamming)}
    found["hamming"] |= {"precision_within_radius": mean(hamming.precision_within), "radius": radius}
    if hasattr(hasher, "bit_probabilities"):
        chances = np.asarray(hasher.bit_probabilities(queries.X))
        if chances.shape != bits.shape or not ((chances >= 0) & (chances <= 1)).all():
            raise ValueError(
                f"{type(hasher).__name__}.bit_probabilities gives shape {chances.shape}, from {chances.min():.3g} to "
                f"{chances.max():.3g}; wanted is {bits.shape}, from 0 to 1."
            )
        expected = retrieval.rank_by_expected(chances, packed, own, collection, leave_one_out=alone, depths=depths)
        found["expected"] = _figures_of(expected)
        if train is not None and np.ndim(np.asarray(train.y)) == 1:
            classes, words = _class_codes(hasher, train)
            labels = np.asarray(queries.y)
            known = np.isin(labels, classes)  # a class that training has not seen has no true bits
            if known.any():
                truths = diagnostics.true_bits(labels[known], classes, words)
                calibration = diagnostics.calibrate(chances[known], truths)
                found["calibration"] = {
                    "calibration_error": calibration.error,
                    "curve": {
                        "predicted": calibration.predicted,
                        "observed": calibration.observed,
                        "counts": calibration.counts,
                    },
                }
    codes = diagnostics.describe_codes(bits)
    between = np.abs(codes.correlation[~np.eye(bits.shape[1], dtype=bool)])
    found["codes"] = {
        "distinct_codes": codes.distinct,
        "largest_bucket": codes.largest,
        "code_entropy": codes.code_entropy,
        "bit_entropy": codes.bit_entropy.mean(),
        "bit_correlation": between.mean() if len(between) else 0.0,
        "bits": {"balance": codes.balance, "entropy": codes.bit_entropy, "correlation": codes.correlation},
    }
    return found


def _codes(hasher: Hasher, X: ArrayLike, rows: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Bits and packed codes of some rows, as a method must give them."""
    name, n_rows = type(hasher).__name__, len(np.asarray(X))
    bits, packed = np.asarray(hasher.transform(X)), np.asarray(hasher.encode(X))
    if bits.ndim != 2 or len(bits) != n_rows or not np.isin(bits, (0, 1)).all():
        raise ValueError(
            f"{name}.transform gives shape {bits.shape} with values from {bits.min()} to {bits.max()} for {n_rows} "
            f"rows of {rows}; wanted are bits 0 and 1, [{n_rows}, n_bits]."
        )
    wanted = np.packbits(bits.astype(np.uint8), axis=1)
    if packed.shape != wanted.shape or packed.dtype != np.uint8 or (packed != wanted).any():
        raise ValueError(
            f"{name}.encode gives {packed.dtype} of shape {packed.shape} for {rows}; wanted is what transform gives, "
            f"packed by numpy.packbits(bits, axis=1): uint8 of shape {wanted.shape}."
        )
    return bits.astype(np.uint8, copy=False), wanted


def _encoding_seconds(hasher: Hasher, X: ArrayLike, repeats: int = 3) -> float:
    """Time to encode one row out of a batch of all of them, the best of several."""
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        hasher.encode(X)
        best = min(best, time.perf_counter() - began)
    return best / len(np.asarray(X))


def _class_codes(hasher: Hasher, train: Rows) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The dominant code that every class got in training; a method that does not tell is asked to encode the rows."""
    if hasattr(hasher, "class_codes_"):
        return hasher.classes_, hasher.class_codes_  # type: ignore[attr-defined]
    return diagnostics.dominant_codes(hasher.transform(train.X), np.asarray(train.y))


def _signatures(first: ArrayLike, second: ArrayLike | None) -> tuple[Signatures, Signatures]:
    """Signatures of two sets, numbered alike."""
    if second is None:
        both = validation.signatures(first, len(np.asarray(first)))
        return both, both
    one, other = np.asarray(first), np.asarray(second)
    kinds = {array.dtype.kind in "OSU" for array in (one, other)}
    if len(kinds) > 1 or one.shape[1:] != other.shape[1:]:
        raise ValueError(
            f"y of the queries is {one.dtype} of shape {one.shape} and y of the stored rows {other.dtype} of shape "
            f"{other.shape}; give both as labels of one kind, or as the same tags."
        )
    joint = np.concatenate([one, other])
    signatures = validation.signatures(joint, len(joint))
    n = len(np.asarray(first))
    return signatures[:n], signatures[n:]


def _depths(collection: Database, alone: bool) -> list[int]:
    """The k of the metrics at k, and more for a smooth precision–recall curve."""
    n = collection.n_rows - alone
    curve = np.unique(np.geomspace(1, max(n, 1), CURVE_POINTS).round().astype(int))
    return sorted({*curve.tolist(), *(k for k in AT if k <= n)})


def _figures_of(found: Retrieval) -> dict[str, Any]:
    """Means over queries, metrics at the usual k, and the curve."""
    at: dict[str, Sequence[float] | Floats] = {
        "map_at_k": found.average_precision_at,
        "precision_at_k": found.precision_at,
        "recall_at_k": found.recall_at,
    }
    usual = {int(k): place for place, k in enumerate(found.depths) if k in AT}
    nothing = int(np.isnan(found.average_precision).sum())
    figures: dict[str, Any] = {"map": mean(found.average_precision), "queries_with_nothing_to_find": nothing}
    for name, values in at.items():
        figures[name] = {k: values[place] for k, place in usual.items()}
    curve = {"retrieved": found.depths, "precision": found.precision_at, "recall": found.recall_at}
    return {**figures, "curve": curve}


def parameters(hasher: Hasher) -> dict[str, Any]:
    """Those parameters of a hasher that are plain words and numbers."""
    given = hasher.get_params(deep=False) if hasattr(hasher, "get_params") else {}
    return {name: value for name, value in given.items() if isinstance(value, bool | int | float | str)}


def _method(hasher: Hasher) -> dict[str, Any]:
    """Name and plain parameters of a hasher, and the trace of its training if it kept one."""
    method: dict[str, Any] = {"name": type(hasher).__name__, "parameters": parameters(hasher)}
    if hasattr(hasher, "sweeps_"):
        method["sweeps"] = [sweep._asdict() for sweep in hasher.sweeps_]
        method["seconds"] = getattr(hasher, "seconds_", None)
    names = ("length_scale", "signal_scale", "pair_weight", "ridge")
    method["chosen"] = {name: getattr(hasher, f"{name}_") for name in names if hasattr(hasher, f"{name}_")}
    return method


def _figures(results: Any, prefix: str = "") -> Iterable[tuple[str, float]]:
    """Every single number of nested results, by dotted name; curves and lists are left out."""
    for name, value in results.items():
        if isinstance(value, dict):
            if name != "curve":
                yield from _figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
