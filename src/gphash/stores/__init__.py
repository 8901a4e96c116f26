"""Codes in a database that people already run, searched there with the results of a `HammingIndex`."""
