"""Packed binary codes: their layout, their distances, their index."""
