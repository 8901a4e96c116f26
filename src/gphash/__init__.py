"""gphash: short binary codes that keep your notion of similarity, by supervised hashing with Gaussian processes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gphash.version import __version__

if TYPE_CHECKING:
    from gphash.coding.similarity import Pairs
    from gphash.estimator import GPHasher
    from gphash.index.filters import Where
    from gphash.index.hamming_index import HammingIndex
    from gphash.methods import load
    from gphash.stores.postgres_index import PostgresIndex as PostgresIndex

__all__ = ["GPHasher", "HammingIndex", "Pairs", "Where", "__version__", "load"]

# numba and scikit-learn take a second to import, which `gphash --help` should not.
_HOMES = {
    "GPHasher": "gphash.estimator",
    "HammingIndex": "gphash.index.hamming_index",
    "Pairs": "gphash.coding.similarity",
    "PostgresIndex": "gphash.stores.postgres_index",
    "Where": "gphash.index.filters",
    "load": "gphash.methods",
}

if not TYPE_CHECKING:  # or a checker would believe that every name exists

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
