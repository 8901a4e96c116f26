"""Packed binary codes: their layout and their distances."""
