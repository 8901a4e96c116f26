"""Files that are spoilt and sealed again: opened and used, they must be refused, or answer rightly.

Run with ``python -m tests.fuzz --files 20000 --kind all --seed 0``.
"""
