"""Random rows and k-means centres."""

import numpy as np
import pytest

from gphash.execution import clustering
from gphash.execution.local import LocalExecutor, SerialExecutor, row_blocks


def clustered(n_rows=3000, dtype=np.float32):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, 8)) * 3
    return (centres[rng.integers(0, 12, n_rows)] + rng.normal(size=(n_rows, 8))).astype(dtype)


def random_rows(X, n_wanted, generator):
    return X[clustering.draw(len(X), n_wanted, generator)]


def kmeans(X, n_inducing, generator, executor, *iterations):
    blocks = [X[rows] for rows in row_blocks(len(X), clustering.BLOCK)]
    return clustering.kmeans(blocks, len(X), n_inducing, generator, executor, *iterations)


def within(X, centres):
    return ((X[:, None, :].astype(float) - centres[None].astype(float)) ** 2).sum(axis=2).min(axis=1).sum()


def test_random_rows_are_distinct_rows():
    X = np.arange(40.0).reshape(20, 2)
    chosen = random_rows(X, 15, np.random.default_rng(1))
    assert len({tuple(row) for row in chosen}) == 15
    assert {tuple(row) for row in chosen} <= {tuple(row) for row in X}
    np.testing.assert_array_equal(random_rows(X, 20, np.random.default_rng(1)), X)


def test_the_generator_decides():
    X = np.arange(400.0).reshape(200, 2)
    first, second = (random_rows(X, 9, np.random.default_rng(seed)) for seed in (3, 3))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, random_rows(X, 9, np.random.default_rng(4)))


def test_kmeans_lowers_the_sum_of_squares_with_every_iteration():
    X = clustered()
    sums = [
        within(X, kmeans(X, 12, np.random.default_rng(5), SerialExecutor(), iterations))
        for iterations in (0, 1, 2, 4, 8)
    ]
    assert sums[0] == within(X, random_rows(X, 12, np.random.default_rng(5)))
    assert np.all(np.diff(sums) <= 1e-6 * sums[0])
    assert sums[-1] < 0.8 * sums[0]


def test_one_iteration_is_lloyds():
    X = clustered(500, np.float64)
    start = random_rows(X, 6, np.random.default_rng(6))
    nearest = ((X[:, None] - start[None]) ** 2).sum(axis=2).argmin(axis=1)
    expected = np.stack([X[nearest == c].mean(axis=0) for c in range(6)])
    np.testing.assert_allclose(kmeans(X, 6, np.random.default_rng(6), SerialExecutor(), 1), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_centres_are_the_same_for_any_number_of_threads(dtype):
    X = clustered(3 * clustering.BLOCK + 17, dtype)
    found = []
    for n_jobs in (1, 2):
        with LocalExecutor(n_jobs) as executor:
            found.append(kmeans(X, 30, np.random.default_rng(7), executor))
    assert found[0].dtype == dtype
    np.testing.assert_array_equal(*found)


def test_a_centre_without_rows_stays_where_it_was():
    # Of two equal centres the first takes all their rows.
    X = np.array([[1.0, 2.0], [1.0, 2.0], [4.0, 0.0], [6.0, 0.0]])
    centres = kmeans(X, 4, np.random.default_rng(8), SerialExecutor(), 3)
    np.testing.assert_array_equal(centres, X)
