"""Descriptors of data sets: computed once, for files one by one, and without those that are no pictures."""

import importlib.util

import numpy as np
import pytest

from gphash.data import pictures
from gphash.data.dataset import Dataset, Split
from gphash.data.descriptors import bag_of_words, cache, described, gist
from gphash.data.descriptors.bag_of_words import BagOfWords
from gphash.data.descriptors.gist import Gist
from gphash.data.known import image_folder
from gphash.files import DataError

needs_opencv = pytest.mark.skipif(importlib.util.find_spec("cv2") is None, reason="needs OpenCV")


def scene(seed):
    rng = np.random.default_rng(seed)
    image = np.full((64 + seed % 7, 72, 3), 90, dtype=np.uint8)
    for _ in range(30):
        y, x = rng.integers(0, 52, size=2)
        image[y : y + rng.integers(4, 12), x : x + rng.integers(4, 12)] = rng.integers(0, 256, size=3)
    return image


def arrays(n=6):
    images = np.stack([scene(7 * number) for number in range(n)])
    y = np.arange(n) % 2
    halves = (Split(None, y[rows], images[rows]) for rows in (slice(0, n - 2), slice(n - 2, n)))
    return Dataset("toy", *halves, ("a", "b"), "none yet", "", "")


def paint(path, seed):
    Image = pytest.importorskip("PIL.Image", reason="needs the extra images")
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(scene(seed)).save(path)


@pytest.fixture
def folder(tmp_path):
    for number in range(5):
        paint(tmp_path / "zoo" / "cat" / f"{number}.png", number)
        paint(tmp_path / "zoo" / "dog" / f"{number}.png", 10 + number)
    return tmp_path / "zoo"


@pytest.fixture
def counted(monkeypatch):
    """How many pictures are described at each call."""
    calls = []
    real = Gist.describe_all

    def describe_all(self, images, n_jobs):
        assert not isinstance(images, list)
        rows = real(self, images, n_jobs)
        calls.append(len(rows))
        return rows

    monkeypatch.setattr(Gist, "describe_all", describe_all)
    return calls


def by_gist(data, folder, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "default_path", lambda: folder / "kept.sqlite")
        return described.with_features(data, "gist", **options)


def expected(split):
    return np.stack([gist.describe_one(pictures.open_picture(path)) for path in split.images])


def test_arrays(tmp_path, counted):
    data = arrays()
    found = by_gist(data, tmp_path)
    assert counted == [4, 2]
    np.testing.assert_array_equal(found.train.X, np.stack([gist.describe_one(image) for image in data.train.images]))
    assert found.features == "GIST of pictures brought to 64 × 72"
    again = by_gist(data, tmp_path)
    assert counted == [4, 2]
    np.testing.assert_array_equal(again.test.X, found.test.X)
    assert by_gist(found, tmp_path) is found


def test_paths_are_described_once(folder, tmp_path, counted, monkeypatch):
    monkeypatch.setattr(gist.Gist, "page", 3)
    data = image_folder.load(folder)
    found = by_gist(data, tmp_path / "kept", n_jobs=2)
    assert counted == [3, 3, 2, 2]
    for split, given in ((found.train, data.train), (found.test, data.test)):
        np.testing.assert_array_equal(split.X, expected(given))
        assert split.X.dtype == np.float32
        np.testing.assert_array_equal(split.y, given.y)
        assert split.images == given.images
    # Which pictures to test with changes nothing that is known about them.
    other = by_gist(image_folder.load(folder, seed=1), tmp_path / "kept")
    assert sum(counted) == 10
    np.testing.assert_array_equal(other.train.X, expected(other.train))


def test_of_a_folder_that_has_grown_the_new_picture_is_described(folder, tmp_path, counted):
    by_gist(image_folder.load(folder), tmp_path / "kept")
    assert sum(counted) == 10
    paint(folder / "cat" / "new.png", 99)
    (folder / "dog" / "copy.png").write_bytes((folder / "dog" / "0.png").read_bytes())
    found = by_gist(image_folder.load(folder), tmp_path / "kept")
    assert sum(counted) == 11
    assert found.train.n_rows + found.test.n_rows == 12
    np.testing.assert_array_equal(found.train.X, expected(found.train))
    np.testing.assert_array_equal(found.test.X, expected(found.test))


def test_a_bad_picture_loses_its_row(folder, tmp_path):
    data = image_folder.load(folder)
    bad = [data.train.images[0], data.train.images[3], data.test.images[1]]
    for path in bad:
        path.write_text("no picture")
    for _ in range(2):
        found = by_gist(data, tmp_path / "kept")
        assert [path for path, _ in found.skipped] == bad
        assert all("is not a picture" in reason for _, reason in found.skipped)
        for split, given in ((found.train, data.train), (found.test, data.test)):
            rows = [row for row, path in enumerate(given.images) if path not in bad]
            assert split.images == [given.images[row] for row in rows]
            np.testing.assert_array_equal(split.y, given.y[rows])
            np.testing.assert_array_equal(split.X, expected(split))


def test_no_picture_is_left(folder, tmp_path):
    data = image_folder.load(folder)
    for path in data.test.images:
        path.write_text("no picture")
    with pytest.raises(DataError, match=r"none of the 2 files is a picture .*not a picture of a known format"):
        by_gist(data, tmp_path / "kept")


def test_a_cache_folder_that_cannot_be_written(folder, tmp_path, counted):
    (tmp_path / "file").write_text("in the way")
    data = image_folder.load(folder)
    with pytest.warns(RuntimeWarning, match="cannot keep descriptors"):
        found = by_gist(data, tmp_path / "file" / "kept")
    np.testing.assert_array_equal(found.train.X, expected(data.train))
    by_gist(data, tmp_path / "file" / "kept")
    assert sum(counted) == 20


def test_neither_features_nor_images(tmp_path):
    empty = Split(None, np.zeros(2, dtype=int), None)
    with pytest.raises(ValueError, match="neither features nor images"):
        by_gist(arrays()._replace(train=empty), tmp_path)


@needs_opencv
@pytest.mark.parametrize("kind", ["arrays", "paths"])
def test_bags_of_words(request, tmp_path, monkeypatch, kind):
    data = arrays() if kind == "arrays" else image_folder.load(request.getfixturevalue("folder"))

    monkeypatch.setattr(cache, "default_path", lambda: tmp_path / "kept.sqlite")

    def by_words(data, **options):
        return described.with_features(data, "bag-of-words", **options)

    found = by_words(data, n_words=8, seed=3)

    def opened(split):
        return split.images if kind == "arrays" else [pictures.open_picture(path) for path in split.images]

    codebook = BagOfWords.fit(opened(data.train), n_words=8, seed=3)
    for split, given in ((found.train, data.train), (found.test, data.test)):
        counts = codebook.count(opened(given))
        np.testing.assert_array_equal(split.X, bag_of_words.weigh(counts))
        np.testing.assert_allclose((split.X**2).sum(axis=1), 1, rtol=1e-5)
    assert found.features == "bags of 8 SIFT words"

    for name in ("fit", "count"):
        monkeypatch.setattr(BagOfWords, name, None)
    again = by_words(data, n_words=8, seed=3)
    np.testing.assert_array_equal(again.test.X, found.test.X)
    assert by_words(found, n_words=8) is found
