"""Protocols: who is searched for among whom, so that a figure means the same thing every time.

Every row of a test set is searched for among the others of that set, as in the paper: nothing retrieved was seen in
training. Or one set's rows are searched for among another's. Both rank by Hamming distance and, for methods that tell
bit probabilities, by expected Hamming distance; ties are averaged over in closed form.
"""

import hashlib
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.data.dataset import Split
from gphash.evaluation import diagnostics, report, retrieval
from gphash.evaluation.metrics import mean
from gphash.evaluation.retrieval import Queries
from gphash.supervision import targets
from gphash.supervision.similarity import Signatures

AT = (1, 10, 100, 1000)
CURVE_POINTS = 60
SKETCH = 256  # rows that stand for those of training
CHOSEN = ("length_scale", "signal_scale", "pair_weight", "ridge")  # attributes that end in _


class Encoder(Protocol):
    """What a method must offer to be measured; `bit_probabilities(X)` besides, if it has them."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and supervision."""

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Codes as 0/1, [n, m]."""

    def encode(self, X: Any) -> NDArray[np.uint8]:
        """Packed codes."""


def run(
    make: Callable[[int], Encoder],
    train: Split,
    test: Split,
    data: Mapping[str, Any],
    *,
    seed: int = 0,
    stored: Split | None = None,
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
    made = judge(hasher, test, data, stored=stored, radius=radius, train=train)
    made["protocol"]["seed"], made["method"]["training_seconds"] = seed, seconds
    return made


def judge(
    hasher: Encoder,
    test: Split,
    data: Mapping[str, Any],
    *,
    stored: Split | None = None,
    radius: int = 2,
    train: Split | None = None,
) -> dict[str, Any]:
    """Report on a method that is trained already, as `run` does; None if the rows that it has seen are not known."""
    _check_data(data)
    test, stored = _labelled(test), None if stored is None else _labelled(stored)
    results = measure(hasher, test, stored, train, radius)
    kept = test if stored is None else stored
    protocol = {
        "name": "leave one out within the test rows" if stored is None else "test rows against a database",
        "training_rows": None if train is None else _count(train.y),
        "queries": _count(test.y),
        "database_rows": _count(kept.y) - (stored is None),
        # Rows that training has seen inflate the figures of supervised methods.
        "database_rows_seen_in_training": None if train is None else _count_shared(kept, train),
        "queries_in_database": None if stored is None else _count_shared(test, stored),
        "seed": parameters(hasher).get("random_state"),
        "ties": "averaged over all orders within equal distance, in closed form",
        "nothing_to_find": "queries with nothing to find are left out of mAP and recall, and count 0 for precision",
        "rankings": [name for name in ("hamming", "expected") if name in results],
        "radius": radius,
    }
    sets = {"training": train, "queries": test, "database": stored}
    described = {**data, "rows": {name: _checksum(rows) for name, rows in sets.items() if rows is not None}}
    method: dict[str, Any] = {"name": type(hasher).__name__, "parameters": parameters(hasher)}
    phases = getattr(hasher, "seconds_", None)
    if hasattr(hasher, "sweeps_"):
        method |= {"sweeps": [sweep._asdict() for sweep in hasher.sweeps_], "seconds": phases}
    method["chosen"] = {name: getattr(hasher, f"{name}_") for name in CHOSEN if hasattr(hasher, f"{name}_")}
    method["training_seconds"] = sum((phases or {}).values()) or None
    # Of a batch of all rows, the best of three.
    seconds = min(timeit.repeat(lambda: hasher.encode(test.X), repeat=3, number=1))
    method["encoding_microseconds"] = 1e6 * seconds / _count(test.X)
    return report.make(protocol, described, method, results)


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
    summary = {}
    for name in figures[0]:
        if all(name in other for other in figures):
            found = np.array([figure[name] for figure in figures])
            summary[name] = {
                "mean": float(found.mean()),
                "spread": float(found.std(ddof=1)) if len(found) > 1 else None,
            }
    return summary


def measure(
    hasher: Encoder, queries: Split, stored: Split | None = None, train: Split | None = None, radius: int = 2
) -> dict[str, Any]:
    """The figures of a trained method that searches for queries among stored rows, or among the other queries if None.

    Training rows are needed to find the codes that calibration is judged by; None leaves that out. Rows without a label
    are neither searched for nor found.
    """
    if radius != int(radius) or radius < 0:
        raise ValueError(f"radius={radius!r}; give a whole number of at least 0.")
    for name, rows in (("queries", queries), ("stored", stored)):
        if rows is not None and _count(rows.X) != _count(rows.y):
            raise ValueError(f"{name} has {_count(rows.X)} rows of X and {_count(rows.y)} of y.")
    queries, stored = _labelled(queries), None if stored is None else _labelled(stored)
    own, others = _signatures(queries.y, None if stored is None else stored.y)
    bits, packed = _codes(hasher, queries.X, "queries")
    asked = Queries(packed, own, leave_one_out=stored is None)
    database = retrieval.store(packed if stored is None else _codes(hasher, stored.X, "stored")[1], others)
    depths = _depths(database.n_rows - asked.leave_one_out)
    hamming = retrieval.measure(asked, database, bits.shape[1], radius, depths)
    found = {"hamming": {**_means(hamming, depths), "radius": radius}}
    if hasattr(hasher, "bit_probabilities"):
        chances = np.asarray(hasher.bit_probabilities(queries.X))
        if chances.shape != bits.shape or not ((chances >= 0) & (chances <= 1)).all():
            raise ValueError(
                f"{type(hasher).__name__}.bit_probabilities gives shape {chances.shape}, from {chances.min():.3g} to "
                f"{chances.max():.3g}; it must give {bits.shape}, from 0 to 1."
            )
        unsure = asked._replace(probabilities=chances)
        found["expected"] = _means(retrieval.measure(unsure, database, bits.shape[1], depths=depths), depths)
        if train is not None and np.ndim(np.asarray(train.y)) == 1:
            found |= _calibration(hasher, chances, np.asarray(queries.y), train)
    return {**found, "codes": diagnostics.describe_codes(bits)}


def _calibration(hasher: Encoder, chances: Floats, labels: NDArray[Any], train: Split) -> dict[str, Any]:
    """Bit probabilities against the bits of the dominant code that every class got in training."""
    if hasattr(hasher, "class_codes_"):
        classes, words = hasher.classes_, hasher.class_codes_  # type: ignore[attr-defined]
    else:
        classes, words = diagnostics.dominant_codes(hasher.transform(train.X), train.y)
    known = np.isin(labels, classes)  # a class that training has not seen has no true bits
    if not known.any():
        return {}
    return {"calibration": diagnostics.calibrate(chances[known], words[np.searchsorted(classes, labels[known])])}


def _check_data(data: Mapping[str, Any]) -> None:
    if missing := [name for name in ("name", "features", "checksum") if not data.get(name)]:
        raise ValueError(f"data lacks {', '.join(missing)}; a report says which data it was made from.")


def parameters(hasher: Any) -> dict[str, Any]:
    """Those parameters of a hasher that are plain words and numbers."""
    given = hasher.get_params(deep=False) if hasattr(hasher, "get_params") else {}
    return {name: value for name, value in given.items() if isinstance(value, bool | int | float | str)}


def _decided(one: dict[str, Any]) -> dict[str, Any]:
    """What reports of several seeds must have in common."""
    protocol = {**one["protocol"], "seed": None}
    parameters = {**one["method"]["parameters"], "random_state": None}
    return {"protocol": protocol, "data": one["data"], "method": one["method"]["name"], "parameters": parameters}


def _count(rows: Any) -> int:
    return len(np.asarray(rows))


def _checksum(rows: Split) -> str:
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
    return {hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in np.ascontiguousarray(X, dtype="<f4")}


def _count_shared(some: Split, others: Split) -> int:
    """How many of some rows' features are also features of other rows."""
    known = {row.tobytes() for row in np.ascontiguousarray(np.asarray(others.X))}
    return sum(row.tobytes() in known for row in np.ascontiguousarray(np.asarray(some.X)))


def _codes(hasher: Encoder, X: Any, rows: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Bits and packed codes of some rows, as a method must give them."""
    name, n_rows = type(hasher).__name__, _count(X)
    bits, packed = np.asarray(hasher.transform(X)), np.asarray(hasher.encode(X))
    if bits.ndim != 2 or len(bits) != n_rows or not np.isin(bits, (0, 1)).all():
        raise ValueError(
            f"{name}.transform gives shape {bits.shape} with values from {bits.min()} to {bits.max()} for {n_rows} "
            f"rows of {rows}; it must give bits 0 and 1, [{n_rows}, n_bits]."
        )
    right = np.packbits(bits.astype(np.uint8), axis=1)
    if packed.shape != right.shape or packed.dtype != np.uint8 or (packed != right).any():
        raise ValueError(
            f"{name}.encode gives {packed.dtype} of shape {packed.shape} for {rows}; it must give what transform "
            f"gives, packed by numpy.packbits(bits, axis=1): uint8 of shape {right.shape}."
        )
    return bits.astype(np.uint8, copy=False), right


def _signatures(first: ArrayLike, second: ArrayLike | None) -> tuple[Signatures, Signatures]:
    """Signatures of two sets, numbered alike."""
    one = np.asarray(first)
    if second is None:
        both = targets.signatures(one, len(one))
        return both, both
    other = np.asarray(second)
    kinds = {array.dtype.kind in "OSU" for array in (one, other)}
    if len(kinds) > 1 or one.shape[1:] != other.shape[1:]:
        raise ValueError(
            f"y of the queries is {one.dtype} of shape {one.shape} and y of the stored rows {other.dtype} of shape "
            f"{other.shape}; give both as labels of one kind, or as the same tags."
        )
    joint = np.concatenate([one, other])
    signatures = targets.signatures(joint, len(joint))
    return signatures[: len(one)], signatures[len(one) :]


def _labelled(rows: Split) -> Split:
    """The rows that have a label; the same if all have."""
    y = np.asarray(rows.y)
    missing = targets.unlabelled(y)
    known = ~(missing.all(axis=1) if y.ndim == 2 else missing)
    return rows if known.all() or not known.any() else rows._replace(X=np.asarray(rows.X)[known], y=y[known])


def _depths(n_rows: int) -> list[int]:
    """The k of the metrics at k, and more for a smooth precision–recall curve."""
    curve = np.unique(np.geomspace(1, max(n_rows, 1), CURVE_POINTS).round().astype(int))
    return sorted({*curve.tolist(), *(k for k in AT if k <= n_rows)})


def _means(found: dict[str, Floats], depths: list[int]) -> dict[str, Any]:
    """Means over queries, those of metrics at k for the usual k, and the curve of precision and recall."""
    figures: dict[str, Any] = {"queries_with_nothing_to_find": int(np.isnan(found["map"]).sum())}
    curve: dict[str, Any] = {"retrieved": np.array(depths)}
    for name, values in found.items():
        if values.ndim == 1:
            figures[name] = mean(values)
            continue
        means = [mean(column) for column in values.T]
        figures[name] = {k: value for k, value in zip(depths, means, strict=True) if k in AT}
        if name in ("precision_at_k", "recall_at_k"):
            curve[name.removesuffix("_at_k")] = np.array(means)
    return {**figures, "curve": curve}


def _figures(results: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Every single number of nested results, by dotted name; curves and lists are left out."""
    for name, value in results.items():
        if isinstance(value, dict):
            if name != "curve":
                yield from _figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
