import gzip
import http.server
import threading
from functools import partial

import numpy as np
import pytest

from gphash.data.downloads import DataMissingError
from gphash.data.known import mnist
from gphash.files import DataError

from .official import md5, mnist_files, snapshot, write_mnist


@pytest.mark.parametrize("packed", [True, False])
def test_the_official_layout(tmp_path, monkeypatch, packed):
    files = mnist_files(monkeypatch)
    write_mnist(tmp_path, files, packed)
    tmp_path.chmod(0o555)
    before = snapshot(tmp_path)
    data = mnist.load(tmp_path)
    assert snapshot(tmp_path) == before
    assert data.name == "MNIST"
    assert data.classes == tuple("0123456789")
    for split, names, n_rows in ((data.train, mnist.TRAIN, 12), (data.test, mnist.TEST, 5)):
        assert split.images.shape == (n_rows, 28, 28)
        assert split.images.dtype == np.uint8
        assert split.images.tobytes() == files[names[0]][16:]
        assert split.y.tolist() == list(files[names[1]][8:])
        assert split.y.dtype == np.int64
        assert split.X.dtype == np.float32
        np.testing.assert_array_equal(split.X * 255, split.images.reshape(n_rows, 784))
        assert split.n_rows == n_rows
        assert split._replace(X=None).X is None


def test_the_checksum_is_of_the_content_and_not_of_its_packing(tmp_path, monkeypatch):
    files = mnist_files(monkeypatch)
    (tmp_path / "packed").mkdir()
    (tmp_path / "open").mkdir()
    write_mnist(tmp_path / "packed", files)
    write_mnist(tmp_path / "open", files, packed=False)
    first = mnist.load(tmp_path / "packed").checksum
    assert first == mnist.load(tmp_path / "open").checksum
    write_mnist(tmp_path / "open", mnist_files(monkeypatch, n_train=13), packed=False)
    assert first != mnist.load(tmp_path / "open").checksum


@pytest.mark.parametrize("fault", ["altered", "truncated", "other"])
def test_a_damaged_file_is_named(tmp_path, monkeypatch, fault):
    files = mnist_files(monkeypatch)
    write_mnist(tmp_path, files)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    content = bytearray(path.read_bytes())
    if fault == "altered":
        content[len(content) // 2] ^= 1
    elif fault == "truncated":
        del content[-100:]
    else:
        content = gzip.compress(files["t10k-images-idx3-ubyte"][:-1] + b"?")
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"t10k-images-idx3-ubyte\.gz' is (damaged|truncated)"):
        mnist.load(tmp_path)


@pytest.mark.parametrize("packed", [True, False])
def test_a_bomb_is_not_read(tmp_path, monkeypatch, packed):
    write_mnist(tmp_path, mnist_files(monkeypatch), packed)
    monkeypatch.setattr(mnist, "MAX_BYTES", 1000)
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte(\.gz)?' holds more than 1000 bytes"):
        mnist.load(tmp_path)


def test_missing_files_are_named_with_their_addresses(tmp_path, monkeypatch):
    files = mnist_files(monkeypatch)
    write_mnist(tmp_path, {name: files[name] for name in mnist.TRAIN}, packed=False)
    with pytest.raises(DataMissingError, match=r"2 files are missing.*t10k-images.*t10k-labels") as caught:
        mnist.load(tmp_path, download=False)
    assert caught.value.files == ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
    assert f"download {mnist.ADDRESSES[0]}t10k-images-idx3-ubyte.gz" in str(caught.value)
    assert "train" not in str(caught.value).replace(str(tmp_path), "")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments):
        pass


def test_what_is_missing_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    files = mnist_files(monkeypatch)
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    write_mnist(there, files)
    sums = {name: (md5(files[name]), md5((there / f"{name}.gz").read_bytes())) for name in files}
    monkeypatch.setattr(mnist, "MD5", sums)
    calls = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(there))) as server:
        monkeypatch.setattr(mnist, "ADDRESSES", (f"http://127.0.0.1:{server.server_port}/",))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        data = mnist.load(here, progress=lambda *call: calls.append(call))
        server.shutdown()
        thread.join()
    assert data.train.n_rows == 12
    assert len([call for call in calls if call[0] == call[1]]) == 4
    assert mnist.load(here, download=False).checksum == data.checksum
