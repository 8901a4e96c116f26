"""Rows and where they come from: tables, blocks, pictures."""
