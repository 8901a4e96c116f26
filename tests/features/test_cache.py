"""Descriptors on disk: served when whole and ours, computed anew otherwise, and never in the way."""

import errno
import os
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gphash.features import cache, gist

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 9, 3), dtype=np.uint8)


class Descriptor:
    """A cheap descriptor that counts how often it is computed."""

    def __init__(self):
        self.calls = 0

    def __call__(self, images):
        self.calls += 1
        return np.array([[image.mean(), image.max()] for image in images], dtype=np.float32)


@pytest.fixture
def compute():
    return Descriptor()


@pytest.fixture(autouse=True)
def forget_warnings(monkeypatch):
    monkeypatch.setattr(cache, "_warned", set())


def ask(compute, folder, images=IMAGES, name="mean", version=1, parameters=None):
    return cache.cached(compute, images, name, version, parameters or {}, folder)


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def test_the_second_time_nothing_is_computed(tmp_path, compute):
    folder = tmp_path / "made" / "on demand"
    first, second = ask(compute, folder), ask(compute, folder)
    assert compute.calls == 1
    assert second.dtype == first.dtype
    assert second.flags.writeable
    np.testing.assert_array_equal(first, second)
    assert only_file(folder).name.startswith("mean-")


def test_without_a_folder_nothing_is_kept(tmp_path, compute, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(ask(compute, None), ask(compute, None))
    assert compute.calls == 2
    assert list(tmp_path.iterdir()) == []


def test_gist_is_served_bit_by_bit(tmp_path):
    expected = gist.describe(IMAGES)
    for _ in range(2):
        kept = cache.cached(gist.describe, IMAGES, "gist", gist.VERSION, {}, tmp_path)
        np.testing.assert_array_equal(kept, expected)


def changed(**change):
    return {"images": IMAGES, "name": "a", "version": 1, "parameters": {"k": 1, "words": np.arange(6.0)}, **change}


ONE_PIXEL = IMAGES.copy()
ONE_PIXEL[5, 7, 8, 2] ^= 1


@pytest.mark.parametrize(
    "change",
    [
        {"images": ONE_PIXEL},
        {"images": IMAGES[::-1]},
        {"images": IMAGES[:5]},
        {"images": IMAGES.astype(np.uint16)},
        {"images": IMAGES.view(np.int8)},
        {"images": IMAGES.reshape(6, 9, 8, 3)},
        {"images": list(IMAGES)},
        {"name": "b"},
        {"version": 2},
        {"parameters": {}},
        {"parameters": {"k": 2, "words": np.arange(6.0)}},
        {"parameters": {"k": 1, "words": np.arange(1, 7.0)}},
        {"parameters": {"k": 1, "words": np.arange(6.0).reshape(2, 3)}},
        {"parameters": {"k": 1, "words": np.arange(6.0, dtype=np.float32)}},
        {"parameters": {"k": 1, "words": list(range(6))}},
        {"parameters": {"k": "1", "words": np.arange(6.0)}},
    ],
)
def test_whatever_could_change_the_result_changes_the_key(change):
    assert cache.key(**changed(**change)) != cache.key(**changed())


@pytest.mark.parametrize(
    "change",
    [
        {"images": np.asfortranarray(IMAGES)},
        {"images": np.repeat(IMAGES, 2, axis=0)[::2]},
        {"parameters": {"words": np.arange(12.0)[::2] / 2, "k": np.int64(1)}},
        {"parameters": {"words": np.arange(6.0).astype(">f8"), "k": 1}},
    ],
    ids=["layout", "strides", "order", "bytes"],
)
def test_the_same_content_has_the_same_key(change):
    assert cache.key(**changed(**change)) == cache.key(**changed())


def test_the_key_does_not_depend_on_the_size_of_chunks(monkeypatch):
    whole = cache.key(**changed())
    monkeypatch.setattr(cache, "_CHUNK_BYTES", 500)
    assert cache.key(**changed()) == whole


def test_the_border_between_images_is_part_of_the_key():
    a, b = np.zeros((4, 4), np.uint8), np.zeros((4, 8), np.uint8)
    assert cache.key([a, b], "a", 1, {}) != cache.key([b, a], "a", 1, {})


def test_images_of_different_sizes_are_kept_together(tmp_path, compute):
    images = [np.full((4, n), n, np.uint8) for n in (3, 5, 9)]
    np.testing.assert_array_equal(ask(compute, tmp_path, images), ask(compute, tmp_path, tuple(images)))
    assert compute.calls == 1


@given(position=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_a_damaged_file_is_never_served(tmp_path_factory, position, flip):
    folder, compute = tmp_path_factory.mktemp("cache"), Descriptor()
    expected = ask(compute, folder)
    path = only_file(folder)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[position % len(whole)] ^= flip
    path.write_bytes(damaged)
    np.testing.assert_array_equal(ask(compute, folder), expected)
    assert compute.calls == 2
    assert path.read_bytes() == whole


@pytest.mark.parametrize("length", [0, 5, 8, 40, 72, 100, -1])
def test_a_truncated_file_is_replaced(tmp_path, compute, length):
    expected = ask(compute, tmp_path)
    path = only_file(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:length])
    np.testing.assert_array_equal(ask(compute, tmp_path), expected)
    assert path.read_bytes() == whole
    path.write_bytes(whole + b"\0")
    np.testing.assert_array_equal(ask(compute, tmp_path), expected)
    assert path.read_bytes() == whole
    assert compute.calls == 3


def test_the_file_of_another_key_is_not_served_under_this_one(tmp_path, compute):
    ask(compute, tmp_path, version=1)
    mine = only_file(tmp_path)
    other = tmp_path / "other"
    ask(compute, other, version=2)
    mine.write_bytes(only_file(other).read_bytes())
    np.testing.assert_array_equal(ask(compute, tmp_path, version=1), Descriptor()(IMAGES))
    assert compute.calls == 3


def test_a_pipe_of_that_name_is_not_waited_for(tmp_path, compute):
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    ask(compute, tmp_path)
    path = only_file(tmp_path)
    path.unlink()
    os.mkfifo(path)
    np.testing.assert_array_equal(ask(compute, tmp_path), Descriptor()(IMAGES))
    assert path.is_file()


def test_a_pickle_is_not_loaded(tmp_path, compute):
    ask(compute, tmp_path)
    path = only_file(tmp_path)
    np.save(tmp_path / "objects.npy", np.array([object()]), allow_pickle=True)
    content = (tmp_path / "objects.npy").read_bytes()
    mark = cache.key(IMAGES, "mean", 1, {})
    path.write_bytes(cache.MAGIC + mark + cache.hashlib.sha256(mark + content).digest() + content)
    np.testing.assert_array_equal(ask(compute, tmp_path), Descriptor()(IMAGES))
    assert compute.calls == 2


@pytest.mark.parametrize(
    ("function", "error"),
    [("fsync", errno.ENOSPC), ("replace", errno.EACCES), ("replace", errno.EROFS)],
    ids=["full", "forbidden", "read-only"],
)
def test_where_nothing_can_be_written_results_come_with_one_warning(tmp_path, compute, monkeypatch, function, error):
    def fail(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(cache.os, function, fail)
    with pytest.warns(RuntimeWarning, match=rf"folder=.* cannot keep descriptors \(.*{os.strerror(error)}"):
        first = ask(compute, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = ask(compute, tmp_path)
    np.testing.assert_array_equal(first, second)
    assert compute.calls == 2
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path, compute):
    (tmp_path / "file").write_text("not a folder")
    with pytest.warns(RuntimeWarning, match="cannot keep descriptors"):
        descriptors = ask(compute, tmp_path / "file" / "cache")
    np.testing.assert_array_equal(descriptors, Descriptor()(IMAGES))


def test_a_read_only_folder_still_serves_what_it_has(tmp_path, compute, monkeypatch):
    ask(compute, tmp_path)
    monkeypatch.setattr(cache, "_write", None)
    ask(compute, tmp_path)
    assert compute.calls == 1


def test_an_interruption_leaves_nothing_behind(tmp_path, compute, monkeypatch):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ask(compute, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "../gist", "a/b", "GIST", "a b"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path, compute, name):
    with pytest.raises(ValueError, match="name="):
        ask(compute, tmp_path, name=name)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"f": print}, r"\['f'\] is a builtin"),
        ({1: 2}, "has the key 1"),
        ({"a": [np.array([None])]}, r"\['a'\]\[0\] has dtype object"),
    ],
)
def test_parameters_without_a_fixed_form_are_refused(tmp_path, compute, parameters, message):
    with pytest.raises(TypeError, match=message):
        ask(compute, tmp_path, parameters=parameters)


@pytest.mark.parametrize("result", [np.zeros(5), np.zeros((7, 2)), np.array([None] * 6), 3.0])
def test_a_result_without_a_row_for_each_image_is_refused(tmp_path, result):
    for folder in (tmp_path, None):
        with pytest.raises(ValueError, match=r"compute has returned .* for 6 images"):
            ask(lambda images: result, folder)
