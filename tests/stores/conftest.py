"""One server for all tests of stores, and stores that go when a test ends."""

import itertools

import pytest

from tests import postgresql as server


@pytest.fixture(scope="package")
def conninfo():
    with server.running("shared_buffers=16MB", "max_connections=40") as told:
        yield told


@pytest.fixture
def connection(conninfo):
    """A connection past the package."""
    import psycopg

    with psycopg.connect(conninfo, autocommit=True) as plain:
        yield plain


NUMBERS = itertools.count()


@pytest.fixture
def name():
    """Of a store that nobody has; quoted, or it is none."""
    return f'Store "{next(NUMBERS)}" of 5%s; --'
