"""For every extra, the one thing that it is for: `python .ci/extras.py NAME`, with the gphash that is installed.

`none` makes digits.gph and digits.gphash with nothing but the package itself; the others need them in their folder.
"""

import hashlib
import http.server
import json
import subprocess
import sys
import threading
import time
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from urllib.request import urlopen

import numpy as np

from gphash import Collection, GPHasher, HammingIndex, load
from gphash.data import sources


def none() -> None:
    """Learn, save, load, encode, search, and the command line."""
    data = sources.read("digits")
    hasher = GPHasher(8, n_inducing=50, n_starts=1, length_scale=0.9, signal_scale=4.0, random_state=0)
    hasher.fit(data.X[:500], data.y[:500]).save("digits.gph")
    assert (load("digits.gph").encode(data.X) == hasher.encode(data.X)).all()
    with Collection.create("digits.gphash", "digits.gph", data) as collection:
        assert len(collection.search(data.X[0], k=3)) == 3
    told = json.loads(gphash("search", "digits.gphash", "key:7", "--json"))
    assert told, "no neighbours"
    assert gphash("--version").split() == ["gphash", metadata.version("gphash")]


def plots() -> None:
    gphash("evaluate", "digits.gph", "digits:test", "--plots", "figures", "-o", "report.json")
    assert list(Path("figures").iterdir())


def images() -> None:
    from PIL import Image

    for label in ("dark", "light"):
        Path("photos", label).mkdir(parents=True)
        pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels // 2 if label == "dark" else pixels).save(Path("photos", label, "a.png"))
    assert sources.read("photos").X.shape == (2, 512)


def datasets() -> None:
    from gphash.data.downloads import RemoteFile, obtain

    Path("shelf").mkdir()
    Path("shelf", "a.bin").write_bytes(b"a file")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory="shelf")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        checksum = f"sha256:{hashlib.sha256(b'a file').hexdigest()}"
        address = f"http://127.0.0.1:{server.server_port}/a.bin"
        obtain("a set", [RemoteFile("a.bin", (address,), checksum, 100)], Path("got"))
        server.shutdown()
    assert Path("got", "a.bin").read_bytes() == b"a file"


def faiss() -> None:
    import faiss as engine

    packed = load("digits.gph").encode(sources.read("digits").X)
    handed = engine.IndexBinaryIDMap(engine.IndexBinaryFlat(8 * packed.shape[1]))
    handed.add_with_ids(packed, np.arange(len(packed)))
    ours = HammingIndex.build(packed, n_bits=8).search(packed[:5], k=3)
    assert (handed.search(packed[:5], 3)[0] == ours.distances).all()


def sift() -> None:
    from gphash.data.descriptors.bag_of_words import BagOfWords

    noise = np.random.default_rng(0).integers(0, 256, (4, 16, 16), dtype=np.uint8)
    pictures = noise.repeat(8, axis=1).repeat(8, axis=2)
    assert BagOfWords.fit(pictures, n_words=4).describe_all(pictures).shape == (4, 4)


def parquet() -> None:
    import pyarrow
    from pyarrow.parquet import write_table

    rows = {"a": [0.5, 1.5, 2.5], "b": [1.0, 2.0, 3.0], "label": ["x", "y", "x"]}
    write_table(pyarrow.table(rows), "rows.parquet")
    lines = [",".join(rows), *(",".join(map(str, row)) for row in zip(*rows.values(), strict=True))]
    Path("rows.csv").write_text("\n".join(lines))
    for name in ("rows.parquet", "rows.csv"):
        assert sources.read(name).X.shape == (3, 2)


def postgres() -> None:
    import psycopg_pool  # noqa: F401

    # Nobody listens there; the driver says so, and not that it is missing.
    ended = subprocess.run(command("info", "postgresql://me@127.0.0.1:1/shop?collection=photos"), capture_output=True)
    assert ended.returncode == 1, ended
    assert b"pip install" not in ended.stderr, ended.stderr
    assert b"Traceback" not in ended.stderr, ended.stderr


def cluster() -> None:
    from distributed import Client

    data = sources.read("digits")
    settings = {"n_inducing": 50, "n_starts": 1, "length_scale": 0.9, "signal_scale": 4.0, "random_state": 0}
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        there = GPHasher(8, **settings).fit(data.X[:500], data.y[:500], executor=client)
    assert (there.encode(data.X) == load("digits.gph").encode(data.X)).all()


def zarr() -> None:
    import zarr as chunks

    from gphash.data.blocks import open_folder

    X = np.arange(12, dtype=np.float32).reshape(6, 2)
    chunks.create_array("array", data=X, chunks=(4, 2))
    assert (open_folder("array").select(np.arange(6)).read() == X).all()


def onnx() -> None:
    import tokenizers  # noqa: F401

    gphash("export", "digits.gph", "-o", "digits.onnx")  # compared with the model before it is written


def serve() -> None:
    from uvicorn import Config, Server

    from gphash.server.service import create_app

    server = Server(Config(create_app("digits.gphash"), port=0, log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.05)
    address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    for path in ("/healthz", "/", "/collection", "/pictures/7"):
        with urlopen(address + path, timeout=60) as answer:
            assert answer.status == 200
    server.should_exit = True
    thread.join()


def demo() -> None:
    gphash("demo")
    assert Path("gphash-demo", "digits.gphash").is_dir()
    serve()


def docs() -> None:
    """Import what conf.py names; `make docs` builds the site."""
    names = "sphinx numpydoc pydata_sphinx_theme myst_parser sphinx_gallery sphinx_copybutton"
    for name in names.split():
        import_module(name)


def command(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("gphash")), *arguments]


def gphash(*arguments: str) -> str:
    return subprocess.run(command(*arguments), check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    globals()[sys.argv[1]]()
