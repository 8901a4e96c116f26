"""Codes as packed bits, and distances between them."""
