"""The readme of the package's metadata: README.md, whose pictures and links also work on an index page."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!\w+:|#)([^)\s]+)\)")


def absolute(text: str, repository: str, version: str) -> str:
    """The text with absolute addresses for relative ones, at the tag of the version."""

    def moved(link: re.Match[str]) -> str:
        mark, words, path = link.groups()
        return f"{mark}{words}({repository}/{'raw' if mark else 'blob'}/v{version}/{path})"

    return LINK.sub(moved, text)


class ReadmeHook(MetadataHookInterface):
    """Called by hatchling for every build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Enter the readme."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        text = absolute(text, metadata["urls"]["Repository"].rstrip("/"), metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
