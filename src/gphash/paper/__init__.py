"""The experiments of the paper, and comparisons of methods."""
