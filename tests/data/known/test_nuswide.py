import numpy as np
import pytest

from gphash.data.downloads import DataMissingError
from gphash.data.known import nuswide
from gphash.files import DataError

from .official import snapshot, write_nuswide


def assert_holds(split, counts, tags):
    np.testing.assert_allclose(split.X**2, counts / counts.sum(axis=1, keepdims=True), rtol=1e-5)
    np.testing.assert_array_equal(split.y, tags)
    assert split.X.dtype == np.float32
    assert split.y.dtype == np.uint8


@pytest.mark.parametrize("below", ["", "NUS-WIDE"])
def test_the_official_split(tmp_path, monkeypatch, below):
    concepts, made = write_nuswide(tmp_path / below, monkeypatch, ("Train", "Test", ""))
    (tmp_path / below / "Low_Level_Features").chmod(0o555)
    before = snapshot(tmp_path)
    calls = []
    data = nuswide.load(tmp_path, progress=lambda *call: calls.append(call))
    assert snapshot(tmp_path) == before
    assert data.name == "NUS-WIDE"
    assert data.classes == tuple(concepts)
    assert_holds(data.train, *made["Train"])
    assert_holds(data.test, *made["Test"])
    assert calls[-1] == (12, 12)


def test_without_the_split_a_fixed_one_is_made(tmp_path, monkeypatch):
    _, made = write_nuswide(tmp_path, monkeypatch, [""])
    data = nuswide.load(tmp_path)
    assert "not verified" in data.source
    order = np.random.default_rng(0).permutation(70)
    counts, tags = made[""]
    assert_holds(data.train, counts[order[:40]], tags[order[:40]])
    assert_holds(data.test, counts[order[40:]], tags[order[40:]])


def test_the_papers_test_set(tmp_path, monkeypatch):
    _, made = write_nuswide(tmp_path, monkeypatch)
    monkeypatch.setattr(nuswide, "N_PAPER_CONCEPTS", 2)
    monkeypatch.setattr(nuswide, "N_PAPER_TEST", 10)
    data = nuswide.load(tmp_path, paper_test=True)
    _, tags = made["Test"]
    frequent = np.argsort(-made["Train"][1].sum(axis=0))[:2]
    assert data.test.y.shape == (10, 5)
    assert data.test.y[:, frequent].any(axis=1).all()
    assert not tags[:, frequent].any(axis=1).all()
    rows = [np.flatnonzero(np.isclose(nuswide.load(tmp_path).test.X, row).all(axis=1))[0] for row in data.test.X]
    np.testing.assert_array_equal(data.test.y, tags[rows])
    assert len(set(rows)) == 10
    assert_holds(data.train, *made["Train"])
    monkeypatch.setattr(nuswide, "N_PAPER_TEST", 31)
    with pytest.raises(DataError, match=r"paper's test set needs 31"):
        nuswide.load(tmp_path, paper_test=True)


LABELS = "Groundtruth/TrainTestLabels/Labels_concept3_Test.txt"
COUNTS = "Low_Level_Features/BoW_Train_int.dat"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (LABELS, "0\n1\n", r"Labels_concept3_Test\.txt' has 2 rows; it must [a-z]+ 30"),
        (LABELS, "0\n" * 31, r"Labels_concept3_Test\.txt' has 31 rows; it must [a-z]+ 30"),
        (LABELS, "0\n" * 29 + "2\n", r"Labels_concept3_Test\.txt' holds something else than 0 or 1"),
        (LABELS, "10\n" * 15, r"Labels_concept3_Test\.txt' holds something else than 0 or 1"),
        (LABELS, "", r"Labels_concept3_Test\.txt' has 0 rows"),
        (LABELS, "0\n" * 10_000, r"Labels_concept3_Test\.txt' has 20000 bytes, too many"),
        (COUNTS, "", r"BoW_Train_int\.dat' is empty"),
        (COUNTS, "1 2 3 4 5 6\n" * 39, r"BoW_Train_int\.dat' holds 39 rows of 6 counts; it must hold 40 rows of 6"),
        (COUNTS, "1 2 3 4 5 6\n" * 99, r"BoW_Train_int\.dat' holds more than 40 rows"),
        (COUNTS, "1 2 3 4 5\n" * 40, r"BoW_Train_int\.dat' holds 40 rows of 5 counts"),
        (COUNTS, "1 2 3 4 5 6\n" * 39 + "1 2 3", r"BoW_Train_int\.dat': .*; it must hold 40 rows of 6 counts"),
        (COUNTS, "1 2 3 4 5 -6\n" * 40, r"BoW_Train_int\.dat': .*; it must hold 40 rows of 6 counts"),
        (COUNTS, "1 2 3 4 5 66000\n" * 40, r"BoW_Train_int\.dat': .*; it must hold 40 rows of 6 counts"),
        (COUNTS, "1 2 3 4 5 x\n" * 40, r"BoW_Train_int\.dat': .*; it must hold 40 rows of 6 counts"),
        (COUNTS, "\xff\xfe\0" * 40, r"BoW_Train_int\.dat': .*; it must hold 40 rows of 6 counts"),
        ("ConceptsList/Concepts81.txt", "a\nb\n", r"Concepts81\.txt' names 2 concepts; it must [a-z]+ 5"),
        ("ConceptsList/Concepts81.txt", "a\na\nb\nc\nd\n", r"Concepts81\.txt' names 4 concepts; it must [a-z]+ 5"),
        ("ConceptsList/Concepts81.txt", "a\nb\nc\nd\n../../e\n", r"names the concept '\.\./\.\./e'"),
    ],
)
def test_files_that_do_not_match_are_named(tmp_path, monkeypatch, name, content, words):
    write_nuswide(tmp_path, monkeypatch)
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=words):
        nuswide.load(tmp_path)


def test_windows_line_ends(tmp_path, monkeypatch):
    _, made = write_nuswide(tmp_path, monkeypatch)
    for path in tmp_path.rglob("*.txt"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert_holds(nuswide.load(tmp_path).test, *made["Test"])


def test_missing_files_are_named(tmp_path, monkeypatch):
    with pytest.raises(
        DataMissingError, match=r"Concepts81\.txt.*BoW_Train_int\.dat.*Labels_<concept>_Train"
    ) as caught:
        nuswide.load(tmp_path)
    assert nuswide.PAGE in str(caught.value)
    write_nuswide(tmp_path, monkeypatch)
    (tmp_path / LABELS).unlink()
    with pytest.raises(DataMissingError) as caught:
        nuswide.load(tmp_path)
    assert caught.value.files == (LABELS,)
