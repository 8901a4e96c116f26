"""Compiling is announced once, and only when something is compiled; what it makes is kept where there is a place."""

import logging

import numpy as np
from numba import njit
from numba.core import caching

from gphash import compiled


def test_it_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(compiled.notice, "said", False)
    double = njit(lambda x: x + x)
    with caplog.at_level(logging.INFO, "gphash"):
        assert double(2) == 4
        assert double(2.5) == 5.0
        assert double(np.float32(1)) == 2
    assert sum("compiling" in record.message for record in caplog.records) == 1


def test_compiling_needs_no_place_to_write(monkeypatch):
    def double(x):
        return x + x

    assert compiled.jit(double).stats.cache_path is not None
    # Neither a folder given, nor the module's, nor the user's.
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])
    compiled_double = compiled.jit(double)
    assert compiled_double(2) == 4
    assert compiled_double.stats.cache_path is None
    assert compiled.jit(fastmath=True)(double)(2.5) == 5.0
