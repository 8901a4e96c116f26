"""Methods that project and take signs: each against its mathematics, computed directly."""

import warnings

import numpy as np
import pytest
import scipy.linalg
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

import gphash
from gphash import Pairs
from gphash.hashers import kernel_methods, projection_methods
from gphash.hashers.kernel_methods import KLSH
from gphash.hashers.projection_methods import CCAITQ, ITQ, PCAH, SpectralHashing
from gphash.method import scaling
from tests import digits, reference

X, y = digits.X[:400], digits.y[:400]
TEST, TEST_Y = digits.X[1200:1500], digits.y[1200:1500]
METHODS = [PCAH, ITQ, CCAITQ, SpectralHashing, KLSH]
LINEAR = [PCAH, ITQ, CCAITQ]


def make(method, **parameters):
    return method(**{"n_bits": 8, "random_state": 0} | parameters)


def scaled(rows, unit=True):
    """Rows of X centred, and of unit length if wanted, by direct computation."""
    centred = rows - X.mean(axis=0)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True) if unit else centred


@pytest.mark.slow
@parametrize_with_checks(
    [PCAH(n_bits=2), ITQ(n_bits=2), CCAITQ(n_bits=2), SpectralHashing(n_bits=2), KLSH(n_bits=2, n_inducing=10)]
)
@pytest.mark.filterwarnings("ignore:.*directions of X correlate:UserWarning")
def test_scikit_learn_contract(estimator, check):
    if isinstance(estimator, tuple(LINEAR)) and check.func.__name__ == "check_fit2d_1feature":
        estimator.set_params(n_bits=1)  # two bits of one feature are refused
    check(estimator)


@pytest.mark.parametrize("method", METHODS)
class TestContract:
    def test_same_seed_same_codes_on_any_number_of_threads(self, method):
        one = make(method, n_jobs=1).fit(X, y)
        two = make(method, n_jobs=2).fit(X, y)
        assert one.fingerprint_ == two.fingerprint_
        many = np.tile(digits.X, (4, 1))  # more rows than a tile holds
        np.testing.assert_array_equal(one.encode(many), two.encode(many))

    def test_a_code_does_not_depend_on_the_rows_around(self, method):
        hasher = make(method).fit(X, y)
        alone = np.concatenate([hasher.encode(row[None]) for row in TEST[:100]])
        np.testing.assert_array_equal(alone, hasher.encode(TEST)[:100])
        np.testing.assert_array_equal(alone[::-1], hasher.encode(TEST[:100][::-1]))

    @pytest.mark.parametrize("scale", ["unit", "centre"])
    def test_a_file_gives_back_the_same_codes(self, method, scale, tmp_path):
        hasher = make(method, scaling=scale).fit(X, y)
        path = tmp_path / "model.gphash"
        assert hasher.save(path) == hasher.fingerprint_
        again = gphash.load(path)
        assert type(again) is method
        assert again.get_params() == hasher.get_params()
        assert again.fingerprint_ == hasher.fingerprint_
        np.testing.assert_array_equal(again.encode(TEST), hasher.encode(TEST))
        assert {name for name in vars(again) if name.endswith("_")} == {
            name for name in vars(hasher) if name.endswith("_")
        }

    def test_retrieves_better_than_chance(self, method):
        hasher = make(method).fit(X, y)
        assert hasher.transform(TEST).shape == (300, 8)
        assert hasher.score(TEST, TEST_Y) > 0.2

    def test_takes_supervision_as_it_says(self, method):
        hasher = make(method, n_bits=2)
        if not method.takes:
            assert hasher.fit(X).fingerprint_ == clone(hasher).fit(X, y).fingerprint_
            return
        with pytest.raises(ValueError, match="requires y"):
            hasher.fit(X)
        with pytest.raises(ValueError, match="list of Pairs, but"):
            hasher.fit(X, Pairs([0, 0], [1, 2], [1, -1]))

    def test_a_fit_that_fails_leaves_the_old_model(self, method):
        hasher = make(method).fit(X, y)
        before = hasher.fingerprint_
        with pytest.raises(ValueError, match="NaN"):
            hasher.fit(np.full((10, 3), np.nan), np.arange(10) % 2)
        hasher.set_params(scaling="metre")
        with pytest.raises(ValueError, match="scaling='metre'"):
            hasher.fit(X[:, :20], y)
        assert hasher.fingerprint_ == before
        assert hasher.n_features_in_ == 64

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"n_bits": 0}, "n_bits=0; give a whole number"),
            ({"n_bits": 2.5}, r"n_bits=2\.5; give a whole number"),
            ({"n_jobs": 0}, "n_jobs=0"),
            ({"random_state": -1}, "random_state=-1"),
        ],
    )
    def test_bad_parameters_are_refused(self, method, parameters, message):
        with pytest.raises(ValueError, match=message):
            make(method, **parameters).fit(X, y)

    @pytest.mark.parametrize("scale", ["unit", "centre"])
    def test_constant_columns_and_repeated_rows_are_no_trouble(self, method, scale):
        flat = np.hstack([np.full((60, 3), 0.1), np.repeat(X[:20, 20:30], 3, axis=0)])
        labels = np.arange(60) // 15
        hasher = make(method, n_bits=3, scaling=scale).fit(flat, labels)
        codes = hasher.transform(flat)
        np.testing.assert_array_equal(codes[::3], codes[2::3])
        assert 0 < codes.mean() < 1

    def test_few_rows_are_enough(self, method):
        codes = make(method, n_bits=1).fit(X[:2], [0, 1]).transform(X[:2])
        assert codes.shape == (2, 1)


@pytest.mark.parametrize("method", LINEAR)
def test_more_bits_than_features_are_refused(method):
    with pytest.raises(ValueError, match=r"n_bits=65, but X has 64 feature\(s\)"):
        make(method, n_bits=65).fit(X, y)


@pytest.mark.parametrize("method", [PCAH, ITQ, KLSH])
@pytest.mark.parametrize("scale", ["unit", "centre"])
def test_rows_that_are_all_the_same_get_one_code(method, scale):
    same = np.full((20, 4), 0.1)
    codes = make(method, n_bits=2, scaling=scale).fit(same).transform(same)
    assert (codes == codes[0]).all()


class TestPCAH:
    @pytest.mark.parametrize("unit", [True, False])
    def test_is_principal_component_analysis(self, unit):
        hasher = make(PCAH, n_bits=12, scaling="unit" if unit else "centre").fit(X)
        expected = PCA(12, svd_solver="full").fit(scaled(X, unit))
        components = expected.transform(scaled(TEST, unit))
        margins = hasher.hash_function_.margins(TEST)
        signs = np.sign((margins * components).sum(axis=0))
        np.testing.assert_allclose(margins, components * signs, atol=1e-8 * np.abs(components).max())

    def test_directions_have_a_sign_of_their_own(self):
        weights = make(PCAH).fit(X).hash_function_.weights
        assert (weights.max(axis=0) >= -weights.min(axis=0)).all()
        turned = make(PCAH).fit(X[::-1]).hash_function_.weights
        np.testing.assert_allclose(turned, weights, atol=1e-9)


class TestITQ:
    @pytest.fixture
    def components(self):
        return PCA(6).fit_transform(scaled(X))

    def test_rotation_is_orthogonal_and_never_raises_the_objective(self, components):
        V = components
        losses = []
        for iterations in range(40):
            R = projection_methods.rotation(V, np.random.default_rng(3), iterations)
            np.testing.assert_allclose(R @ R.T, np.eye(6), atol=1e-12)
            losses.append(np.square(np.where(V @ R >= 0, 1, -1) - V @ R).sum())
        assert (np.diff(losses) <= 1e-9).all()
        assert losses[-1] < losses[0] - 1

    def test_a_step_takes_the_best_rotation_for_its_codes(self, components):
        V = components
        B = np.where(V @ projection_methods.rotation(V, np.random.default_rng(3), 4) >= 0, 1.0, -1.0)
        found = projection_methods.rotation(V, np.random.default_rng(3), 5)
        best, _ = scipy.linalg.orthogonal_procrustes(V, B)
        np.testing.assert_allclose(found, best, atol=1e-10)

    def test_bits_are_signs_of_rotated_principal_components(self):
        function = make(ITQ).fit(X).hash_function_
        pca = make(PCAH).fit(X).hash_function_
        V = pca.margins(X)
        R = projection_methods.rotation(V, np.random.default_rng(0), 50)
        np.testing.assert_allclose(function.margins(X), V @ R, atol=1e-10)
        np.testing.assert_allclose(function.weights.T @ function.weights, np.eye(8), atol=1e-10)


class TestCCAITQ:
    @pytest.mark.parametrize("targets", [np.eye(10)[y], digits.tags[:400].astype(float)], ids=["labels", "tags"])
    def test_correlations_solve_the_generalised_eigenproblem(self, targets):
        rows = scaled(X)
        W, correlations = projection_methods.canonical_directions(rows, targets)
        C = np.cov(np.hstack([rows, targets]).T, bias=True)
        Cxx, Cxy, Cyy = C[:64, :64], C[:64, 64:], C[64:, 64:]
        Cxx = Cxx + 1e-4 * np.trace(Cxx) / 64 * np.eye(64)
        Cyy = Cyy + 1e-4 * np.trace(Cyy) / len(Cyy) * np.eye(len(Cyy))
        squares, axes = scipy.linalg.eigh(Cxy @ np.linalg.solve(Cyy, Cxy.T), Cxx)
        n = len(correlations)
        np.testing.assert_allclose(correlations**2, squares[::-1][:n], atol=1e-9)
        useful = correlations > 1e-6
        assert useful.sum() == {10: 9, 3: 3}[n]
        cosines = np.abs(np.einsum("ij,ij->j", W, Cxx @ axes[:, ::-1][:, :n]))
        np.testing.assert_allclose(cosines[useful], 1, atol=1e-6)

    def test_nearly_the_correlations_of_the_text_book(self):
        generator = np.random.default_rng(0)
        rows = generator.standard_normal((3000, 4))
        targets = rows[:, :2] @ [[1, 0.5], [0, 1]] + generator.standard_normal((3000, 2))
        _, correlations = projection_methods.canonical_directions(rows, targets)
        Qx, _ = np.linalg.qr(rows - rows.mean(axis=0))
        Qy, _ = np.linalg.qr(targets - targets.mean(axis=0))
        np.testing.assert_allclose(correlations, np.linalg.svd(Qx.T @ Qy)[1], atol=1e-3)

    def test_units_of_the_features_do_not_matter(self):
        small = make(CCAITQ, scaling="centre").fit(X, y)
        large = make(CCAITQ, scaling="centre").fit(1e6 * X, y)
        np.testing.assert_array_equal(small.transform(TEST), large.transform(1e6 * TEST))

    def test_margins_are_rotated_variates_times_their_correlations(self):
        function = make(CCAITQ).fit(X, y).hash_function_
        W, correlations = projection_methods.canonical_directions(scaled(X), np.eye(10)[y])
        V = (scaled(X) - scaled(X).mean(axis=0)) @ W[:, :8] * correlations[:8]
        R = projection_methods.rotation(V, np.random.default_rng(0), 50)
        np.testing.assert_allclose(function.margins(X), V @ R, atol=1e-9)

    @pytest.mark.parametrize(
        ("targets", "n_bits", "useful"), [(y, 10, 9), (y, 32, 9), (y % 2, 4, 1), (digits.tags[:400], 8, 3)]
    )
    def test_spare_bits_warn_and_share_the_directions(self, targets, n_bits, useful):
        with pytest.warns(UserWarning, match=rf"n_bits={n_bits}, but only {useful} directions of X") as caught:
            hasher = make(CCAITQ, n_bits=n_bits).fit(X, targets)
        assert caught[0].filename == __file__
        weights = hasher.hash_function_.weights
        assert np.linalg.matrix_rank(weights, tol=1e-8 * np.abs(weights).max()) == useful
        assert (np.abs(weights).max(axis=0) > 1e-3 * np.abs(weights).max()).all()

    def test_spare_bits_help_rather_than_harm(self):
        few = make(CCAITQ, n_bits=9).fit(X, y).score(TEST, TEST_Y)
        with pytest.warns(UserWarning, match="only 9 directions"):
            many = make(CCAITQ, n_bits=32).fit(X, y).score(TEST, TEST_Y)
        assert many > few

    def test_as_many_bits_as_directions_do_not_warn(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            make(CCAITQ, n_bits=9).fit(X, y)
            make(CCAITQ, n_bits=3).fit(X, digits.tags[:400])

    def test_rows_that_are_all_the_same_correlate_with_nothing(self):
        with pytest.warns(UserWarning, match="only 0 directions"):
            codes = make(CCAITQ, n_bits=2).fit(np.full((20, 4), 0.1), np.arange(20) % 2).transform(np.full((3, 4), 0.1))
        assert (codes == codes[0]).all()


class TestSpectralHashing:
    @pytest.mark.parametrize("n_bits", [1, 2, 5, 16, 40])
    def test_waves_are_those_of_smallest_eigenvalue(self, n_bits):
        extent = np.random.default_rng(n_bits).uniform(0.1, 3, 7)
        dimension, frequency = projection_methods.smoothest_waves(extent, n_bits)
        # As the authors count: so many frequencies of every edge, the constant left out.
        most = np.ceil((n_bits + 1) * extent / extent.max()).astype(int)
        table = sorted(((k * np.pi / extent[i]) ** 2, i, k) for i in range(7) for k in range(1, most[i]))
        assert list(zip(dimension.tolist(), frequency.tolist(), strict=True)) == [(i, k) for _, i, k in table[:n_bits]]

    @pytest.mark.parametrize("n_bits", [8, 100])
    def test_bits_follow_the_formula(self, n_bits):
        hasher = make(SpectralHashing, n_bits=n_bits).fit(X)
        n_components = min(n_bits, 64)
        pca = PCA(n_components, svd_solver="full").fit(scaled(X))
        W = pca.components_.T * np.where(np.abs(pca.components_).max(axis=1) == pca.components_.max(axis=1), 1, -1)
        V, U = scaled(X) @ W, scaled(TEST) @ W
        least, extent = V.min(axis=0), np.ptp(V, axis=0)
        wide = [i for i in range(n_components) if extent[i] > 1e-9]
        waves = sorted(((k * np.pi / extent[i]) ** 2, i, k) for i in wide for k in range(1, n_bits + 1))[:n_bits]
        expected = np.stack([np.cos(k * np.pi * (U[:, i] - least[i]) / extent[i]) for _, i, k in waves], axis=1)
        np.testing.assert_allclose(hasher.hash_function_.margins(TEST), expected, atol=1e-8)

    def test_more_bits_than_features_are_more_waves(self):
        hasher = make(SpectralHashing, n_bits=6, scaling="centre").fit(X[:, 20:21])
        np.testing.assert_array_equal(hasher.hash_function_.frequency, np.arange(1, 7))
        # k waves cut a line at k places, and each cut flips one bit.
        line = np.linspace(X[:, 20].min(), X[:, 20].max(), 5000)[:, None]
        flips = np.abs(np.diff(hasher.transform(line).astype(int), axis=0)).sum(axis=0)
        np.testing.assert_array_equal(flips, np.arange(1, 7))

    def test_dimensions_without_extent_have_no_waves(self):
        flat = X[:, 20:22] @ np.random.default_rng(0).standard_normal((2, 10)) + 0.1
        function = make(SpectralHashing, scaling="centre").fit(flat).hash_function_
        assert function.directions.shape == (10, 2)
        assert set(function.dimension.tolist()) == {0, 1}

    def test_a_row_on_a_node_is_on_it_wherever_it_stands(self):
        mirrored = np.vstack([X - X.mean(axis=0), X.mean(axis=0) - X])
        function = make(SpectralHashing, scaling="centre").fit(mirrored).hash_function_
        assert function.frequency[0] == 1
        axis = function.directions[:, function.dimension[0]]
        middle = mirrored - np.outer(mirrored @ axis, axis)
        for far in (1, 1e4):
            np.testing.assert_array_equal(function.margins(far * middle)[:, 0], 0)

    @pytest.mark.parametrize("unit", [1e-15, 1e9])
    def test_units_of_the_features_do_not_matter(self, unit):
        hasher = make(SpectralHashing, scaling="centre").fit(X)
        other = make(SpectralHashing, scaling="centre").fit(unit * X)
        np.testing.assert_array_equal(other.transform(unit * TEST), hasher.transform(TEST))

    @pytest.mark.parametrize("scale", ["unit", "centre"])
    @pytest.mark.parametrize("value", [0.0, 0.1, -1e9])
    def test_rows_that_are_all_the_same_are_refused(self, scale, value):
        with pytest.raises(ValueError, match="all the same"):
            make(SpectralHashing, scaling=scale).fit(np.full((30, 3), value))


class TestKLSH:
    @pytest.mark.parametrize("how", ["random", "kmeans"])
    def test_bits_are_those_of_the_centred_kernel(self, how):
        hasher = make(KLSH, n_inducing=40, inducing=how, length_scale=0.8).fit(X)
        Z = hasher.hash_function_.Z.astype(np.float64)
        rows = scaling.apply(hasher.hash_function_.scaling, TEST, np.float64)
        K = reference.squared_exponential(Z, Z, 0.8, 1.0)
        k = reference.squared_exponential(rows, Z, 0.8, 1.0)
        H = np.eye(40) - 1 / 40
        values, vectors = np.linalg.eigh(H @ K @ H)
        kept = values > 1e-8
        root = vectors[:, kept] @ np.diag(values[kept] ** -0.5) @ vectors[:, kept].T
        generator = np.random.default_rng(0)
        marked = np.zeros((40, 8))
        for bit in range(8):
            marked[generator.choice(40, 10, replace=False), bit] = 1
        centred = k - k.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()
        expected = centred @ root @ marked
        np.testing.assert_allclose(hasher.hash_function_.margins(TEST), expected, atol=2e-5)
        sure = np.abs(expected) > 2e-5
        np.testing.assert_array_equal(hasher.transform(TEST)[sure], (expected >= 0)[sure])

    def test_directions_are_whitened(self):
        # Of all landmarks, the bits of random hyperplanes are next to independent: w is a direction of unit variance.
        K = reference.squared_exponential(scaled(X[:80]), scaled(X[:80]), 0.8, 1.0)
        weights, offset = kernel_methods.random_hyperplanes(K, 400, np.random.default_rng(0))
        projected = K @ weights + offset
        np.testing.assert_allclose(projected.mean(axis=0), 0, atol=1e-5)
        covariance = projected @ projected.T / 400
        H = np.eye(80) - 1 / 80
        scale = np.trace(covariance) / np.trace(H @ K @ H)
        assert np.corrcoef(covariance.ravel(), (scale * H @ K @ H).ravel())[0, 1] > 0.9

    @pytest.mark.parametrize(("n_landmarks", "n_marked"), [(1, 1), (3, 1), (40, 10), (200, 30)])
    def test_marks_a_quarter_of_the_landmarks_but_at_most_thirty(self, n_landmarks, n_marked):
        # K = I is white but for the mean: a weight tells whether its landmark is marked.
        weights, _ = kernel_methods.random_hyperplanes(np.eye(n_landmarks), 5, np.random.default_rng(0))
        if n_landmarks == 1:
            np.testing.assert_array_equal(weights, 0)
        else:
            np.testing.assert_array_equal((weights > 0.5).sum(axis=0), n_marked)

    def test_the_width_is_the_median_distance(self):
        hasher = make(KLSH, n_inducing=20).fit(X)
        rows = scaled(X)
        squared = np.square(rows[:, None] - rows[None]).sum(axis=2)
        assert hasher.length_scale_ == pytest.approx(np.sqrt(np.median(squared[squared > 1e-9])), rel=1e-5)
        assert make(KLSH, n_inducing=20, length_scale=0.7).fit(X).length_scale_ == 0.7

    def test_has_as_many_landmarks_as_rows_at_most(self):
        assert make(KLSH).fit(X[:50]).hash_function_.Z.shape == (50, 64)
