"""Measuring retrieval: metrics that mean the same thing every time."""
