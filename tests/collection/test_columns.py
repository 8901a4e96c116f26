"""What is said of items comes back as it was said, whatever holds it, or is refused by name."""

import datetime
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gphash.collection import columns
from gphash.collection.collection import Collection
from tests.collection import sources

X = sources.of_digits().X
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
WHOLE = st.integers(-(2**63) + 1, 2**63 - 1)
FLOATS = st.floats(allow_nan=True, allow_infinity=False)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), n=st.integers(1, 6))
def test_what_is_said_comes_back(model, tmp_path, data, n):
    """Written when the collection is made, and when items are added; read again by somebody else."""

    def cells(values):
        return data.draw(st.lists(values, min_size=2 * n, max_size=2 * n))

    said = {
        "key": data.draw(
            st.lists(TEXTS.filter(bool), min_size=2 * n, max_size=2 * n, unique=True)
            | st.lists(WHOLE, min_size=2 * n, max_size=2 * n, unique=True)
        ),
        "title": cells(st.none() | TEXTS),
        "note": cells(st.none() | TEXTS),
        "count": cells(st.none() | WHOLE),
        "price": cells(st.none() | FLOATS),
    }
    said["count"][0], said["price"][0], said["note"][0] = 1, 0.5, "a"
    said["count"][n], said["price"][n], said["note"][n] = 2, 1.5, "b"
    first, second = ({name: list[part] for name, list in said.items()} for part in (slice(n), slice(n, None)))
    path = tmp_path / "said.gphash"
    with Collection.create(path, model, X[:n], first, replace=True, writable=True) as collection:
        assert collection.add(X[n : 2 * n], second) == second["key"]
    with Collection.open(path) as collection:
        for row, item in enumerate(collection.items(said["key"])):
            told = {name: cells[row] for name, cells in said.items() if name != "key"}
            missing = {name for name, cell in told.items() if cell is None or cell != cell}
            assert item.key == said["key"][row]
            assert item.values == {name: cell for name, cell in told.items() if name not in missing}
            assert {name: type(cell) for name, cell in item.values.items()} == {
                name: {"title": str, "note": str, "count": int, "price": float}[name] for name in item.values
            }


def test_tables_of_other_libraries(model, tmp_path):
    pandas = pytest.importorskip("pandas")
    day = datetime.date(2024, 5, 17)
    frame = pandas.DataFrame(
        {
            "key": ["a", "b", "c"],
            "label": ["x", None, "y"],
            "price": [1.5, float("nan"), 3],
            "count": pandas.array([1, None, 3], dtype="Int64"),
            "day": [day, None, day],
            "when": pandas.to_datetime(["2024-05-17 10:00", None, "2024-05-18 00:00"]),
            "new": [True, False, True],
        },
        index=[7, 8, 9],
    )
    wanted = [
        {"price": 1.5, "count": 1, "day": "2024-05-17", "when": "2024-05-17T10:00:00", "new": 1},
        {"new": 0},
        {"price": 3.0, "count": 3, "day": "2024-05-17", "when": "2024-05-18T00:00:00", "new": 1},
    ]
    given = [frame, frame.to_dict("list"), [dict(row) for row in frame.to_dict("records")]]
    try:
        import pyarrow

        given.append(pyarrow.Table.from_pandas(frame.drop(columns="when"), preserve_index=False))
    except ImportError:
        pass
    for place, table in enumerate(given):
        with Collection.create(tmp_path / f"{place}.gphash", model, X[:3], table) as collection:
            items = collection.items(["a", "b", "c"])
            assert [item.labels for item in items] == [("x",), (), ("y",)]
            for item, told in zip(items, wanted, strict=True):
                assert item.values == {name: cell for name, cell in told.items() if name in collection.columns}


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"key": ["a", "a"]}, "items\\['key'\\] has 'a' twice"),
        ({"key": [1, 1]}, "items\\['key'\\] has 1 twice"),
        ({"key": ["a", 1]}, "items\\['key'\\] has 1; give a text to every item, or a whole number"),
        ({"key": [1, 1.5]}, "has 1.5"),
        ({"key": ["a", None]}, "has None"),
        ({"key": ["a", ""]}, "empty text"),
        ({"key": [1, 2**63]}, "has 9223372036854775808 in row 1; give whole numbers between -2\\^63 and 2\\^63"),
        ({"key": [1]}, "has 1 values for 2 rows"),
        ([{"key": 1}], "items has 1 entries for 2 rows"),
        ([{"key": 1}, 3], "items\\[1\\] is 3; give a dict"),
        ("abc", "items is a str; give a DataFrame"),
        (7, "items is a int; give a DataFrame"),
        ({"label": ["a", "b"], "tags": [["a"], ["b"]]}, "give one of them"),
        ({"label": ["a", " "]}, "label has ' '"),
        ({"label": ["a", "b\n"]}, "label has 'b\\\\n'"),
        ({"label": ["a", "b" * 257]}, "1 to 256"),
        ({"tags": [["a;b"], []]}, "tags has 'a;b'"),
        ({"tags": [[3], []]}, "tags has 3"),
        ({"price": [1, "a"]}, "items\\['price'\\] has texts and numbers"),
        ({"price": [1, [2]]}, "items\\['price'\\] has \\[2\\] in row 1"),
        ({"price": [1, b"2"]}, "items\\['price'\\] has b'2' in row 1"),
        ({"price": [1, 2**63]}, "items\\['price'\\] has 9223372036854775808 in row 1"),
        ({"title": ["a", "b\0"]}, "items\\['title'\\] has 'b\\\\x00' in row 1"),
        ({"title": ["a", "\ud800"]}, "give texts of whole characters"),
        ({"number": [1, 2]}, "a column 'number', a name that is taken"),
        ({"Code": [1, 2]}, "a column 'Code', a name that is taken"),
        ({"KEY": [1, 2]}, "a column 'KEY', a name that is taken"),
        ({"a": [1, 2], "A": [1, 2]}, "a column 'A', a name that is taken"),
        ({"": [1, 2]}, "give names of 1 to 63"),
        ({"a\nb": [1, 2]}, "give names of 1 to 63"),
        ({"ü" * 32: [1, 2]}, "give names of 1 to 63"),
        ({3: [1, 2]}, "a column 3"),
    ],
)
def test_what_makes_no_sense_is_refused(model, tmp_path, copy, items, message):
    with pytest.raises(ValueError, match=message):
        Collection.create(tmp_path / "new.gphash", model, X[:2], items)
    assert not (tmp_path / "new.gphash").exists()
    with Collection.open(copy, writable=True) as collection:
        with pytest.raises(ValueError, match=message):
            collection.add(X[:2], items)
        assert len(collection) == 300


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ({"key": ["n"], "cost": [1]}, "a column 'cost' that the collection does not have; its columns are label, tags"),
        ({"key": ["n"], "price": ["x"]}, "items\\['price'\\] is text, and the collection's column is real"),
        ({"key": ["n"], "count": [1.5]}, "items\\['count'\\] is real, and the collection's column is integer"),
        ({"key": [3]}, "items\\['key'\\] has 3; the keys of this collection are texts"),
        ({}, "items has no keys; this collection has texts as keys"),
        (None, "items has no keys"),
    ],
)
def test_columns_that_disagree_with_those_there_are_refused(model, tmp_path, items, message):
    said = {"key": ["a"], "price": [1.5], "count": [2]}
    with Collection.create(tmp_path / "a.gphash", model, X[:1], said, writable=True) as collection:
        with pytest.raises(ValueError, match=message):
            collection.add(X[1:2], items)
        assert collection.add(X[1:2], {"key": ["b"], "price": [3], "count": [None]}) == ["b"]
        assert collection.item("b").values == {"price": 3.0}
        for key in (3, None, 1.5, b"a"):
            with pytest.raises(ValueError, match="the keys of this collection are texts"):
                collection.item(key)
    with Collection.create(tmp_path / "b.gphash", model, X[:1], writable=True) as collection:
        with pytest.raises(ValueError, match="the keys of this collection are whole numbers"):
            collection.add(X[1:2], {"key": ["b"]})
        for key in ("0", None, 1.5, True):
            with pytest.raises(ValueError, match="the keys of this collection are whole numbers"):
                collection.item(key)


@pytest.mark.parametrize("number", [0.0, -0.0, 1e300, -5e-324, math.inf, -math.inf, 2.0**53, 0.1])
def test_numbers_as_databases_have_them(model, tmp_path, number):
    with Collection.create(tmp_path / "a.gphash", model, X[:1], {"price": [number]}) as collection:
        assert collection.item(0).values == {"price": number}


def test_types_of_numpy():
    made = columns.read(
        {"key": np.array([3, 4]), "a": np.array([1.5, np.nan], np.float32), "b": [np.int8(3), np.bool_(True)]}, 2
    )
    assert made == columns.Columns([3, 4], {"a": [1.5, None], "b": [3, 1]}, {"a": "real", "b": "integer"})
