"""gphash: short binary codes that keep your notion of similarity, by supervised hashing with Gaussian processes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gphash.version import __version__

if TYPE_CHECKING:
    from gphash.collection.collection import Collection
    from gphash.hashers.contract import load
    from gphash.hashers.gp import GPHasher
    from gphash.hashers.pipelines import save
    from gphash.index.contents import Where
    from gphash.index.hamming_index import HammingIndex
    from gphash.index.postgres.postgres_index import PostgresIndex as PostgresIndex
    from gphash.supervision.similarity import Pairs

__all__ = ["Collection", "GPHasher", "HammingIndex", "Pairs", "Where", "__version__", "load", "save"]

# numba and scikit-learn take a second to import, which `gphash --help` should not.
_HOMES = {
    "Collection": "gphash.collection.collection",
    "GPHasher": "gphash.hashers.gp",
    "HammingIndex": "gphash.index.hamming_index",
    "Pairs": "gphash.supervision.similarity",
    "PostgresIndex": "gphash.index.postgres.postgres_index",
    "Where": "gphash.index.contents",
    "load": "gphash.hashers.contract",
    "save": "gphash.hashers.pipelines",
}

if not TYPE_CHECKING:  # or a checker would believe that every name exists

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_HOMES[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
