"""GIST against the direct float64 computation, and against what the descriptor must mean."""

import numpy as np
import pytest

from gphash.data.descriptors import gabor, gist
from gphash.data.descriptors.gist import Gist
from tests import reference


def textured(rng, *shape):
    """Images with energy at all scales, uint8."""
    noise = rng.standard_normal(shape)
    return (255 * (np.tanh(noise.cumsum(axis=1) / 4 + noise.cumsum(axis=2) / 4) + 1) / 2).astype(np.uint8)


@pytest.mark.parametrize(
    "shape",
    [(4, 32, 32), (4, 32, 32, 3), (2, 48, 40), (2, 40, 48, 3), (2, 33, 35), (2, 4, 7), (2, 9, 90), (1, 96, 64, 4)],
    ids=str,
)
def test_agrees_with_the_direct_computation(shape):
    images = textured(np.random.default_rng(0), *shape)
    # Of four channels the last is alpha.
    direct = np.stack([reference.gist(image[..., :3] if image.ndim == 3 else image) for image in images])
    fast = gist.describe(images)
    assert fast.shape == (shape[0], gabor.DIMENSION)
    assert fast.dtype == np.float32
    np.testing.assert_allclose(fast, direct, rtol=2e-3, atol=1e-5)


def test_whitening_agrees_with_the_direct_computation():
    grey = textured(np.random.default_rng(1), 2, 21, 30).astype(np.float32)
    direct = np.stack([reference.gist_prefilter(image.astype(np.float64)) for image in grey])
    np.testing.assert_allclose(gabor._prefilter(grey, gabor.plan(21, 30).lowpass), direct, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", range(gabor.SCALES))
@pytest.mark.parametrize("orientation", range(gabor.ORIENTATIONS))
def test_a_grating_excites_its_own_filter(scale, orientation):
    y, x = np.mgrid[:64, :64]
    theta = np.pi / 8 * orientation
    wave = np.cos(2 * np.pi * 0.3 / 1.85**scale * (x * np.cos(theta) - y * np.sin(theta)))
    means = gist.describe_one(wave).reshape(gabor.SCALES, gabor.ORIENTATIONS, -1).mean(axis=2)
    assert np.unravel_index(means.argmax(), means.shape) == (scale, orientation)


def test_blocks_are_laid_out_by_row_then_column():
    image = np.full((64, 64), 128.0)
    image[2:14, 34:46] += np.random.default_rng(2).normal(scale=40, size=(12, 12))
    means = gist.describe_one(image).reshape(-1, 4, 4)[: gabor.ORIENTATIONS].mean(axis=0)
    assert np.unravel_index(means.argmax(), means.shape) == (0, 2)


@pytest.mark.parametrize("value", [0, 7, 255])
def test_a_constant_image_is_described_by_zeros(value):
    np.testing.assert_array_equal(gist.describe_one(np.full((32, 32, 3), value, np.uint8)), 0)


@pytest.mark.parametrize(("scale", "shift"), [(0.25, 3), (1e-300, 0), (1e30, -1e31), (1e-42, 0)])
def test_brightness_and_contrast_do_not_matter(scale, shift):
    image = textured(np.random.default_rng(3), 1, 32, 32)[0].astype(float)
    expected = gist.describe_one(image)
    np.testing.assert_allclose(gist.describe_one(scale * image + shift), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int64, np.float16, np.float32, np.float64, ">f4", ">i2"])
def test_the_type_of_the_pixels_does_not_matter(dtype):
    images = textured(np.random.default_rng(3), 2, 20, 24, 3)
    np.testing.assert_allclose(gist.describe(images.astype(dtype)), gist.describe(images), rtol=1e-4, atol=1e-6)


def test_a_range_below_the_smallest_normal_float32_is_still_a_picture():
    image = textured(np.random.default_rng(3), 1, 16, 16)[0]
    tiny = image.astype(np.float32) * np.float32(1e-44)
    assert np.isfinite(gist.describe_one(tiny)).all()


def test_black_and_white_may_be_booleans():
    image = textured(np.random.default_rng(4), 1, 32, 32)[0] > 128
    np.testing.assert_array_equal(gist.describe_one(image), gist.describe_one(image.astype(np.uint8)))


def test_a_grey_image_equals_its_coloured_copy():
    image = textured(np.random.default_rng(4), 1, 32, 32)[0]
    coloured = np.repeat(image[:, :, None], 3, axis=2)
    np.testing.assert_allclose(gist.describe_one(image), gist.describe_one(coloured), rtol=1e-4)


def test_rows_depend_neither_on_threads_nor_on_the_batch(monkeypatch):
    images = textured(np.random.default_rng(5), 23, 32, 30, 3)
    expected = gist.describe(images, n_jobs=1)
    for n_jobs, batch in [(2, 1), (2, 5), (3, 4), (5, 100), (-1, 68), (None, 68)]:
        monkeypatch.setattr(gist, "_BATCH_PIXELS", batch * 32 * 30)
        np.testing.assert_array_equal(gist.describe(images, n_jobs=n_jobs), expected)
    np.testing.assert_array_equal(gist.describe(images[7:12]), expected[7:12])
    np.testing.assert_array_equal(gist.describe_one(images[11]), expected[11])


def test_a_row_does_not_depend_on_how_pixels_lie_in_memory():
    images = textured(np.random.default_rng(5), 5, 18, 20, 3) / 7
    planar = np.ascontiguousarray(images.transpose(0, 3, 1, 2)).transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(gist.describe(planar), gist.describe(images))


def mixed():
    rng = np.random.default_rng(6)
    shapes = [(32, 32), (20, 33, 3), (32, 32, 3), (300, 40), (4, 5), (30, 310, 1), (32, 32)]
    return [textured(rng, 1, *shape)[0] for shape in shapes]


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_images_of_different_sizes_are_described_as_each_alone(n_jobs):
    images = mixed()
    described = Gist().describe_all(iter(images), n_jobs=n_jobs)
    assert described.shape == (len(images), gabor.DIMENSION)
    assert described.dtype == np.float32
    np.testing.assert_array_equal(described, np.stack([gist.describe_one(image) for image in images]))


def test_an_array_is_described_alike_as_a_whole_and_one_by_one():
    images = textured(np.random.default_rng(7), 5, 24, 28, 3)
    np.testing.assert_array_equal(Gist().describe_all(images), gist.describe(images))


def test_images_are_taken_as_they_are_needed(monkeypatch):
    images, describe = mixed() * 10, gist._describe
    ahead, done = [], []

    def counted(*arguments):
        done.append(describe(*arguments))
        return done[-1]

    def read():
        for number, image in enumerate(images):
            ahead.append(number - len(done))
            yield image

    monkeypatch.setattr(gist, "_describe", counted)
    assert len(Gist().describe_all(read(), n_jobs=2)) == len(images) == len(done)
    assert max(ahead) < len(images) // 2


def test_a_fourth_channel_does_not_count():
    image = textured(np.random.default_rng(9), 1, 32, 32, 4)[0]
    np.testing.assert_array_equal(gist.describe_one(image), gist.describe_one(image[..., :3]))


@pytest.mark.parametrize(
    ("shape", "reduced"), [((300, 200, 3), (256, 171)), ((120, 257), (120, 256)), ((4, 2000), (4, 256))]
)
def test_large_pictures_are_reduced_by_area_averaging_first(shape, reduced):
    image = textured(np.random.default_rng(8), 1, *shape)[0]
    grey = image.mean(axis=2) if image.ndim == 3 else image
    small = reference.area_average(grey, *reduced)
    np.testing.assert_allclose(gist.describe_one(image), gist.describe_one(small), rtol=2e-3, atol=1e-5)
    np.testing.assert_array_equal(gist.describe(image[None]), Gist().describe_all([image]))


@pytest.mark.parametrize("shape", [(32, 32), (5, 3, 32), (1, 2, 32, 32, 3), (2, 32, 32, 5), (2, 32, 32, 0), (3, 0, 9)])
def test_other_shapes_are_refused_by_name(shape):
    with pytest.raises(ValueError, match=r"images has shape .*; it must be \[n, H, W\]"):
        gist.describe(np.zeros(shape))


@pytest.mark.parametrize("images", [[], (), np.zeros((0,))], ids=["list", "tuple", "array"])
def test_nothing_is_refused(images):
    with pytest.raises(ValueError, match=r"images has shape \(0,\)"):
        gist.describe(images)
    with pytest.raises(ValueError, match=r"images (is empty; give at least one image|has shape \(0,\))"):
        Gist().describe_all(images)


def test_no_images_of_a_known_size_are_refused():
    with pytest.raises(ValueError, match="images is empty; give at least one image"):
        gist.describe(np.empty((0, 32, 32)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_pixels_that_are_no_numbers_are_refused_with_the_number_of_the_image(monkeypatch, value, dtype):
    monkeypatch.setattr(gist, "_BATCH_PIXELS", 50 * 9 * 11)
    images = np.random.default_rng(9).random((150, 9, 11, 3)).astype(dtype)
    images[131, 3, 4, 1] = value
    with pytest.raises(ValueError, match=r"images\[131\] holds NaN, infinity .*; give finite values"):
        gist.describe(images)
    with pytest.raises(ValueError, match=r"images\[131\] holds NaN"):
        Gist().describe_all(images)
    with pytest.raises(ValueError, match=r"^image holds NaN"):
        gist.describe_one(images[131])


def test_values_too_far_apart_are_refused():
    image = np.zeros((8, 8))
    image[0, :2] = -1.7e308, 1.7e308
    with pytest.raises(ValueError, match=r"image holds .* values too far apart"):
        gist.describe_one(image)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((32, 3)), r"image has shape \(32, 3\); it must be \[H, W\] or"),
        (np.zeros(32), r"image has shape \(32,\)"),
        (np.zeros((3, 32, 32)), r"image has shape \(3, 32, 32\)"),
        (np.zeros((8, 32, 32)), r"image has shape \(8, 32, 32\); .* 1 to 4 channels"),
        (np.zeros((8, 8), dtype=complex), r"image has dtype complex128; it must be real numbers"),
        (np.full((8, 8), "x"), r"image has dtype <U1"),
        ([[1, 2], [3]], r"image has parts of different shapes"),
        (None, r"image has shape \(\)"),
    ],
    ids=["narrow", "flat", "channels first", "stack", "complex", "text", "ragged", "none"],
)
def test_a_picture_that_is_none_is_refused_by_its_number(image, message):
    with pytest.raises(ValueError, match=message):
        Gist().describe_all([np.eye(8), image])


def test_sizes_cannot_be_mixed_in_a_stack():
    with pytest.raises(ValueError, match="images has parts of different shapes"):
        gist.describe([np.zeros((8, 8)), np.zeros((8, 9))])


def test_no_threads_are_refused_by_name():
    with pytest.raises(ValueError, match="n_jobs"):
        gist.describe(np.zeros((2, 8, 8)), n_jobs=0)
