"""The paper's experiments: their cells, what is said about them, and the page."""

import re

import pytest

from gphash.datasets import digits
from gphash.experiments import cells, html, paper, reproduce
from gphash.experiments.cells import Cell, Folder
from gphash.experiments.table import Table, by_bits, group


def made(method, bits, quality, seed=0, data="cifar10"):
    one = {"results": {"hamming": {"map": quality, "precision_within_radius": quality / 2}}}
    return Cell(data, method, bits, seed), one


def test_table1_has_all_rows_of_the_paper():
    wanted = reproduce.planned("table1", [], paper.FULL, None)
    rows = {(cell.method, cell.n_rows, dict(cell.options).get("n_inducing", 1000)) for cell in wanted}
    for inducing in (300, 500, 1000, 3000):
        assert ("gph", 5000, inducing) in rows
    for inducing in (300, 1000, 3000, 9000):
        assert ("gph", None, inducing) in rows
    assert {("sdh", 5000, 1000), ("sdh", None, 1000), ("ksh", 5000, 1000)} <= rows
    assert {cell.n_bits for cell in wanted} == {16}
    depths = {dict(cell.options).get("depth") for cell in wanted if cell.method == "fasthash"}
    assert depths == {2, None}  # the paper's, and the default


def test_figures_have_all_methods_at_all_lengths_on_three_data_sets():
    wanted = reproduce.planned("figure-map", ["cifar10", "mnist", "coco_sift500"], paper.FULL, 1)
    assert len(wanted) == 13 * 4 * 3
    assert set(reproduce.planned("figure-pr", [], paper.FULL, 1)) == {cell for cell in wanted if cell.data == "cifar10"}


def test_the_quick_version_is_smaller_everywhere():
    for name in paper.EXPERIMENTS:
        for cell in reproduce.planned(name, ["cifar10"], paper.QUICK, None):
            assert cell.n_rows <= 5000
            assert cell.n_test <= 2000
            assert cell.seed == 0


def test_where_a_method_is_first_is_said_and_where_not_by_how_much():
    groups = group(
        [
            *(made("gph", 8, 0.5), made("sdh", 8, 0.4), made("lsh", 8, 0.3)),
            *(made("gph", 16, 0.5), made("sdh", 16, 0.52), made("lsh", 16, 0.51)),
            *(made("gph", 32, 0.6), made("sdh", 32, 0.5)),  # without lsh, nobody can say who is first
        ]
    )
    told = reproduce.placings(groups, "results", "hamming", "map")
    assert told == "gph is at 8 bits first, by .100 (sdh .400); at 16 bits number 3, .020 behind sdh."
    assert reproduce.placings(group([made("lsh", 8, 0.5)]), "results", "hamming", "map") is None


def test_the_best_of_a_column_is_marked():
    table = by_bits("x", group([made("gph", 8, 0.5), made("lsh", 8, 0.6)]), "results", "hamming", "map")
    assert table.rows == (("gph", ".500"), ("lsh", ".600"))
    assert table.best == {(1, 1)}


def test_a_page_is_whole_in_itself_and_escapes_what_it_is_given():
    picture = '<?xml version="1.0"?><svg><defs><path id="p"/></defs><use href="#p"/><metadata>x</metadata></svg>'
    one = Table("<b>", ("method", "8 bits"), (("<i>", ".5"),), frozenset({(0, 1)}))
    page = html.page("a < b", ["`code` & more"], [html.Section("<s>", ["<p>"], (one,), picture)], [])
    assert "<title>a &lt; b</title>" in page
    assert "<code>code</code> &amp; more" in page
    assert '<td class="best">.5</td>' in page
    assert "&lt;i&gt;" in page
    assert 'id="s0-p"' in page
    assert 'href="#s0-p"' in page
    assert "metadata" not in page
    assert not re.search(r'(src|href)="(?!#)', page)
    assert "http" not in page


def test_an_experiment_ends_in_a_report(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="figures need matplotlib, the extra 'plots'")
    small = digits.load()
    monkeypatch.setattr(reproduce, "load", lambda name, *_: small)
    monkeypatch.setattr(reproduce, "roles", lambda _: ["cifar10", "mnist"])
    monkeypatch.setattr(paper, "COMPARED", ("itq", "lsh"))
    folder = Folder(tmp_path)
    scale = paper.QUICK._replace(n_rows={5000: 100, None: 200}, n_test=100, lengths=(4, 8))
    monkeypatch.setattr(reproduce, "QUICK", scale)
    written, failures = reproduce.run(["figure-map", "figure-pr"], folder, True, None, None, lambda progress: None)
    assert failures == []
    assert {"report.html", "cells.csv", "figure-map.svg", "figure-pr.png", "figure-map.md"} <= {p.name for p in written}
    page = (tmp_path / "report.html").read_text()
    assert "the quick version" in page
    assert page.count("<svg") == 2
    assert "What differs from the paper" in page
    assert len(list(cells.collect(reproduce.planned("figure-map", ["cifar10", "mnist"], scale, 1), folder))) == 8
