"""Collections of tables: what their columns say of the rows stays with the items, whatever file they come from."""

import numpy as np
import pytest

from gphash.collection.collection import Collection
from gphash.data import blocks
from gphash.data import sources as reading
from gphash.data.headers import Roles
from tests.collection import sources

pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
pd = pytest.importorskip("pandas")

N_ROWS = 60
ROLES = Roles(label="category", key="sku", items=("price",))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.gph"
    sources.hasher().save(path)
    return path


def frame():
    """Digits as products, some without a category or a price."""
    whole = sources.of_digits(N_ROWS)
    found = pd.DataFrame(whole.X, columns=[f"p{column}" for column in range(64)])
    found["sku"] = [f"sku-{row}" for row in range(N_ROWS)]
    found["category"] = [None if row % 7 == 3 else f"digit {label}" for row, label in enumerate(whole.y)]
    found["Title"] = [f"Number {row}" for row in range(N_ROWS)]
    found["price"] = [None if row == 5 else row / 2 for row in range(N_ROWS)]
    return found


def written(folder, table, kind):
    """What a collection is made of."""
    if kind == "csv":
        table.to_csv(folder / "t.csv", index=False)
        return reading.read(folder / "t.csv", roles=ROLES)
    if kind == "parquet":
        table.to_parquet(folder / "t.parquet", index=False)
        return reading.read(folder / "t.parquet", roles=ROLES)
    (folder / "blocks").mkdir()
    for number, part in enumerate((table[:25], table[25:26], table[26:])):
        part.to_parquet(folder / "blocks" / f"{number}.parquet", index=False)
    return blocks.open_folder(folder / "blocks", ROLES)


@pytest.mark.parametrize("kind", ["csv", "parquet", "blocks"])
def test_items_of_a_table(tmp_path, model, kind):
    table = frame()
    with Collection.create(tmp_path / "shop.gphash", model, written(tmp_path, table, kind)) as shop:
        assert len(shop) == N_ROWS
        assert shop.layout.keys == "text"
        assert shop.layout.columns == {"price": "real"}
        assert shop.classes == tuple(sorted(table.category.dropna().unique()))
        for row in (0, 3, 5, 25, 40, N_ROWS - 1):
            item = shop.item(f"sku-{row}")
            assert item.labels == (() if row % 7 == 3 else (table.category[row],))
            wanted = {"title": f"Number {row}"} | ({} if row == 5 else {"price": row / 2})
            assert item.values == wanted
            codes = shop.model.encode(table.iloc[[row], :64].to_numpy(np.float32))
            assert shop.query(key=f"sku-{row}").code.tolist() == codes[0].tolist()
        found = shop.search(shop.query(key="sku-0"), 5, where="price < ? and label is not null", params=[10])
        assert all(hit.values["price"] < 10 and hit.labels for hit in found)


@pytest.mark.parametrize("kind", ["csv", "parquet", "blocks"])
def test_whole_numbers_as_keys(tmp_path, model, kind):
    """They need not follow the order of the rows."""
    table, keys = frame(), np.random.default_rng(0).permutation(1000)[:N_ROWS] - 100
    table["sku"] = keys
    with Collection.create(tmp_path / "shop.gphash", model, written(tmp_path, table, kind), writable=True) as shop:
        assert shop.layout.keys == "integer"
        for row in (0, 24, 25, 26, N_ROWS - 1):
            key = int(keys[row])
            assert shop.item(key).values["title"] == f"Number {row}"
            assert shop.search(shop.query(key=key), N_ROWS, radius=0)
            code = shop.model.encode(table.iloc[[row], :64].to_numpy(np.float32))[0]
            assert shop.query(key=key).code.tolist() == code.tolist()
        found = [hit.key for hit in shop.search(table.iloc[0, :64].to_numpy(np.float32), N_ROWS)]
        assert sorted(found) == sorted(keys.tolist())
        shop.remove(keys[:30].tolist())
        shop.compact()
        found = [hit.key for hit in shop.search(table.iloc[0, :64].to_numpy(np.float32), N_ROWS)]
        assert sorted(found) == sorted(keys[30:].tolist())


def test_rows_of_a_table_are_added(tmp_path, model):
    table = frame()
    whole = written(tmp_path, table[:50], "csv")
    with Collection.create(tmp_path / "shop.gphash", model, whole, writable=True) as shop:
        table[50:].to_csv(tmp_path / "more.csv", index=False)
        keys = shop.add(reading.read(tmp_path / "more.csv", roles=ROLES))
        assert keys == [f"sku-{row}" for row in range(50, N_ROWS)]
        assert shop.item("sku-52").labels == ()
        assert shop.item("sku-53").values == {"title": "Number 53", "price": 26.5}


def test_a_cluster_keeps_keys_and_items(tmp_path, model, cluster):
    table, keys = frame(), np.random.default_rng(1).permutation(1000)[:N_ROWS]
    table["sku"] = keys
    rows = written(tmp_path, table, "blocks")
    with Collection.create(tmp_path / "shop.gphash", model, rows, executor=cluster.address) as shop:
        for row in range(0, N_ROWS, 7):
            item = shop.item(int(keys[row]))
            assert (item.values["title"], item.labels) == (
                f"Number {row}",
                () if row % 7 == 3 else (table.category[row],),
            )
