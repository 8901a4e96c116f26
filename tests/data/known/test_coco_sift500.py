import numpy as np
import pytest

from gphash.data.downloads import DataMissingError
from gphash.data.known import coco_sift500
from gphash.files import DataError

from .official import snapshot, write_coco


def test_the_layout(tmp_path, monkeypatch):
    arrays = write_coco(tmp_path, monkeypatch)
    tmp_path.chmod(0o555)
    before = snapshot(tmp_path)
    data = coco_sift500.load(tmp_path)
    assert snapshot(tmp_path) == before
    assert data.name == "COCO-SIFT500"
    assert len(data.classes) == 17
    assert "person" not in data.classes
    assert data.classes[0] == "bicycle"
    rows = np.flatnonzero(arrays["Y"][:, 1:].any(axis=1))
    order = rows[np.random.default_rng(0).permutation(len(rows))]
    for split, part in ((data.train, order[:-10]), (data.test, order[-10:])):
        counts = arrays["X"][part].astype(float)
        wanted = np.sqrt(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1))
        np.testing.assert_allclose(split.X, wanted, rtol=1e-6)
        assert split.X.dtype == np.float32
        np.testing.assert_array_equal(split.y, arrays["Y"][part, 1:])
        assert split.y.any(axis=1).all()
    assert data.checksum == coco_sift500.load(tmp_path).checksum


def test_an_altered_or_truncated_file_is_named(tmp_path, monkeypatch):
    write_coco(tmp_path, monkeypatch)
    path = tmp_path / coco_sift500.FILE
    whole = path.read_bytes()
    for content in (whole[:-1], b"", bytes([whole[0] ^ 1]) + whole[1:]):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"coco-sift500\.npz' is damaged or another file"):
            coco_sift500.load(tmp_path)
    monkeypatch.setattr(coco_sift500, "MAX_FILE_BYTES", 100)
    path.write_bytes(whole)
    with pytest.raises(DataError, match="holds more than 100"):
        coco_sift500.load(tmp_path)


def test_missing(tmp_path):
    with pytest.raises(DataMissingError, match=r"coco-sift500\.npz.*\n.*no public address"):
        coco_sift500.load(tmp_path)
