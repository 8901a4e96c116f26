"""The small data sets, their splits, and loading by name."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from gphash.data import sources
from gphash.data.dataset import KnownData, array_checksum, split_by_class
from gphash.data.known import data_sets, digits, toy
from gphash.paper import illustrations


def test_names():
    assert list(data_sets.DATA_SETS) == [
        *("toy", "digits", "mnist", "cifar10", "nuswide", "coco_sift500"),
        *("cifar10_resnet50", "jeopardy"),
    ]
    with pytest.raises(ValueError, match=r"name='cifar'; give one of 'toy', 'digits', 'mnist', 'cifar10'"):
        data_sets.load("cifar")
    with pytest.raises(ValueError, match="name=None; give one of"):
        data_sets.load(None)


def test_options_reach_the_loader():
    assert data_sets.load("toy", n_per_class=3).train.n_rows == 12
    with pytest.raises(TypeError, match="colour"):
        data_sets.load("toy", colour="red")


def test_a_data_set_of_ones_own():
    def load(data_dir=None, *, download=True, progress=None):
        return toy.load(n_per_class=2)._replace(name="mine")

    data_sets.DATA_SETS.register("mine", KnownData(load, "made up"))
    assert data_sets.load("mine").name == "mine"
    assert len(sources.read("mine:test").X) == 8


def test_digits():
    data = data_sets.load("digits")
    assert (data.train.n_rows, data.test.n_rows) == (1297, 500)
    everything = load_digits()
    rows = np.concatenate([data.train.X, data.test.X]) * 16
    np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(everything.data, axis=0))
    shares = np.bincount(everything.target) * 500 / 1797
    assert np.abs(np.bincount(data.test.y) - shares).max() < 1
    assert data.train.images.max() == 255
    np.testing.assert_allclose(data.train.images.reshape(-1, 64) / 255, data.train.X, atol=0.002)
    again = digits.load()
    np.testing.assert_array_equal(data.test.X, again.test.X)
    assert data.checksum == again.checksum


def test_toy():
    data = toy.load()
    X, y = toy.pinwheel()
    np.testing.assert_array_equal(data.train.X, X.astype(np.float32))
    np.testing.assert_array_equal(data.train.y, y)
    assert data.test.n_rows == 200
    assert not np.isin(data.test.X, data.train.X).any()
    assert toy.load(seed=1).checksum != data.checksum
    assert np.linalg.norm(X, axis=1).min() >= 0.4


def test_the_figure_draws_these_points():
    X, y, _ = illustrations.train_toy()
    np.testing.assert_array_equal(X, toy.pinwheel(seed=0)[0])
    np.testing.assert_array_equal(y, toy.pinwheel(seed=0)[1])


@given(st.lists(st.integers(0, 5), min_size=2, max_size=60), st.floats(0, 1), st.integers(0, 3))
def test_stratified_splits(labels, share, seed):
    y = np.array(labels)
    n_classes = len(set(labels))
    most = len(y) - n_classes
    n_test = 1 + int(share * (most - 1))
    if most < 1:
        with pytest.raises(ValueError, match="n_test"):
            split_by_class(y, 1, seed)
        return
    train, test = split_by_class(y, n_test, seed)
    assert len(test) == n_test
    assert sorted([*train, *test]) == list(range(len(y)))
    assert set(y[train]) == set(labels)
    again = split_by_class(y, n_test, seed)
    np.testing.assert_array_equal(test, again[1])


def test_a_checksum_sees_names_bytes_and_no_byte_order():
    a = np.arange(5, dtype="<i4")
    first = array_checksum({"a": a, "b": a})
    assert first == array_checksum({"b": a, "a": a.astype(">i4")})
    assert first != array_checksum({"a": a, "c": a})
    assert first != array_checksum({"a": a, "b": a + 1})
