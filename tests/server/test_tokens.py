"""Where `gphash serve` has its tokens from."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("variable", ["GPHASH_READ_TOKEN", "GPHASH_WRITE_TOKEN"])
def test_one_that_is_set_but_empty_is_not_taken_for_none(tmp_path, variable):
    run = subprocess.run(
        [sys.executable, "-m", "gphash", "serve", "none.index"],
        env={**os.environ, variable: ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert f"{variable} is set, but empty" in run.stderr
