"""The oldest packages that the service may be installed with are beyond what is known to be unsafe."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
UNSAFE = {
    "h11": ["0.14.0", "0.15.0"],  # CVE-2025-43859
    "starlette": ["0.47.1", "0.49.0", "1.0.0", "1.3.0"],  # CVE-2025-54121, -62727, CVE-2026-48710, -54282
    "python-multipart": ["0.0.17", "0.0.21", "0.0.26", "0.0.30"],  # CVE-2024-53981, CVE-2026-24486, -42561, -53540
}


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_versions_are_not_installed(name):
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = (one for one in map(Requirement, extras["serve"]) if one.name == name)
    assert not [version for version in UNSAFE[name] if version in wanted.specifier]
    assert metadata.version(name) in wanted.specifier
    assert any(one.name == "gphash" and "serve" in one.extras for one in map(Requirement, extras["test"]))
