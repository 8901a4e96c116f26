"""Any folder of pictures as a data set; one of texts has the same form, see `texts`.

Classes: a subfolder for each, with its pictures anywhere below it; a folder without subfolders has none. Tags: a file
``tags.csv`` in the folder, in either of two forms, the second with the header and one tag or more. Paths are relative
to the folder, with forward slashes::

    path,tags                     path,cat,dog,garden
    a/001.jpg,cat;garden          a/001.jpg,1,0,1
    a/002.jpg,                    a/002.jpg,0,0,0

A file that is not a picture is skipped and reported; so is a link, which might lead out of the folder, or to a picture
that counts already. Files whose names begin with a dot are not part of the data.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.data import dataset, downloads, headers, pictures
from gphash.data.dataset import Content, Dataset, Progress, Skipped, Split, checksum, file_digest
from gphash.data.descriptors.described import select
from gphash.data.labels import tag_names
from gphash.files import DataError

TAGS_FILE = "tags.csv"

Candidate: TypeAlias = tuple[str, list[str]]
"""A file that should be a picture: its path in the folder, and the names of its class or tags."""


class FileKind(NamedTuple):
    """What the files of a folder are, in a word, and what raises a ValueError of one that is none."""

    noun: str
    check: Callable[[Path], object]


PICTURE = FileKind("picture", lambda path: pictures.check(path))


def load(
    folder: str | os.PathLike[str], *, progress: Progress | None = None, test_share: float = 0.2, seed: int = 0
) -> Dataset:
    """Load a folder of pictures and split it, classes in proportion; images are paths, and X is None.

    Parameters
    ----------
    progress
        Called with the files done and in all.
    test_share, seed
        Which part of the pictures to test with, and what decides which ones.
    """
    if not 0 < test_share < 1:
        raise ValueError(f"test_share={test_share!r}; give a number between 0 and 1.")
    folder = Path(folder).expanduser()
    found = read(folder, progress=progress)
    y, paths = found.y, found.images
    assert paths is not None  # `read` found some
    n_rows = len(paths)
    if y is None:
        raise DataError(f"{str(folder)!r} has no classes; make a subfolder of pictures for each, or a file {TAGS_FILE}")
    # Of every class one is left to train with; with tags, one in all.
    n_kept = len(found.classes) if y.ndim == 1 else 1
    if y.ndim == 1 and n_kept < 2:
        raise DataError(
            f"{str(folder)!r} has pictures of one class only, {found.classes[0]!r}; give two subfolders or more, or a "
            f"file {TAGS_FILE}"
        )
    if n_rows <= n_kept:
        what = "one picture of each class" if y.ndim == 1 else "one picture"
        raise DataError(f"{str(folder)!r} has {what}; give more, to train and to test with")
    n_test = min(max(1, round(test_share * n_rows)), n_rows - n_kept)
    parts = dataset.split_by_class(y, n_test, seed) if y.ndim == 1 else dataset.split_at_random(n_rows, n_test, seed)
    train, test = (Split(None, y[rows], select(paths, rows)) for rows in parts)
    name, features = folder.resolve().name or "pictures", "none yet: describe the images"
    return Dataset(name, train, test, found.classes, features, found.checksum, "a folder of pictures", found.skipped)


def read(folder: str | os.PathLike[str], *, progress: Progress | None = None, kind: FileKind = PICTURE) -> Content:
    """List the pictures of a folder, with their classes or tags if it has any; arguments as for `load`."""
    if kind is PICTURE:
        pictures.pillow()
    folder = Path(folder)
    if not folder.is_dir():
        where = "make the folder, with a subfolder of pictures for each class or with a file tags.csv"
        raise downloads.DataMissingError("image_folder", [folder.name], folder.parent, where)
    tagged = folder / TAGS_FILE
    skipped: list[Skipped] = []
    digests: dict[str, str] = {}
    classes: tuple[str, ...] = ()
    if tagged.is_file():
        candidates, classes = _from_tags(tagged)
        digests[TAGS_FILE] = file_digest(tagged)
    else:
        candidates = list(_from_subfolders(folder, skipped))
    root = os.path.realpath(folder)
    kept = []
    for number, (name, tags) in enumerate(candidates):
        path = folder / name
        try:
            if os.path.realpath(path) != os.path.join(root, *PurePosixPath(name).parts):
                raise pictures.PictureError(f"{str(path)!r} is a link; put the file itself there")
            if not path.is_file():  # a folder, a pipe, a device, a link to itself
                raise pictures.PictureError(f"{str(path)!r} is not a file")
            kind.check(path)
            kept.append((path, tags))
            digests[name] = file_digest(path)
        except (pictures.PictureError, DataError, PermissionError) as error:
            skipped.append(Skipped(path, str(error)))
        if progress is not None:
            progress(number + 1, len(candidates))
    if not kept:
        examples = "; ".join(entry.reason for entry in skipped[:3])
        raise DataError(f"none of the {len(skipped)} files in {str(folder)!r} is a {kind.noun}: {examples}")
    y: NDArray[Any] | None = None
    if classes:
        y = np.array([[name in tags for name in classes] for _, tags in kept], dtype=np.uint8)
        if not y.any():
            raise DataError(f"no {kind.noun} of {str(tagged)!r} has a tag")
    elif kept[0][1]:
        classes = tuple(sorted({tags[0] for _, tags in kept}))
        y = np.array([classes.index(tags[0]) for _, tags in kept], dtype=np.int64)
    paths = [path for path, _ in kept]
    return Content(None, y, classes, images=paths, skipped=tuple(skipped), checksum=checksum(digests))


def _from_subfolders(folder: Path, skipped: list[Skipped]) -> Iterator[Candidate]:
    """Every file below a subfolder, or of a folder that has no subfolder, in the order of their names."""
    here = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    classes = [entry for entry in here if entry.is_dir()]
    if not here:
        raise DataError(f"{str(folder)!r} is empty; make a subfolder of pictures for each class")
    if not classes:
        yield from ((entry.name, []) for entry in here)
        return
    is_empty = True
    for entry in here:
        if entry not in classes:
            reason = f"{str(entry)!r} lies beside the classes' subfolders, so its class is unknown"
            skipped.append(Skipped(entry, reason))
        elif entry.is_symlink():
            skipped.append(Skipped(entry, f"{str(entry)!r} is a link; put the folder itself there"))
            continue
        for place, below, names in os.walk(entry):
            below[:] = sorted(name for name in below if not name.startswith("."))
            for name in sorted(name for name in names if not name.startswith(".")):
                is_empty = False
                yield (Path(place) / name).relative_to(folder).as_posix(), [files.readable(entry.name)]
    if is_empty:
        examples = ", ".join(repr(entry.name) for entry in classes[:5])
        raise DataError(f"{str(folder)!r} is empty: there is no file in {examples}")


def _from_tags(path: Path) -> tuple[list[Candidate], tuple[str, ...]]:
    """The rows of a file of tags, and the tags' names."""
    lines = ((line, [cell.strip() for cell in cells]) for line, cells in headers.csv_rows(path))
    rows = [(line, cells) for line, cells in lines if any(cells)]
    header = [cell.casefold() for cell in rows[0][1]] if rows else []
    has_header = header[:1] == ["path"]
    if not rows[has_header:]:
        raise DataError(f"{str(path)!r} is empty; it must have rows of a path and tags")
    columns = tuple(rows[0][1][1:])
    matrix = len(header) > 2 or (has_header and header != ["path", "tags"])
    needed = "the header must be 'path' and 'tags', or 'path' and the tags' names, each once"
    if not has_header and (matrix or not os.path.lexists(path.parent / rows[0][1][0])):
        raise DataError(f"{str(path)!r}, line 1: 'path' is missing, and there is {rows[0][1][0]!r}; {needed}")
    if not columns:
        raise DataError(f"{str(path)!r}, line 1: 'tags' is missing; {needed}")
    if matrix and (len(set(columns)) < len(columns) or not all(columns)):
        raise DataError(f"{str(path)!r}, line 1: a tag without a name, or one that is there twice; {needed}")

    found: dict[str, list[str]] = {}
    for line, (name, *cells) in rows[has_header:]:
        label = f"{str(path)!r}, line {line}"
        if len(cells) != len(header) - 1:
            raise DataError(f"{label}: {len(cells) + 1} columns; there must be {len(header)}")
        if matrix and (odd := [cell for cell in cells if cell not in {"0", "1"}]):
            raise DataError(f"{label}: {odd[0]!r}; give 0 or 1 for every tag")
        tidy = PurePosixPath(name)
        if not name or "\0" in name or tidy.is_absolute() or Path(name).is_absolute() or ".." in tidy.parts:
            raise DataError(f"{label}: the path {name!r} leads out of the folder; give one within it")
        if str(tidy) in found:
            raise DataError(f"{label}: {str(tidy)!r} occurs twice")
        if not os.path.lexists(path.parent / tidy):
            raise DataError(f"{label}: {str(tidy)!r} is not there")
        tags = [tag for tag, cell in zip(columns, cells, strict=True) if cell == "1"] if matrix else tag_names(cells[0])
        found[str(tidy)] = tags
    if matrix:
        return list(found.items()), columns
    classes = tuple(sorted({tag for tags in found.values() for tag in tags}))
    if len(classes) < 2:
        raise DataError(f"{str(path)!r} has {len(classes)} different tags; give two or more")
    if set(classes) <= {"0", "1"}:
        raise DataError(f"{str(path)!r} has 0 and 1 for tags; give names, or a header 'path' and the tags' names")
    return list(found.items()), classes
