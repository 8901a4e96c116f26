"""DATA of every kind, and what is said about DATA that cannot be read."""

import builtins
import hashlib
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash import Pairs
from gphash.data import array_files, pictures, sources, tables
from gphash.data.dataset import Dataset, Split
from gphash.data.descriptors import gist
from gphash.data.descriptors.gist import Gist
from gphash.data.descriptors.greys import Pixels
from gphash.data.known import cifar10, data_sets, digits, mnist
from gphash.files import DataError

X = np.arange(12, dtype=np.float64).reshape(4, 3) / 7


def changed(row, column, value):
    other = X.copy()
    other[row, column] = value
    return other


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def paint(path, seed=0):
    Image = pytest.importorskip("PIL.Image", reason="needs the extra images")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (12, 10, 3), dtype=np.uint8)).save(path)
    return path


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def text(path, content):
    path.write_text(content, encoding="utf-8")
    return path


def parquet(path, **columns):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow.parquet import write_table

    write_table(arrow.table(columns), path)
    return path


def described(paths):
    return np.stack([gist.describe_one(pictures.open_picture(path)) for path in paths])


# Known data sets


def test_a_known_data_set_and_its_splits():
    whole, train, test = (sources.read(f"digits{split}") for split in ("", ":train", ":test"))
    data = digits.load()
    assert (len(whole.X), len(train.X), len(test.X)) == (1797, 1297, 500)
    for field in ("X", "y", "images"):
        np.testing.assert_array_equal(getattr(train, field), getattr(data.train, field))
        np.testing.assert_array_equal(getattr(test, field), getattr(data.test, field))
        both = np.concatenate([getattr(train, field), getattr(test, field)])
        np.testing.assert_array_equal(getattr(whole, field), both)
    assert train.classes == tuple("0123456789")
    assert train.name == "digits:train"
    assert train.checksum == data.checksum
    assert train.supervision is train.y
    assert train.descriptor == Pixels((8, 8))
    np.testing.assert_allclose(train.descriptor.describe(train.images[5]), train.X[5], atol=0.002)
    assert (train.ids, train.pairs, train.folder, train.skipped) == (None, None, None, ())


def test_known_data_sets_of_other_kinds(monkeypatch):
    toy = sources.read("toy:test")
    assert (toy.descriptor, toy.images) == (None, None)
    images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    y = np.array([0, 1, 0, 1, 1])
    data = Dataset("CIFAR-10", Split(None, y[:3], images[:3]), Split(None, y[3:], images[3:]), ("a", "b"), "", "x", "")
    known = cifar10.KNOWN._replace(load=lambda data_dir, **options: data)
    monkeypatch.setitem(data_sets.DATA_SETS._things, "cifar10", known)
    calls = []
    found = sources.read("cifar10", progress=lambda *call: calls.append(call), n_jobs=1)
    np.testing.assert_array_equal(found.X, gist.describe(images))
    assert found.descriptor == Gist((32, 32))
    assert calls[-1] == (5, 5)
    # Described once, alone or together.
    monkeypatch.setattr(gist, "describe", None)
    np.testing.assert_array_equal(sources.read("cifar10:test").X, found.X[3:])


def test_the_data_folder_is_handed_over(tmp_path, monkeypatch):
    def load(data_dir, **options):
        assert data_dir == tmp_path
        return mnist_like

    rows = np.zeros((2, 28, 28), np.uint8)
    split = Split(rows.reshape(2, -1).astype(np.float32), np.array([0, 1]), rows)
    mnist_like = Dataset(mnist.NAME, split, split, ("0", "1"), "", "", "")
    monkeypatch.setitem(data_sets.DATA_SETS._things, "mnist", mnist.KNOWN._replace(load=load))
    assert sources.read("mnist", tmp_path).descriptor == Pixels((28, 28))


def test_a_name_is_the_data_set_and_a_path_the_folder(tmp_path, monkeypatch):
    paint(tmp_path / "digits" / "1.png")
    monkeypatch.chdir(tmp_path)
    assert len(sources.read("digits:test").X) == 500
    assert len(sources.read("./digits").X) == len(sources.read(Path("digits")).X) == 1


# Arrays


def test_npy(tmp_path):
    np.save(tmp_path / "rows.npy", X)
    found = sources.read(tmp_path / "rows.npy")
    np.testing.assert_array_equal(found.X, X.astype(np.float32))
    assert found.X.dtype == np.float32
    assert (found.supervision, found.classes, found.descriptor) == (None, (), None)
    assert found.checksum == hashlib.sha256((tmp_path / "rows.npy").read_bytes()).hexdigest()
    np.save(tmp_path / "row.npy", X[2])
    np.testing.assert_array_equal(sources.read(str(tmp_path / "row.npy")).X, found.X[2:3])


@pytest.mark.parametrize(
    ("y", "classes", "numbers", "names"),
    [
        ([7, 10, 9, 7], None, [0, 2, 1, 0], ("7", "9", "10")),
        ([1.0, 3.0, 1.0, 3.0], None, [0, 1, 0, 1], ("1", "3")),
        (["dog", "cat", "cat", "eel"], None, [1, 0, 0, 2], ("cat", "dog", "eel")),
        (["10", "9", "9", "-1"], None, [2, 1, 1, 0], ("-1", "9", "10")),
        ([b"b", b"a", b"a", b"b"], None, [1, 0, 0, 1], ("a", "b")),
        ([2, 0, 0, 2], ["x", "never", "y"], [2, 0, 0, 2], ("x", "never", "y")),
        (["y", "x", "x", "y"], ["y", "x"], [0, 1, 1, 0], ("y", "x")),
    ],
)
def test_labels_of_npz(tmp_path, y, classes, numbers, names):
    arrays = {} if classes is None else {"classes": classes}
    found = sources.read(npz(tmp_path / "a.npz", X=X, y=y, **arrays))
    assert found.y.tolist() == numbers
    assert found.y.dtype == np.int64
    assert found.classes == names


def test_tags_ids_and_images_of_npz(tmp_path):
    tags = np.array([[1, 0], [0, 0], [1, 1], [0, 1]])
    images = np.zeros((4, 2, 2), np.uint8)
    path = npz(tmp_path / "a.npz", X=X, tags=tags, classes=["sun", "sea"], ids=[40, -2, 7, 0], images=images)
    found = sources.read(path)
    np.testing.assert_array_equal(found.supervision, tags)
    assert found.y.dtype == np.uint8
    assert found.classes == ("sun", "sea")
    assert found.ids.tolist() == [40, -2, 7, 0]
    np.testing.assert_array_equal(found.images, images)
    assert found.descriptor is None
    assert sources.read(npz(tmp_path / "b.npz", X=X, tags=tags)).classes == ("0", "1")


def test_pairs_of_npz(tmp_path):
    found = sources.read(npz(tmp_path / "a.npz", X=X, pairs=[[0, 1], [2, 3]], similar=[True, False]))
    assert isinstance(found.supervision, Pairs)
    assert found.pairs.i.tolist() == [0, 2]
    assert found.pairs.j.tolist() == [1, 3]
    assert found.pairs.similar.tolist() == [True, False]
    assert (found.y, found.classes) == (None, ())


def test_images_alone_are_described(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 9, 8), dtype=np.uint8)
    found = sources.read(npz(tmp_path / "a.npz", images=images, y=[0, 1, 1]))
    np.testing.assert_array_equal(found.X, gist.describe(images))
    assert found.descriptor == Gist((9, 8))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": [1, 2]}, "has 'y'; it must have X"),
        ({"X": X, "z": X}, "has the array 'z'; known are X, y"),
        ({"X": X[0]}, r"X of .* is float64 of shape \(3,\); it must be numbers \[n, d\]"),
        ({"X": X[:0]}, r"shape \(0, 3\); it must"),
        ({"X": X.astype(str)}, "X of .* is <U32 of shape"),
        ({"X": X.astype(complex)}, "X of .* is complex128"),
        ({"X": changed(2, 1, np.nan)}, "X of .*, row 2, column 1: NaN; give finite"),
        ({"X": changed(3, 0, 1e99)}, "X of .*, row 3, column 0: infinite, or too large for 32 bits"),
        ({"X": X, "y": [1, 2]}, r"y of .* has shape \(2,\); it must have an entry for each of the 4 rows"),
        ({"X": X, "y": 1}, r"y of .* has shape \(\)"),
        ({"X": X, "y": [[1, 2]] * 4}, r"y of .* is int64 of shape \(4, 2\); it must be words or whole numbers"),
        ({"X": X, "y": [0.5, 1, 2, 3]}, r"y of .* has 0\.5; classes must be"),
        ({"X": X, "y": [0, 1, 2, 3], "classes": ["a", "b"]}, "y of .* has 2; classes has names for 0 to 1"),
        ({"X": X, "y": list("abca"), "classes": ["a", "b"]}, "y of .* has 'c', which is not among"),
        ({"X": X, "y": [0, 1, 0, 1], "classes": ["a", "a"]}, "names a class twice"),
        ({"X": X, "y": [0, 1, 0, 1], "classes": [["a"]]}, r"classes of .* shape \(1, 1\); it must be names"),
        ({"X": X, "y": [b"\xff"] * 4}, "holds bytes that are not UTF-8"),
        ({"X": X, "classes": ["a"]}, "has classes, but neither y nor tags"),
        ({"X": X, "y": [1] * 4, "tags": [[1]] * 4}, "has y and tags; it may have one of"),
        ({"X": X, "tags": [[1, 2]] * 4}, "tags of .* it must be tags of 0 and 1"),
        ({"X": X, "tags": [[1, 0]] * 4, "classes": ["a"]}, "has 2 columns, and classes has 1 names"),
        ({"X": X, "tags": [[1, 0]] * 3}, r"tags of .* has shape \(3, 2\); it must have an entry for each of the 4"),
        ({"X": X, "pairs": [[0, 1]]}, "lacks similar; give pairs"),
        ({"X": X, "similar": [1]}, "lacks pairs"),
        ({"X": X, "pairs": [0, 1], "similar": [1]}, r"pairs of .* shape \(2,\); it must be row numbers \[p, 2\]"),
        ({"X": X, "pairs": [[0, 4]], "similar": [1]}, "names row 4; there are rows 0 to 3"),
        ({"X": X, "pairs": [[0, 1]], "similar": [0]}, r"similar of .* it must be \+1 or True"),
        ({"X": X, "pairs": [[0, 1]], "similar": [1, 1]}, "for each of the 1 pairs"),
        ({"X": X, "ids": [1, 2, 2, 3]}, "ids of .*: 2 occurs 2 times; give every id once"),
        ({"X": X, "ids": [1, 2, 3]}, r"ids of .* has shape \(3,\)"),
        ({"X": X, "ids": [0.0, 1, 2, 3]}, "ids of .* is float64 .* it must be whole numbers"),
        ({"X": X, "ids": np.array([2**63, 1, 2, 3], np.uint64)}, "fit in 64 bits"),
        ({"X": X, "images": np.zeros((3, 8, 8), np.uint8)}, r"images of .* has shape \(3, 8, 8\)"),
        ({"X": X, "images": np.zeros((4, 8, 8))}, r"images of .* is float64 .* it must be uint8 \[n, H, W\]"),
        ({"images": np.zeros((4, 3, 8), np.uint8)}, "have 3 × 8 pixels; give at least 4"),
        ({"X": X, "y": np.array([None, 1, 2, 3])}, "not a whole .npz archive of arrays without objects"),
    ],
)
def test_bad_npz(tmp_path, arrays, words):
    path = npz(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataError, match=words) as caught:
        sources.read(path)
    assert "bad.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def header(shape):
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00\x76\x00" + text.ljust(117) + b"\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (header((10**14, 64)), "does not fit into its 128 bytes"),
        (header((2**62, 2**62)), "does not fit into its 128 bytes"),
        (header((-1, 64)), "not a whole .npy file"),
        (b"\x93NUMPY\x01\x00\x76\x00" + b"[" * 117 + b"\n", "not a whole .npy file"),
        (b"\x93NUMPY\x03\x00\x76\x00" + b"[" * 117 + b"\n", "version"),
    ],
)
def test_a_header_that_promises_too_much(tmp_path, content, words):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(DataError, match=words):
        sources.read(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", content)
    with pytest.raises(DataError, match=r"a\.npz' is not a whole"):
        sources.read(tmp_path / "a.npz")


@pytest.mark.parametrize("how", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_an_archive_with_a_damaged_stream(tmp_path, how):
    rows = io.BytesIO()
    np.save(rows, X)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", how) as archive:
        archive.writestr("X.npy", rows.getvalue())
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[60:80] = b"\xff" * 20
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz' is not a whole"):
        sources.read(tmp_path / "a.npz")


def test_an_archive_with_a_password(tmp_path):
    content = bytearray(npz(tmp_path / "a.npz", X=X).read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match="encrypted"):
        sources.read(tmp_path / "a.npz")


def test_an_archive_that_grows_beyond_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "MOST_GROWN", 100_000)
    zeros = np.zeros((1000, 64), np.float32)
    np.savez_compressed(tmp_path / "a.npz", X=zeros)
    with pytest.raises(DataError, match="bytes and 256,128 unpacked, which looks like a trap"):
        sources.read(tmp_path / "a.npz")
    np.savez_compressed(tmp_path / "b.npz", X=zeros[:200])
    for path in (tmp_path / "b.npz", npz(tmp_path / "c.npz", X=zeros)):
        assert not sources.read(path).X.any()


def test_no_number_has_a_line_in_it(tmp_path):
    found = sources.read(text(tmp_path / "a.csv", "name,a\n1_2,0.5\n1_3,0.7\n"))
    assert found.X.shape == (2, 1)
    with pytest.raises(DataError, match=r"line 3, column 'a': '1_3' among numbers"):
        sources.read(text(tmp_path / "b.csv", "a,b\n12,0.5\n1_3,0.7\n"))


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
@pytest.mark.parametrize("content", [b"", b"no such thing", b"PK\x03\x04 but no zip", b"\x93NUMPY\x01\x00", b"PAR1"])
def test_damaged_files(tmp_path, suffix, content):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="needs the extra parquet")
    path = tmp_path / f"bad{suffix}"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"bad\{suffix}' is not a whole"):
        sources.read(path)


def test_nothing_is_unpickled(tmp_path):
    np.save(tmp_path / "a.npy", np.array([{}, []], dtype=object))
    with pytest.raises(DataError, match="Object arrays cannot be loaded"):
        sources.read(tmp_path / "a.npy")


def test_a_suffix_that_lies(tmp_path):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / "a.npy").rename(tmp_path / "b.npz")
    with pytest.raises(DataError, match=r"b\.npz' is not a whole"):
        sources.read(tmp_path / "b.npz")
    npz(tmp_path / "c.npz", X=X).rename(tmp_path / "d.npy")
    with pytest.raises(DataError, match=r"d\.npy' is not a whole"):
        sources.read(tmp_path / "d.npy")


# Tables


def test_csv(tmp_path):
    content = '\ufeffid,f0,File,label, f1\n7,1.5,"a,b",dog,-2e3\n\n3,0,,cat, 4 \r\n12,1,"two\nlines",dog,5\n'
    found = sources.read(text(tmp_path / "t.csv", content))
    np.testing.assert_array_equal(found.X, np.array([[1.5, -2000], [0, 4], [1, 5]], np.float32))
    assert found.X.dtype == np.float32
    assert found.ids.tolist() == [7, 3, 12]
    assert found.y.tolist() == [1, 0, 1]
    assert found.classes == ("cat", "dog")
    assert found.columns == {"File": ["a,b", None, "two\nlines"]}
    assert found.skipped == ()
    found.X[0, 0] = 9  # as writable as any


def test_tags_of_csv(tmp_path):
    found = sources.read(text(tmp_path / "t.csv", "a,Tags\n1,sun; sea\n2,\n3,sea;;sea\n"))
    assert found.classes == ("sea", "sun")
    assert found.y.tolist() == [[1, 1], [0, 0], [1, 0]]
    assert found.y.dtype == np.uint8
    assert found.X.tolist() == [[1], [2], [3]]


@given(st.lists(st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 20)), min_size=1))
def test_csv_gives_back_what_was_written(tmp_path_factory, rows):
    lines = "".join(f"{value!r},{label}\n" for value, label in rows)
    found = sources.read(text(tmp_path_factory.mktemp("csv") / "t.csv", f"value,label\n{lines}"))
    assert found.X[:, 0].tolist() == [value for value, _ in rows]
    assert [int(found.classes[number]) for number in found.y] == [label for _, label in rows]
    assert list(map(int, found.classes)) == sorted({label for _, label in rows})


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "has no rows"),
        ("a,b\n", "has no rows"),
        ("1,2\n3,4\n", "line 1: numbers; the first line must be the columns' names"),
        (",a\n0,1\n", r"column 1 has no name; .*index=False"),
        ("a,b,A\n0,1,2\n", "column 3 is another 'A'; name each once"),
        ("a,label,tags\n0,1,2\n", "has the columns 'label', 'tags'; name the one to use"),
        (
            "label,id,what\ncat,1,x\n",
            "no columns of numbers to be features, but 'label', 'id', 'what'; give one for every feature",
        ),
        ("a;b\n1;2\n", "no columns of numbers"),
        ("a,b\n1,2\n3\n", "Row #3: Expected 2 columns, got 1"),
        ("a,b\n1,2\n\n3,4,5\n", "Row #3: Expected 2 columns, got 3"),
        ("a,b\n1,2\n3,four\n", "line 3, column 'b': 'four' among numbers; give a number .*: item_column"),
        ("a,b\n1,2\n3,\n", "line 3, column 'b': empty; there must be a number in every row, .*: item_column"),
        ("a,b\n1,\n3,4\n", "line 2, column 'b': empty; there must be a number"),
        ("a,b\n1,2\n3,nan\n", "line 3, column 'b': NaN; give finite"),
        ("a,b\n1,2\n\n-inf,3\n", "line 4, column 'a': infinite"),
        ("a,b\n1,2\n1e40,3\n", "line 3, column 'a': infinite, or too large"),
        ("a,id\n1,1\n2,\n", "column 'id': there must be a whole number or a text in every row"),
        ("a,id\n1,5\n2,5\n", "column 'id': 5 occurs 2 times; give every id once"),
        ("a,id\n1,x\n2, x\n", "column 'id': x occurs 2 times; give every id once"),
        ("a,id,key\n1,2,3\n", "has the columns 'id', 'key'; name the one to use: key_column"),
        ('a,b\n1,"x\n', "not readable as CSV"),
        ('a,label\n1,x\n2,"x\n', "not readable as CSV"),
    ],
)
def test_bad_csv(tmp_path, content, words):
    path = text(tmp_path / "bad.csv", content)
    with pytest.raises(DataError, match=words) as caught:
        sources.read(path)
    assert "bad.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_csv_that_is_no_text(tmp_path):
    (tmp_path / "bad.csv").write_bytes(b"a,b\n1,\xff\n")
    with pytest.raises(DataError, match=r"bad\.csv'.*not readable as CSV: .*utf-8"):
        sources.read(tmp_path / "bad.csv")


def test_parquet(tmp_path):
    (tmp_path / "year=2020").mkdir()
    path = parquet(
        tmp_path / "year=2020" / "t.parquet",  # the folder gives no column
        id=[5, 6, 7],
        f0=np.array([1, 2, 3], np.int16),
        name=["x", None, "z"],
        f1=np.array([0.5, 1.5, 2.5]),
        seen=[True, False, True],
        label=["b", "a", "b"],
    )
    found = sources.read(path)
    assert found.X.tolist() == [[1, 0.5], [2, 1.5], [3, 2.5]]
    assert found.columns == {"name": ["x", None, "z"], "seen": [True, False, True]}
    assert found.ids.tolist() == [5, 6, 7]
    assert found.y.tolist() == [1, 0, 1]
    assert found.classes == ("a", "b")


@pytest.mark.parametrize("tags", [["sun;sea", None, "sea"], [["sun", "sea"], [], ["sea"]]])
def test_tags_of_parquet(tmp_path, tags):
    found = sources.read(parquet(tmp_path / "t.parquet", f0=[1.0, 2.0, 3.0], tags=tags))
    assert found.classes == ("sea", "sun")
    assert found.y.tolist() == [[1, 1], [0, 0], [1, 0]]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": [1.0, None]}, "row 1, column 'a': empty; there must be a number"),
        ({"a": [1.0, float("nan")]}, "row 1, column 'a': NaN"),
        ({"a": ["x", "y"], "label": [0, 1]}, "no columns of numbers"),
        ({"a": [1, 2], "label": [0.5, 1]}, r"column 'label' has 0\.5; classes must be"),
        ({"a": [1, 2], "label": [[0], [1]]}, "column 'label' has lists; classes must be words or whole numbers"),
        ({"a": [1, 2], "id": [1, 1]}, "column 'id': 1 occurs 2 times"),
        ({"a": [1, 2], "id": ["x", "x"]}, "column 'id': x occurs 2 times"),
        ({"a": [1, 2], "id": [1.5, 2.5]}, "column 'id': there must be a whole number or a text in every row"),
        ({"a": [1, 2], "id": [1, None]}, "column 'id': there must be a whole number or a text in every row"),
        ({"a": np.empty(0)}, "has no rows"),
    ],
)
def test_bad_parquet(tmp_path, columns, words):
    with pytest.raises(DataError, match=words):
        sources.read(parquet(tmp_path / "bad.parquet", **columns))


def test_without_pyarrow(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / "t.parquet").write_bytes(b"")
    with pytest.raises(ImportError, match=r"^reading Parquet files needs pyarrow: pip install pyarrow$"):
        tables.read(tmp_path / "t.parquet")


# Pictures


def test_a_folder_of_classes(tmp_path):
    paths = [paint(tmp_path / "zoo" / name, seed) for seed, name in enumerate(["cat/1.png", "cat/2.png", "dog/1.png"])]
    (tmp_path / "zoo" / "dog" / "notes.txt").write_text("no picture")
    calls = []
    found = sources.read(tmp_path / "zoo", progress=lambda *call: calls.append(call))
    np.testing.assert_array_equal(found.X, described(paths))
    assert found.y.tolist() == [0, 0, 1]
    assert found.classes == ("cat", "dog")
    assert found.images == paths
    assert found.folder == tmp_path / "zoo"
    assert found.descriptor == Gist()
    assert [path.name for path, _ in found.skipped] == ["notes.txt"]
    assert calls[-1] == (3, 3)


def test_pictures_are_described_as_a_model_has_it(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    Image = pytest.importorskip("PIL.Image", reason="needs the extra images")
    (tmp_path / "flat").mkdir()
    for number, image in enumerate(images):
        Image.fromarray(image).save(tmp_path / "flat" / f"{number}.png")
    model = cifar10.KNOWN.descriptor
    found = sources.read(tmp_path / "flat", descriptor=model)
    assert found.descriptor == model == Gist((32, 32))
    np.testing.assert_array_equal(found.X, gist.describe(images))
    # Also where a data set has rows of its own.
    digit = sources.read("digits:test", descriptor=model)
    assert (digit.X.shape, digit.descriptor) == ((500, 512), model)
    assert sources.read("digits:test", descriptor=Pixels((8, 8))).X.shape == (500, 64)


@pytest.mark.parametrize("data", ["toy", "rows.npy"])
def test_a_descriptor_without_pictures(tmp_path, monkeypatch, data):
    monkeypatch.chdir(tmp_path)
    np.save("rows.npy", X)
    assert sources.read(data, descriptor=Gist()).descriptor is None
    with pytest.raises(ValueError, match=r"descriptor='gist', but .* has no pictures to describe; leave it out"):
        sources.read(data, descriptor="gist")


def test_a_folder_of_one_class(tmp_path):
    paint(tmp_path / "zoo" / "cat" / "1.png")
    found = sources.read(tmp_path / "zoo")
    assert (found.y.tolist(), found.classes) == ([0], ("cat",))


def test_a_folder_with_tags(tmp_path):
    for number in range(3):
        paint(tmp_path / f"{number}.png", number)
    text(tmp_path / "tags.csv", "path,tags\n2.png,sun;sea\n0.png,\n")
    found = sources.read(tmp_path)
    assert found.y.tolist() == [[1, 1], [0, 0]]
    assert [path.name for path in found.images] == ["2.png", "0.png"]


def test_a_flat_folder_has_no_classes(tmp_path):
    paths = [paint(tmp_path / "flat" / f"{number}.png", number) for number in range(3)]
    text(tmp_path / "flat" / "notes.txt", "no picture")
    text(tmp_path / "flat" / ".hidden", "no part of it")
    found = sources.read(tmp_path / "flat")
    np.testing.assert_array_equal(found.X, described(paths))
    assert (found.y, found.supervision, found.classes) == (None, None, ())
    assert found.images == paths
    assert [path.name for path, _ in found.skipped] == ["notes.txt"]


def test_a_folder_without_pictures(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty' is empty"):
        sources.read(tmp_path / "empty")
    text(tmp_path / "empty" / "a.txt", "x")
    with pytest.raises(DataError, match=r"none of the 1 files in .* is a picture"):
        sources.read(tmp_path / "empty")


def test_a_picture(tmp_path):
    path = paint(tmp_path / "a.PNG")
    found = sources.read(path)
    np.testing.assert_array_equal(found.X, described([path]))
    assert (found.images, found.folder, found.y) == ([path], tmp_path, None)
    path.write_text("no picture")
    with pytest.raises(pictures.PictureError, match=r"a\.PNG' is not a picture"):
        sources.read(path)


# What cannot be read at all


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (
            "imagenet",
            ValueError,
            "unknown data 'imagenet'; give one of toy, digits, mnist, cifar10, nuswide, coco_sift",
        ),
        ("imagenet:train", ValueError, "unknown data 'imagenet:train'; give one of"),
        ("image_folder", ValueError, "unknown data 'image_folder'"),
        ("digits:", ValueError, "data='digits:'; give digits, digits:train or digits:test"),
        ("digits:val", ValueError, "data='digits:val'; give digits, digits:train or digits:test"),
        ("rows.npy", FileNotFoundError, r"data='rows\.npy': there is no such file or folder"),
        ("some/folder", FileNotFoundError, "data='some/folder': there is no such file or folder"),
        ("there.doc", ValueError, r"data='there\.doc' has the suffix '\.doc'; give \.npy, \.npz, \.csv, \.parquet"),
    ],
)
def test_unknown_data(tmp_path, monkeypatch, data, error, words):
    monkeypatch.chdir(tmp_path)
    text(tmp_path / "there.doc", "x")
    with pytest.raises(error, match=words) as caught:
        sources.read(data)
    assert "\n" not in str(caught.value)


# Names of two sources


def test_labels_are_renumbered_by_their_names(tmp_path):
    found = sources.read(npz(tmp_path / "a.npz", X=X, y=["cat", "eel", "dog", "cat"]))
    other = sources.renumber(found, ("dog", "cow", "cat"))
    assert other.classes == ("dog", "cow", "cat", "eel")
    assert [other.classes[number] for number in other.y] == ["cat", "eel", "dog", "cat"]
    tagged = sources.read(text(tmp_path / "t.csv", "a,tags\n1,sun;sea\n2,sea\n"))
    other = sources.renumber(tagged, ("sun", "moon"))
    assert other.classes == ("sun", "moon", "sea")
    assert other.y.tolist() == [[1, 0, 1], [0, 0, 1]]
    np.save(tmp_path / "a.npy", X)
    plain = sources.read(tmp_path / "a.npy")
    assert sources.renumber(plain, ("a",)) is plain
