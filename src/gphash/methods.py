"""All methods by their names, and the reading of any model from its file."""

import os
from types import MappingProxyType

from gphash import persistence
from gphash.baselines import (
    CCAITQ,
    ITQ,
    KLSH,
    KSH,
    LFH,
    LSH,
    MLH,
    PCAH,
    SDH,
    FastHash,
    HadamardRidge,
    SpectralHashing,
)
from gphash.contract import KIND, Hasher
from gphash.estimator import GPHasher

METHODS: MappingProxyType[str, type[Hasher]] = MappingProxyType(
    {
        "gph": GPHasher,
        "hadamard-ridge": HadamardRidge,
        "sdh": SDH,
        "fasthash": FastHash,
        "ksh": KSH,
        "lfh": LFH,
        "mlh": MLH,
        "cca-itq": CCAITQ,
        "itq": ITQ,
        "pcah": PCAH,
        "spectral": SpectralHashing,
        "klsh": KLSH,
        "lsh": LSH,
    }
)
"""From what the paper proposes to what needs no training, in the order in which tables list them."""


def find(name: str) -> type[Hasher]:
    """The method of that name."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; give one of {', '.join(METHODS)}.")
    return METHODS[name]


def load(path: str | os.PathLike[str]) -> Hasher:
    """Read a model of any method, as its `save` wrote it, ready to encode."""
    stored = persistence.read(path, KIND)
    known = {method.__name__: method for method in METHODS.values()}
    if (name := stored.meta.get("method")) not in known:
        raise persistence.FormatError(
            f"{os.fspath(path)!r} holds a model of the method {name!r}; known are {', '.join(known)}."
        )
    return known[name].from_container(stored)
