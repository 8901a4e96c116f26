"""The same searches in tables of PostgreSQL."""
