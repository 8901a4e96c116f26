"""Settings that every test shares."""

import hashlib
import os
import tempfile
from pathlib import Path

from hypothesis import settings

# numba's cache watches only the file that a kernel stands in, not the files of the functions it calls: a cache of its
# own for every state of the source keeps tests from running yesterday's code.
SOURCE = Path(__file__).parent.parent / "src"
STATE = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCE.rglob("*.py")))).hexdigest()[:16]
os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"gphash-numba-{STATE}"))

# Deterministic: a red run is red again, for everybody.
settings.register_profile("gphash", derandomize=True, deadline=None, database=None)
settings.load_profile("gphash")
