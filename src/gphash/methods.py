"""All methods by their names, and the reading of any model from its file.

Names cost nothing: a method's module is imported when the method is asked for.
"""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gphash.contract import Hasher

_HOMES = {
    "gph": ("gphash.estimator", "GPHasher"),
    "hadamard-ridge": ("gphash.baselines", "HadamardRidge"),
    "sdh": ("gphash.baselines", "SDH"),
    "fasthash": ("gphash.baselines", "FastHash"),
    "ksh": ("gphash.baselines", "KSH"),
    "lfh": ("gphash.baselines", "LFH"),
    "mlh": ("gphash.baselines", "MLH"),
    "cca-itq": ("gphash.baselines", "CCAITQ"),
    "itq": ("gphash.baselines", "ITQ"),
    "pcah": ("gphash.baselines", "PCAH"),
    "spectral": ("gphash.baselines", "SpectralHashing"),
    "klsh": ("gphash.baselines", "KLSH"),
    "lsh": ("gphash.baselines", "LSH"),
}


class _Methods(Mapping[str, "type[Hasher]"]):
    """The class of every method by its name, imported when it is looked up."""

    def __getitem__(self, name: str) -> "type[Hasher]":
        module, word = _HOMES[name]
        method: type[Hasher] = getattr(import_module(module), word)
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)

    def __contains__(self, name: object) -> bool:
        return name in _HOMES


METHODS: Mapping[str, "type[Hasher]"] = _Methods()
"""From what the paper proposes to what needs no training, in the order in which tables list them."""


def find(name: str) -> "type[Hasher]":
    """The method of that name."""
    if name not in METHODS:
        raise ValueError(f"unknown method {name!r}; give one of {', '.join(METHODS)}.")
    return METHODS[name]


def load(path: str | os.PathLike[str]) -> "Hasher":
    """Read a model of any method, as its `save` wrote it, ready to encode."""
    from gphash import persistence, schema
    from gphash.functions.model import INSTEAD, KIND

    stored = persistence.read(path, KIND)
    known = {word: name for name, (_, word) in _HOMES.items()}
    with schema.reading(path, INSTEAD):
        schema.Text(tuple(known)).check(stored.meta.get("method"), "method")
        return METHODS[known[stored.meta["method"]]].from_container(stored)
