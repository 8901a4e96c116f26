"""gphash: short binary codes that keep your notion of similarity, by supervised hashing with Gaussian processes."""

from gphash.coding.similarity import Pairs
from gphash.estimator import GPHasher
from gphash.index.filters import Where
from gphash.index.hamming_index import HammingIndex
from gphash.methods import load
from gphash.version import __version__

__all__ = ["GPHasher", "HammingIndex", "Pairs", "Where", "__version__", "load"]
