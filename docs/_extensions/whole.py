"""Whether the site is whole: every link within it leads somewhere, and nothing is loaded from another host."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.errors import ExtensionError


class Page(HTMLParser):
    """The targets that a page links to, the ones it loads, and its anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loads, self.anchors = [], [], {""}
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if tag == "link" and given.get("href"):
            self.loads.append(given["href"])
        if tag in ("img", "script", "source", "iframe") and given.get("src"):
            self.loads.append(given["src"])
        self.loads += [part.split()[0] for part in (given.get("srcset") or "").split(",") if part.strip()]


def faults(site):
    """A sentence for every link that leads nowhere."""
    files = [path.resolve() for path in sorted(Path(site).rglob("*.html")) if "_static" not in path.parts]
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in files}
    found = []
    for path, page in pages.items():
        for target in dict.fromkeys(page.links + page.loads):
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                if target in page.loads and parts.scheme != "data":
                    found.append(f"{path.name} loads {target}")
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.is_file():
                found.append(f"{path.name}: {target} is not there")
            elif file in pages and unquote(parts.fragment) not in pages[file].anchors:
                found.append(f"{path.name}: {target} is no place on that page")
    return found


def finished(app, exception):
    if exception is None and app.builder.name == "html" and (found := faults(app.outdir)):
        raise ExtensionError("links of the site:\n" + "\n".join(found))


def setup(app):
    app.connect("build-finished", finished, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
