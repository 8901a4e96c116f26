"""A model, and galleries made with it."""

import shutil

import pytest

from gphash.gallery.gallery import Gallery
from tests.gallery import sources


@pytest.fixture(scope="package")
def home(tmp_path_factory):
    """A folder with a model and a gallery that nobody changes."""
    folder = tmp_path_factory.mktemp("gallery")
    sources.hasher().save(folder / "model.gph")
    Gallery.build(folder / "digits.index", folder / "model.gph", sources.of_digits()).close()
    return folder


@pytest.fixture(scope="package")
def model(home):
    return home / "model.gph"


@pytest.fixture(scope="package")
def gallery(home):
    return Gallery.open(home / "digits.index")


@pytest.fixture
def copy(home, tmp_path):
    """The same gallery, to be changed."""
    return shutil.copytree(home, tmp_path / "copy") / "digits.index"
