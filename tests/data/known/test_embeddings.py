"""Data sets of embeddings, one file each."""

import hashlib

import numpy as np
import pytest

from gphash.data.downloads import DataMissingError
from gphash.data.known import cifar10_resnet50, jeopardy
from gphash.files import DataError


def write(module, folder, monkeypatch, **arrays):
    path = folder / module.FILE
    np.savez_compressed(path, **arrays)
    monkeypatch.setattr(module, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    return arrays


def test_jeopardy(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    monkeypatch.setattr(jeopardy, "N_TRAIN", 8)
    X, y = generator.standard_normal((10, 6)).astype(np.float16), np.arange(10, dtype=np.int16) % 2
    write(jeopardy, tmp_path, monkeypatch, X=X, y=y, classes=np.array(["ART", "FOOD"]))
    data = jeopardy.load(tmp_path)
    assert (data.train.X.shape, data.test.X.shape) == ((8, 6), (2, 6))
    assert data.train.X.dtype == np.float32
    np.testing.assert_array_equal(np.concatenate([data.train.X, data.test.X]), X)
    assert data.test.y.tolist() == [0, 1]
    assert data.classes == ("ART", "FOOD")


def test_cifar10_resnet50(tmp_path, monkeypatch):
    X, y = np.arange(24, dtype=np.float16).reshape(12, 2), np.arange(12, dtype=np.int16) % 10
    write(cifar10_resnet50, tmp_path, monkeypatch, X=X, y=y, n_train=np.int64(9))
    data = cifar10_resnet50.load(tmp_path)
    assert (data.train.n_rows, data.test.n_rows) == (9, 3)
    assert [data.classes[label] for label in data.test.y] == ["truck", "airplane", "automobile"]
    np.testing.assert_array_equal(data.test.X, X[9:])


@pytest.mark.parametrize("module", [jeopardy, cifar10_resnet50])
def test_a_file_that_is_missing_or_another_is_named(tmp_path, module):
    with pytest.raises(DataMissingError, match=rf"{module.FILE}.*\n.*no public address"):
        module.load(tmp_path)
    (tmp_path / module.FILE).write_bytes(b"PK")
    with pytest.raises(DataError, match="is damaged or another file"):
        module.load(tmp_path)
