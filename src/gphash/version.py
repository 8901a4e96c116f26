"""The version of the library, the one place where it is written down."""

__version__ = "0.2.0"
