"""Data sets known by name, one a file."""
