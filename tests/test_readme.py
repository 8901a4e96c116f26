"""The README's examples, run as they stand there."""

import doctest
from pathlib import Path

import pytest


@pytest.mark.slow
def test_the_examples_of_the_readme_do_what_they_say(tmp_path, monkeypatch):
    readme = Path(__file__).parent.parent / "README.md"
    monkeypatch.chdir(tmp_path)  # they save a model
    failures, tries = doctest.testfile(str(readme), module_relative=False)
    assert tries > 20
    assert failures == 0
