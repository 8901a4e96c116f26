"""Texts as data: a file ``.txt`` with one text a line, or a folder of such files, each of them one text.

A folder is read as one of pictures is: a subfolder for each class, or a file ``tags.csv``, or neither. Texts are UTF-8,
or UTF-16 if the file begins by saying so. What is no text, or blank, is left out and reported.
"""

import codecs
from pathlib import Path

from gphash.data.dataset import Content, Progress, Skipped, file_digest
from gphash.data.known import image_folder
from gphash.files import DataError

SUFFIX = ".txt"
MOST_BYTES = 16_000_000  # of one text
MOST_LINES_BYTES = 1 << 31  # of a file of texts

_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def read_lines(path: Path) -> Content:
    """One text a line; blank lines are left out."""
    # Not str.splitlines, which also breaks at form feeds and separators within a text.
    lines = decode(path, MOST_LINES_BYTES).replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    texts = [line.strip() for line in lines]
    kept = [text for text in texts if text]
    if not kept:
        raise DataError(f"{str(path)!r} has no text; give one text a line")
    return drop_blank(Content(columns={"text": list(texts)}, checksum=file_digest(path)), path)


def read_folder(folder: Path, progress: Progress | None = None) -> Content:
    """Every file ``.txt`` is a text, and its path in the folder is its title."""
    found = image_folder.read(folder, progress=progress, kind=image_folder.FileKind("text", check))
    paths = [Path(path) for path in found.images or ()]
    columns = {
        "text": [decode(path, MOST_BYTES).strip() for path in paths],
        "title": [path.relative_to(folder).with_suffix("").as_posix() for path in paths],
    }
    return found._replace(images=None, columns=columns)


def check(path: Path) -> None:
    """Refuse a file that is no text, or a blank one."""
    if path.suffix.lower() != SUFFIX:
        raise DataError(f"{str(path)!r} is not a file {SUFFIX}")
    if not decode(path, MOST_BYTES).strip():
        raise DataError(f"{str(path)!r} is blank")


def decode(path: Path, most: int) -> str:
    """The text of a file."""
    if (size := path.stat().st_size) > most:
        raise DataError(f"{str(path)!r} has {size} bytes; a text may have at most {most}")
    content = path.read_bytes()
    encoding = next((name for mark, name in _MARKS.items() if content.startswith(mark)), "utf-8")
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{str(path)!r}, line {line}: byte {error.start} is not {encoding.upper()}; save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise DataError(f"{str(path)!r} holds zero bytes, so it is not a text")
    return text


def drop_blank(content: Content, path: Path) -> Content:
    """Content without the rows whose text is blank; how many these are is reported."""
    texts = content.columns["text"]
    kept = [row for row, text in enumerate(texts) if isinstance(text, str) and text.strip()]
    if not kept:
        raise DataError(f"{str(path)!r} has no text in any row; give another column of texts")
    if len(kept) == len(texts):
        return content
    first = next(row for row in range(len(texts)) if row >= len(kept) or kept[row] != row)
    reason = f"{len(texts) - len(kept)} row(s) without a text, the first of them row {first}"
    return content._replace(
        y=None if content.y is None else content.y[kept],
        ids=None if content.ids is None else content.ids[kept],
        columns={name: [cells[row] for row in kept] for name, cells in content.columns.items()},
        skipped=(*content.skipped, Skipped(path, reason)),
    )
