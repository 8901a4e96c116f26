"""Supervised hashing with Gaussian processes: from scaled rows to a hash function."""
