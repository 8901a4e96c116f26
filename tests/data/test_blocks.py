"""Folders of blocks: any rows of them, what is known of the rows, and what is said about blocks that cannot be read."""

import builtins
import os
import pickle
import socket
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.data import block_kinds, blocks, labels, sources, tables
from gphash.files import DataError

COUNTS = (7, 1, 0, 40, 13)
N_ROWS = sum(COUNTS)
X = np.random.default_rng(0).normal(size=(N_ROWS, 3)).astype(np.float32)
KINDS = ["npy", "parquet", "zarr2", "zarr3", "group2", "group3"]


def parts(array):
    return np.split(array, np.cumsum(COUNTS)[:-1])


def npy(folder, **arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name.replace('_labels', '.labels')}.npy", array)
    return folder


def parquet(path, row_group_size=5, **columns):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow.parquet import write_table

    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(arrow.table(columns), path, row_group_size=row_group_size)
    return path.parent


def features(X):
    return {f"f{column}": values for column, values in enumerate(X.T)}


def zarr_array(folder, X, zarr_format=3, chunks=(4, 2)):
    zarr = pytest.importorskip("zarr", reason="needs zarr")
    zarr.create_array(str(folder), data=X, chunks=chunks, zarr_format=zarr_format)
    return folder


def zarr_group(folder, zarr_format=3, **arrays):
    zarr = pytest.importorskip("zarr", reason="needs zarr")
    group = zarr.open_group(str(folder), mode="w", zarr_format=zarr_format)
    for name, array in arrays.items():
        group.create_array(name, data=array)
    return folder


def write(kind, folder, X):
    if kind == "npy":
        return npy(folder, **{f"block-{number + 8}": part for number, part in enumerate(parts(X))})
    if kind == "parquet":
        for number, part in enumerate(parts(X)):
            parquet(folder / f"part.{number + 8}.parquet", **features(part), id=np.arange(len(part)))
        return folder
    if kind.startswith("zarr"):
        return zarr_array(folder, X, int(kind[-1]))
    return zarr_group(folder, int(kind[-1]), X=X)


@pytest.fixture(scope="module", params=KINDS)
def opened(request, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_kinds, "LEAST_ROWS", 10)
        return blocks.open_folder(write(request.param, tmp_path_factory.mktemp("blocks") / request.param, X))


def fails(folder, words):
    with pytest.raises(DataError, match=words) as caught:
        blocks.open_folder(folder)
    return str(caught.value)


def read(table, rows=None):
    return table.select(np.arange(table.n_rows) if rows is None else np.asarray(rows, dtype=np.int64)).read()


# Any rows


def check_rows(table, rows, X=X):
    piece = pickle.loads(pickle.dumps(table.select(rows)))
    found = piece.read()
    assert len(piece) == len(found) == len(rows)
    assert found.dtype == X.dtype
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, X[rows])


@given(st.lists(st.integers(0, N_ROWS - 1), unique=True).map(sorted))
def test_any_rows(opened, rows):
    check_rows(opened, np.array(rows, dtype=np.int64))


@given(st.lists(st.integers(0, N_ROWS - 1), unique=True, max_size=3))
def test_all_rows_but_a_few(opened, left_out):
    check_rows(opened, np.delete(np.arange(N_ROWS), left_out))


@given(st.integers(0, N_ROWS), st.integers(0, N_ROWS))
def test_ranges(opened, start, stop):
    check_rows(opened, np.arange(start, stop))


@given(st.lists(st.integers(0, 9), unique=True).map(sorted))
def test_rows_of_an_array(rows):
    for order in "CF":
        array = np.array(np.arange(20.0).reshape(10, 2), order=order)
        check_rows(blocks.ArrayTable(array), np.array(rows, dtype=np.int64), array)


def test_rows_of_an_array_are_a_copy():
    array = np.zeros((3, 2))
    blocks.ArrayTable(array).select(np.arange(3)).read()[:] = 1
    assert not array.any()


def test_shape_and_blocks(opened):
    assert (opened.n_rows, opened.n_features) == X.shape
    names, starts, stops = zip(*opened.blocks, strict=True)
    assert len(names) == len(set(names))
    assert [*starts, N_ROWS] == [0, *stops]
    assert opened.labels() is None
    assert blocks.is_folder_of_blocks(opened.folder)


def test_numbers_in_names_by_their_size(tmp_path):
    arrays = {name: np.full((1, 2), number) for number, name in enumerate(["a-2", "a-10", "b-1"])}
    table = blocks.open_folder(npy(tmp_path, **arrays))
    assert [block.name for block in table.blocks] == ["a-2.npy", "a-10.npy", "b-1.npy"]
    assert read(table)[:, 0].tolist() == [0, 1, 2]


def test_blocks_of_a_zarr_array_are_whole_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(block_kinds, "LEAST_ROWS", 10)
    table = blocks.open_folder(zarr_array(tmp_path / "z", X, chunks=(4, 3)))
    assert table.blocks[:2] == (("rows-0-12", 0, 12), ("rows-12-24", 12, 24))
    assert table.blocks[-1].name == f"rows-60-{N_ROWS}"


@pytest.mark.parametrize("rows", [[1, 1], [2, 1], [-1, 0], [3, N_ROWS]])
def test_rows_that_are_none(opened, rows):
    with pytest.raises(ValueError, match=f"^rows are not sorted, distinct and among 0 to {N_ROWS - 1}\\.$"):
        opened.select(np.array(rows))


def test_no_rows_are_read_on_opening(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError

    folder = npy(tmp_path / "npy", a=X, a_labels=np.zeros(N_ROWS, dtype=int))
    tabular = parquet(tmp_path / "parquet" / "a.parquet", **features(X))
    arrow = tables.pyarrow("Parquet")
    monkeypatch.setattr(np, "memmap", refuse)
    monkeypatch.setattr(np.lib.format, "read_array", refuse)
    for name in ("read", "read_row_group", "read_row_groups"):
        monkeypatch.setattr(arrow.parquet.ParquetFile, name, refuse)
    for table in map(blocks.open_folder, (folder, tabular)):
        assert table.n_rows == N_ROWS


def test_only_row_groups_with_rows_are_read(tmp_path, monkeypatch):
    folder = parquet(tmp_path / "a.parquet", **features(X), label=["a"] * N_ROWS, word=["w"] * N_ROWS)
    table = blocks.open_folder(folder)
    seen = []
    file_type = tables.pyarrow("Parquet").parquet.ParquetFile
    original = file_type.read_row_group

    def note(self, group, columns, **rest):
        seen.append((group, columns))
        return original(self, group, columns=columns, **rest)

    monkeypatch.setattr(file_type, "read_row_group", note)
    read(table, [6, 8, 22])
    assert seen == [(1, ["f0", "f1", "f2"]), (4, ["f0", "f1", "f2"])]


def test_only_blocks_with_rows_are_touched(tmp_path):
    table = blocks.open_folder(write("npy", tmp_path, X))
    piece = table.select(np.array([0, 50]))
    for name in ("block-9.npy", "block-10.npy", "block-11.npy"):
        (tmp_path / name).unlink()
    np.testing.assert_array_equal(piece.read(), X[[0, 50]])


# What travels to a worker


def test_a_piece_is_small(tmp_path):
    names = {f"column number {column}": np.zeros(100_000, dtype=np.uint8) for column in range(100)}
    folders = [npy(tmp_path / "npy", a=np.zeros((100_000, 1), dtype=np.uint8), b=np.zeros((100_000, 1)))]
    folders.append(parquet(tmp_path / "parquet" / "a.parquet", 10_000, **names))
    folders.append(zarr_array(tmp_path / "zarr", np.zeros((100_000, 1), dtype=np.uint8), chunks=(1000, 1)))
    for table in map(blocks.open_folder, folders):
        whole = np.arange(table.n_rows)
        for rows in (whole, np.delete(whole, [5, 70_000, 99_998]), whole[[3, 40_000]]):
            piece = table.select(rows)
            assert len(pickle.dumps(piece)) < 1500
            assert len(pickle.loads(pickle.dumps(piece))) == len(rows)
        assert len(pickle.dumps(table.select(whole[::2]))) < 4 * table.n_rows // 2 + 1500


# Types of numbers


@pytest.mark.parametrize(
    ("types", "wanted"),
    [
        (["?", "u1"], "f4"),
        (["i2", "u2"], "f4"),
        (["i4"], "f8"),
        (["i8"], "f8"),
        (["f2", "f4"], "f4"),
        ([">f4"], "f4"),
        (["f4", "f8"], "f8"),
        ([">f8"], "f8"),
    ],
)
def test_types(tmp_path, types, wanted):
    array = np.array([[0, 1, 1], [1, 0, 1]])
    arrays = {f"a{number}": np.array(array, dtype=kind) for number, kind in enumerate(types)}
    table = blocks.open_folder(npy(tmp_path, **arrays))
    for rows in ([0], range(table.n_rows)):  # the same type whatever is read
        found = read(table, list(rows))
        assert found.dtype == np.dtype(wanted)
        np.testing.assert_array_equal(found, np.concatenate([array] * len(types))[list(rows)])


def test_fortran_order(tmp_path):
    table = blocks.open_folder(npy(tmp_path, a=np.asfortranarray(X)))
    check_rows(table, np.arange(N_ROWS))
    check_rows(table, np.array([1, 30, 31]))


def test_columns_of_a_table(tmp_path):
    columns = {"a.b": [1, 0], "word": ["x", "y"], "a": np.array([3, 4], dtype=np.int8), "ID": [7, 8]}
    table = blocks.open_folder(parquet(tmp_path / "a.parquet", **columns))
    assert table.n_features == 2
    found = read(table)
    assert found.dtype == np.float64
    assert found.tolist() == [[1, 3], [0, 4]]
    assert table.items() == {"word": ["x", "y"], "key": [7, 8]}


def test_columns_of_doubles(tmp_path):
    table = blocks.open_folder(parquet(tmp_path / "a.parquet", a=[0.1, 0.2], b=np.array([1, 2], dtype=np.float32)))
    assert read(table).dtype == np.float64
    assert read(table).tolist() == [[0.1, 1], [0.2, 2]]


@pytest.mark.parametrize("values", [[1, None, 3], [1.5, None, 2.5]])
def test_empty_cells_matter_where_they_are_read(tmp_path, values):
    table = blocks.open_folder(parquet(tmp_path / "a.parquet", f0=values, f1=[1, 2, 3]))
    assert read(table, [0, 2])[:, 0].tolist() == [values[0], values[2]]
    with pytest.raises(DataError, match=r"a\.parquet', row 1, column 'f0': empty; there must be a number"):
        read(table)


# Labels

LABELS = [
    [3, 10, 3, 2, 10, 2, 2],
    ["b", "a", "c", "c", "a", "a", "b"],
    ["10", "9", "9", "-1", "10", "9", "9"],
    ["10", "9", "9", "x", "10", "9", "9"],
    [True, False, True, True, True, True, False],
    [2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0],
    [2**62, 5, 5, 5, 5, -7, 2**62],
]


def check_labels(found, wanted):
    np.testing.assert_array_equal(found.y, wanted.y)
    assert found.y.dtype == wanted.y.dtype
    assert found.classes == wanted.classes


@pytest.mark.parametrize("labels", LABELS, ids=str)
def test_labels(tmp_path, labels):
    one, cuts = X[:7], [2, 2, 5]
    np.savez(tmp_path / "one.npz", X=one, y=labels)
    wanted = tables.read(tmp_path / "one.npz")
    pieces = list(zip(np.split(one, cuts), np.split(np.array(labels), cuts), strict=True))
    arrays = {f"a{number}": part for number, (part, _) in enumerate(pieces)}
    arrays |= {f"a{number}_labels": part for number, (_, part) in enumerate(pieces)}
    table = blocks.open_folder(npy(tmp_path / "npy", **arrays))
    assert table.n_rows == 7
    check_labels(table.labels(), wanted)
    for number, (part, own) in enumerate(pieces):
        parquet(tmp_path / "parquet" / f"{number}.parquet", **features(part), Label=own.tolist())
    check_labels(blocks.open_folder(tmp_path / "parquet").labels(), wanted)
    given = np.array(labels)
    for zarr_format in (2, 3):
        y = given.astype(np.dtypes.StringDType()) if given.dtype.kind == "U" else given
        folder = zarr_group(tmp_path / f"zarr{zarr_format}", zarr_format, X=one, y=y)
        check_labels(blocks.open_folder(folder).labels(), wanted)


def test_words_as_bytes(tmp_path):
    table = blocks.open_folder(npy(tmp_path, a=X[:2], a_labels=np.array(["é", "b"]).astype("U1")))
    assert table.labels().classes == ("b", "é")
    npy(tmp_path, a_labels=np.array([b"\xc3\xa9", b"b"]))
    assert table.labels().classes == ("b", "é")


def test_tag_columns(tmp_path):
    tags = np.array([[1, 0], [0, 1], [0, 0]])
    np.savez(tmp_path / "one.npz", X=X[:3], tags=tags)
    wanted = tables.read(tmp_path / "one.npz")
    arrays = {"a": X[:2], "b": X[2:3], "a_labels": tags[:2], "b_labels": tags[2:].astype(float)}
    check_labels(blocks.open_folder(npy(tmp_path / "npy", **arrays)).labels(), wanted)
    check_labels(blocks.open_folder(zarr_group(tmp_path / "zarr", X=X[:3], tags=tags)).labels(), wanted)


@pytest.mark.parametrize(
    "tags", [["b; a", "", "c", "", "a;d", None], [["b", "a"], [], ["c"], [], ["a", "d"], None]], ids=["words", "lists"]
)
def test_tags_by_name(tmp_path, tags):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    kind = arrow.string() if isinstance(tags[0], str) else arrow.list_(arrow.string())
    one = parquet(tmp_path / "one" / "one.parquet", **features(X[:6]), tags=arrow.array(tags, kind))
    for number, (start, stop) in enumerate([(0, 3), (3, 4), (4, 4), (4, 6)]):
        own = arrow.array(tags[start:stop], kind)
        parquet(tmp_path / "all" / f"{number}.parquet", **features(X[start:stop]), tags=own)
    check_labels(blocks.open_folder(tmp_path / "all").labels(), tables.read(one / "one.parquet"))


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ([1], ["a"], r"b\.labels\.npy' has words, and .*a\.labels\.npy' has numbers; all blocks must have the same"),
        (
            [1],
            [[0, 1]],
            r"b\.labels\.npy' has 2 columns of tags, and .*a\.labels\.npy' has numbers; all blocks must",
        ),
        (
            [[1]],
            [[0, 1]],
            r"b\.labels\.npy' has 2 columns of tags, and .*a\.labels\.npy' has 1 columns of tags; all",
        ),
        ([1], [1, 2], r"b\.labels\.npy' is int64 of shape \(2,\); it must be words .*, for each of the 1 rows$"),
        ([1], [1.5], r"b\.labels\.npy' has 1\.5; classes must be words or whole numbers$"),
        ([[1]], [[2]], r"b\.labels\.npy' is int64 of shape \(1, 1\); it must be tags of 0 and 1"),
        ([1], [1j], r"b\.labels\.npy' is complex128 of shape \(1,\); it must be words or whole numbers, or 0/1 tags"),
        ([1], 1, r"b\.labels\.npy' is int64 of shape \(\); it must"),
    ],
)
def test_bad_labels(tmp_path, first, second, words):
    arrays = {"a": X[:1], "b": X[:1], "a_labels": np.array(first), "b_labels": np.array(second)}
    table = blocks.open_folder(npy(tmp_path, **arrays))
    with pytest.raises(DataError, match=words):
        table.labels()


def test_labels_of_objects_and_damaged_labels(tmp_path):
    table = blocks.open_folder(npy(tmp_path, a=X[:1], a_labels=np.array(["a"], dtype=object)))
    with pytest.raises(DataError, match=r"a\.labels\.npy' is not a whole \.npy file of labels: Object arrays"):
        table.labels()
    (tmp_path / "a.labels.npy").unlink()
    with pytest.raises(DataError, match=r"a\.labels\.npy' is missing; put it back$"):
        table.labels()


def test_labels_for_some_blocks_only(tmp_path):
    fails(
        npy(tmp_path / "some", a=X, b=X, b_labels=np.arange(N_ROWS)),
        r"a\.npy' is there, but not 'a\.labels\.npy'; give labels beside every block or none$",
    )
    fails(
        npy(tmp_path / "stray", a=X, a_labels=np.arange(N_ROWS), b_labels=np.arange(N_ROWS)),
        r"b\.labels\.npy' is there, but not 'b\.npy'; give labels",
    )


def test_bad_labels_of_tables(tmp_path):
    parquet(tmp_path / "b" / "a.parquet", f0=[1.0], label=["x"])
    folder = parquet(tmp_path / "b" / "b.parquet", f0=[1.0], label=[5])
    fails(folder, r"b\.parquet' has the column 'label' of numbers where .*a\.parquet' has the column 'label' of texts")
    table = blocks.open_folder(parquet(tmp_path / "c" / "a.parquet", f0=[1.0], label=[0.5]))
    with pytest.raises(DataError, match=r"a\.parquet', column 'label' has 0\.5; classes must be words"):
        table.labels()


def test_blank_labels_of_tables(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    parquet(tmp_path / "a" / "1.parquet", f0=[1.0, 2.0, 3.0], label=[" x", None, " "])
    # Without any text, pandas and Arrow do not know what the column holds.
    parquet(tmp_path / "a" / "2.parquet", f0=[1.0], label=arrow.nulls(1))
    parquet(tmp_path / "a" / "3.parquet", f0=[1.0], label=["a "])
    check_labels(blocks.open_folder(tmp_path / "a").labels(), labels.Labels(np.array([1, -1, -1, -1, 0]), ("a", "x")))
    for name, column in (("tags", [";"]), ("label", [""]), ("label", arrow.nulls(1))):
        folder = parquet(tmp_path / "b" / "1.parquet", f0=[1.0], **{name: column})
        assert blocks.open_folder(folder).labels() is None


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"y": np.arange(3), "tags": np.eye(3)}, r"g' has y and tags; it may have one of them$"),
        ({"y": np.eye(3)}, r"y of .*g' has shape \(3, 3\); it must be y \[n\] or tags \[n, c\]$"),
        ({"y": np.arange(4)}, r"y of .*g' is int64 of shape \(4,\); it must be .* for each of the 3 rows$"),
    ],
)
def test_bad_labels_of_groups(tmp_path, arrays, words):
    table = blocks.open_folder(zarr_group(tmp_path / "g", X=X[:3], **arrays))
    with pytest.raises(DataError, match=words):
        table.labels()


# Numbers that cannot be meant


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, "NaN; give finite numbers"),
        (-np.inf, "-inf; give finite numbers"),
        (1e30, r"1e\+30; give numbers of at most 5\.8e\+17"),
    ],
)
def test_bad_numbers(tmp_path, monkeypatch, kind, value, words):
    monkeypatch.setattr(block_kinds, "LEAST_ROWS", 10)
    other = X.copy()
    other[20, 1] = value
    table = blocks.open_folder(write(kind, tmp_path / "x", other))
    where = {"npy": r"block-11\.npy', row 12, column 1", "parquet": r"part\.11\.parquet', row 12, column 'f1'"}
    for rows in (None, [3, 20]):
        with pytest.raises(DataError, match=f"{where.get(kind, 'row 20, column 1')}: {words}$"):
            read(table, rows)
    assert len(read(table, np.delete(np.arange(N_ROWS), 20))) == N_ROWS - 1


# Blocks that cannot be read


def test_nothing_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"x': there is no such folder\.$"):
        blocks.open_folder(tmp_path / "x")
    (tmp_path / "file.npy").write_bytes(b"")
    fails(tmp_path / "file.npy", r"file\.npy' is a file; give a folder of blocks$")


def test_empty_folders(tmp_path):
    for name in (".hidden.npy", "_marker.parquet", "README.txt"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "folder.npy").mkdir()
    fails(tmp_path, r"' has no blocks; give \.npy or \.parquet files, or a Zarr array$")
    fails(npy(tmp_path, a=X[:0]), r"' has blocks without rows only; it must have at least one row$")
    fails(zarr_array(tmp_path / "z", X[:0]), r"z' has blocks without rows only; it must have at least one row$")


def test_other_files_are_ignored(tmp_path):
    folder = npy(tmp_path, a=X)
    for name in (".hidden.npy", "_SUCCESS", "_metadata.parquet", "README.txt"):
        (folder / name).write_bytes(b"x")
    assert [block.name for block in blocks.open_folder(folder).blocks] == ["a.npy"]
    assert blocks.open_folder(str(folder)).folder == folder


def test_a_relative_path(tmp_path, monkeypatch):
    npy(tmp_path / "x", a=X)
    monkeypatch.chdir(tmp_path)
    table = blocks.open_folder("x")
    monkeypatch.chdir("/")
    check_rows(table, np.arange(N_ROWS))


def test_mixed_kinds(tmp_path):
    folder = npy(tmp_path / "x", b=X, a=X)
    (folder / "c.parquet").write_bytes(b"")
    words = fails(folder, r"x' has blocks of different kinds, .*; give one kind$")
    assert "'a.npy'" in words
    assert "'c.parquet'" in words
    folder = zarr_array(tmp_path / "z", X)
    fails(npy(folder, a=X), r"z' has blocks of different kinds, 'zarr\.json' and 'a\.npy'; give one kind$")


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (X[0], r"a\.npy' is float32 of shape \(3,\); it must be numbers \[b, d\], d not 0$"),
        (X[None], r"a\.npy' is float32 of shape \(1, 61, 3\); it must be numbers \[b, d\]"),
        (X[:, :0], r"a\.npy' is float32 of shape \(\d+, 0\); it must be numbers \[b, d\]"),
        (X.astype(object), r"a\.npy' is object of shape \(\d+, 3\); it must be numbers \[b, d\]"),
        (X.astype(str), r"a\.npy' is <U\d+ of shape \(\d+, 3\); it must be numbers \[b, d\]"),
        (X.astype(complex), r"a\.npy' is complex128 of shape \(\d+, 3\); it must be numbers \[b, d\]"),
    ],
)
def test_blocks_of_another_form(tmp_path, array, words):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    fails(tmp_path, words)


@pytest.mark.parametrize("array", [X[0], X[None], X.astype(complex)])
def test_zarr_arrays_of_another_form(tmp_path, array):
    fails(
        zarr_group(tmp_path / "g", X=array),
        rf"g/X' is {array.dtype} of shape .*; it must be numbers \[b, d\], d not 0$",
    )


def test_groups_without_rows(tmp_path):
    fails(zarr_group(tmp_path / "a"), r"a' has no array; a Zarr group must have X \[n, d\]$")
    fails(zarr_group(tmp_path / "b", Z=X), r"b' has 'Z'; a Zarr group must have X \[n, d\]$")
    zarr_group(tmp_path / "c")
    zarr_group(tmp_path / "c" / "X", X=X)
    fails(tmp_path / "c", r"c/X' is a Zarr group; it must be an array \[n, d\]$")


def test_different_widths(tmp_path):
    fails(
        npy(tmp_path / "x", a=X, b=X[:, :2]),
        r"x/b\.npy' has 2 columns, and .*x/a\.npy' has 3; all blocks must have as many$",
    )


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"f0": [1]},
            r"b\.parquet' has no column where .*a\.parquet' has the feature 'f1'; all blocks must",
        ),
        (
            {"f1": [1], "f0": [1]},
            r"b\.parquet' has the feature 'f1' where .*a\.parquet' has the feature 'f0'; all blocks must",
        ),
        (
            {"f0": [1], "f1": ["x"]},
            r"b\.parquet' has the column 'f1' of texts where .*a\.parquet' has the feature 'f1'; all blocks must",
        ),
        ({"f0": ["x"], "f1": ["x"]}, r"b\.parquet' has no columns of numbers to be features"),
        (
            {"f0": [1], "tags": ["x"], "label": ["x"]},
            r"b\.parquet' has the columns 'label', 'tags'",
        ),
    ],
)
def test_different_columns(tmp_path, columns, words):
    parquet(tmp_path / "a.parquet", f0=[1], f1=[2])
    fails(parquet(tmp_path / "b.parquet", **columns), words)


def test_columns_of_numbers_elsewhere(tmp_path):
    parquet(tmp_path / "a.parquet", f0=[1], f1=["x"])
    parquet(tmp_path / "b.parquet", f0=["x"], f1=[1])
    fails(
        tmp_path,
        r"b\.parquet' has the column 'f0' of texts where .*a\.parquet' has the feature 'f0'; all blocks must",
    )


@pytest.mark.parametrize("name", ["a.npy", "a.parquet"])
@pytest.mark.parametrize("content", [b"", b"nothing of the kind", "half", "all but a byte"])
def test_damaged_blocks(tmp_path, name, content):
    if name == "a.parquet":
        parquet(tmp_path / name, **features(X))
    else:
        npy(tmp_path, a=X)
    path = tmp_path / name
    table = blocks.open_folder(tmp_path)
    whole = path.read_bytes()
    path.write_bytes({"half": whole[: len(whole) // 2], "all but a byte": whole[:-1]}.get(content, content))
    words = rf"{name}' is not a whole ({'Parquet file' if name == 'a.parquet' else '.npy file of numbers'}): "
    fails(tmp_path, words)
    with pytest.raises(DataError, match=words):
        read(table)


def test_an_archive_is_no_block(tmp_path):
    np.savez(tmp_path / "a.npz", X=X)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    fails(tmp_path, r"a\.npy' is not a whole \.npy file of numbers: ")


def test_a_header_of_another_version(tmp_path):
    with open(tmp_path / "a.npy", "wb") as file:
        np.lib.format.write_array(file, X, version=(3, 0))
    fails(
        tmp_path,
        r"a\.npy' is not a whole \.npy file of numbers: version \(3, 0\) of the format",
    )


def test_damaged_rows_of_a_table(tmp_path):
    path = parquet(tmp_path / "a.parquet", 1000, f0=np.random.default_rng(0).normal(size=1000)) / "a.parquet"
    table = blocks.open_folder(tmp_path)
    content = bytearray(path.read_bytes())
    content[4:60] = bytes(56)
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.parquet' is not a whole Parquet file: "):
        read(table)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_damaged_zarr_arrays(tmp_path, zarr_format):
    folder = zarr_array(tmp_path / "z", X, zarr_format)
    table = blocks.open_folder(folder)
    for path in folder.rglob("*"):
        if path.is_file() and "z" not in path.name:
            path.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match="z' is not a whole Zarr array: "):
        read(table)
    mark = folder / ("zarr.json" if zarr_format == 3 else ".zarray")
    mark.write_bytes(b"{")
    fails(folder, "z' is not a whole Zarr array: ")
    mark.unlink()
    with pytest.raises(DataError, match=r"z' is missing; put it back$"):
        read(table)


@pytest.mark.parametrize("kind", ["npy", "parquet"])
def test_missing_blocks(tmp_path, kind):
    table = blocks.open_folder(write(kind, tmp_path / "x", X))
    name = table.blocks[3].name
    (tmp_path / "x" / name).unlink()
    with pytest.raises(DataError, match=rf"{name}' is missing; put it back$"):
        read(table)
    with pytest.raises(DataError, match=rf"{name}' is missing; put it back$"):
        table.fingerprint()
    assert len(read(table, range(8))) == 8


def test_a_link_that_leads_nowhere_is_a_missing_block(tmp_path):
    (npy(tmp_path / "x", a=X) / "b.npy").symlink_to(tmp_path / "gone.npy")
    fails(tmp_path / "x", r"b\.npy' is missing; put it back$")


def test_a_link_out_of_the_folder(tmp_path):
    (npy(tmp_path / "x", a=X[:5]) / "b.npy").symlink_to(npy(tmp_path / "y", c=X[5:]) / "c.npy")
    check_rows(blocks.open_folder(tmp_path / "x"), np.arange(N_ROWS))


def test_a_file_that_cannot_be_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(npy(tmp_path, a=X))  # the names of sockets are short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("b.npy")
        fails(tmp_path, r"b\.npy' cannot be read: \[Errno \d+\]")


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_that_changed(tmp_path, kind):
    folder = tmp_path / "x"
    table = blocks.open_folder(write(kind, folder, X))
    changes = [(np.vstack([X, X[:1]]), r" has \d+ rows, and had \d+ when the folder was opened; open it again")]
    if kind == "parquet":
        changes.append((X[:, :2], r"8\.parquet' has other columns than when the folder was opened; open it again$"))
    else:
        changes.append((X[:, :2], r" has 2 columns, and had 3 when the folder was opened; open it again"))
    for number, (other, words) in enumerate(changes):
        folder.rename(tmp_path / f"old{number}")
        write(kind, folder, other)
        with pytest.raises(DataError, match=words):
            read(table)


def test_a_label_column_that_went(tmp_path):
    table = blocks.open_folder(parquet(tmp_path / "a.parquet", f0=[1.0], label=["x"]))
    parquet(tmp_path / "a.parquet", f0=[1.0])
    with pytest.raises(DataError, match=r"a\.parquet' has other columns than when the folder was opened"):
        table.labels()


@pytest.mark.parametrize(
    ("package", "name", "words"),
    [
        ("pyarrow", "a.parquet", r"^reading Parquet files needs pyarrow: pip install pyarrow$"),
        ("zarr", "zarr.json", r"^reading Zarr arrays needs zarr: pip install zarr$"),
    ],
)
def test_without_the_package(tmp_path, monkeypatch, package, name, words):
    original = builtins.__import__

    def without(module, *rest):
        if module.split(".")[0] == package:
            raise ImportError(module)
        return original(module, *rest)

    for module in [module for module in sys.modules if module.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(builtins, "__import__", without)
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(ImportError, match=words):
        blocks.open_folder(tmp_path)


# Which folders are meant, and which table is which


def test_folders_of_something_else(tmp_path):
    assert not blocks.is_folder_of_blocks(tmp_path)
    assert not blocks.is_folder_of_blocks(tmp_path / "nowhere")
    for name in ("README.txt", ".a.npy", "_a.parquet", "a.npz"):
        (tmp_path / name).write_bytes(b"")
        assert not blocks.is_folder_of_blocks(tmp_path)
    (tmp_path / "a.npy").write_bytes(b"")
    assert blocks.is_folder_of_blocks(tmp_path)
    assert not blocks.is_folder_of_blocks(tmp_path / "a.npy")
    for suffix in sources.PICTURE_FILES:
        path = tmp_path / f"picture{suffix.upper()}"
        path.write_bytes(b"")
        assert not blocks.is_folder_of_blocks(tmp_path)
        path.unlink()


@pytest.mark.parametrize("kind", KINDS)
def test_fingerprint_of_a_folder(tmp_path, kind):
    folder = write(kind, tmp_path / "x", X)
    table = blocks.open_folder(folder)
    before = table.fingerprint()
    assert before == blocks.open_folder(folder).fingerprint()
    folder.rename(tmp_path / "y")
    assert before == blocks.open_folder(tmp_path / "y").fingerprint()
    files = [path for path in (tmp_path / "y").rglob("*") if path.is_file()]
    os.utime(max(path for path in files if not path.name.startswith((".z", "zarr"))), ns=(0, 12345))
    assert before != blocks.open_folder(tmp_path / "y").fingerprint()


def test_fingerprint_of_an_array():
    found = {
        blocks.ArrayTable(array).fingerprint()
        for array in (X, X.copy(), np.asfortranarray(X), X.astype(float), X.reshape(3, -1), X + 1)
    }
    assert len(found) == 4
