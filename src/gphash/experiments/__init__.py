"""Comparisons of methods on data sets, and the experiments of the paper."""
