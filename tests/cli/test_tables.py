"""Tables from the command line: columns by name, rows without a label, and what is said of columns."""

import numpy as np
import pytest

from gphash.collection.collection import Collection
from tests.cli.running import QUICK, gphash, inside, told
from tests.digits import X, y

pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
pd = pytest.importorskip("pandas")

# Shown as a remark, as everywhere else on the command line.
pytestmark = pytest.mark.filterwarnings("default:left out")

N_ROWS = 300
SHOP = ("--label-column", "category", "--key-column", "sku", "--item-column", "price")


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A folder with the same products as a file, as lists, and as blocks, and a model of them."""
    folder = tmp_path_factory.mktemp("shop")
    table = pd.DataFrame(X[:N_ROWS], columns=[f"p{column}" for column in range(64)])
    table["sku"] = [f"sku-{row}" for row in range(N_ROWS)]
    table["category"] = [None if row < 20 else f"digit {label}" for row, label in enumerate(y[:N_ROWS])]
    table["title"] = [f"Number {row}" for row in range(N_ROWS)]
    table["price"] = [None if row == 5 else row / 2 for row in range(N_ROWS)]
    table["nothing"] = None
    table.to_csv(folder / "shop.csv", index=False)
    lists = table.drop(columns=[f"p{column}" for column in range(64)])
    lists.assign(vector=list(X[:N_ROWS].astype(np.float32))).to_parquet(folder / "lists.parquet")
    (folder / "blocks").mkdir()
    for number, part in enumerate((table[:100], table[100:])):
        part.to_parquet(folder / "blocks" / f"{number}.parquet", index=False)
    gphash("fit", "shop.csv", *SHOP, "--bits", 8, "-q", "-o", "model.gph", *QUICK, cwd=folder)
    return folder


def test_data(shop):
    for name in ("shop.csv", "lists.parquet", "blocks"):
        found = told("data", name, *SHOP, cwd=shop)
        assert (found["rows"], found["features"], found["supervision"]) == (N_ROWS, 64, "labels")
        assert (found["unlabelled"], sum(found["classes"].values())) == (20, N_ROWS - 20)
        assert sorted(found["item_columns"]) == ["price", "title"]
        said = gphash("data", name, *SHOP, cwd=shop).stderr
        assert f"{name}: 64 features a row; item columns: " in said
        assert f"left out 1 column(s) of '{name}': column 'nothing': empty in every row" in said


@pytest.mark.parametrize("name", ["shop.csv", "blocks"])
def test_rows_without_a_label_are_not_learned_from(shop, tmp_path, name):
    found = gphash("fit", shop / name, *SHOP, "--bits", 8, "-o", "m.gph", *QUICK, cwd=tmp_path)
    assert f"left out 20 of {N_ROWS} rows, which have no label" in found.stderr.replace("\n", " ")
    assert f"rows                 {N_ROWS}" in found.stdout
    # A method that needs no labels takes all.
    if name == "shop.csv":
        assert told("fit", shop / name, *SHOP, "-m", "lsh", "-o", "l.gph", cwd=tmp_path)["rows"] == N_ROWS


def test_rows_without_a_label_are_not_judged(shop, tmp_path):
    found = told("evaluate", shop / "model.gph", shop / "shop.csv", *SHOP, cwd=tmp_path)
    assert found["protocol"]["queries"] == N_ROWS - 20


@pytest.mark.parametrize("name", ["shop.csv", "lists.parquet", "blocks"])
def test_index_and_search(shop, tmp_path, name):
    gphash("index", shop / "model.gph", shop / name, *SHOP, "-o", "c.gphash", cwd=tmp_path)
    with Collection.open(tmp_path / "c.gphash") as made:
        assert len(made) == N_ROWS
        assert made.item("sku-3").labels == ()
        assert made.item("sku-30").labels == (f"digit {y[30]}",)
        assert made.item("sku-30").values == {"title": "Number 30", "price": 15.0}
    one = told("search", "c.gphash", "key:sku-30", "--where", "price < ?", "--param", 20, cwd=tmp_path)["results"][0]
    assert all(hit["values"]["price"] < 20 for hit in one["neighbours"])


def test_encode_gives_the_same_codes(shop, tmp_path):
    for name in ("shop.csv", "lists.parquet"):
        gphash("encode", shop / "model.gph", shop / name, *SHOP, "-o", f"{name}.npy", cwd=tmp_path)
    gphash("encode", shop / "model.gph", shop / "blocks", *SHOP, "-o", "codes", cwd=tmp_path)
    wanted = np.load(tmp_path / "shop.csv.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "lists.parquet.npy"), wanted)
    parts = [np.load(tmp_path / "codes" / f"{number}.codes.npy") for number in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), wanted)


def test_add(shop, tmp_path):
    gphash("index", shop / "model.gph", shop / "shop.csv", *SHOP, "-o", "c.gphash", cwd=tmp_path)
    more = pd.read_csv(shop / "shop.csv")[:2].assign(sku=[17, 18], category=None, price=9)
    more.to_csv(tmp_path / "more.csv", index=False)
    found = told("add", "c.gphash", "more.csv", *SHOP, cwd=tmp_path)
    assert (found["added"], found["keys"]) == (2, ["17", "18"])
    with Collection.open(tmp_path / "c.gphash") as made:
        assert made.item("17").values == {"title": "Number 0", "price": 9.0}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("shop.csv", "--label-column", "kind"), 2, "--label-column 'kind': 'shop.csv' has no such column"),
        (("blocks", "--key-column", "kind"), 2, "--key-column 'kind': "),
        (("digits", "--key-column", "kind"), 2, "--key-column 'kind', but 'digits' is not a table"),
        (("shop.csv",), 1, "line 7, column 'price': empty; there must be a number in every row, unless"),
    ],
)
def test_bad_columns(shop, monkeypatch, arguments, code, words):
    monkeypatch.chdir(shop)
    found = inside("data", *arguments, columns=500)
    assert found.exit_code == code
    assert words in found.stderr
    assert "_column" not in found.stderr
