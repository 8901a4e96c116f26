"""Sparse Gaussian process classifiers for all bits: prior, expectation propagation, posterior."""
