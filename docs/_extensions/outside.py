"""Links that are made for the repository, changed for the site: to pages where there are some, else to files."""

import re
from pathlib import Path

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
GALLERY = ROOT / "examples" / "gallery"
ROOT_PAGES = {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"}  # pages of the site that include these


def mend(app, name, source):
    """Rewrite the links of a page that leave the folder of the documents."""
    folder = (DOCS / name).parent

    def link(found):
        text, target = found.groups()
        path, _, anchor = target.partition("#")
        file = (folder / path).resolve()
        if file.is_relative_to(DOCS):
            return found[0]
        if file.is_relative_to(GALLERY):
            return f"[{text}](/gallery/{'index' if file == GALLERY else file.stem})"
        if file.name in ROOT_PAGES:
            return f"[{text}](/{file.name.lower()}{'#' + anchor if anchor else ''})"
        return f"`{text}`" if file.is_dir() or file.suffix == ".md" else found[0]  # nothing that a browser would show

    source[0] = re.sub(r"(?<!!)\[([^\]]+)\]\((\.\./[^)\s]+)\)", link, source[0])


def setup(app):
    app.connect("source-read", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
