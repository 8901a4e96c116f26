import os

import numpy as np
import pytest

from gphash.data.downloads import DataMissingError
from gphash.data.known import cifar10
from gphash.files import DataError

from .official import cifar10_archive, cifar10_files, snapshot


def write(folder, files):
    (folder / cifar10.FOLDER).mkdir()
    for name, content in files.items():
        (folder / cifar10.FOLDER / name).write_bytes(content)


@pytest.mark.parametrize("packed", [True, False])
def test_the_official_layout(tmp_path, monkeypatch, packed):
    files = cifar10_files(monkeypatch)
    # The order in the archive is not that of the batches.
    (cifar10_archive if packed else write)(tmp_path, dict(reversed(files.items())))
    tmp_path.chmod(0o555)
    before = snapshot(tmp_path)
    data = cifar10.load(tmp_path)
    assert snapshot(tmp_path) == before
    assert data.name == "CIFAR-10"
    assert data.train.X is None
    assert data.test.X is None
    assert data.train.images.shape == (35, 32, 32, 3)
    assert data.test.images.shape == (7, 32, 32, 3)
    third = files["data_batch_3.bin"]
    start = 2 * cifar10.RECORD_BYTES  # record 2 of the third batch is row 14 + 2
    assert data.train.y[16] == third[start]
    for row, column, colour in ((0, 0, 0), (3, 5, 1), (31, 30, 2)):
        assert data.train.images[16, row, column, colour] == third[start + 1 + 1024 * colour + 32 * row + column]
    assert data.test.y.tolist() == list(files["test_batch.bin"][:: cifar10.RECORD_BYTES])
    assert data.train.y.dtype == np.int64


def test_the_checksum_is_of_the_content_and_not_of_its_packing(tmp_path, monkeypatch):
    files = cifar10_files(monkeypatch)
    cifar10_archive(tmp_path, files)
    first = cifar10.load(tmp_path).checksum
    (tmp_path / cifar10.ARCHIVE).unlink()
    write(tmp_path, files)
    assert cifar10.load(tmp_path).checksum == first


def test_a_damaged_archive_is_named(tmp_path, monkeypatch):
    files = cifar10_files(monkeypatch)
    path = cifar10_archive(tmp_path, files)
    whole = path.read_bytes()
    path.write_bytes(whole[:-2000])
    with pytest.raises(DataError, match=rf"{cifar10.ARCHIVE}' is truncated"):
        cifar10.load(tmp_path)
    altered = bytearray(whole)
    altered[len(whole) // 2] ^= 1
    path.write_bytes(altered)
    with pytest.raises(DataError, match=cifar10.ARCHIVE):
        cifar10.load(tmp_path)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("fault", ["altered", "short"])
def test_a_damaged_file_is_named(tmp_path, monkeypatch, fault, packed):
    files = cifar10_files(monkeypatch)
    content = files["data_batch_4.bin"]
    files["data_batch_4.bin"] = content[:-1] if fault == "short" else content[:-1] + bytes([content[-1] ^ 1])
    (cifar10_archive if packed else write)(tmp_path, files)
    with pytest.raises(DataError, match=r"data_batch_4\.bin('.* is damaged|, or has them in another size)"):
        cifar10.load(tmp_path)


def test_an_unpacked_file_that_is_too_large_is_not_read_whole(tmp_path, monkeypatch):
    write(tmp_path, cifar10_files(monkeypatch))
    os.truncate(tmp_path / cifar10.FOLDER / "data_batch_1.bin", 1 << 34)
    with pytest.raises(DataError, match=r"data_batch_1\.bin' holds more than"):
        cifar10.load(tmp_path)


def test_missing(tmp_path, monkeypatch):
    with pytest.raises(DataMissingError, match=rf"{cifar10.ARCHIVE}.*\n.*download {cifar10.ADDRESS}"):
        cifar10.load(tmp_path / "nowhere", download=False)
    assert not (tmp_path / "nowhere").exists()
    files = cifar10_files(monkeypatch)
    del files["test_batch.bin"]
    cifar10_archive(tmp_path, files)
    with pytest.raises(DataError, match=r"lacks cifar-10-batches-bin/test_batch\.bin"):
        cifar10.load(tmp_path)
