"""A model and an index of the digits, made by the command line itself, once for all tests."""

import pytest

from tests.cli.running import QUICK, gphash


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    gphash("fit", "digits:train", "--bits", 8, "-q", *QUICK, cwd=folder)
    gphash("index", "digits-8.gph", "digits", "-q", cwd=folder)
    return folder
