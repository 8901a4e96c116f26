"""Links to files of the repository that are no pages: the site has them as files to download."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Documents at the root that are pages here.
PAGES = {"ARCHITECTURE.md": "architecture.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}


def mend(app, name, source):
    """Rewrite links, which are made for the repository, for the site."""

    def link(found):
        text, target = found.groups()
        path, _, anchor = target.partition("#")
        if path in PAGES:
            return f"[{text}]({PAGES[path]}{'#' + anchor if anchor else ''})"
        return f"`{text}`" if (ROOT / path).is_dir() or path.endswith(".md") else found[0]

    source[0] = re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./([^)\s]+)\)", link, source[0])


def setup(app):
    app.connect("source-read", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
