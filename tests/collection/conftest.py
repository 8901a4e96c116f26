"""A model, and collections made with it."""

import shutil

import pytest

from gphash.collection.collection import Collection
from tests.collection import sources


@pytest.fixture(scope="package")
def home(tmp_path_factory):
    """A folder with a model and a collection that nobody changes."""
    folder = tmp_path_factory.mktemp("collection")
    sources.hasher().save(folder / "digits.gph")
    Collection.create(folder / "digits.gphash", folder / "digits.gph", sources.of_digits()).close()
    return folder


@pytest.fixture(scope="package")
def model(home):
    return home / "digits.gph"


@pytest.fixture(scope="package")
def collection(home):
    with Collection.open(home / "digits.gphash") as opened:
        yield opened


@pytest.fixture
def copy(home, tmp_path):
    """The same collection, to be changed."""
    return shutil.copytree(
        home / "digits.gphash", tmp_path / "copy.gphash", ignore=shutil.ignore_patterns("*-wal", "*-shm")
    )
