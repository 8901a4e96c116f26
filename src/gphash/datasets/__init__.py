"""Data sets, one module each; `registry` loads any of them by its name."""
