"""The paper's experiments: their cells, what is said about them, and the page."""

import re
import sys

import pytest

from gphash.data.known import digits
from gphash.paper import cells, page, published, reproduce
from gphash.paper.cells import Cell, Folder
from gphash.paper.page import Section
from gphash.paper.table import ResultTable, by_bits, group


def made(method, bits, quality, seed=0, data="cifar10"):
    one = {"results": {"hamming": {"map": quality, "precision_within_radius": quality / 2}}}
    return Cell(data, method, bits, seed), one


def test_table1_has_all_rows_of_the_paper():
    wanted = published.planned("table1", [], published.FULL, None)
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
    wanted = published.planned("figure-map", ["cifar10", "mnist", "coco_sift500"], published.FULL, 1)
    assert len(wanted) == 14 * 4 * 3
    assert set(published.planned("figure-pr", [], published.FULL, 1)) == {
        cell for cell in wanted if cell.data == "cifar10"
    }


def test_the_lead_has_all_methods_and_few_seeds_of_slow_ones():
    wanted = published.planned("lead", [], published.FULL, None)
    assert {published.set_name(cell) for cell in wanted} == {
        *("cifar10", "mnist", "coco_sift500", "digits", "mnist-5000", "cifar10-5000", "jeopardy")
    }
    assert {cell.method for cell in wanted} == set(published.COMPARED)
    assert {cell.options for cell in wanted} == {()}
    seeds = {method: {cell.seed for cell in wanted if cell.method == method} for method in published.COMPARED}
    assert seeds["gph"] == {0, 1, 2}
    assert seeds["fasthash"] == {0}


def test_parts_of_an_experiment_are_chosen_by_method_and_data():
    wanted = published.planned("lead", [], published.FULL, 1)
    some = published.chosen(wanted, ["gph", "sdh"], ["cifar10-5000"])
    assert {(cell.data, cell.method, cell.n_rows) for cell in some} == {
        ("cifar10", "gph", 5000),
        ("cifar10", "sdh", 5000),
    }
    assert published.chosen(wanted, None, None) == wanted
    with pytest.raises(ValueError, match="data 'cifar' is none of these experiments'; they have cifar10, cifar10-5000"):
        published.chosen(wanted, None, ["cifar"])


def test_the_quick_version_is_smaller_everywhere():
    for name in published.EXPERIMENTS:
        for cell in published.planned(name, ["cifar10"], published.QUICK, None):
            assert cell.n_rows <= 5000
            assert cell.n_test <= 2000
            assert cell.seed == 0


def test_where_a_method_is_first_is_said_and_where_not_by_how_much():
    groups = group(
        dict(
            [
                *(made("gph", 8, 0.5), made("sdh", 8, 0.4), made("lsh", 8, 0.3)),
                *(made("gph", 16, 0.5), made("sdh", 16, 0.52), made("lsh", 16, 0.51)),
                *(made("gph", 32, 0.6), made("sdh", 32, 0.5)),  # without lsh, nobody can say who is first
            ]
        )
    )
    told = reproduce.placings(groups, "results", "hamming", "map")
    assert told == "gph is at 8 bits first, by .100 (sdh .400); at 16 bits number 3, .020 behind sdh."
    assert reproduce.placings(group(dict([made("lsh", 8, 0.5)])), "results", "hamming", "map") is None


def test_the_best_of_a_column_is_marked():
    table = by_bits("x", group(dict([made("gph", 8, 0.5), made("lsh", 8, 0.6)])), "results", "hamming", "map")
    assert table.rows == (("gph", ".500"), ("lsh", ".600"))
    assert table.best == {(1, 1)}


def test_a_page_is_whole_in_itself_and_escapes_what_it_is_given():
    pytest.importorskip("jinja2", reason="the report needs Jinja2, of the extra 'plots'")
    picture = '<?xml version="1.0"?><svg><defs><path id="p"/></defs><use href="#p"/><metadata>x</metadata></svg>'
    one = ResultTable("<b>", ("method", "8 bits"), (("<i>", ".5"),), frozenset({(0, 1)}))
    section = Section("figure-pr", "<s>", ["a < b & <script>"], (one,), picture)
    text = page.render([section], one, methods=["gph"], left_out=["<reason>"], quick=False)
    assert "<p>Precision against recall" in text
    assert "<p>a &lt; b &amp; &lt;script&gt;</p>" in text
    assert '<td class="best">.5</td>' in text
    assert "&lt;i&gt;" in text
    assert "<li>&lt;reason&gt;</li>" in text
    assert "<h2>&lt;s&gt;</h2>" in text
    assert "this package" in text
    assert 'id="s0-p"' in text
    assert 'href="#s0-p"' in text
    assert "metadata" not in text
    assert not re.search(r'(src|href)="(?!#)', text)
    assert "http" not in text


def test_without_jinja2_a_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match="the report needs Jinja2: pip install jinja2"):
        reproduce.run(["table1"], None, True, None, None, lambda *told: None)


def test_an_experiment_ends_in_a_report(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib", reason="figures need matplotlib, the extra 'plots'")
    pytest.importorskip("jinja2", reason="the report needs Jinja2, of the extra 'plots'")
    small = digits.load()
    monkeypatch.setattr(reproduce, "load", lambda name, *_: small)
    monkeypatch.setattr(reproduce, "roles", lambda _: ["cifar10", "mnist"])
    monkeypatch.setattr(published, "COMPARED", ("itq", "lsh"))
    folder = Folder(tmp_path)
    scale = published.QUICK._replace(n_rows={5000: 100, None: 200}, n_test=100, lengths=(4, 8))
    monkeypatch.setattr(reproduce, "QUICK", scale)
    written, failures = reproduce.run(["figure-map", "figure-pr"], folder, True, None, None, lambda *told: None)
    assert failures == {}
    assert {"report.html", "cells.csv", "figure-map.svg", "figure-pr.png", "figure-map.md"} <= {p.name for p in written}
    page = (tmp_path / "report.html").read_text()
    assert "the quick version" in page
    assert page.count("<svg") == 2
    assert "What differs from the paper" in page
    assert len(cells.collect(published.planned("figure-map", ["cifar10", "mnist"], scale, 1), folder)) == 8


def test_beyond_the_paper_ends_in_one_table_a_data_set(tmp_path, monkeypatch):
    pytest.importorskip("jinja2", reason="the report needs Jinja2, of the extra 'plots'")
    small = digits.load()
    monkeypatch.setattr(reproduce, "load", lambda name, *_: small)
    monkeypatch.setattr(published, "COMPARED", ("gph", "cca-itq", "lsh"))
    monkeypatch.setattr(published, "STRONG", ("cca-itq", "lsh"))
    scale = published.QUICK._replace(n_rows={5000: 100, None: 200}, n_test=100, lengths=(4, 16))
    monkeypatch.setattr(reproduce, "QUICK", scale)
    only = (["lsh", "cca-itq"], ["cifar10-100", "jeopardy-200"])
    names, folder = ["lead", "protocols"], Folder(tmp_path)
    _, failures = reproduce.run(names, folder, True, 2, None, lambda *told: None, None, only)
    assert failures == {}
    lead, others = ((tmp_path / f"{name}.md").read_text() for name in names)
    assert lead.startswith("One seed: fasthash")
    assert lead.count("| method | mAP, 4 bits | mAP, 16 bits | precision, radius 2, 4 bits |") == 2
    assert "training-database (leaky), 16 bits" in others
    assert "unseen-classes, 16 bits" in others
    assert "common but leaky" in (tmp_path / "report.html").read_text()


def test_protocols_that_were_not_run_are_dashes():
    (cell, one), (other, two) = made("gph", 16, 0.5), made("sdh", 16, 0.4)
    groups = group({cell: one, other: two, cell._replace(protocol="training-database"): one})
    (section,) = reproduce.SECTIONS["protocols"](groups, published.FULL, None)
    assert section.tables[0].rows == (("gph", ".500", "–", ".500"), ("sdh", ".400", "–", "–"))


def test_an_experiment_is_complete_as_far_as_its_data_sets_are_there():
    cells_of = {
        name: published.planned(name, list(reproduce.TITLES), published.FULL, 1) for name in ("bands", "figure-map")
    }
    one_set = {cell: {} for cell in cells_of["bands"] if cell.data == "mnist"}
    assert reproduce.complete("bands", one_set, published.FULL)
    one_set.popitem()
    assert not reproduce.complete("bands", one_set, published.FULL)
    assert not reproduce.complete("bands", {}, published.FULL)
    tagged = {cell: {} for cell in cells_of["figure-map"] if cell.data == "coco_sift500"}
    able = {cell: {} for cell in tagged if cell.method != "hadamard-ridge"}  # which learns from labels alone
    assert len(able) < len(tagged)
    assert reproduce.complete("figure-map", able, published.FULL)
