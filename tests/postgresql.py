"""A PostgreSQL server of the tests' own: a folder, a socket in it, and an unprivileged user; gone afterwards.

GPHASH_POSTGRES names the folder of the server's programs, if it is not Debian's newest or the one of the path.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest


def program(name):
    """Where a program of PostgreSQL's server is: as the environment says, else Debian's newest, else in the path."""
    if folder := os.environ.get("GPHASH_POSTGRES"):
        return shutil.which(name, path=os.path.abspath(folder))
    versions = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    return str(versions[-1]) if versions else shutil.which(name)


@contextlib.contextmanager
def running(*settings):
    """The connection string of a server; skips the test, with a reason, where there can be none."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    initdb, postgres = program("initdb"), program("postgres")
    if not initdb or not postgres:
        pytest.skip("no PostgreSQL server is installed")
    user = {}
    if os.getuid() == 0:  # which the server refuses
        if subprocess.run(["id", "postgres"], capture_output=True).returncode:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        user = {"user": "postgres", "group": "postgres", "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="gphash-pg-") as folder:  # short: paths of sockets may not be long
        if user:
            shutil.chown(folder, "postgres", "postgres")
        process = {"cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": folder}, **user}
        subprocess.run(
            [initdb, "-D", f"{folder}/data", "-U", "gphash", "-A", "trust", "--no-sync", "-E", "UTF8", "--locale=C"],
            check=True,
            capture_output=True,
            **process,
        )
        settings = ["listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", *settings]
        chosen = [part for setting in settings for part in ("-c", setting)]
        with Path(folder, "log").open("wb") as log:
            server = subprocess.Popen([postgres, "-D", f"{folder}/data", *chosen], stdout=log, stderr=log, **process)
        try:
            conninfo = f"host={folder} dbname=postgres user=gphash"
            wait_for(psycopg, server, conninfo, Path(folder, "log"))
            yield conninfo
        finally:
            server.send_signal(2)  # SIGINT: a fast shutdown
            server.wait(20)


def wait_for(psycopg, server, conninfo, log, patience=20.0):
    end = time.monotonic() + patience
    while True:
        try:
            psycopg.connect(conninfo).close()
            return
        except psycopg.OperationalError:
            if server.poll() is not None or time.monotonic() > end:
                raise AssertionError(log.read_text()) from None
            time.sleep(0.1)
