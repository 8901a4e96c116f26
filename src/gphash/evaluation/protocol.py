"""Protocols: who is searched for among whom, so that a figure means the same thing every time.

    held-out            every test row among the other test rows, as in the paper: training has seen none of them
    unseen-classes      the same for test rows of classes that training has not seen
    training-database   test rows among the training rows: common, but leaky, since what is retrieved taught the codes

Or one set's rows are searched for among any other's. All rank by Hamming distance; methods that tell bit probabilities,
by expected Hamming distance, too; and those that read codes, by P(similar). Ties are averaged over in closed form.
"""

import hashlib
import time
import timeit
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.data.dataset import Split
from gphash.evaluation import diagnostics, promises, report, retrieval
from gphash.evaluation.metrics import mean
from gphash.evaluation.retrieval import Queries
from gphash.supervision import targets
from gphash.supervision.similarity import Signatures

AT = (1, 10, 100, 1000)
CURVE_POINTS = 60
SKETCH = 256  # rows that stand for those of training
MARKED = 4096  # rows that are made float32 at a time
PROTOCOLS = ("held-out", "unseen-classes", "training-database")
UNSEEN_SHARE = 0.25  # of the classes, rounded up
LEAST_UNSEEN = 2
SEEN_SHARE = 0.01  # of a database, above which a protocol is called leaky
LEAKY = "leaky: test rows against a database that training has seen"
CHOSEN = ("length_scale", "signal_scale", "pair_weight", "ridge", "quantiser", "power")  # attributes that end in _


RANKED_BY = {"hamming": "Hamming distance", "expected": "expected Hamming distance", "similarity": "P(similar)"}
"""Rankings that are measured, in words."""


class Encoder(Protocol):
    """What a method must offer to be measured; `bit_probabilities(X)` besides, if it has them."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and supervision."""

    def transform(self, X: Any) -> NDArray[np.uint8]:
        """Codes as 0/1, [n, m]."""

    def encode(self, X: Any) -> NDArray[np.uint8]:
        """Packed codes."""


class Arranged(NamedTuple):
    """Rows in the parts that a protocol gives them."""

    train: Split
    test: Split
    stored: Split | None = None  # None leaves each test row out of the other test rows
    unseen: tuple[Any, ...] = ()  # classes that training does not see


def check(name: str) -> None:
    """Refuse a protocol that there is not."""
    if name not in PROTOCOLS:
        raise ValueError(f"protocol={name!r}; give one of {', '.join(map(repr, PROTOCOLS))}.")


def arrange(name: str, train: Split, test: Split, seed: int = 0) -> Arranged:
    """What a protocol makes of training and test rows; the seed draws classes that are not to be seen."""
    check(name)
    if name == "training-database":
        return Arranged(train, test, train)
    if name == "held-out":
        return Arranged(train, test)
    labels = np.asarray(train.y)
    if labels.ndim != 1:
        raise ValueError(f"protocol={name!r} needs class labels y [n]; y has shape {labels.shape}.")
    classes = np.unique(labels)
    n_unseen = max(LEAST_UNSEEN, int(np.ceil(UNSEEN_SHARE * len(classes))))
    if len(classes) < n_unseen + 2:
        raise ValueError(f"protocol={name!r} needs at least {LEAST_UNSEEN + 2} classes; y has {len(classes)}.")
    unseen = np.sort(np.random.default_rng([seed, 19]).choice(classes, n_unseen, replace=False))
    seen, late = ~np.isin(labels, unseen), np.isin(np.asarray(test.y), unseen)
    return Arranged(_some(train, seen), _some(test, late), None, tuple(unseen.tolist()))


def _some(rows: Split, chosen: NDArray[np.bool_]) -> Split:
    return Split(np.asarray(rows.X)[chosen], np.asarray(rows.y)[chosen])


def run(
    make: Callable[[int], Encoder],
    train: Split,
    test: Split,
    data: Mapping[str, Any],
    *,
    seed: int = 0,
    protocol: str = "held-out",
    stored: Split | None = None,
    radius: int = 2,
    read: Callable[[Any, Callable[[], Any], Split, int], Any] | None = None,
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
        Of the method, and of the classes that are not to be seen.
    protocol
        One of `PROTOCOLS`.
    stored
        Rows to search among; None for those that the protocol says.
    radius
        Of the Hamming ball.
    read
        Gives a method that reads no codes something that does: see `hashers.cross_fitting.read`.
    """
    _check_data(data)
    if stored is not None and protocol != "held-out":
        raise ValueError(f"protocol={protocol!r} says what to search among; leave stored out.")
    given = arrange(protocol, train, test, seed)
    hasher = make(seed)
    began = time.perf_counter()
    hasher.fit(given.train.X, given.train.y)
    seconds = time.perf_counter() - began
    among = given.stored if stored is None else stored
    teller: Any = hasher
    if read is not None and getattr(teller, "reader_", None) is None:
        teller = read(hasher, lambda: make(seed), given.train, seed)
    made = judge(hasher, given.test, data, stored=among, radius=radius, train=given.train, teller=teller)
    if given.unseen:
        made["protocol"] |= {"name": f"unseen classes: {made['protocol']['name']}", "unseen_classes": [*given.unseen]}
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
    teller: Any = None,
) -> dict[str, Any]:
    """Report on a method that is trained already, as `run` does; None if the rows that it has seen are not known.

    The teller reads codes, and tells classes; None is the method itself.
    """
    _check_data(data)
    test, stored = _labelled(test), None if stored is None else _labelled(stored)
    results = measure(hasher, test, stored, train, radius, teller)
    kept = test if stored is None else stored
    # Rows that training has seen inflate the figures of supervised methods.
    seen = None if train is None else _count_shared(kept, train)
    against = LEAKY if (seen or 0) > SEEN_SHARE * _count(kept.y) else "test rows against a database"
    protocol = {
        "name": "leave one out within the test rows" if stored is None else against,
        "training_rows": None if train is None else _count(train.y),
        "queries": _count(test.y),
        "database_rows": _count(kept.y) - (stored is None),
        "database_rows_seen_in_training": seen,
        "queries_in_database": None if stored is None else _count_shared(test, stored),
        "seed": parameters(hasher).get("random_state"),
        "ties": "averaged over all orders within equal distance, in closed form",
        "nothing_to_find": "queries with nothing to find are left out of mAP and recall, and count 0 for precision",
        "rankings": [name for name in RANKED_BY if name in results],
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
    hasher: Encoder,
    queries: Split,
    stored: Split | None = None,
    train: Split | None = None,
    radius: int = 2,
    teller: Any = None,
) -> dict[str, Any]:
    """The figures of a trained method that searches for queries among stored rows, or among the other queries if None.

    Training rows are needed to find the codes that calibration of bits is judged by, if the method does not know them.
    Rows without a label are neither searched for nor found.
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
        if np.ndim(np.asarray(queries.y)) == 1 and (train is not None or hasattr(hasher, "class_codes_")):
            found |= _calibration(hasher, chances, np.asarray(queries.y), train)
    teller = hasher if teller is None else teller
    if (beliefs := retrieval.beliefs(teller, queries.X)) is not None:
        knowing = asked._replace(beliefs=beliefs)
        similar = retrieval.measure(knowing, database, bits.shape[1], depths=depths)
        trust = getattr(teller, "trust_", None)
        familiarity = None if trust is None else np.asarray(teller.familiarity(queries.X))
        found["similarity"] = _means(similar, depths) | promises.judge(knowing, database, trust, familiarity)
    return {**found, "codes": diagnostics.describe_codes(bits)}


def _calibration(hasher: Encoder, chances: Floats, labels: NDArray[Any], train: Split | None) -> dict[str, Any]:
    """Bit probabilities against the bits of the dominant code that every class got in training."""
    if hasattr(hasher, "class_codes_"):
        classes, words = hasher.classes_, hasher.class_codes_  # type: ignore[attr-defined]
    else:
        assert train is not None
        classes, words = diagnostics.dominant_codes(hasher.transform(train.X), train.y)
    known = np.isin(labels, classes)  # a class that training has not seen has no true bits
    if not known.any():
        return {}
    taught = chances[known, : words.shape[1]]  # free bits, which come last, have no true value
    return {"calibration": diagnostics.calibrate(taught, words[np.searchsorted(classes, labels[known])])}


def _check_data(data: Mapping[str, Any]) -> None:
    if missing := [name for name in ("name", "features", "checksum") if not data.get(name)]:
        raise ValueError(f"data lacks {', '.join(missing)}; a report says which data it was made from.")


def parameters(hasher: Any) -> dict[str, Any]:
    """Those parameters of a hasher that are plain words and numbers."""
    given = hasher.get_params(deep=False) if hasattr(hasher, "get_params") else {}
    return {name: value for name, value in given.items() if isinstance(value, bool | int | float | str)}


def _decided(one: dict[str, Any]) -> dict[str, Any]:
    """What reports of several seeds must have in common."""
    protocol, data = {**one["protocol"], "seed": None}, one["data"]
    if "unseen_classes" in protocol:  # then the seed draws the rows as well
        protocol, data = protocol["name"], {**data, "rows": None}
    parameters = {**one["method"]["parameters"], "random_state": None}
    return {"protocol": protocol, "data": data, "method": one["method"]["name"], "parameters": parameters}


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
    least: set[str] = set()
    for marks in _marks(X):
        least = set(sorted(least | marks)[:SKETCH])
    return sorted(least)


def share_met(known: Sequence[str], X: ArrayLike) -> float:
    """About which share of the rows that were sketched is among others."""
    wanted: set[str] = set(known)
    met = set[str]().union(*(wanted & marks for marks in _marks(X)))
    return len(met) / len(known) if known else 0.0


def _marks(X: ArrayLike) -> Iterator[set[str]]:
    """Hashes of rows, tile by tile."""
    rows = np.asarray(X)
    for start in range(0, len(rows), MARKED):
        tile = np.ascontiguousarray(rows[start : start + MARKED], dtype="<f4")
        yield {hashlib.sha256(row.tobytes()).hexdigest()[:16] for row in tile}


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
