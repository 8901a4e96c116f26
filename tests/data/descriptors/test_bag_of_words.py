"""Bags of visual words: what is counted, that nothing but the seed decides, and that OpenCV may be missing."""

import importlib.util
import sys

import numpy as np
import pytest

from gphash.data.descriptors import bag_of_words, greys
from gphash.data.descriptors.bag_of_words import BagOfWords

needs_opencv = pytest.mark.skipif(importlib.util.find_spec("cv2") is None, reason="needs OpenCV")


def scenes(n=6, seed=0):
    """Pictures of different sizes with corners and blobs, uint8, colour and grey in turn."""
    rng = np.random.default_rng(seed)
    images = []
    for number in range(n):
        height, width = rng.integers(60, 110, size=2)
        image = np.full((height, width, 3), 90.0)
        for _ in range(25):
            y, x = rng.integers(0, height - 12), rng.integers(0, width - 12)
            h, w = rng.integers(4, 12, size=2)
            image[y : y + h, x : x + w] = rng.integers(0, 256, size=3)
        images.append(image.astype(np.uint8) if number % 2 else image.mean(axis=2).astype(np.uint8))
    return images


@needs_opencv
def test_every_feature_counts_for_its_nearest_word():
    images = scenes()
    codebook = BagOfWords.fit(images, n_words=12, seed=0)
    counts = codebook.count(images)
    assert codebook.words.shape == (12, bag_of_words.DIMENSION)
    assert counts.dtype == codebook.words.dtype == np.float32
    for number, image in enumerate(images):
        features = bag_of_words._features(number, image).astype(float)
        assert len(features) > 10
        distances = ((features[:, None] - codebook.words[None].astype(float)) ** 2).sum(axis=2)
        np.testing.assert_array_equal(counts[number], np.bincount(distances.argmin(axis=1), minlength=12))


@needs_opencv
def test_500_words_unless_told_otherwise():
    codebook = BagOfWords.fit(scenes(16), seed=0, iterations=1)
    assert codebook.words.shape == (500, 128)


@needs_opencv
def test_the_seed_decides_and_the_number_of_threads_does_not():
    import cv2

    images = scenes(8)
    expected = BagOfWords.fit(images, n_words=10, seed=3, features_per_word=20, n_jobs=1)
    counts = expected.count(images, n_jobs=1)
    before = cv2.getNumThreads()
    try:
        for n_jobs, inner in [(2, 2), (5, 1), (-1, 4), (1, 4)]:
            cv2.setNumThreads(inner)
            codebook = BagOfWords.fit(iter(images), n_words=10, seed=3, features_per_word=20, n_jobs=n_jobs)
            np.testing.assert_array_equal(codebook.words, expected.words)
            np.testing.assert_array_equal(codebook.count(iter(images), n_jobs=n_jobs), counts)
    finally:
        cv2.setNumThreads(before)
    given = BagOfWords.fit(images, n_words=10, seed=np.random.default_rng(3), features_per_word=20)
    np.testing.assert_array_equal(given.words, expected.words)
    other = BagOfWords.fit(images, n_words=10, seed=4, features_per_word=20)
    assert not np.array_equal(other.words, expected.words)


@needs_opencv
def test_a_row_does_not_depend_on_the_others():
    images = scenes()
    codebook = BagOfWords.fit(images, n_words=9, seed=0)
    counts = codebook.count(images)
    np.testing.assert_array_equal(codebook.count(images[2:4]), counts[2:4])


@needs_opencv
@pytest.mark.parametrize(
    "image",
    [np.full((40, 50, 3), 200, np.uint8), np.zeros((1, 1)), np.zeros((3, 700)), np.eye(2)],
    ids=["constant", "a pixel", "narrow", "tiny"],
)
def test_a_picture_without_features_is_a_row_of_zeros(image):
    codebook = BagOfWords(np.random.default_rng(0).random((7, 128), dtype=np.float32))
    counts = codebook.count([image, *scenes(1), image])
    assert counts.shape == (3, 7)
    assert counts.sum(axis=1)[1] > 0
    np.testing.assert_array_equal(counts[[0, 2]], 0)
    np.testing.assert_array_equal(bag_of_words.weigh(counts)[[0, 2]], 0)


@needs_opencv
def test_exposure_and_type_do_not_matter():
    (image,) = scenes(1)
    codebook = BagOfWords.fit([image], n_words=5, seed=0)
    expected = codebook.count([image])
    np.testing.assert_array_equal(codebook.count([image / 1000 - 4]), expected)
    np.testing.assert_array_equal(codebook.count([image[:, :, None].astype(np.int32)]), expected)


@needs_opencv
def test_large_pictures_are_reduced():
    (image,) = scenes(1)
    large = np.kron(image, np.ones((9, 9), np.uint8))
    height, width = large.shape
    reduced = greys.reduce(large[None], bag_of_words.LONGEST, 1)
    assert max(reduced.shape) == bag_of_words.LONGEST < max(height, width)
    codebook = BagOfWords.fit([large], n_words=5, seed=0)
    np.testing.assert_array_equal(codebook.count([large]), codebook.count([reduced[0]]))


@needs_opencv
@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([], "images is empty; give at least one image"),
        ([np.eye(9), np.zeros(4)], r"images\[1\] has shape \(4,\); it must be \[H, W\]"),
        ([np.eye(9), np.full((9, 9), np.nan)], r"images\[1\] holds NaN"),
        ([np.zeros((9, 9))], "n_words=3, but the images have 0 features; give fewer words or more images"),
    ],
    ids=["nothing", "flat", "nan", "featureless"],
)
def test_pictures_that_teach_nothing_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        BagOfWords.fit(images, n_words=3, seed=0)


@pytest.mark.parametrize("words", [{"n_words": 0}, {"n_words": 2.5}, {"features_per_word": 0}, {"iterations": True}])
def test_counts_that_make_no_sense_are_refused_by_name(words):
    with pytest.raises(ValueError, match=rf"{next(iter(words))}=.*; give a whole number"):
        BagOfWords.fit([np.eye(9)], **words)


def test_a_missing_opencv_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match="need OpenCV for SIFT: pip install opencv-python-headless"):
        BagOfWords.fit([np.eye(9)], n_words=1)


def test_a_sample_of_features_is_uniform_and_whole_when_it_can_be():
    rows = np.arange(50, dtype=np.float32)[:, None] * np.ones(128, np.float32)
    times = np.zeros(50)
    for seed in range(400):
        parts = iter(np.split(rows, [3, 3, 20, 21, 40]))
        sample = bag_of_words._sample(parts, 10, np.random.default_rng(seed))
        assert len(sample) == 10
        times[sample[:, 0].astype(int)] += 1
    # Binomial, mean 80, standard deviation 8.
    assert times.min() > 80 - 4 * 8
    assert times.max() < 80 + 4 * 8
    np.testing.assert_array_equal(bag_of_words._sample([rows], 60, np.random.default_rng(0)), rows)


def test_counts_are_weighed_by_the_root_of_their_share():
    counts = np.array([[1, 0, 3], [0, 0, 0], [9, 16, 0]], dtype=np.uint16)
    weighed = bag_of_words.weigh(counts)
    assert weighed.dtype == np.float32
    np.testing.assert_allclose(weighed, [[0.5, 0, np.sqrt(0.75)], [0, 0, 0], [0.6, 0.8, 0]], rtol=1e-6)


def test_counts_are_weighed_in_blocks(monkeypatch):
    counts = np.random.default_rng(0).integers(0, 9, (50, 7), dtype=np.uint16)
    expected = bag_of_words.weigh(counts)
    monkeypatch.setattr(bag_of_words, "_BLOCK_ROWS", 8)
    np.testing.assert_array_equal(bag_of_words.weigh(counts), expected)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ([1, 2], r"counts has shape \(2,\)"),
        ([["a"]], "dtype <U1"),
        ([[1, -1]], "negative"),
        ([[np.nan, 1]], "NaN"),
        ([[np.inf, 1]], "infinity"),
    ],
)
def test_what_are_no_counts_is_refused(counts, message):
    with pytest.raises(ValueError, match=message):
        bag_of_words.weigh(counts)
