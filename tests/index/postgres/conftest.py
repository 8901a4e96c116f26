"""Names of stores."""

import itertools

import pytest

NUMBERS = itertools.count()


@pytest.fixture
def name():
    """Of a store that nobody has; quoted, or it is none."""
    return f'Store "{next(NUMBERS)}" of 5%s; --'
