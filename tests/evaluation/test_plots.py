"""Figures from report files: labelled, the same bytes every time, and of reports only."""

import copy
import os
import sys

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from gphash import GPHasher
from gphash.data.dataset import Split
from gphash.evaluation import canvas, metrics, plots, protocol, report
from tests import digits

DATA = {"name": "digits", "features": "64 grey values", "checksum": "c0ffee"}


@pytest.fixture
def matplotlib():
    return pytest.importorskip("matplotlib", reason="plots need matplotlib, the extra 'plots'")


class Projections(BaseEstimator):
    def __init__(self, n_bits=8, random_state=0):
        self.n_bits = n_bits
        self.random_state = random_state

    def fit(self, X, y):
        self.planes_ = np.random.default_rng(self.random_state).standard_normal((X.shape[1], self.n_bits))
        return self

    def transform(self, X):
        return ((X - 8) @ self.planes_ >= 0).astype(np.uint8)

    def encode(self, X):
        return np.packbits(self.transform(X), axis=1)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """As read from files: two methods, two lengths, two seeds each."""
    folder = tmp_path_factory.mktemp("reports")
    train, test = (Split(digits.X[part], digits.y[part]) for part in (slice(0, 300), slice(300, 400)))
    found = []
    for n_bits in (16, 4):
        for seed in range(2):
            for make in (
                lambda seed, n_bits=n_bits: GPHasher(**{**digits.QUICK, "n_bits": n_bits, "random_state": seed}),
                lambda seed, n_bits=n_bits: Projections(n_bits, seed),
            ):
                path = folder / f"{len(found)}.json"
                report.write(path, protocol.run(make, train, test, DATA, seed=seed))
                found.append(report.read(path))
    return found


def pictures(dtype=np.uint8):
    queries = digits.X[:2].reshape(-1, 8, 8).astype(dtype)
    neighbours = digits.X[2:8].reshape(2, 3, 8, 8).astype(dtype)
    return queries, neighbours, [[True, False, True], [False, True, True]], [[0, 1, 1], [0, 2, 3]]


FIGURES = {
    "precision_recall": lambda reports: plots.precision_recall(reports),
    "map_against_bits": lambda reports: plots.map_against_bits(reports),
    "trust": lambda reports: plots.trust(reports[0]),
    "training_trace": lambda reports: plots.training_trace(reports[0]),
    "codes": lambda reports: plots.codes(reports[0]),
    "contact_sheet": lambda _: plots.contact_sheet(*pictures()),
}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def texts(figure):
    found = [axes.get_title(where) for axes in figure.axes for where in ("left", "center")]
    return "\n".join(found + [text.get_text() for axes in figure.axes for text in axes.texts])


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_files_are_the_same_every_time(matplotlib, reports, tmp_path, name):
    first = canvas.save(FIGURES[name](reports), tmp_path / "first" / f"{name}.v1")
    figure = FIGURES[name](reports)
    second = canvas.save(figure, tmp_path / "second" / f"{name}.v1")
    contents = [path.read_bytes() for path in first]
    assert [path.name for path in first] == [f"{name}.v1.svg", f"{name}.v1.png"]
    assert contents[0].lstrip().startswith(b"<?xml")
    assert contents[1].startswith(b"\x89PNG")
    assert contents == [path.read_bytes() for path in second]
    # The figure itself is none the worse for having been saved.
    assert contents == [path.read_bytes() for path in canvas.save(figure, tmp_path / "third")]
    assert sorted(os.listdir(tmp_path / "first")) == sorted(path.name for path in first)


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "contact_sheet"])
def test_axes_are_labelled(matplotlib, reports, name):
    for axes in FIGURES[name](reports).axes:
        assert axes.get_ylabel()
        if axes.get_label() == "<colorbar>":
            continue
        assert any(column.get_xlabel() for column in axes.get_shared_x_axes().get_siblings(axes))


def test_figures_need_no_pyplot(matplotlib, reports):
    before = "matplotlib.pyplot" in sys.modules
    settings = {name: matplotlib.rcParams[name] for name in canvas.STYLE}
    for make in FIGURES.values():
        assert make(reports).canvas.manager is None
    assert ("matplotlib.pyplot" in sys.modules) == before
    assert {name: matplotlib.rcParams[name] for name in canvas.STYLE} == settings


def test_figures_do_not_change_the_reports(matplotlib, reports):
    before = copy.deepcopy(reports)
    for make in FIGURES.values():
        make(reports)
    assert reports == before


def test_a_curve_for_every_method_and_length(matplotlib, reports):
    figure = plots.precision_recall(reports)
    assert legend(figure) == [
        "GPHasher, 4 bits",
        "GPHasher, 16 bits",
        "Projections, 4 bits",
        "Projections, 16 bits",
    ]
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("recall", "precision")
    assert "digits · ranked by Hamming distance\nmean over 2 seeds" in texts(figure)
    curves = [one["results"]["hamming"]["curve"] for one in reports if plots._name(one) == "GPHasher, 4 bits"]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), np.mean([curve["precision"] for curve in curves], axis=0))
    np.testing.assert_allclose(axes.lines[0].get_xdata(), np.mean([curve["recall"] for curve in curves], axis=0))


def test_a_line_for_every_method(matplotlib, reports):
    figure = plots.map_against_bits(reports)
    (axes,) = figure.axes
    assert legend(figure) == ["GPHasher", "Projections"]
    assert axes.get_ylabel() == metrics.METRICS["map"].name
    assert axes.get_xlabel() == "length of a code [bits]"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "16"]
    for number, method in enumerate(["GPHasher", "Projections"]):
        for place, n_bits in enumerate([4, 16]):
            same = [one for one in reports if plots._name(one) == f"{method}, {n_bits} bits"]
            wanted = protocol.summarise(same)["hamming.map"]
            line, _, (bars,) = axes.containers[number]
            assert line.get_ydata()[place] == pytest.approx(wanted["mean"])
            low, high = bars.get_segments()[place][:, 1]
            assert high - low == pytest.approx(2 * wanted["spread"])


def test_rankings_by_expected_distance_are_drawn_of_those_who_have_them(matplotlib, reports):
    ours = [one for one in reports if one["method"]["name"] == "GPHasher"]
    for draw in (plots.precision_recall, plots.map_against_bits):
        assert "ranked by expected Hamming distance" in texts(draw(ours, "expected"))
        with pytest.raises(ValueError, match="the report of Projections, 16 bits has no expected"):
            draw(reports, "expected")
        with pytest.raises(ValueError, match="ranking='cosine'; give one of 'hamming', 'expected'"):
            draw(reports, "cosine")
        with pytest.raises(ValueError, match="no reports were given"):
            draw([])


def test_settings_that_differ_are_told_apart_and_never_averaged(matplotlib, reports):
    other, third = copy.deepcopy(reports[0]), copy.deepcopy(reports[0])
    other["method"]["parameters"]["n_inducing"] = 7
    third["data"]["name"] = "letters"
    assert legend(plots.map_against_bits([reports[0], other])) == [
        "GPHasher, n_inducing 50",
        "GPHasher, n_inducing 7",
    ]
    assert legend(plots.precision_recall([reports[0], third])) == [
        "GPHasher, 16 bits, digits",
        "GPHasher, 16 bits, letters",
    ]


def test_seeds_on_different_splits_are_not_averaged(matplotlib, reports):
    other = copy.deepcopy(reports[0])
    other["results"]["hamming"]["curve"]["retrieved"][-1] += 1
    with pytest.raises(ValueError, match="GPHasher, 16 bits retrieve different numbers of rows"):
        plots.precision_recall([reports[0], other])


@pytest.mark.parametrize("n_methods", [1, 12])
def test_one_method_or_twelve(matplotlib, reports, n_methods):
    many = []
    for number in range(n_methods):
        for one in reports[:2:2] + reports[4:5]:
            many.append(copy.deepcopy(one))
            many[-1]["method"]["name"] = f"Method {number}"
    for draw in (plots.precision_recall, plots.map_against_bits):
        figure = draw(many)
        figure.draw_without_rendering()
        (axes,) = figure.axes
        lines = [line for line in axes.lines if not line.get_label().startswith("_")]
        lines += [container.lines[0] for container in axes.containers]
        looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines}
        assert len(looks) == len(legend(figure))
        # The legend covers neither the lines nor the title.
        box = figure.legends[0].get_window_extent()
        assert not box.overlaps(axes.get_window_extent())
        assert not box.overlaps(axes._left_title.get_window_extent())
        assert figure.bbox.x1 >= box.x1
        assert figure.bbox.y0 <= box.y0


def test_trust_shows_errors_promises_and_answers(matplotlib, reports):
    figure = plots.trust(reports[0])
    left, middle, right = figure.axes
    found = reports[0]["results"]
    errors = [found["calibration"], found["similarity"]["calibration"]]
    labels = [text.get_text() for text in left.get_legend().get_texts()]
    assert [label.split()[-1] for label in labels] == [f"{part['calibration_error']:.4f}" for part in errors]
    promises = found["similarity"]["promises"]
    assert middle.lines[1].get_xdata().tolist() == [0.5, 0.8, 0.9, 0.95]
    assert middle.lines[2].get_ydata().tolist() == [promises[f"recall_{level}"] for level in (0.5, 0.8, 0.9, 0.95)]
    assert len(right.lines[0].get_xdata()) == len(found["similarity"]["answering"]["curve"]["answered"])
    with pytest.raises(ValueError, match="the report of Projections, 16 bits has no similarity"):
        plots.trust(reports[1])


def test_the_trace_is_shaded_where_codes_were_fixed(matplotlib, reports):
    changed = copy.deepcopy(reports[0])
    sweep = changed["method"]["sweeps"][0]
    changed["method"]["sweeps"] = [
        {**sweep, "number": number, "flips": flips, "frozen": frozen}
        for number, (flips, frozen) in enumerate([(9000, False), (40, False), (0, True), (0, True)], start=1)
    ]
    figure = plots.training_trace(changed)
    above, below = figure.axes
    assert above.lines[0].get_ydata().tolist() == [9000, 40, 0, 0]
    for axes in (above, below):
        (shade,) = axes.patches
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (2.5, 4.5)
    assert "codes fixed" in texts(figure)
    assert "[nats per bit]" in below.get_ylabel()
    with pytest.raises(ValueError, match="Projections, 16 bits has no trace of training"):
        plots.training_trace(reports[1])


@pytest.mark.parametrize("n_bits", [1, 2, 130])
def test_codes_of_any_length(matplotlib, reports, n_bits):
    changed = copy.deepcopy(reports[0])
    changed["results"]["codes"]["bits"] = {"balance": [0.25] * n_bits, "correlation": np.eye(n_bits).tolist()}
    figure = plots.codes(changed)
    assert len(figure.axes[0].patches) == n_bits
    assert figure.axes[1].images[0].get_array().shape == (n_bits, n_bits)
    assert figure.axes[1].images[0].get_clim() == (-1, 1)
    assert f"{n_bits} bit{'s' if n_bits > 1 else ''} · digits" in texts(figure)


def test_a_contact_sheet_frames_what_is_wrong(matplotlib, tmp_path):
    figure = plots.contact_sheet(*pictures())
    (canvas,) = figure.axes
    assert len(canvas.images) == 2 * (1 + 3)
    wrong = matplotlib.colors.to_rgba(plots.WRONG)
    framed = [patch for patch in canvas.patches if patch.get_edgecolor() == wrong]
    assert len(framed) == 2 + 1, "two wrong neighbours, and the key that says what a frame means"
    shown = [text.get_text() for text in canvas.texts]
    assert shown.count("0") == 2
    assert "not relevant to the query" in shown


def test_pictures_may_have_colours_and_any_size(matplotlib, tmp_path):
    rng = np.random.default_rng(0)
    colour, tall, grey = rng.random((20, 30, 3)), rng.random((30, 10, 3)), rng.random((9, 9))
    figure = plots.contact_sheet([colour], [[tall, grey]], [[True, True]], [[0.5, 2.25]])
    assert {"0.50", "2.25"} <= {text.get_text() for text in figure.axes[0].texts}
    canvas.save(figure, tmp_path / "sheet")


@pytest.mark.parametrize(
    "change",
    [
        lambda q, n, r, d: (q[:1], n, r, d),
        lambda q, n, r, d: (q, n, r[:1], d),
        lambda q, n, r, d: (q, n, r, [row[:2] for row in d]),
        lambda q, n, r, d: (q, [n[0], n[1][:2]], r, d),
        lambda q, n, r, d: ([], [], [], []),
    ],
)
def test_a_sheet_that_does_not_match_is_refused(matplotlib, change):
    with pytest.raises(ValueError, match=r"give \[q, k\] of each, at least one"):
        plots.contact_sheet(*change(*pictures()))


def test_an_interrupted_save_leaves_the_old_picture(matplotlib, reports, tmp_path, monkeypatch):
    (tmp_path / "codes.svg").write_text("old")

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        canvas.save(plots.codes(reports[0]), tmp_path / "codes")
    assert (tmp_path / "codes.svg").read_text() == "old"
    assert os.listdir(tmp_path) == ["codes.svg"]


@pytest.mark.parametrize("name", FIGURES)
def test_without_matplotlib_a_sentence_says_what_to_install(reports, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"plots need matplotlib: pip install matplotlib"):
        FIGURES[name](reports)
