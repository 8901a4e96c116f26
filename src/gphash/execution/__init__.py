"""Where work on row blocks runs: threads of this process, and behind the same seam, elsewhere."""
