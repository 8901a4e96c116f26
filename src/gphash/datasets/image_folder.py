"""Any folder of pictures as a data set.

Classes: a subfolder for each, with its pictures anywhere below it; a folder without subfolders has none. Tags: a file
``tags.csv`` in the folder, in either of two forms, the second with the header and one tag or more. Paths are relative
to the folder, with forward slashes::

    path,tags                     path,cat,dog,garden
    a/001.jpg,cat;garden          a/001.jpg,1,0,1
    a/002.jpg,                    a/002.jpg,0,0,0

Pictures are looked at while loading, and decoded again, one by one, by whoever needs their pixels
(`pictures.open_picture`). A file that holds no picture is skipped and reported; so is a link that leads out of the
folder, or to a picture that counts already. Files whose names begin with a dot are no part of the data.
"""

import csv
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash import files
from gphash.datasets import dataset, pictures, splitting, storage
from gphash.datasets.dataset import DataError, Dataset, Skipped, Split
from gphash.datasets.progress import Progress

TAGS_FILE = "tags.csv"
SUBFOLDER = "pictures"


class ImageFolder(NamedTuple):
    """The pictures of a folder.

    paths
        Where they are, in a fixed order, [n].
    y
        Class labels, int64 [n], or tags, uint8 [n, c]; None if the folder has neither.
    classes
        The name of every class or tag.
    skipped
        Files that are named or found but left out, and why.
    checksum
        Hexadecimal SHA-256 over pictures and tags.
    """

    paths: tuple[Path, ...]
    y: NDArray[Any] | None
    classes: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    checksum: str


class _Candidate(NamedTuple):
    """A file that should be a picture: its path in the folder, and the names of its class or tags."""

    name: str
    tags: tuple[str, ...] = ()


def load(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    download: bool = True,
    progress: Progress | None = None,
    test_share: float = 0.2,
    seed: int = 0,
    max_pixels: int = pictures.MAX_PIXELS,
) -> Dataset:
    """Load a folder of pictures and split it, classes in proportion.

    Parameters
    ----------
    data_dir
        The folder of pictures itself; if None, ``pictures`` in the data folder, see `storage.data_dir`.
    download
        Not used.
    progress
        Called with the files done and in all.
    test_share
        Which part of the pictures to test with.
    seed
        Decides which ones.
    max_pixels
        As for `read`.

    Returns
    -------
    dataset
        Images are paths, X is None; `skipped` lists the files that were left out.

    Raises
    ------
    DataMissingError
        If there is no such folder.
    DataError
        If the folder is empty, has no classes or one only, or no picture at all, or if its tags do not match.
    """
    del download
    if not 0 < test_share < 1:
        raise ValueError(f"test_share={test_share!r}; give a number between 0 and 1.")
    folder = storage.data_dir() / SUBFOLDER if data_dir is None else Path(data_dir).expanduser()
    found = read(folder, progress=progress, max_pixels=max_pixels)
    if found.y is None:
        raise DataError(
            f"{str(folder)!r} has files but neither a subfolder for each class nor a file {TAGS_FILE}; wanted is a "
            "subfolder of pictures for each class"
        )
    n_rows = len(found.paths)
    n_test = max(1, round(test_share * n_rows))
    if found.y.ndim == 1:
        if len(found.classes) < 2:
            raise DataError(
                f"{str(folder)!r} has pictures of one class only, {found.classes[0]!r}; wanted are two subfolders or "
                f"more, or a file {TAGS_FILE}"
            )
        if n_rows == len(found.classes):
            raise DataError(
                f"{str(folder)!r} has one picture of each class; wanted are more, to train and to test with"
            )
        train, test = splitting.stratified(found.y, min(n_test, n_rows - len(found.classes)), seed)
    else:
        if n_rows < 2:
            raise DataError(f"{str(folder)!r} has one picture; wanted are more, to train and to test with")
        train, test = splitting.at_random(n_rows, min(n_test, n_rows - 1), seed)
    y = found.y
    first, second = (Split(None, y[rows], [found.paths[row] for row in rows]) for rows in (train, test))
    name = folder.resolve().name or "pictures"
    features = "none yet: describe the images"
    return Dataset(name, first, second, found.classes, features, found.checksum, "a folder of pictures", found.skipped)


def read(
    folder: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    max_pixels: int = pictures.MAX_PIXELS,
) -> ImageFolder:
    """List the pictures of a folder, with their classes or tags if it has any.

    Parameters
    ----------
    folder
        The folder of pictures.
    progress
        Called with the files done and in all.
    max_pixels
        A picture of more is skipped.
    """
    pictures.require()
    folder = Path(folder)
    if not folder.is_dir():
        where = "make the folder, with a subfolder of pictures for each class or with a file tags.csv"
        raise storage.DataMissingError("image_folder", [folder.name], folder.parent, where)
    tagged = folder / TAGS_FILE
    skipped: list[Skipped] = []
    digests: dict[str, str] = {}
    if tagged.is_file():
        candidates, classes = _from_tags(tagged)
        with open(tagged, "rb") as file:
            digests[TAGS_FILE] = hashlib.file_digest(file, "sha256").hexdigest()
    else:
        candidates = list(_from_subfolders(folder, skipped))
        classes = ()

    kept = []
    root = _real(folder)
    targets = [_real(folder / candidate.name) for candidate in candidates]
    # Files before links to them, wherever they stand.
    taken = {target for target, candidate in zip(targets, candidates, strict=True) if target == root / candidate.name}
    for number, (candidate, target) in enumerate(zip(candidates, targets, strict=True)):
        path = folder / candidate.name
        if target != root / candidate.name and target in taken:
            skipped.append(Skipped(path, f"{str(path)!r} is a link to a picture that counts already"))
        elif reason := _fault(folder, path, max_pixels):
            skipped.append(Skipped(path, reason))
        else:
            kept.append(candidate)
            taken.add(target)
            with open(path, "rb") as file:
                digests[candidate.name] = hashlib.file_digest(file, "sha256").hexdigest()
        if progress is not None:
            progress(number + 1, len(candidates))
    if not kept:
        examples = "; ".join(entry.reason for entry in skipped[:3])
        raise DataError(f"none of the {len(skipped)} files in {str(folder)!r} is a picture: {examples}")

    paths = tuple(folder / candidate.name for candidate in kept)
    y: NDArray[Any] | None = None
    if tagged.is_file():
        y = _tag_matrix(kept, classes)
        if not y.any():
            raise DataError(f"no picture of {str(tagged)!r} has a tag")
    elif kept[0].tags:
        classes = tuple(sorted({candidate.tags[0] for candidate in kept}))
        numbers = {name: number for number, name in enumerate(classes)}
        y = np.array([numbers[candidate.tags[0]] for candidate in kept], dtype=np.int64)
    return ImageFolder(paths, y, classes, tuple(skipped), dataset.checksum(digests))


def _from_subfolders(folder: Path, skipped: list[Skipped]) -> Iterator[_Candidate]:
    """Every file below a subfolder, or of a folder that has no subfolder, in the order of their names."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        flat = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
        if not flat:
            raise DataError(f"{str(folder)!r} is empty; wanted is a subfolder of pictures for each class")
        yield from map(_Candidate, flat)
        return
    skipped.extend(
        Skipped(entry, f"{str(entry)!r} lies beside the classes' subfolders, so that its class is unknown")
        for entry in sorted(folder.iterdir())
        if entry.is_file() and not entry.name.startswith(".")
    )
    n_files = 0
    for name in names:
        if not _is_inside(folder, folder / name):
            skipped.append(Skipped(folder / name, f"{str(folder / name)!r} is a link out of the folder"))
            continue
        # Links to folders are not followed further down: they might lead in circles.
        for place, below, here in os.walk(folder / name):
            below[:] = sorted(entry for entry in below if not entry.startswith("."))
            for file in sorted(here):
                if not file.startswith("."):
                    n_files += 1
                    yield _Candidate((Path(place) / file).relative_to(folder).as_posix(), (files.readable(name),))
    if not n_files:
        raise DataError(f"{str(folder)!r} is empty: there is no file in {', '.join(map(repr, names[:5]))}")


def _from_tags(path: Path) -> tuple[list[_Candidate], tuple[str, ...]]:
    """The rows of a file of tags, and the tags' names."""
    rows = list(_csv_rows(path))
    header = [cell.casefold() for cell in rows[0][1]] if rows else []
    has_header = header[:1] == ["path"]
    if not rows[has_header:]:
        raise DataError(f"{str(path)!r} is empty; wanted are rows of a path and tags")
    columns = tuple(rows[0][1][1:])
    matrix = len(header) > 2 or (has_header and header != ["path", "tags"])
    if matrix and (not has_header or not columns or len(set(columns)) < len(columns) or not all(columns)):
        raise DataError(f"{str(path)!r}, line 1: wanted is the header 'path' and the tags' names, each once")

    candidates: list[_Candidate] = []
    seen: set[str] = set()
    for line, cells in rows[has_header:]:
        label = f"{str(path)!r}, line {line}"
        if len(cells) != len(header):
            raise DataError(f"{label}: {len(cells)} columns; wanted are {len(header)}")
        if matrix:
            if odd := [cell for cell in cells[1:] if cell not in {"0", "1"}]:
                raise DataError(f"{label}: {odd[0]!r}; wanted is 0 or 1 for every tag")
            tags = tuple(name for name, cell in zip(columns, cells[1:], strict=True) if cell == "1")
        else:
            tags = tuple(tag for tag in (part.strip() for part in ";".join(cells[1:]).split(";")) if tag)
        name = _inside_name(cells[0], label)
        if name in seen:
            raise DataError(f"{label}: {name!r} occurs twice")
        if not os.path.lexists(path.parent / name):
            raise DataError(f"{label}: {name!r} is not there")
        seen.add(name)
        candidates.append(_Candidate(name, tags))
    classes = columns if matrix else tuple(sorted({tag for candidate in candidates for tag in candidate.tags}))
    if not matrix and len(classes) < 2:
        raise DataError(f"{str(path)!r} has {len(classes)} different tags; wanted are two or more")
    if not matrix and set(classes) <= {"0", "1"}:
        raise DataError(f"{str(path)!r} has 0 and 1 for tags; wanted are names, or a header 'path' and the tags' names")
    return candidates, classes


def _csv_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines that are not empty, with their numbers; blanks around cells do not count."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, strict=True)
        try:
            for cells in reader:
                stripped = [cell.strip() for cell in cells]
                if any(stripped):
                    yield reader.line_num, stripped
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{str(path)!r}, after line {reader.line_num}: no readable CSV: {error}") from error


def _inside_name(given: str, label: str) -> str:
    """A path of a row, tidied; one that leads out of the folder is an error."""
    tidy = PurePosixPath(given)
    if not given or "\0" in given or tidy.is_absolute() or Path(given).is_absolute() or ".." in tidy.parts:
        raise DataError(f"{label}: the path {given!r} leads out of the folder; wanted is one within it")
    return str(tidy)


def _is_inside(folder: Path, path: Path) -> bool:
    return _real(path).is_relative_to(_real(folder))


def _real(path: Path) -> Path:
    # Unlike Path.resolve, this raises nothing over links in a circle.
    return Path(os.path.realpath(path))


def _fault(folder: Path, path: Path, max_pixels: int) -> str:
    """Why a file is to be skipped, or nothing."""
    if not _is_inside(folder, path):
        return f"{str(path)!r} is a link out of the folder"
    if not path.is_file():  # a folder, a pipe, a device, a link to nowhere
        return f"{str(path)!r} is not a file"
    try:
        pictures.check(path, max_pixels)
    except (pictures.PictureError, PermissionError) as error:
        return str(error)
    return ""


def _tag_matrix(candidates: Sequence[_Candidate], classes: tuple[str, ...]) -> NDArray[np.uint8]:
    columns = {name: column for column, name in enumerate(classes)}
    tags = np.zeros((len(candidates), len(classes)), dtype=np.uint8)
    for row, candidate in enumerate(candidates):
        tags[row, [columns[tag] for tag in candidate.tags]] = 1
    return tags
