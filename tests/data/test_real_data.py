"""The data sets themselves, where the environment variable GPHASH_DATA names a folder that has them."""

import os
from pathlib import Path

import numpy as np
import pytest

from gphash.data import downloads
from gphash.data.downloads import DataMissingError
from gphash.data.known import cifar10, cifar10_resnet50, coco_sift500, jeopardy, mnist, nuswide
from tests.data.known.official import snapshot

pytestmark = pytest.mark.slow


def load(module, **options):
    folder = os.environ.get(downloads.VARIABLE)
    if not folder:
        pytest.skip(f"{downloads.VARIABLE} names no data folder")
    before = snapshot(Path(folder))
    try:
        data = module.load(download=False, **options)
    except DataMissingError as error:
        pytest.skip(f"{module.NAME} is not in {downloads.VARIABLE}: {', '.join(error.files)}")
    assert snapshot(Path(folder)) == before
    return data


def test_mnist():
    data = load(mnist)
    assert data.train.X.shape == (60_000, 784)
    assert data.test.X.shape == (10_000, 784)
    assert data.train.y[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert data.train.X.max() == 1
    assert data.checksum == "474311efcf1fd213e64768801dc6195673bffb8385179d6c55cd8748b9e2e8ca"


def test_cifar10():
    data = load(cifar10)
    assert data.train.images.shape == (50_000, 32, 32, 3)
    assert data.test.images.shape == (10_000, 32, 32, 3)
    assert np.bincount(data.train.y).tolist() == [5000] * 10
    assert np.bincount(data.test.y).tolist() == [1000] * 10
    assert [data.classes[label] for label in data.train.y[:3]] == ["frog", "truck", "truck"]
    # Ships have more blue than red; frogs do not.
    blue = data.test.images.mean(axis=(1, 2)) @ [-1.0, 0.0, 1.0]
    assert blue[data.test.y == 8].mean() > 5 > 0 > blue[data.test.y == 6].mean()
    assert data.checksum == "5fdcf57d170bdbc7da569af1dabd64d7d3c7507e9e7aa861fc7b691d5355c232"


def test_coco_sift500():
    data = load(coco_sift500)
    assert data.train.X.shape == (12_925, 500)
    assert data.test.X.shape == (3_000, 500)
    assert data.train.y.shape[1] == data.test.y.shape[1] == len(data.classes) == 17
    np.testing.assert_allclose((data.train.X**2).sum(axis=1), 1, rtol=1e-5)
    tags = np.concatenate([data.train.y, data.test.y]).astype(np.float32)
    shared = sum(np.count_nonzero(tags[start : start + 1000] @ tags.T) for start in range(0, len(tags), 1000))
    n_rows = len(tags)
    assert round((shared - n_rows) / (n_rows * (n_rows - 1)), 4) == 0.1646
    assert data.checksum == "9c90189705cea35d6f2e494b27fd9cb963baf13e8e737cc411e20b547e871eb3"


def test_jeopardy():
    data = load(jeopardy)
    assert (data.train.X.shape, data.test.X.shape) == ((8000, 1536), (2000, 1536))
    assert len(data.classes) == 40
    assert np.bincount(np.concatenate([data.train.y, data.test.y])).min() == 188
    np.testing.assert_allclose(np.linalg.norm(data.test.X, axis=1), 1, atol=1e-2)


def test_cifar10_resnet50():
    data = load(cifar10_resnet50)
    assert (data.train.X.shape, data.test.X.shape) == ((25_000, 128), (10_000, 128))
    assert np.bincount(data.test.y).tolist() == [1000] * 10


def test_nuswide():
    data = load(nuswide, paper_test=True)
    assert data.train.X.shape == (161_789, 500)
    assert data.test.X.shape == (10_000, 500)
    assert len(data.classes) == 81
