"""Cells: run once, resumed, never mixed."""

import numpy as np
import pytest

from gphash.data.known import digits, toy
from gphash.paper import cells, compare, table
from gphash.paper.cells import Cell, Folder

SMALL = (("n_inducing", 30), ("n_starts", 1))


@pytest.fixture(scope="module")
def dataset():
    return digits.load()


def grid(**change):
    return compare.grid("digits", ["lsh", "pcah"], [4, 8], 2, **{"n_rows": 200, "n_test": 150, **change})


def test_a_finished_cell_is_never_run_twice(tmp_path, dataset, monkeypatch):
    folder = Folder(tmp_path / "results")
    assert cells.run(grid(), folder, lambda name: dataset) == {}
    written = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*.json")}
    assert len(written) == 8
    monkeypatch.setattr(cells, "measure", None)
    seen = []
    assert cells.run(grid(), Folder(tmp_path / "results"), lambda name: dataset, lambda *told: seen.append(told)) == {}
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*.json")} == written
    assert [told[:2] for told in seen] == [(8, 8)]


def test_an_interrupted_run_goes_on(tmp_path, dataset):
    folder = Folder(tmp_path)

    def interrupt(done, *rest):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cells.run(grid(), folder, lambda name: dataset, interrupt)
    assert len(cells.collect(grid(), folder)) == 3
    seen = []
    cells.run(grid(), folder, lambda name: dataset, lambda *told: seen.append(told))
    assert [done for done, *_ in seen] == [3, 4, 5, 6, 7, 8]
    assert seen[-1][2] is None
    assert seen[-2][3] > 0
    assert len(cells.collect(grid(), folder)) == 8


def test_a_resumed_run_has_the_figures_of_an_uninterrupted_one(tmp_path, dataset):
    cell = Cell("digits", "gph", 4, 1, 200, 150, SMALL)
    one, two = (cells.measure(cell, dataset)["results"] for _ in range(2))
    assert one == two


def test_results_of_another_version_are_not_mixed(tmp_path, dataset, monkeypatch):
    folder = Folder(tmp_path)
    cells.run(grid()[:1], folder, lambda name: dataset)
    monkeypatch.setattr(cells, "__version__", "99.0")
    for use in (lambda: cells.run(grid(), folder, lambda name: dataset), lambda: cells.collect(grid(), folder)):
        with pytest.raises(ValueError, match=r"made by gphash .*, and this is 99\.0: figures of two versions"):
            use()


def test_a_damaged_cell_is_named(tmp_path, dataset):
    folder = Folder(tmp_path)
    folder.place(grid()[0]).write_text('{"format": 1, "resu')
    with pytest.raises(ValueError, match="Remove the file"):
        cells.run(grid(), folder, lambda name: dataset)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ValueError, match="is a file; name a folder"):
        Folder(tmp_path / "x")


def test_names_of_files_tell_cells_apart_and_stay_in_their_folder(tmp_path):
    some = [
        Cell("digits", "lsh", 8, 0),
        Cell("digits", "lsh", 8, 1),
        Cell("digits", "lsh", 16, 0),
        Cell("digits", "lsh", 8, 0, 100),
        Cell("digits", "lsh", 8, 0, None, 100),
        Cell("digits", "gph", 8, 0, None, None, (("inducing", "random"),)),
        Cell("digits", "lsh", 8, 0, protocol="unseen-classes"),
        Cell("../../odd name/é", "lsh", 8, 0),
        Cell("../../odd name/è", "lsh", 8, 0),
    ]
    places = {Folder(tmp_path).place(cell) for cell in some}
    assert len(places) == len(some)
    assert {path.resolve().parent for path in places} == {(tmp_path / "cells").resolve()}


def test_what_cannot_be_run_is_said_and_the_rest_is_run(tmp_path, dataset):
    folder = Folder(tmp_path)
    some = [Cell("digits", "pcah", 65, 0, 100, 80), Cell("digits", "pcah", 4, 0, 100, 80)]
    failures = cells.run(some, folder, lambda name: dataset)
    assert list(failures) == some[:1]
    assert "n_bits=65, but X has 64 feature(s)" in failures[some[0]]
    assert list(cells.collect(some, folder)) == some[1:]


def test_a_method_that_needs_labels_is_left_out_on_tags(tmp_path):
    tagged = toy.load()
    tags = np.eye(4, dtype=np.uint8)[tagged.train.y]
    tagged = tagged._replace(train=tagged.train._replace(y=tags))
    (reason,) = cells.run([Cell("toy", "hadamard-ridge", 2, 0)], Folder(tmp_path), lambda name: tagged).values()
    assert reason.startswith("hadamard-ridge learns from class labels [n], and")


def test_unknown_names_are_refused_before_anything_runs(tmp_path):
    with pytest.raises(ValueError, match="method='svm'; give one of 'gph'"):
        cells.run([Cell("digits", "lsh", 8, 0), Cell("digits", "svm", 8, 0)], Folder(tmp_path), None)
    with pytest.raises(ValueError, match=r"unknown data 'imagenet'; give one of toy, digits"):
        compare.load("imagenet")


def test_training_rows_are_the_same_for_all_methods_and_seeds(dataset):
    rows = {cells.measure(cell, dataset)["data"]["rows"]["training"] for cell in grid() if cell.n_bits == 4}
    assert len(rows) == 1


def test_tables_in_all_forms(tmp_path, dataset):
    folder = Folder(tmp_path)
    cells.run(grid(), folder, lambda name: dataset)
    written = compare.write(grid(), folder)
    assert {"table.md", "table.csv"} <= {path.name for path in written}
    first = compare.tables(grid(), folder)[0]
    assert first.columns == ("method", "4 bits", "8 bits")
    assert [row[0] for row in first.rows] == ["pcah", "lsh"]  # in the order of all methods
    groups = table.group(cells.collect(grid(), folder))
    found = table.figure(groups[grid()[0]], "results", "hamming", "map")
    values = [one["results"]["hamming"]["map"] for one in groups[grid()[0]]]
    assert len(values) == 2
    assert found.mean == pytest.approx(np.mean(values))
    assert found.spread == pytest.approx(np.std(values, ddof=1))
    assert first.rows[1][1] == str(found)
    lines = (tmp_path / "table.csv").read_text().splitlines()
    assert len(lines) == 1 + 8
    assert lines[0].startswith("data,method,options,training_rows,test_rows,bits,seed,protocol,map,")
    assert lines[1].startswith("digits,lsh,,200,150,4,0,held-out,")
    assert "| lsh |" in (tmp_path / "table.md").read_text()


def test_cells_and_tables_name_their_protocol(tmp_path, dataset):
    folder = Folder(tmp_path)
    for name, said in (("unseen-classes", "unseen classes"), ("training-database", "leaky")):
        wanted = grid(protocol=name)
        assert name in wanted[0].label
        assert cells.run(wanted, folder, lambda name: dataset) == {}
        compare.write(wanted, folder)
        assert all(said in one.title for one in compare.tables(wanted, folder)[:2])
        assert said in (tmp_path / "table.md").read_text()
        assert f",{name}," in (tmp_path / "table.csv").read_text()
    with pytest.raises(ValueError, match="protocol='mine'; give one of 'held-out'"):
        cells.run(grid(protocol="mine"), folder, None)


def test_an_option_goes_to_methods_that_know_it():
    made = compare.grid("digits", ["gph", "lsh"], [8], 1, options={"n_inducing": 300, "n_starts": 2})
    assert [cell.options for cell in made] == [(("n_inducing", 300),), ()]


def test_time_left_is_in_proportion_to_bits():
    assert cells.seconds_left([], [Cell("digits", "lsh", 8, 0)]) is None
    times = [(Cell("digits", "lsh", 8, 0), 1.0), (Cell("digits", "gph", 8, 0), 10.0)]
    assert cells.seconds_left(times, [Cell("digits", "gph", 16, 0)]) == pytest.approx(20)
    some = [Cell("digits", "lsh", 16, 1), Cell("mnist", "gph", 8, 0)]
    assert cells.seconds_left(times, some) == pytest.approx(12)
