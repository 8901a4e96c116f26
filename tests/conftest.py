"""Settings that every test shares."""

from hypothesis import settings

# Deterministic: a red run is red again, for everybody.
settings.register_profile("gphash", derandomize=True, deadline=None, database=None)
settings.load_profile("gphash")
