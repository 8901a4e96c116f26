"""Compiling is announced once, and only when something is compiled."""

import logging

import numpy as np
from numba import njit

from gphash import compiled


def test_it_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(compiled.notice, "said", False)
    double = njit(lambda x: x + x)
    with caplog.at_level(logging.INFO, "gphash"):
        assert double(2) == 4
        assert double(2.5) == 5.0
        assert double(np.float32(1)) == 2
    assert sum("compiling" in record.message for record in caplog.records) == 1
