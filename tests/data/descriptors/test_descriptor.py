"""How one picture becomes a row: like the rows of the data sets, whatever the size of the picture."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.data import sources
from gphash.data.descriptors import gist
from gphash.data.descriptors.bag_of_words import BagOfWords
from gphash.data.descriptors.descriptor import DESCRIPTORS, Descriptor
from gphash.data.descriptors.gist import Gist
from gphash.data.descriptors.greys import Pixels
from gphash.data.known import digits

PIXELS = Pixels((8, 8))


def picture(height, width, *channels):
    return np.random.default_rng(height).integers(0, 256, (height, width, *channels), dtype=np.uint8)


@pytest.mark.parametrize("shape", [(32, 40), (32, 40, 3)])
def test_gist(shape):
    image = picture(*shape)
    descriptor = Gist()
    row = descriptor.describe(image)
    np.testing.assert_array_equal(row, gist.describe_one(image))
    assert row.shape == (descriptor.n_features,) == (512,)


def test_pixels_of_the_wanted_size_are_only_divided():
    image = picture(8, 8)
    row = PIXELS.describe(image)
    assert row.dtype == np.float32
    np.testing.assert_array_equal(row, image.ravel() / np.float32(255))
    # A grey picture that comes as three equal channels is the same picture.
    np.testing.assert_array_equal(PIXELS.describe(np.stack([image] * 3, axis=2)), row)
    assert PIXELS.n_features == 64


def test_pixels_are_means_of_areas_and_channels():
    image = picture(24, 16, 3)
    blocks = image.astype(float).mean(axis=2).reshape(8, 3, 8, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(PIXELS.describe(image), blocks.ravel() / 255, rtol=1e-5)


@given(st.integers(1, 40), st.integers(1, 40))
def test_pixels_of_any_size_keep_the_mean(height, width):
    image = picture(height, width)
    row = Pixels((5, 7)).describe(image)
    assert row.shape == (35,)
    assert row.mean() * 255 == pytest.approx(image.mean(), rel=1e-4, abs=1e-4)


def test_digits_are_described_as_they_are():
    data = digits.load()
    for row, image in zip(data.test.X[:50], data.test.images, strict=False):
        np.testing.assert_allclose(PIXELS.describe(image), row, atol=0.002)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((8, 8)), "pixels has dtype float64; it must be uint8"),
        (np.zeros((8, 8, 5), np.uint8), r"pixels has shape \(8, 8, 5\); it must be"),
        (np.zeros((0, 8), np.uint8), r"pixels has shape \(0, 8\); it must be"),
        (np.zeros(8, np.uint8), r"pixels has shape \(8,\); it must be"),
    ],
)
def test_no_picture(image, words):
    with pytest.raises(ValueError, match=words):
        PIXELS.describe(image)


@pytest.mark.parametrize(
    "descriptor",
    [
        Gist(),
        Gist((32, 32)),
        PIXELS,
        Pixels((28, 20)),
        BagOfWords(np.random.default_rng(0).normal(size=(5, 128)).astype("f4")),
    ],
)
def test_meta_goes_through_json(descriptor):
    assert Descriptor.from_meta(json.loads(json.dumps(descriptor.to_meta()))) == descriptor


def test_no_descriptor_is_none():
    assert Descriptor.from_meta(None) is None


@pytest.mark.parametrize(
    "meta",
    [
        {},
        {"name": "sift", "shape": []},
        {"name": "gist", "shape": [], "more": 1},
        {"name": "gist", "shape": [8]},
        {"name": "pixels", "shape": []},
        {"name": "pixels", "shape": [8]},
        {"name": "pixels", "shape": [8, 0]},
        {"name": "pixels", "shape": [8, True]},
        {"name": "pixels", "shape": [8, 2.0]},
        {"name": "pixels", "shape": [8, 10**9]},
        {"name": "pixels", "shape": "88"},
        {"name": ["pixels"], "shape": [8, 8]},
        {"name": "bag-of-words"},
        {"name": "bag-of-words", "words": [1, 2]},
        {"name": "bag-of-words", "words": {"shape": [1, 128], "float32": "AAAA"}},
        {"name": "bag-of-words", "words": {"shape": [1, 1], "float32": "AAAAAA=="}},
        {"name": "bag-of-words", "words": {"shape": [1, 128], "float32": "/////w==" * 128}},
        ["pixels"],
    ],
)
def test_foreign_meta_is_refused(meta):
    with pytest.raises(ValueError, match=r"^descriptor"):
        Descriptor.from_meta(meta)


def test_gist_of_a_fixed_size():
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    fixed = Gist((32, 32))
    np.testing.assert_array_equal(fixed.describe(image), gist.describe_one(image))
    # The same picture, larger, is the same row, which it is not for gist alone.
    larger = image.repeat(3, axis=0).repeat(3, axis=1)
    np.testing.assert_allclose(fixed.describe(larger), gist.describe_one(image), atol=1e-5)
    assert np.abs(gist.describe_one(larger) - gist.describe_one(image)).max() > 0.01


@dataclass(frozen=True)
class Mean(Descriptor):
    """The mean of each third of a picture, counted from the top."""

    name = "mean"
    n_features = 3

    def describe(self, pixels):
        return np.array([part.mean() for part in np.array_split(pixels, 3)], dtype=np.float32)


def test_a_descriptor_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    DESCRIPTORS.register("mean", Mean)
    assert Descriptor.from_meta({"name": "mean"}) == Mean()
    images = np.random.default_rng(0).integers(0, 256, (5, 9, 9, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", images=images)
    for _ in range(2):
        found = sources.read(tmp_path / "a.npz", descriptor="mean")
        np.testing.assert_array_equal(found.X, [Mean().describe(image) for image in images])
        assert found.descriptor == Mean()
