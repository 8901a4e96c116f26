"""Pictures of reports: they draw what `report.read` gives and measure nothing.

Every function returns a figure in the style of the house; `canvas.save` writes it.
"""

import textwrap
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.evaluation import canvas, protocol
from gphash.evaluation.canvas import COLOURS, DASHES, QUIET, WRONG, line, settled, styled

if TYPE_CHECKING:
    from gphash.evaluation.canvas import Figure

Report = dict[str, Any]

LARGE_DOT = 120.0  # square points
LABEL_WIDTH = 30  # characters of a line in a legend


@styled
def precision_recall(reports: Sequence[Report], ranking: str = "hamming") -> "Figure":
    """Precision against recall as more and more rows are retrieved, a line for every method and length of code.

    Parameters
    ----------
    reports
        Any number of methods; reports that differ in the seed alone are averaged at every number of retrieved rows.
    ranking
        "hamming", "expected" or "similarity".
    """
    groups = _groups(reports, ranking, by_length=True)
    axes = _beside_legend(groups)
    for number, (label, group) in enumerate(groups.items()):
        curves = [one["results"][ranking]["curve"] for one in group]
        if any(curve["retrieved"] != curves[0]["retrieved"] for curve in curves):
            raise ValueError(f"the reports of {label} retrieve different numbers of rows; give reports of one split.")
        add_curve(axes, curves, number / len(groups), **line(number), label=label)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="recall", ylabel="precision")
    axes.grid(True)
    return _titled(axes, reports, ranking, {len(group) for group in groups.values()}, "mean")


@styled
def map_against_bits(reports: Sequence[Report], ranking: str = "hamming") -> "Figure":
    """Mean average precision against the length of codes, a line for every method.

    Parameters
    ----------
    reports
        Any number of methods, lengths and seeds; bars are one standard deviation over seeds to either side.
    ranking
        "hamming", "expected" or "similarity".
    """
    groups = _groups(reports, ranking, by_length=False)
    axes = _beside_legend(groups)
    seeds = set()
    for number, (label, group) in enumerate(groups.items()):
        points = []
        # Bars of different methods stand side by side.
        shift = 2.0 ** (min(0.02, 0.16 / len(groups)) * (number - (len(groups) - 1) / 2))
        for n_bits, runs in groupby(sorted(group, key=_bits), key=_bits):
            same = list(runs)
            seeds.add(len(same))
            found = protocol.summarise(same)[f"{ranking}.map"]
            points.append((n_bits * shift, found["mean"] or 0.0, found["spread"] or 0.0))
        add_points(axes, points, **line(number), label=label)
    lengths = sorted({_bits(one) for one in reports})
    bits_axis(axes, lengths)
    low, high = axes.get_ylim()
    axes.set(xlim=(lengths[0] / 1.25, lengths[-1] * 1.25), ylim=(max(low, 0), min(high, 1)), ylabel="mAP")
    return _titled(axes, reports, ranking, seeds, "mean ± standard deviation")


def add_curve(axes: Any, curves: Sequence[dict[str, Any]], start: float, **look: Any) -> Any:
    """A line of precision against recall, the mean of curves.

    Markers of different lines start at different places (0 to 1), lest they cover each other.
    """
    recall, precision = (np.mean([curve[name] for curve in curves], axis=0) for name in ("recall", "precision"))
    return axes.plot(recall, precision, markevery=(0.13 * start, 0.13), **look)[0]


def add_points(axes: Any, points: Sequence[Any], **look: Any) -> Any:
    """A line through (bits, mean, spread), with bars where there is a spread."""
    places, mean, spread = (np.array(column) for column in zip(*points, strict=True))
    if spread.any():
        look |= {"yerr": spread, "capsize": 2.0, "elinewidth": 0.9, "capthick": 0.9}
    return axes.errorbar(places, mean, **look)


def bits_axis(axes: Any, lengths: Sequence[int]) -> None:
    """Lengths of codes across, with labels where one would not run into the one before."""
    labels: list[str] = []
    last, octaves = 0.0, np.log2(lengths[-1] / lengths[0]) if len(lengths) > 1 else 1.0
    for length in lengths:
        clear = not labels or np.log2(length) - last >= octaves / 18
        last = np.log2(length) if clear else last
        labels.append(str(length) if clear else "")
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    axes.set_xticks(lengths, labels=labels)
    axes.set_xlabel("length of a code [bits]")
    axes.grid(True)


@styled
def trust(report: Report) -> "Figure":
    """How far probabilities can be trusted: calibration, promises, and precision against the queries answered."""
    found = _part(report, "similarity")
    figure = canvas.figure(9.0, 3.2)
    left, middle, right = figure.subplots(1, 3)
    diagonal = {"color": QUIET, "linewidth": 0.9, "linestyle": DASHES[1]}
    left.plot([0, 1], [0, 1], **diagonal)
    parts = {"bits": report["results"].get("calibration"), "P(similar)": found["calibration"]}
    for number, (name, part) in enumerate((name, part) for name, part in parts.items() if part is not None):
        label = f"{name}: error {part['calibration_error']:.4f}"
        predicted, observed, counts = _columns(part["curve"], "predicted", "observed", "counts")
        sizes = LARGE_DOT * np.sqrt(counts / counts.sum())  # few cases tell little
        left.scatter(predicted, observed, sizes + 1, color=COLOURS[number], alpha=0.7, linewidths=0, label=label)
    left.set(xlabel="probability", ylabel="how often it is so", title="calibration; large dots are many cases")
    for dot in left.legend(loc="lower right").legend_handles:
        dot.set_sizes([LARGE_DOT / 4])
    promises = found.get("promises", {})
    middle.plot([0.45, 1], [0.45, 1], **diagonal)
    for number, kind in enumerate(("precision", "recall")):
        names = [name for name in promises if name.startswith(kind)]
        levels, kept = [float(name.split("_")[1]) for name in names], [promises[name] for name in names]
        middle.plot(levels, np.array(kept, np.float64), **line(number), label=kind)
    middle.set(xlabel="promised", ylabel="kept", title="promises", xlim=(0.45, 1), ylim=(0.45, 1.02))
    if promises:
        middle.legend(loc="lower right")
    right.plot(*_columns(found["answering"]["curve"], "answered", "precision"), **line(0))
    what = {"xlabel": "share of queries answered", "ylabel": "precision of the answers"}
    right.set(**what, title="if unsure, no answer", xlim=(0, 1.02), ylim=(0, 1.02))
    for axes in (left, middle, right):
        axes.grid(True)
    figure.suptitle(_title(report), fontsize=8)
    return settled(figure)


@styled
def training_trace(report: Report) -> "Figure":
    """Flipped bits and leave-one-out score sweep by sweep; shaded is where codes were fixed already."""
    if not (sweeps := report["method"].get("sweeps")):
        raise ValueError(f"the report of {_name(report)} has no trace of training.")
    names = ("number", "flips", "leave_one_out", "frozen")
    numbers, flips, score, frozen = np.array([[sweep[name] for name in names] for sweep in sweeps], dtype=float).T
    figure = canvas.figure(4.6, 3.8)
    above, below = figure.subplots(2, 1, sharex=True)
    # Few sweeps are told apart by their markers; many would make a caterpillar.
    every = max(1, len(numbers) // 25)
    above.plot(numbers, flips, **line(0), markevery=every)
    top = max(flips.max(), 4)
    if top > 50:  # from thousands to none
        above.set_yscale("symlog", linthresh=1, linscale=0.4)
    above.set(ylim=(-0.3, 6 * top) if top > 50 else (-0.05 * top, 1.3 * top), ylabel="flipped bits")
    above.yaxis.set_major_formatter("{x:,.0f}")
    below.plot(numbers, score, **line(1), markevery=every)
    below.set(xlabel="sweep", ylabel="leave-one-out score\n[nats per bit]")
    below.locator_params(axis="x", integer=True)
    below.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
    if frozen.any():  # once fixed, codes stay so
        first, last = numbers[frozen > 0][[0, -1]]
        for axes in (above, below):
            axes.axvspan(first - 0.5, last + 0.5, color="#ECECEC", linewidth=0, zorder=0)
        above.text(last + 0.4, 0.95, "codes fixed", ha="right", va="top", transform=above.get_xaxis_transform())
    for axes in (above, below):
        axes.grid(True, axis="y")
    above.set_title(_title(report))
    figure.align_ylabels()
    return settled(figure)


@styled
def codes(report: Report) -> "Figure":
    """Share of ones of every bit, and correlation of every two bits."""
    found = _part(report, "codes")
    balance, correlation = _columns(found["bits"], "balance", "correlation")
    n_bits = len(balance)
    some = np.arange(0, n_bits, -(-n_bits // 9))
    figure = canvas.figure(7.0, 3.1)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    left.bar(np.arange(n_bits), balance, 0.8, color=COLOURS[0])
    left.axhline(0.5, color="black", linewidth=0.9, linestyle=DASHES[1])
    left.set(xlim=(-0.6, n_bits - 0.4), ylim=(0, 1), xlabel="bit", ylabel="share of ones", xticks=some)
    left.grid(True, axis="y")
    left.set_title(_title(report))
    image = right.imshow(correlation, cmap="PuOr", vmin=-1, vmax=1, interpolation="nearest")
    buckets = f"{found['distinct_codes']:,} distinct codes · largest bucket {found['largest_bucket']:,} rows"
    right.set_title(buckets, loc="center")
    right.set(xlabel="bit", ylabel="bit", xticks=some, yticks=some)
    bar = figure.colorbar(image, ax=right, shrink=0.95, ticks=[-1, -0.5, 0, 0.5, 1])
    bar.set_label("correlation of bits")
    return settled(figure)


@styled
def contact_sheet(
    queries: Sequence[ArrayLike],
    neighbours: Sequence[Sequence[ArrayLike]],
    relevant: ArrayLike,
    distances: ArrayLike,
    *,
    greys: str = "gray",
) -> "Figure":
    """Retrieved images: a row for every query, which stands on the left, and a frame around what is not relevant.

    Parameters
    ----------
    queries
        q images, each [h, w] or [h, w, 3], of any sizes; bytes, or numbers from 0 to 1 for colours.
    neighbours
        For every query its k nearest images, nearest first.
    relevant
        Which of them are relevant, [q, k].
    distances
        Of each to its query, [q, k].
    greys
        Colour map of images without colours; "gray_r" for dark ink on white paper.
    """
    marks, numbers = np.asarray(relevant, dtype=bool), np.asarray(distances)
    shape = (len(queries), len(neighbours[0]) if len(neighbours) else 0)
    found = {"neighbours": (len(neighbours), shape[1]), "relevant": marks.shape, "distances": numbers.shape}
    if 0 in shape or any(one != shape for one in found.values()) or len({len(row) for row in neighbours}) > 1:
        told = ", ".join(f"{name} {one}" for name, one in found.items())
        raise ValueError(f"{len(queries)} queries were given with {told}; give [q, k] of each, at least one.")
    rows = [[np.asarray(picture) for picture in (query, *row)] for query, row in zip(queries, neighbours, strict=True)]
    grey = {"cmap": greys, **_limits([picture for row in rows for picture in row])}

    # In units of a picture's box: the query's column, a gap, its neighbours; below each its distance.
    wide, tall, gap, top, bottom, edge = 1.12, 1.38, 0.3, 0.45, 0.5, 0.1
    width = 2 * edge + wide + gap + max(shape[1] * wide - 0.12, 3.4)
    height = top + len(rows) * tall + bottom
    scale = min(0.75, 7.2 / width)
    figure = canvas.figure(scale * width, scale * height, layout=None)
    sheet = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8 * min(1.0, scale / 0.6)}
    sheet.text(edge + 0.5, top / 2, "query", weight="bold", **text)
    across = edge + wide + gap
    sheet.text(across, top / 2, "nearest codes, with their distances", **{**text, "ha": "left"}, weight="bold")
    for number, row in enumerate(rows):
        down = top + number * tall
        for place, picture in enumerate(row):
            left = edge + place * wide + (gap if place else 0)
            right = place == 0 or bool(marks[number, place - 1])
            _add_picture(sheet, picture, left, down, grey)
            _add_frame(sheet, left, down, 1, *(("#B0B0B0", 0.5) if right else (WRONG, 2.6)), scale)
            if place:
                value = numbers[number, place - 1]
                sheet.text(left + 0.5, down + 1.16, f"{value:.2f}" if numbers.dtype.kind == "f" else f"{value}", **text)
    down = top + len(rows) * tall
    _add_frame(sheet, edge, down + 0.05, 0.25, WRONG, 2, scale)
    sheet.text(edge + 0.4, down + 0.18, "not relevant to the query", **{**text, "ha": "left"})
    sheet.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    sheet.axis("off")
    return figure


def _limits(pictures: Sequence[NDArray[Any]]) -> dict[str, float]:
    """Black and white of grey images, the same for all."""
    if all(picture.dtype == np.uint8 for picture in pictures):
        return {"vmin": 0, "vmax": 255}
    return {"vmin": min(picture.min() for picture in pictures), "vmax": max(picture.max() for picture in pictures)}


def _add_picture(sheet: Any, picture: NDArray[Any], left: float, down: float, grey: dict[str, Any]) -> None:
    """A picture in the middle of its box."""
    tall, wide = (side / max(picture.shape[:2]) for side in picture.shape[:2])
    x, y = left + (1 - wide) / 2, down + (1 - tall) / 2
    sheet.imshow(picture, extent=(x, x + wide, y + tall, y), **grey)


def _add_frame(sheet: Any, left: float, down: float, side: float, colour: str, thick: float, scale: float) -> None:
    look = {"fill": False, "edgecolor": colour, "linewidth": thick * (scale / 0.75), "zorder": 3}
    sheet.add_patch(canvas.matplotlib_().patches.Rectangle((left, down), side, side, **look))


def _beside_legend(groups: dict[str, Any]) -> Any:
    """Axes of a figure that is tall enough for a legend of all its lines."""
    return canvas.figure(5.6, max(3.4, 0.2 + 0.175 * len(groups))).add_subplot()


def _titled(axes: Any, reports: Sequence[Report], ranking: str, seeds: set[int], what: str) -> "Figure":
    """The figure with its legend; data, if all reports have the same, ranking, and seeds, if several, as its title."""
    names = {one["data"]["name"] for one in reports}
    title = (f"{names.pop()} · " if len(names) == 1 else "") + f"ranked by {protocol.RANKED_BY[ranking]}"
    if max(seeds) > 1:
        title += f"\n{what} over {'–'.join(map(str, sorted({min(seeds), max(seeds)})))} seeds"
    axes.set_title(title)
    axes.figure.legend(loc="outside right upper")
    return settled(axes.figure)


def _columns(curve: dict[str, Any], *names: str) -> list[NDArray[np.float64]]:
    return [np.array(curve[name], dtype=float) for name in names]


def _bits(report: Report) -> int:
    return len(report["results"]["codes"]["bits"]["balance"])


def _name(report: Report) -> str:
    return f"{report['method']['name']}, {_bits(report)} bit" + ("s" if _bits(report) != 1 else "")


def _title(report: Report) -> str:
    return f"{_name(report)} · {report['data']['name']}"


def _part(report: Any, name: str) -> dict[str, Any]:
    if not isinstance(report, dict) or "results" not in report:
        raise TypeError(f"{type(report).__name__} is no report; give what report.read gives for a file.")
    if name not in report["results"]:
        raise ValueError(f"the report of {_name(report)} has no {name}; it has {', '.join(report['results'])}.")
    found: dict[str, Any] = report["results"][name]
    return found


def _groups(reports: Sequence[Report], ranking: str, by_length: bool) -> dict[str, list[Report]]:
    """Reports that belong to one line, by its label: all but the seed (and, unless `by_length`, the bits) is equal.

    A label says what is needed to tell the lines apart, and nothing else.
    """
    if ranking not in protocol.RANKED_BY:
        raise ValueError(f"ranking={ranking!r}; give one of {', '.join(map(repr, protocol.RANKED_BY))}.")
    if isinstance(reports, dict | str) or not isinstance(reports, Sequence):
        raise TypeError("reports is no list; give a list of reports, as report.read gives them.")
    if not reports:
        raise ValueError("no reports were given; give at least one.")
    for one in reports:
        _part(one, ranking)
    methods = [one["method"]["name"] for one in reports]
    reports = sorted(reports, key=lambda one: (methods.index(one["method"]["name"]), _bits(one)))
    everything = [_facts(one) for one in reports]
    groups: dict[str, list[Report]] = {}
    for one, facts in zip(reports, everything, strict=True):
        rivals = [other for other in everything if other["method"] == facts["method"]]
        telling = [
            str(value) if key in ("data", "protocol") else f"{key} {value}"
            for key, value in facts.items()
            if key != "method" and any(other.get(key) != value for other in rivals)
        ]
        name = _name(one) if by_length else facts["method"]
        # A long label would leave no room for the plot.
        label = textwrap.fill(", ".join([name, *telling]), LABEL_WIDTH)
        groups.setdefault(label, []).append(one)
    return groups


def _facts(report: Report) -> dict[str, Any]:
    """What makes two reports different methods or settings, rather than seeds or lengths of one."""
    method, setting, data = report["method"], report["protocol"], report["data"]
    free = ("random_state", "n_bits", "n_jobs")
    counts = () if "unseen_classes" in setting else ("training_rows", "queries", "database_rows")  # the seed's draw
    return {
        "method": method["name"],
        **{name: value for name, value in method["parameters"].items() if name not in free},
        **{name.replace("_", " "): setting[name] for name in counts},
        "protocol": setting["name"],
        "data": data["name"],
        "features": data.get("features"),
        "checksum": data.get("checksum"),
    }
