"""Area averaging: exact, whatever the sizes, and in proportion to the picture."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.data.descriptors import greys


def averaging(size, target):
    """The whole matrix, [target, size]."""
    edges = np.arange(target + 1) * (size / target)
    pixels = np.arange(size)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.maximum(overlap, 0) * (target / size)


@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.integers(1, 60), st.booleans())
def test_new_pixels_are_means_of_what_they_cover(height, width, new_height, new_width, coloured):
    shape = (2, height, width, 3) if coloured else (2, height, width)
    images = np.random.default_rng(height).integers(0, 256, shape, dtype=np.uint8)
    greys_of = images.astype(float).mean(axis=3) if coloured else images.astype(float)
    expected = averaging(height, new_height) @ greys_of @ averaging(width, new_width).T
    np.testing.assert_allclose(greys.resize(images, new_height, new_width), expected, rtol=1e-5, atol=1e-4)


def test_a_large_picture_is_averaged_as_a_small_one(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (1, 90, 70, 3), dtype=np.uint8)
    at_once = greys.resize(images, 31, 23)
    monkeypatch.setattr(greys, "_FEW", 0)
    np.testing.assert_array_equal(greys.resize(images, 31, 23), at_once)


@pytest.mark.parametrize("shape", [(1, 4, 400_000), (1, 400_000, 4)])
def test_memory_follows_the_number_of_pixels(shape):
    images = np.ones(shape, dtype=np.uint8)
    tracemalloc.start()
    try:
        reduced = greys.reduce(images, 256, 4)
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sorted(reduced.shape[1:]) == [4, 256]
    np.testing.assert_allclose(reduced, 1, rtol=1e-3)
    assert peak < 40 * images.size  # bytes
    assert kept < 100_000


def test_what_is_not_finite_is_left_to_be_found():
    images = np.ones((1, 30, 30))
    images[0, 7, 7] = np.inf
    with pytest.raises(ValueError, match="finite"):
        greys.stretch(greys.reduce(images, 20, 4))
