"""How many bits? Quality, bytes and time of codes of several lengths on held-out rows, and which length to take.

A part of the rows is held out. One training on the others gives codes of all lengths (`GPHasher.fit_lengths`), and each
held-out row is searched for among the other ones. Beside codes stand sign bits, one for every feature, and the floats
themselves, ranked by cosine.
"""

import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from gphash.arrays import Floats, Indices
from gphash.codes import packing
from gphash.evaluation import canvas, plots, retrieval
from gphash.evaluation.metrics import mean
from gphash.evaluation.retrieval import Beliefs, Queries
from gphash.hashers.gp import GPHasher
from gphash.index.hamming_index import HammingIndex
from gphash.supervision import similarity, targets
from gphash.supervision.similarity import Signatures

if TYPE_CHECKING:
    from gphash.evaluation.canvas import Figure

LENGTHS = (8, 16, 32, 64, 128, 256)
HELD_OUT, MOST_HELD_OUT, LEAST_ROWS = 0.2, 4000, 50  # share of the rows, at most so many; rows there must be
SEARCHED = 20_000  # rows, at most, that searches are timed among
ASKED, NEIGHBOURS = 200, 10  # searches that are timed, and how many rows each wants
CLOSE = 0.01  # of mAP: what is no worse than that is as good


class Measured(NamedTuple):
    """What rows become, what that costs, and how well they are found by it."""

    name: str  # "codes", "sign bits" or "floats"
    n_bits: int
    n_bytes: int  # of a row
    hamming: float | None  # mAP by Hamming distance; None for floats
    best: float  # mAP by P(similar); of sign bits the same as by distance, of floats by cosine
    encoding: float | None  # microseconds a row; None where there is nothing to encode
    searching: float | None  # microseconds a query; None for sign bits that are too many for an index


class Suggestion(NamedTuple):
    """The curve, and the length to take."""

    curve: list[Measured]
    n_bits: int
    reason: str
    held_out: int  # rows
    searched: int  # rows that searches were timed among
    seconds: float


def suggest(
    hasher: GPHasher,
    X: NDArray[Any],
    y: Any,
    lengths: Sequence[int] = LENGTHS,
    seed: int = 0,
    watch: Callable[[Any], None] | None = None,
) -> Suggestion:
    """Measure codes of several lengths on held-out rows, and recommend one.

    Parameters
    ----------
    hasher
        Its parameters but n_bits are those that are used. Lengths that do not exceed its n_free_bits are left out.
    X, y
        Rows [n, d], and class labels [n] or tags [n, c].
    lengths
        Numbers of bits.
    seed
        Draws the held-out rows.
    watch
        Called with a `Sweep` after every sweep of the training.
    """
    began, rows, labels = time.perf_counter(), np.asarray(X), np.asarray(y)
    signatures = targets.signatures(y, len(rows))
    train, test = hold_out(signatures, seed)
    fitting = [n_bits for n_bits in lengths if n_bits > hasher.n_free_bits]
    if not fitting:
        raise ValueError(f"n_free_bits={hasher.n_free_bits}, and no length of {[*lengths]} is greater; give fewer.")
    within = clone(hasher).set_params(n_inducing=min(hasher.n_inducing, len(train)))
    hashers = within.fit_lengths(rows[train], labels[train], fitting, watch)
    asked, own = rows[test], signatures[test]
    stored = np.concatenate([asked, rows[train[: max(SEARCHED - len(test), 0)]]])
    curve = [_codes(one, asked, own, stored) for one in hashers.values()]
    centre = rows[train].mean(axis=0, dtype=np.float64)
    curve += [_sign_bits(asked, own, stored, centre), _floats(asked, own, stored)]
    n_bits, reason = recommend(curve)
    return Suggestion(curve, n_bits, reason, len(test), len(stored), time.perf_counter() - began)


def hold_out(signatures: Signatures, seed: int) -> tuple[Indices, Indices]:
    """Numbers of rows to learn from, in random order, and of rows to measure on, which have labels."""
    known = signatures.known
    if len(known) < LEAST_ROWS:
        raise ValueError(f"y has {len(known)} rows with labels; to hold some out, give at least {LEAST_ROWS}.")
    drawn = np.random.default_rng([seed, 51]).permutation(known)
    test = np.sort(drawn[: min(round(HELD_OUT * len(known)), MOST_HELD_OUT)])
    others = np.setdiff1d(np.arange(signatures.n_rows), test)
    return np.random.default_rng([seed, 52]).permutation(others), test


def recommend(curve: Sequence[Measured]) -> tuple[int, str]:
    """The shortest codes that are found nearly as well as the best, and why these."""
    codes = sorted((one for one in curve if one.name == "codes"), key=lambda one: one.n_bits)
    top = max(codes, key=lambda one: one.best)
    taken = next(one for one in codes if one.best >= top.best - CLOSE)
    reason = f"mAP by P(similar) is {taken.best:.3f} with {taken.n_bits} bits"
    if taken is top:
        reason += ", and no other length has more"
    else:
        reason += f"; {top.n_bits} bits have the most, {top.best:.3f}, which is at most {CLOSE} more"
    shorter = [one for one in codes if one.n_bits < taken.n_bits]
    if shorter:
        reason += f"; {shorter[-1].n_bits} bits have {shorter[-1].best:.3f}"
    for one in curve:
        if one.name == "floats":
            reason += f"; floats have {one.best:.3f} with {one.n_bytes / taken.n_bytes:,.0f} times the bytes"
    return taken.n_bits, reason + "."


def _codes(hasher: Any, asked: NDArray[Any], own: Signatures, stored: NDArray[Any]) -> Measured:
    """Codes of one length."""
    n_bits = hasher.n_bits
    encoding = _microseconds(lambda: hasher.encode(asked), len(asked))
    packed = hasher.encode(asked)
    queries, database = Queries(packed, own, leave_one_out=True), retrieval.store(packed, own)
    found = mean(retrieval.measure(queries, database, n_bits, names=["map"])["map"])
    best = found
    if hasher.reader_ is not None:
        knowing = queries._replace(beliefs=Beliefs(hasher.predict_proba(asked), hasher.reader_))
        best = mean(retrieval.measure(knowing, database, n_bits, names=["map"])["map"])
    searching = _time_search(packed, hasher.encode(stored), n_bits)
    return Measured("codes", n_bits, packed.shape[1], found, best, encoding, searching)


def _sign_bits(asked: NDArray[Any], own: Signatures, stored: NDArray[Any], centre: Floats) -> Measured:
    """A bit for every feature: on which side of the mean it is."""
    packed, n_bits = packing.pack(asked >= centre), asked.shape[1]
    encoding = _microseconds(lambda: packing.pack(asked >= centre), len(asked))
    found = retrieval.mean_average_precision(packed, own, n_bits, n_jobs=-1)
    searching = None
    if n_bits <= packing.MOST_BITS:
        searching = _time_search(packed, packing.pack(stored >= centre), n_bits)
    return Measured("sign bits", n_bits, packed.shape[1], found, found, encoding, searching)


def _floats(asked: NDArray[Any], own: Signatures, stored: NDArray[Any]) -> Measured:
    """The rows themselves in float32, by cosine."""
    directions, others = _unit(asked), _unit(stored)
    precisions = []
    for row, direction in enumerate(directions):
        cosines = directions @ direction
        cosines[row] = -np.inf
        order = np.argsort(-cosines, kind="stable")[:-1]
        hits = similarity.alike(own[row : row + 1], own)[0, order]
        if hits.any():
            places = np.flatnonzero(hits)
            precisions.append(float(((np.arange(len(places)) + 1) / (places + 1)).mean()))
    found = float(np.mean(precisions)) if precisions else float("nan")
    k, few = min(NEIGHBOURS, len(others)), directions[:ASKED]
    searching = _microseconds(lambda: [np.argpartition(-(others @ one), k - 1)[:k] for one in few], len(few))
    width = asked.shape[1]
    return Measured("floats", 32 * width, 4 * width, None, found, None, searching)


def _unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows, dtype=np.float64))
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0)[:, None], np.float32)


def _time_search(asked: NDArray[np.uint8], stored: NDArray[np.uint8], n_bits: int) -> float:
    """Microseconds of a search by Hamming distance."""
    index, few = HammingIndex.build(stored, n_bits=n_bits), asked[:ASKED]
    k = min(NEIGHBOURS, len(stored))
    return _microseconds(lambda: index.search(few, k=k), len(few))


def _microseconds(work: Callable[[], Any], n_rows: int) -> float:
    """For one row of some, after a first time that may compile something, the best of three."""
    work()
    return 1e6 * min(timeit.repeat(work, repeat=3, number=1)) / n_rows


@canvas.styled
def draw(curve: Sequence[Measured], n_bits: int, title: str) -> "Figure":
    """Draw mAP against the length of codes, with lines for floats and sign bits and a mark at the length to take."""
    figure = canvas.figure(4.8, 3.0)
    axes: Any = figure.subplots()
    codes = [one for one in curve if one.name == "codes"]
    lines: Mapping[str, Callable[[Measured], float | None]] = {
        "codes, by P(similar)": lambda one: one.best,
        "codes, by Hamming distance": lambda one: one.hamming,
    }
    for number, (label, value) in enumerate(lines.items()):
        axes.plot([one.n_bits for one in codes], [value(one) for one in codes], **canvas.line(number), label=label)
    for number, one in enumerate((one for one in curve if one.name != "codes"), len(lines)):
        look = {**canvas.line(number), "marker": "", "linestyle": canvas.DASHES[number - 1]}
        axes.axhline(one.best, **look, label=f"{one.name}, {one.n_bytes:,} bytes")
    axes.axvline(n_bits, color=canvas.QUIET, linewidth=0.8, zorder=0)
    plots.bits_axis(axes, [one.n_bits for one in codes])
    axes.set(ylabel="mAP", title=title)
    axes.grid(True)
    axes.legend(loc="best")
    return canvas.settled(figure)
