"""A metric finds the few features that matter, and is refused where there are none."""

import numpy as np
import pytest

from gphash.data.blocks import ArrayTable
from gphash.execution.local import LocalExecutor, SerialExecutor
from gphash.method import kernels, metric, scaling, training
from gphash.method.kernels import SquaredExponential
from gphash.method.metric import Plain
from gphash.method.scaling import Scaling
from gphash.method.training import Settings
from gphash.supervision import similarity

MATTERING = np.array([4, 17, 31])


def rows(n=800, d=40, seed=0):
    """Rows of which three features decide on the class, and classes."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    signs = X[:, MATTERING] > 0
    return X, signs @ [1, 2, 4]


def learn(X, y, executor=None, tags=False, seed=0, unit_length=True):
    plain_scaling = scaling.fit(X, unit_length)
    scaled = scaling.apply(plain_scaling, X)
    kernel = SquaredExponential(kernels.median_distance(scaled), 4.0)
    plain = Plain(plain_scaling, kernel, scaled[:200], 0.05)
    taught = similarity.from_tags(np.eye(int(y.max()) + 1, dtype=int)[y]) if tags else similarity.from_labels(y)
    order = taught.order(np.random.default_rng(seed), 100)
    return metric.learn(ArrayTable(X), order, taught, plain, seed, executor or SerialExecutor())


def weight_of(found, features):
    """Share of the metric's squared entries that some features have."""
    squared = (found.metric**2).sum(axis=1)
    return squared[features].sum() / squared.sum()


def lead_of(found, features):
    """The same for its first three directions."""
    return weight_of(found._replace(metric=found.metric[:, :3]), features)


@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("unit_length", [False, True])
def test_of_forty_features_the_three_that_matter_lead(tags, unit_length):
    found = learn(*rows(), tags=tags, unit_length=unit_length)
    assert found is not None
    assert lead_of(found, MATTERING) > 0.8
    assert weight_of(found, MATTERING) > 3 * 3 / 40  # three times as much as if all were alike


def test_directions_come_in_order_and_the_first_keeps_its_length():
    found = learn(*rows())
    lengths = np.linalg.norm(found.metric, axis=0)
    assert lengths[0] == pytest.approx(1)
    assert (np.diff(lengths) <= 1e-12).all()
    units = found.metric / lengths
    np.testing.assert_allclose(units.T @ units, np.eye(units.shape[1]), atol=1e-8)
    np.testing.assert_array_equal(found.mean, scaling.fit(rows()[0]).mean)


@pytest.mark.parametrize("seed", range(2))
def test_where_no_feature_matters_it_is_refused(seed):
    generator = np.random.default_rng(seed)
    assert learn(generator.normal(size=(600, 20)), generator.integers(0, 4, 600), seed=seed) is None


def test_features_that_never_change_get_no_weight():
    X, y = rows()
    X[:, [0, 1]] = 5.0
    found = learn(X, y)
    assert found is not None
    assert np.isfinite(found.metric).all()
    assert weight_of(found, [0, 1]) < 1e-9


def test_rows_that_are_all_equal_have_none():
    assert learn(np.ones((100, 5)), np.arange(100) % 2) is None


def test_rows_may_be_wider_than_the_sketch(monkeypatch):
    monkeypatch.setattr(metric, "SKETCH", 24)
    found = learn(*rows())
    assert found is not None
    assert found.metric.shape[0] == 40
    assert found.metric.shape[1] <= 24
    assert lead_of(found, MATTERING) > 0.7


def test_no_more_dimensions_are_kept_than_wanted(monkeypatch):
    monkeypatch.setattr(metric, "RANK", 5)
    assert learn(*rows()).metric.shape == (40, 5)


def test_it_is_the_same_on_any_number_of_threads():
    with LocalExecutor(2) as threads:
        np.testing.assert_array_equal(learn(*rows()).metric, learn(*rows(), executor=threads).metric)


def test_the_kernel_is_as_long_in_terms_of_distances():
    X = np.random.default_rng(0).normal(size=(50, 4))
    found = metric.mapped(SquaredExponential(0.5, 3.0), X, 10 * X)
    assert found.length_scale == pytest.approx(5)
    assert found.signal_scale == 3.0


def test_training_looks_for_one_only_if_asked():
    X, y = rows(500)
    taught, few = similarity.from_labels(y), {"n_inducing": 60, "n_starts": 1}
    given = {"length_scale": 1.0, "signal_scale": 4.0, **few}
    with_one, without = (
        training.train(ArrayTable(X), taught, Settings(8, metric=asked, **given), SerialExecutor()).function
        for asked in (True, False)
    )
    assert without.scaling.metric is None
    assert with_one.scaling.metric is not None
    assert with_one.classifier.Z.shape[1] == with_one.scaling.metric.shape[1]
    fresh, fresh_y = rows(4000, seed=1)
    right = [(one.classes(fresh).argmax(axis=1) == fresh_y).mean() for one in (with_one, without)]
    assert right[0] > right[1]


def test_a_metric_is_applied_before_rows_get_unit_length():
    X, T = np.random.default_rng(0).normal(size=(9, 4)), np.random.default_rng(1).normal(size=(4, 2))
    found = scaling.apply(Scaling(X[0], True, T), X, np.float64)
    expected = (X - X[0]) @ T
    np.testing.assert_allclose(found[1:], expected[1:] / np.linalg.norm(expected[1:], axis=1, keepdims=True))
    np.testing.assert_array_equal(found[0], 0)
