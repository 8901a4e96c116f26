"""What the columns of a table are: features, labels, keys, items, or nothing of this, and then it is said."""

import datetime
import decimal

import numpy as np
import pytest

from gphash.data import blocks, sources, tables
from gphash.data.headers import Roles
from gphash.files import DataError

pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
pd = pytest.importorskip("pandas")

KINDS = ["csv", "parquet", "blocks"]


def write(path, frame, kind):
    """The same table as a file, or as two blocks."""
    if kind == "csv":
        frame.to_csv(path / "t.csv", index=False)
        return path / "t.csv"
    if kind == "parquet":
        frame.to_parquet(path / "t.parquet", index=False)
        return path / "t.parquet"
    (path / "blocks").mkdir()
    for number, part in enumerate((frame[:2], frame[2:])):
        part.to_parquet(path / "blocks" / f"{number}.parquet", index=False)
    return path / "blocks"


def read(path, **roles):
    """X, y, classes, keys and item columns, of a file or of blocks."""
    if path.is_dir():
        table = blocks.open_folder(path, Roles(**roles))
        y, classes = table.labels() or (None, ())
        items = table.items()
        keys = items.pop("key", None)
        return table.select(np.arange(table.n_rows)).read(), y, classes, keys, items
    found = sources.read(path, roles=Roles(**roles))
    items = dict(found.columns)
    keys = items.pop("key", None) if found.ids is None else found.ids.tolist()
    return found.X, found.y, found.classes, keys, items


SHOP = {
    "a": [1.5, 2.0, 3.0, 4.0],
    "sku": ["s1", "s2", "007", "s4"],
    "Category": [" shoe", None, "hat ", " "],
    "price": [10.0, None, 2.5, 3.0],
    "Title": ["1984", "Cup", None, "12"],
    "about": ["x", "y", "z", "w"],
    "b": [0.5, 1.0, 1.5, 2.0],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_shop(tmp_path, kind):
    path = write(tmp_path, pd.DataFrame(SHOP), kind)
    X, y, classes, keys, items = read(path, label="category", key="sku", text="about", items=("price",))
    np.testing.assert_array_equal(X, np.array([SHOP["a"], SHOP["b"]]).T)
    assert (y.tolist(), classes) == ([1, -1, 0, -1], ("hat", "shoe"))
    assert keys == SHOP["sku"]
    assert items.pop("price")[::2] == [10.0, 2.5]
    assert items == {"title": ["1984", "Cup", None, "12"], "text": ["x", "y", "z", "w"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["ID", "key"])
def test_keys_by_name(tmp_path, kind, name):
    for keys in ([7, 3, -1, 12], ["x", "y", "7", "z"]):
        own = tmp_path / str(keys[0])
        own.mkdir()
        path = write(own, pd.DataFrame({"a": [1.0, 2, 3, 4], name: keys}), kind)
        assert read(path)[3] == keys


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("labels", [[3, None, 10, 3], [True, False, True, True], ["b", "", "a", "b"]], ids=str)
def test_labels_are_the_same_in_all_files(tmp_path, kind, labels):
    words = ["" if label is None else str(label) for label in labels]
    frame = pd.DataFrame({"a": [1.0, 2, 3, 4], "label": pd.array(labels) if labels[0] == 3 else labels})
    _, y, classes, _, _ = read(write(tmp_path, frame, kind))
    assert [classes[number] if number >= 0 else "" for number in y] == words
    assert list(classes) == sorted(set(words) - {""}, key=lambda word: int(word) if word.isdigit() else word)


@pytest.mark.parametrize("kind", ["parquet", "blocks"])
@pytest.mark.parametrize(
    "form", [pa.list_(pa.float32()), pa.list_(pa.float32(), 3), pa.large_list(pa.int16())], ids=str
)
def test_lists_of_numbers_are_the_features(tmp_path, kind, form):
    rows = np.arange(12).reshape(4, 3)
    columns = {"price": [1, 2, None, 4], "vector": pa.array(rows.tolist(), form), "label": ["a", "b", None, "a"]}
    place = tmp_path / "blocks"
    place.mkdir()
    table = pa.table(columns)
    for number, part in enumerate([table] if kind == "parquet" else [table[:3], table[3:3], table[3:]]):
        pa.parquet.write_table(part, place / f"{number}.parquet", row_group_size=2)
    path = place / "0.parquet" if kind == "parquet" else place
    X, y, _, _, items = read(path)
    np.testing.assert_array_equal(X, rows)
    assert items == {"price": [1, 2, None, 4]}
    assert y.tolist() == [0, 1, -1, 0]
    opened = blocks.open_folder(place)
    np.testing.assert_array_equal(opened.select(np.array([0, 3])).read(), rows[[0, 3]])


def parquet(path, **columns):
    pa.parquet.write_table(pa.table(columns), path)
    return path


def test_what_cells_can_be(tmp_path):
    day, moment = datetime.date(2024, 5, 1), datetime.datetime(2024, 5, 1, 12)
    path = parquet(
        tmp_path / "t.parquet",
        f=[1.0, 2.0],
        cost=pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")]),
        size=pa.array(["M", "L"]).dictionary_encode(),
        day=[day, None],
        moment=pa.array([moment, moment], pa.timestamp("ns")),
        new=[True, None],
    )
    found = sources.read(path, roles=Roles(items=("cost",)))
    assert found.X.tolist() == [[1], [2]]
    wanted = {"cost": [1.5, 2.25], "size": ["M", "L"], "day": [day, None], "moment": [moment] * 2, "new": [True, None]}
    assert found.columns == wanted
    assert sources.read(path).X.tolist() == [[1, 1.5], [2, 2.25]]


def test_numbers_that_texts_must_give_back(tmp_path):
    text = "f,zip,part,size,weight\n1,01234,7,M,1\n2,99999,,L,2.5\n"
    (tmp_path / "t.csv").write_text(text)
    found = sources.read(tmp_path / "t.csv", roles=Roles(items=("zip", "part", "weight")))
    assert found.X.tolist() == [[1], [2]]
    wanted = {"zip": ["01234", "99999"], "part": [7, None], "size": ["M", "L"], "weight": [1.0, 2.5]}
    assert found.columns == wanted


def test_columns_that_are_left_out(tmp_path):
    path = parquet(
        tmp_path / "t.parquet",
        f=[1.0, 2.0],
        raw=[b"x", b"y"],
        nested=[{"a": 1}, {"a": 2}],
        ragged=[[1.0], [1.0, 2.0]],
        nothing=pa.nulls(2),
        gone=pa.array([None, None], pa.float64()),
        kind=["a", "b"],
        label=[1, 2],
        __index_level_0__=[5, 6],
    )
    found = sources.read(path, roles=Roles(label="kind"))
    assert found.X.tolist() == [[1], [2]]
    assert found.columns == {}
    assert found.classes == ("a", "b")
    reasons = dict(one.reason.removeprefix("column ").split(": ", 1) for one in found.skipped)
    assert {one.path for one in found.skipped} == {path}
    assert set(reasons) == {"'raw'", "'nested'", "'ragged'", "'nothing'", "'gone'", "'label'", "'__index_level_0__'"}
    assert reasons["'raw'"] == "binary, which is neither numbers nor texts nor dates"
    assert reasons["'ragged'"].startswith("lists of numbers of different lengths")
    assert reasons["'nothing'"] == reasons["'gone'"] == "empty in every row"
    assert reasons["'label'"] == "another column is the label"
    assert "index=False" in reasons["'__index_level_0__'"]


@pytest.mark.parametrize("header", ["label", "tags"])
def test_labels_that_are_all_blank(tmp_path, header):
    (tmp_path / "t.csv").write_text(f"f,{header}\n1, \n2,\n")
    found = sources.read(tmp_path / "t.csv")
    assert (found.y, found.classes) == (None, ())
    assert [one.reason for one in found.skipped] == [f"column {header!r}: empty in every row"]


def test_rows_with_labels(tmp_path):
    (tmp_path / "t.csv").write_text("f,label,id,title\n1,a,5,x\n2,,6,y\n3,b,7,z\n")
    whole = sources.read(tmp_path / "t.csv")
    found = sources.labelled(whole)
    assert (found.X.tolist(), found.y.tolist(), found.ids.tolist()) == ([[1], [3]], [0, 1], [5, 7])
    assert found.columns == {"title": ["x", "z"]}
    assert sources.labelled(found) is found
    assert sources.renumber(whole, ("b",)).y.tolist() == [1, -1, 0]


def test_blank_words_of_arrays_are_no_class(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=["b ", "", "a"])
    found = sources.read(tmp_path / "t.npz")
    assert (found.y.tolist(), found.classes) == ([1, -1, 0], ("a", "b"))


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"label": "kind"}, r"^label_column='kind': .* has no such column, but 'f', 'g', 'word', 'label'\.$"),
        ({"items": ("x",)}, "^item_column='x': .* has no such column"),
        ({"label": "word", "key": "word"}, "another option names the same column"),
        ({"label": "word", "tags": "label"}, "^label_column='word' and tags_column='label'; .* give one"),
        ({"label": "word", "items": ("word",)}, "^item_column='word' is another column"),
        ({"items": ("f", "g")}, "has no columns of numbers to be features"),
    ],
)
def test_roles_that_cannot_be(tmp_path, roles, words):
    (tmp_path / "t.csv").write_text("f,g,word,label\n1,2,x,a\n")
    with pytest.raises(ValueError, match=words):
        sources.read(tmp_path / "t.csv", roles=Roles(**roles))


def test_roles_without_a_table(tmp_path):
    np.save(tmp_path / "t.npy", np.eye(2))
    with pytest.raises(ValueError, match=r"^label_column='x', but 'digits' is not a table; leave it out"):
        sources.read("digits", roles=Roles(label="x"))
    with pytest.raises(ValueError, match=r"^item_column='x', but the columns of .* have no names"):
        blocks.open_folder(tmp_path, Roles(items=("x",)))


# Older versions of Arrow do not read back such a column that they have written.
NO_LIST = "row 0, column 'v': a list of 0 numbers; there must"
if int(pa.__version__.split(".")[0]) < 26:
    NO_LIST = f"({NO_LIST}|Expected all lists to be of size=2)"


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"v": [[1.0, 2.0], [3.0, None]]}, "row 1, column 'v': a list with an empty place"),
        ({"v": [[1.0, 2.0], [3.0, 4.0]], "w": [[1], [2]]}, "lists of numbers in the columns 'v', 'w'; one of them"),
        ({"v": [[1.0, 2.0, 3.0], [3.0]]}, "row 1, column 'v': a list of 1 numbers; there must be 3"),
        ({"v": [[1.0, 2.0], [3.0, np.inf]]}, "row 1, column 'v': infinite"),
        ({"v": pa.array([None, [1, 2]], pa.list_(pa.int8(), 2))}, NO_LIST),
    ],
)
def test_lists_that_cannot_be_features(tmp_path, columns, words):
    path = parquet(tmp_path / "t.parquet", **columns)
    with pytest.raises(DataError, match=words):
        tables.read(path)


def test_lists_of_other_lengths_in_another_block(tmp_path):
    parquet(tmp_path / "a.parquet", v=[[1.0, 2.0]])
    parquet(tmp_path / "b.parquet", v=[[1.0]])
    with pytest.raises(DataError, match=r"b\.parquet' has lists of 1 numbers, and .*a\.parquet' has 2; all blocks"):
        blocks.open_folder(tmp_path)
