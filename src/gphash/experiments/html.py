"""One self-contained page: no script, no style sheet, font or picture from elsewhere."""

import html
import re
from collections.abc import Sequence
from typing import NamedTuple

from gphash.experiments.table import Table

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --quiet: #666; --line: #ddd; --paper: #fff; --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --quiet: #a0a0a0; --line: #3a3a3a; --paper: #161616; --mark: #56b4e9; }
  figure { background: #fff; border-radius: 6px; }
}
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1rem 4rem; color: var(--ink); background: var(--paper);
  font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { margin-top: 2.6rem; font-size: 1.25rem; }
p, li { max-width: 46rem; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; font-size: .87rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; white-space: nowrap; color: var(--quiet); padding-bottom: .4rem; }
th, td { padding: .28rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child, table.words td { text-align: left; } table.words td { white-space: normal; }
thead th { border-bottom: 2px solid var(--line); font-weight: 600; white-space: normal; vertical-align: bottom; }
td.best { font-weight: 700; color: var(--mark); } figure { margin: 1rem 0; padding: .5rem; }
figure svg { width: 100%; height: auto; } code { font-size: .92em; }
"""


class Section(NamedTuple):
    """A part of the page.

    title
        Its heading.
    texts
        Paragraphs, or points of a list.
    tables
        After the texts.
    picture
        SVG; None if there is none.
    bullets
        Whether the texts are a list.
    """

    title: str
    texts: Sequence[str]
    tables: Sequence[Table] = ()
    picture: str | None = None
    bullets: bool = False


def page(title: str, introduction: Sequence[str], sections: Sequence[Section], appendix: Sequence[Section]) -> str:
    """The whole page."""
    parts = [f"<h1>{html.escape(title)}</h1>", *(_paragraph(text) for text in introduction)]
    parts += [_section(number, section) for number, section in enumerate((*sections, *appendix))]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _section(number: int, section: Section) -> str:
    parts = [f"<h2>{html.escape(section.title)}</h2>"]
    if section.bullets:
        parts += ["<ul>", *(f"<li>{_inline(text)}</li>" for text in section.texts), "</ul>"]
    else:
        parts += [_paragraph(text) for text in section.texts]
    if section.picture is not None:
        parts.append(
            f'<figure role="img" aria-label="{html.escape(section.title)}">{_svg(section.picture, number)}</figure>'
        )
    parts += [_table(one) for one in section.tables]
    return "\n".join(parts)


def _paragraph(text: str) -> str:
    return f"<p>{_inline(text)}</p>"


def _inline(text: str) -> str:
    """Escaped text; words between backquotes are code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _table(table: Table) -> str:
    def cell(row: int, column: int, value: str) -> str:
        mark = ' class="best"' if (row, column) in table.best else ""
        return f"<td{mark}>{html.escape(value)}</td>"

    words = ' class="words"' if table.words else ""
    head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in table.columns)
    rows = (
        "<tr>" + "".join(cell(number, column, value) for column, value in enumerate(row)) + "</tr>"
        for number, row in enumerate(table.rows)
    )
    return (
        f'<div class="scroll"><table{words}><caption>{html.escape(table.title)}</caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _svg(picture: str, number: int) -> str:
    """The drawing alone, its names made different from those of other drawings on the page."""
    drawing = picture[picture.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    for name in set(re.findall(r'\bid="([^"]+)"', drawing)):
        for before, after in (('id="', '"'), ("url(#", ")"), ('href="#', '"')):
            drawing = drawing.replace(f"{before}{name}{after}", f"{before}s{number}-{name}{after}")
    return drawing
