"""Where `gphash serve` has its tokens from."""

import os
import re
import threading

import pytest

from gphash.cli import serving
from tests.cli.running import inside


@pytest.mark.parametrize("variable", ["GPHASH_READ_TOKEN", "GPHASH_WRITE_TOKEN"])
def test_one_that_is_set_but_empty_is_not_taken_for_none(variable, monkeypatch):
    monkeypatch.setenv(variable, "")
    found = inside("serve", "none.index")
    assert found.exit_code == 1
    assert f"{variable} is set, but empty" in found.stderr


@pytest.mark.parametrize("option", ["--read-token-file", "--write-token-file"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o622, 0o666])
def test_a_file_that_others_can_use_is_refused(tmp_path, option, mode):
    file = tmp_path / "my token"
    file.write_text("very-secret")
    file.chmod(mode)
    found = inside("serve", "none.index", option, file)
    assert found.exit_code == 1
    assert str(file) in found.stderr
    assert f"{mode:o}" in found.stderr
    command = re.search(r"chmod 600 (.*)", found.stderr).group(1)
    assert command.strip() == f"'{file}'"  # as a shell takes it
    assert "secret" not in found.stderr


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_file_of_ones_own_is_read(tmp_path, mode):
    file = tmp_path / "token"
    file.write_text("very-secret\n")
    file.chmod(mode)
    assert serving._token(file, "NONE") == "very-secret"


def test_a_pipe_has_no_permissions_to_look_at(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    pipe.chmod(0o666)
    threading.Thread(target=pipe.write_text, args=["very-secret\n"], daemon=True).start()
    assert serving._token(pipe, "NONE") == "very-secret"
