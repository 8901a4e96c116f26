"""A model from its file encodes as the estimator that learned it, without anything that only training needs."""

import json
import subprocess
import sys

import numpy as np
import pytest

import gphash
from gphash import container
from gphash.container import FormatError
from gphash.functions import model as models
from gphash.hashers import methods
from tests import digits

QUICK = {
    "gph": digits.QUICK,
    "lfh": {"n_inducing": 50},
    "classifier-codes": {"n_inducing": 50},
    "fasthash": {"n_trees": 3, "depth": 2},
}
TRAIN, TEST = digits.X[:200], digits.X[1000:1060]
FORMS = {
    "gph": "posteriors",
    "sdh": "kernel",
    "classifier-codes": "posteriors",
    "itq": "linear",
    "spectral": "sinusoids",
    "fasthash": "trees",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model of every form of hash function."""
    place = tmp_path_factory.mktemp("models")
    for name in FORMS:
        given = {"n_bits": 12, "random_state": 0} | QUICK.get(name, {})
        methods.METHODS.find(name)(**given).fit(TRAIN, digits.y[:200]).save(place / f"{name}.gph")
    return place


@pytest.mark.parametrize("name", FORMS)
def test_it_is_the_estimators_function(folder, name):
    found, hasher = models.load(folder / f"{name}.gph"), gphash.load(folder / f"{name}.gph")
    assert type(found.function) is models.FORMS[FORMS[name]]
    assert (found.method, found.fingerprint) == (name, hasher.fingerprint_)
    assert (found.n_bits, found.n_features) == (hasher.hash_function_.n_bits, TRAIN.shape[1])
    np.testing.assert_array_equal(found.encode(TEST), hasher.encode(TEST))
    assert found.has_probabilities is hasattr(hasher, "bit_probabilities")
    if found.has_probabilities:
        np.testing.assert_array_equal(found.bit_probabilities(TEST), hasher.bit_probabilities(TEST))
    else:
        with pytest.raises(ValueError, match="gives no bit probabilities"):
            found.bit_probabilities(TEST)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, np.float64])
def test_numbers_of_every_type_become_those_of_the_estimator(folder, dtype):
    rows = TEST.astype(dtype)
    found, hasher = models.load(folder / "gph.gph"), gphash.load(folder / "gph.gph")
    np.testing.assert_array_equal(found.bit_probabilities(rows), hasher.bit_probabilities(rows))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (TEST[0], "shape"),
        (TEST[:, :-1], "shape"),
        (TEST[:0], "at least one row"),
        (np.full_like(TEST, "nan"), "NaN"),
        (np.full_like(TEST, 1e30), "as large as"),
        (TEST.astype(str), "of numbers"),
    ],
)
def test_other_rows_are_refused(folder, rows, said):
    with pytest.raises(ValueError, match=said):
        models.load(folder / "gph.gph").encode(rows)


def test_a_form_that_is_not_known_is_refused(folder, tmp_path):
    stored = container.read(folder / "itq.gph")
    container.write(tmp_path / "odd.gph", "model", stored.meta | {"form": "cubic"}, stored.arrays, stored.remarks)
    with pytest.raises(FormatError, match="cubic"):
        models.load(tmp_path / "odd.gph")


def test_encoding_needs_neither_scikit_learn_nor_numba(folder):
    ask = (
        "import json, sys; import numpy as np; from gphash.functions import model; "
        "found = model.load(sys.argv[1]); found.encode(np.zeros((3, found.n_features))); "
        "print(json.dumps(sorted({'sklearn', 'numba', 'scipy', 'pandas'} & set(sys.modules))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", ask, str(folder / "gph.gph")], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == []
