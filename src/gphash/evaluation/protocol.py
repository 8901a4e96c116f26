"""Protocols: who is searched for among whom, so that a figure means the same thing every time.

`leave_one_out` searches for every row of a test set among the others of that set, as in the paper: nothing retrieved
was seen in training. `database` searches for one set's rows among another's. Both rank by Hamming distance and, for
methods that tell bit probabilities, by expected Hamming distance; ties are averaged over in closed form.
"""

import time
from collections.abc import Callable, Iterable, Sequence
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
AT = (1, 10, 100, 1000)
CURVE_POINTS = 60


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
    data: dict[str, Any],
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
    hasher = make(seed)
    began = time.perf_counter()
    hasher.fit(train.X, train.y)
    seconds = time.perf_counter() - began
    results = _measure(hasher, test, stored, train, radius)
    protocol = {
        "name": "leave one out within the test rows" if stored is None else "test rows against a database",
        "training_rows": len(np.asarray(train.y)),
        "queries": len(np.asarray(test.y)),
        "database_rows": len(np.asarray((stored or test).y)) - (stored is None),
        "seed": seed,
        "ties": TIES,
        "rankings": [name for name in ("hamming", "expected") if name in results],
    }
    return report.make(protocol, data, {**_method(hasher), "training_seconds": seconds}, results)


def summarise(reports: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean and standard deviation over seeds of every single figure of the reports' results, by dotted name."""
    figures = [dict(_figures(one["results"])) for one in reports]
    if not figures:
        raise ValueError("no reports were given; give at least one.")
    names = [name for name in figures[0] if all(name in other for other in figures)]
    values = {name: np.array([figure[name] for figure in figures]) for name in names}
    return {
        name: {"mean": float(found.mean()), "spread": float(found.std(ddof=1)) if len(found) > 1 else 0.0}
        for name, found in values.items()
    }


def _measure(hasher: Hasher, queries: Rows, stored: Rows | None, train: Rows | None, radius: int) -> dict[str, Any]:
    own, others = _signatures(queries.y, None if stored is None else stored.y)
    bits = hasher.transform(queries.X)
    packed = np.packbits(bits, axis=1)
    kept = packed if stored is None else hasher.encode(stored.X)
    collection = retrieval.store(kept, others)
    alone = stored is None
    depths = _depths(collection, alone)
    hamming = retrieval.rank_by_hamming(
        packed, own, collection, bits.shape[1], leave_one_out=alone, radius=radius, depths=depths
    )
    found: dict[str, Any] = {"hamming": _figures_of(hamming)}
    found["hamming"] |= {"precision_within_radius": mean(hamming.precision_within), "radius": radius}
    if hasattr(hasher, "bit_probabilities"):
        chances = hasher.bit_probabilities(queries.X)
        expected = retrieval.rank_by_expected(chances, packed, own, collection, leave_one_out=alone, depths=depths)
        found["expected"] = _figures_of(expected)
        if train is not None and np.ndim(np.asarray(train.y)) == 1:
            classes, words = diagnostics.dominant_codes(hasher.transform(train.X), train.y)
            labels = np.asarray(queries.y)
            known = np.isin(labels, classes)  # a class that training has not seen has no true bits
            if known.any():
                truths = diagnostics.true_bits(labels[known], classes, words)
                calibration = diagnostics.calibrate(chances[known], truths)
                found["calibration"] = {"calibration_error": calibration.error, **calibration._asdict()}
    codes = diagnostics.describe_codes(bits)
    between = np.abs(codes.correlation[~np.eye(bits.shape[1], dtype=bool)])
    found["codes"] = {
        **codes._asdict(),
        "mean_bit_entropy": codes.bit_entropy.mean(),
        "mean_correlation": between.mean() if len(between) else 0.0,
    }
    return found


def _signatures(first: ArrayLike, second: ArrayLike | None) -> tuple[Signatures, Signatures]:
    """Signatures of two sets, numbered alike."""
    if second is None:
        both = validation.signatures(first, len(np.asarray(first)))
        return both, both
    joint = np.concatenate([np.asarray(first), np.asarray(second)])
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


def _method(hasher: Hasher) -> dict[str, Any]:
    """Name and plain parameters of a hasher, and the trace of its training if it kept one."""
    parameters = hasher.get_params(deep=False) if hasattr(hasher, "get_params") else {}
    plain = {name: value for name, value in parameters.items() if isinstance(value, bool | int | float | str)}
    method: dict[str, Any] = {"name": type(hasher).__name__, "parameters": plain}
    if hasattr(hasher, "sweeps_"):
        method["sweeps"] = [sweep._asdict() for sweep in hasher.sweeps_]
        method["chosen"] = {
            name: getattr(hasher, f"{name}_") for name in ("length_scale", "signal_scale", "pair_weight")
        }
        method["seconds"] = getattr(hasher, "seconds_", None)
    return method


def _figures(results: Any, prefix: str = "") -> Iterable[tuple[str, float]]:
    """Every single number of nested results, by dotted name; curves and lists are left out."""
    for name, value in results.items():
        if isinstance(value, dict):
            if name != "curve":
                yield from _figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{prefix}{name}", float(value)
