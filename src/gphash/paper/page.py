"""The page that the experiments end in, from the template beside this file: the one module that knows Jinja2."""

import re
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

from gphash.paper.table import ResultTable

TITLE = "Scalable Gaussian Processes for Supervised Hashing: the experiments, run again"


class Section(NamedTuple):
    """A part of the page: the experiment, a heading, paragraphs after what the template says of the experiment, tables.

    A picture is given as SVG.
    """

    experiment: str
    title: str
    texts: Sequence[str] = ()
    tables: Sequence[ResultTable] = ()
    picture: str | None = None


def library() -> Any:
    """Jinja2, or one sentence that says how to get it."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("the report needs Jinja2: pip install jinja2") from error
    return jinja2


def render(sections: Sequence[Section], made_with: ResultTable, **more: Any) -> str:
    """The whole page; `more` are the template's other names: `methods`, `left_out` and `quick`."""
    jinja2 = library()
    from markupsafe import Markup

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    environment.filters["drawing"] = lambda picture, number: Markup(_drawing(picture, number))
    template = resources.files("gphash.paper").joinpath("page.html").read_text(encoding="utf-8")
    page = environment.from_string(template)
    return str(page.render(title=TITLE, sections=sections, made_with=made_with, **more))


def _drawing(picture: str, number: int) -> str:
    """The drawing alone, its names made different from those of other drawings on the page."""
    drawing = picture[picture.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    for name in set(re.findall(r'\bid="([^"]+)"', drawing)):
        for before, after in (('id="', '"'), ("url(#", ")"), ('href="#', '"')):
            drawing = drawing.replace(f"{before}{name}{after}", f"{before}s{number}-{name}{after}")
    return drawing
