"""Methods of hashing under one contract: `GPHasher` and those it is compared with, imported when they are named."""

from typing import Any

from gphash.hashers.methods import HOMES, METHODS


def __getattr__(name: str) -> Any:
    for method, home in HOMES.items():
        if home.endswith(f":{name}"):
            return METHODS[method]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
