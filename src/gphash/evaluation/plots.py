"""Pictures of reports: they draw what `report.read` gives and measure nothing.

Every function returns a figure in the style of the house; `canvas.save` writes it.
"""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.evaluation import canvas, protocol
from gphash.evaluation.canvas import COLOURS, DASHES, QUIET, WRONG, line, rectangle, settled, styled
from gphash.evaluation.metrics import METRICS

if TYPE_CHECKING:
    from gphash.evaluation.canvas import Figure

Report = dict[str, Any]

LABEL_WIDTH = 30  # characters of a line in a legend
RANKINGS = {"hamming": "Hamming distance", "expected": "expected Hamming distance"}


@styled
def precision_recall(reports: Sequence[Report], ranking: str = "hamming") -> "Figure":
    """Precision against recall as more and more rows are retrieved, a line for every method and length of code.

    Parameters
    ----------
    reports
        Any number of methods; reports that differ in the seed alone are averaged at every number of retrieved rows.
    ranking
        "hamming" or "expected".
    """
    groups = _groups(reports, ranking, by_length=True)
    figure = canvas.figure(5.6, _tall_enough(len(groups)))
    axes = figure.add_subplot()
    for number, (label, group) in enumerate(groups.items()):
        curves = [one["results"][ranking]["curve"] for one in group]
        if any(curve["retrieved"] != curves[0]["retrieved"] for curve in curves):
            raise ValueError(f"the reports of {label} retrieve different numbers of rows; give reports of one split.")
        recall, precision = (np.mean([curve[name] for curve in curves], axis=0) for name in ("recall", "precision"))
        # Markers of different lines start at different places, lest they cover each other.
        start = 0.13 * number / len(groups)
        axes.plot(recall, precision, **line(number), markevery=(start, 0.13), label=label)
    axes.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel=_label("recall_at_k", "@k"), ylabel=_label("precision_at_k", "@k"))
    axes.grid(True)
    axes.set_title(_setting(reports, ranking) + _seeds_note({len(group) for group in groups.values()}, "mean"))
    figure.legend(loc="outside right upper")
    return settled(figure)


@styled
def map_against_bits(reports: Sequence[Report], ranking: str = "hamming") -> "Figure":
    """Mean average precision against the length of codes, a line for every method.

    Parameters
    ----------
    reports
        Any number of methods, lengths and seeds; bars are one standard deviation over seeds to either side.
    ranking
        "hamming" or "expected".
    """
    groups = _groups(reports, ranking, by_length=False)
    figure = canvas.figure(5.6, _tall_enough(len(groups)))
    axes = figure.add_subplot()
    lengths = sorted({_bits(one) for one in reports})
    seeds = set()
    for number, (label, group) in enumerate(groups.items()):
        points = []
        for n_bits, runs in groupby(sorted(group, key=_bits), key=_bits):
            same = list(runs)
            seeds.add(len(same))
            points.append((n_bits, *(value or 0.0 for value in protocol.summarise(same)[f"{ranking}.map"].values())))
        # Bars of different methods stand side by side.
        shift = 2.0 ** (min(0.02, 0.16 / len(groups)) * (number - (len(groups) - 1) / 2))
        places, mean, spread = (np.array(column) for column in zip(*points, strict=True))
        bars: dict[str, Any] = (
            {"yerr": spread, "capsize": 2.0, "elinewidth": 0.9, "capthick": 0.9} if spread.any() else {}
        )
        axes.errorbar(places * shift, mean, **bars, **line(number), label=label)
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    axes.set_xticks(lengths, labels=_apart(lengths))
    low, high = axes.get_ylim()
    axes.set(xlim=(lengths[0] / 1.25, lengths[-1] * 1.25), ylim=(max(low, 0), min(high, 1)))
    axes.set(xlabel="length of a code [bits]", ylabel=_label("map"))
    axes.grid(True)
    axes.set_title(_setting(reports, ranking) + _seeds_note(seeds, "mean ± standard deviation"))
    figure.legend(loc="outside right upper")
    return settled(figure)


@styled
def calibration(report: Report) -> "Figure":
    """How often bits are 1 that were predicted to be so with some probability, and how many bits that rests on."""
    found = _part(report, "calibration")
    predicted, observed = (np.array(found["curve"][name], dtype=float) for name in ("predicted", "observed"))
    counts = np.array(found["curve"]["counts"], dtype=float)
    edges = np.linspace(0, 1, len(counts) + 1)
    figure = canvas.figure(3.6, 4.8)
    curve, below = figure.subplots(2, 1, sharex=True, height_ratios=(3.2, 1))
    curve.plot([0, 1], [0, 1], color=QUIET, linewidth=0.9, linestyle=DASHES[1], label="perfectly calibrated")
    curve.plot(predicted, observed, **line(0), label="as found")
    curve.set(xlim=(0, 1), ylim=(-0.03, 1.03), ylabel="observed frequency of 1")
    curve.grid(True)
    error = f"{METRICS['calibration_error'].name} {found['calibration_error']:.4f}"
    curve.set_title(f"{_name(report)} · {report['data']['name']}\n{error}")
    figure.legend(loc="outside lower center", ncols=2)
    below.bar(edges[:-1], counts, np.diff(edges), align="edge", color=COLOURS[0], edgecolor="white", linewidth=0.5)
    below.set_yscale("log")
    below.set(ylim=(0.7, 2 * max(counts.max(), 1)), xlabel="predicted probability of 1", ylabel="bits in the bin")
    below.grid(True, axis="y")
    figure.align_ylabels()
    return settled(figure)


@styled
def training_trace(report: Report) -> "Figure":
    """Flipped bits and leave-one-out score sweep by sweep; shaded is where codes were fixed already."""
    sweeps = report["method"].get("sweeps")
    if not sweeps:
        raise ValueError(f"the report of {_name(report)} has no trace of training.")
    numbers = np.array([sweep["number"] for sweep in sweeps])
    flips = np.array([sweep["flips"] for sweep in sweeps])
    score = np.array([sweep["leave_one_out"] for sweep in sweeps], dtype=float)
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
    for first, last in _runs([sweep["frozen"] for sweep in sweeps]):
        for axes in (above, below):
            axes.axvspan(numbers[first] - 0.5, numbers[last] + 0.5, color="#ECECEC", linewidth=0, zorder=0)
        right = numbers[last] + 0.4, 0.95
        above.text(*right, "codes fixed", ha="right", va="top", transform=above.get_xaxis_transform())
    for axes in (above, below):
        axes.grid(True, axis="y")
    above.set_title(f"{_name(report)} · {report['data']['name']}")
    figure.align_ylabels()
    return settled(figure)


@styled
def codes(report: Report) -> "Figure":
    """Share of ones of every bit, and correlation of every two bits."""
    found = _part(report, "codes")
    balance, correlation = (np.array(found["bits"][name], dtype=float) for name in ("balance", "correlation"))
    n_bits = len(balance)
    figure = canvas.figure(7.0, 3.1)
    left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
    left.bar(np.arange(n_bits), balance, 0.8, color=COLOURS[0])
    left.axhline(0.5, color="black", linewidth=0.9, linestyle=DASHES[1])
    left.set(xlim=(-0.6, n_bits - 0.4), ylim=(0, 1), xlabel="bit", ylabel="share of ones")
    left.grid(True, axis="y")
    left.set_title(f"{_name(report)} · {report['data']['name']}")
    image = right.imshow(correlation, cmap="PuOr", vmin=-1, vmax=1, interpolation="nearest")
    right.set(xlabel="bit", ylabel="bit")
    distinct, largest = METRICS["distinct_codes"], METRICS["largest_bucket"]
    right.set_title(
        f"{found['distinct_codes']:,} {distinct.name} · {largest.name} {found['largest_bucket']:,} {largest.unit}",
        loc="center",
    )
    some = np.arange(0, n_bits, -(-n_bits // 9))
    left.set_xticks(some)
    right.set(xticks=some, yticks=some)
    bar = figure.colorbar(image, ax=right, shrink=0.95, ticks=[-1, -0.5, 0, 0.5, 1])
    bar.set_label(_label("bit_correlation"))
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
        raise ValueError(f"{len(queries)} queries were given with {told}; wanted are [q, k] of each, at least one.")
    pictures = [
        [np.asarray(picture) for picture in (query, *row)] for query, row in zip(queries, neighbours, strict=True)
    ]
    limits = _limits([picture for row in pictures for picture in row])

    # In units of a picture's box: the query's column, a gap, its neighbours; below each its distance.
    wide, tall, gap, top, bottom, edge = 1.12, 1.38, 0.3, 0.45, 0.5, 0.1
    width = 2 * edge + wide + gap + max(shape[1] * wide - 0.12, 3.4)
    height = top + len(pictures) * tall + bottom
    scale = min(0.75, 7.2 / width)
    figure = canvas.figure(scale * width, scale * height, layout=None)
    sheet = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    size = 8 * min(1.0, scale / 0.6)
    text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": size}
    sheet.text(edge + 0.5, top / 2, "query", weight="bold", **text)
    across = edge + wide + gap
    sheet.text(across, top / 2, "nearest codes, with their distances", **{**text, "ha": "left"}, weight="bold")
    for number, row in enumerate(pictures):
        down = top + number * tall
        for place, picture in enumerate(row):
            left = edge + place * wide + (gap if place else 0)
            tall_part, wide_part = (side / max(picture.shape[:2]) for side in picture.shape[:2])
            x, y = left + (1 - wide_part) / 2, down + (1 - tall_part) / 2
            sheet.imshow(
                picture, cmap=greys, vmin=limits[0], vmax=limits[1], extent=(x, x + wide_part, y + tall_part, y)
            )
            wrong = place > 0 and not marks[number, place - 1]
            colour, thick = (WRONG, 2.6) if wrong else ("#B0B0B0", 0.5)
            sheet.add_patch(
                rectangle((left, down), 1, 1, fill=False, edgecolor=colour, linewidth=thick * scale / 0.75, zorder=3)
            )
            if place:
                value = numbers[number, place - 1]
                sheet.text(left + 0.5, down + 1.16, f"{value:.2f}" if numbers.dtype.kind == "f" else f"{value}", **text)
    down = top + len(pictures) * tall
    sheet.add_patch(rectangle((edge, down + 0.05), 0.25, 0.25, fill=False, edgecolor=WRONG, linewidth=2 * scale / 0.75))
    sheet.text(edge + 0.4, down + 0.18, "not relevant to the query", **{**text, "ha": "left"})
    sheet.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    sheet.axis("off")
    return figure


def _tall_enough(n_lines: int) -> float:
    """Height of a figure, in inches, next to a legend of so many lines."""
    return max(3.4, 0.2 + 0.175 * n_lines)


def _label(key: str, without: str = "") -> str:
    """Name and unit of a metric, for an axis."""
    metric = METRICS[key]
    return metric.name.removesuffix(without) + (f" [{metric.unit}]" if metric.unit else "")


def _bits(report: Report) -> int:
    return len(report["results"]["codes"]["bits"]["balance"])


def _name(report: Report) -> str:
    return f"{report['method']['name']}, {_length(report)}"


def _length(report: Report) -> str:
    return f"{_bits(report)} bit" + ("s" if _bits(report) != 1 else "")


def _part(report: Any, name: str) -> dict[str, Any]:
    if not isinstance(report, dict) or "results" not in report:
        raise TypeError(f"{type(report).__name__} is no report; give what report.read gives for a file.")
    if name not in report["results"]:
        raise ValueError(f"the report of {_name(report)} has no {name}; it has {', '.join(report['results'])}.")
    found: dict[str, Any] = report["results"][name]
    return found


def _setting(reports: Sequence[Report], ranking: str | None = None) -> str:
    """What all reports have in common: data and ranking."""
    parts = [name for name in {one["data"]["name"]: None for one in reports} if name]
    told = [", ".join(parts)] if len(parts) == 1 else []
    return " · ".join(told + ([f"ranked by {RANKINGS[ranking]}"] if ranking else []))


def _seeds_note(seeds: set[int], what: str) -> str:
    """A second line of the title, if there is more than one seed."""
    if max(seeds) == 1:
        return ""
    return f"\n{what} over {'–'.join(str(n) for n in sorted({min(seeds), max(seeds)}))} seeds"


def _groups(reports: Sequence[Report], ranking: str, by_length: bool) -> dict[str, list[Report]]:
    """Reports that belong to one line, by its label: all but the seed (and, unless `by_length`, the bits) is equal.

    A label says what is needed to tell the lines apart, and nothing else.
    """
    if ranking not in RANKINGS:
        raise ValueError(f"ranking={ranking!r}; give one of {', '.join(map(repr, RANKINGS))}.")
    given: Any = reports
    if isinstance(given, dict | str) or not isinstance(given, Sequence):
        raise TypeError("reports is no list; give a list of reports, as report.read gives them.")
    if not reports:
        raise ValueError("no reports were given; give at least one.")
    for one in reports:
        _part(one, ranking)
    methods = list({one["method"]["name"]: None for one in reports})
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
        length = [_length(one)] if by_length else []
        # A long label would leave no room for the plot.
        label = textwrap.fill(", ".join([facts["method"], *length, *telling]), LABEL_WIDTH)
        groups.setdefault(label, []).append(one)
    return groups


def _facts(report: Report) -> dict[str, Any]:
    """What makes two reports different methods or settings, rather than seeds or lengths of one."""
    method, setting = report["method"], report["protocol"]
    parameters = {
        name: value for name, value in method["parameters"].items() if name not in ("random_state", "n_bits", "n_jobs")
    }
    return {
        "method": method["name"],
        **parameters,
        "training rows": setting["training_rows"],
        "protocol": setting["name"],
        "data": report["data"]["name"],
        "features": report["data"].get("features"),
        "checksum": report["data"].get("checksum"),
        "queries": setting["queries"],
        "database rows": setting["database_rows"],
    }


def _apart(lengths: Sequence[int]) -> list[str]:
    """Tick labels on a log₂ axis, empty where one would run into the one before."""
    labels: list[str] = []
    last = 0.0
    octaves = np.log2(lengths[-1] / lengths[0]) if len(lengths) > 1 else 1.0
    for length in lengths:
        clear = not labels or np.log2(length) - last >= octaves / 18
        last = np.log2(length) if clear else last
        labels.append(str(length) if clear else "")
    return labels


def _runs(marks: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """First and last place of every run of true marks."""
    place = 0
    for mark, run in groupby(marks):
        length = len(list(run))
        if mark:
            yield place, place + length - 1
        place += length


def _limits(pictures: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Black and white of grey images, the same for all."""
    if all(picture.dtype == np.uint8 for picture in pictures):
        return 0.0, 255.0
    return float(min(picture.min() for picture in pictures)), float(max(picture.max() for picture in pictures))
