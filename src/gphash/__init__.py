"""Supervised hashing with Gaussian processes."""

from gphash.version import __version__

__all__ = ["__version__"]
