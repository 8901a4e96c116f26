"""Settings that every test shares, and what takes long to start: one cluster and one database for all tests."""

import os
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

from tests import clusters, compiled_sources, postgresql

os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"gphash-numba-{compiled_sources.state()}"))

# As many workers as cores, and OpenBLAS's threads spin while they wait: one each, if nobody says otherwise.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Deterministic: a red run is red again, for everybody.
settings.register_profile("gphash", derandomize=True, deadline=None, database=None)
settings.load_profile("gphash")

# A shell ignores Ctrl-C for what it runs in the background, and so would every process that tests start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Files whose tests share what takes long to start are given to one worker; every other file is given to one, too, for
# the sake of its fixtures. What takes longest comes first.
TOGETHER = {
    "cluster": ("tests/cluster/test_dask_executor.py", "tests/cli/test_cluster.py", "tests/collection/test_bulk.py"),
    "server": ("tests/server/",),
    "postgresql": (
        "tests/index/postgres/",
        "tests/index/test_contract.py",
        "tests/collection/test_database.py",
        "tests/cli/test_storing.py",
        "tests/index/test_engines.py",
    ),
}


# Whoever asks for one of these waits for it.
SLOW = {"cluster", "conninfo"}


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their marks
def pytest_collection_modifyitems(items):
    for item in items:
        if SLOW.intersection(item.fixturenames):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        """Files, or several of them, that are not divided among workers."""

        def _split_scope(self, nodeid):
            file = nodeid.split("::")[0]
            return next((name for name, files in TOGETHER.items() if file.startswith(files)), file)

    return ByFile(config, log)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    """Of two workers; whoever kills some, or starts others, asks for `mortal`."""
    pytest.importorskip("distributed", reason="a cluster needs Dask")
    with clusters.running(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture
def mortal(cluster):
    """The cluster, which has its two workers again afterwards."""
    yield cluster
    cluster.have(2)


@pytest.fixture(scope="session")
def conninfo():
    """The connection string of a PostgreSQL server."""
    with postgresql.running("shared_buffers=16MB", "max_connections=40") as told:
        yield told


@pytest.fixture
def connection(conninfo):
    """A connection past the package."""
    import psycopg

    with psycopg.connect(conninfo, autocommit=True) as plain:
        yield plain
