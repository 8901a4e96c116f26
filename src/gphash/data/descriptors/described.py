"""From images or texts to features: each is described once, and its row kept in the user's cache folder.

A row is kept by the SHA-256 of its picture or text, unless an object of the program made it. Files are decoded a few at
a time, so a folder may be larger than memory, and adding a picture costs no more than that picture.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Indices
from gphash.data import pictures
from gphash.data.dataset import Dataset, Images, Progress, Skipped, Split, file_digest
from gphash.data.descriptors import cache, encoders
from gphash.data.descriptors.descriptor import DESCRIPTORS, PICTURES, ROOM, Descriptor
from gphash.files import DataError


class Described(NamedTuple):
    """Rows of the pictures that could be described, their numbers among those given, and the files that are none."""

    X: NDArray[np.float32]
    kept: Indices
    skipped: tuple[Skipped, ...]


def with_features(
    dataset: Dataset,
    descriptor: Any = "gist",
    n_jobs: int | None = -1,
    **options: Any,
) -> Dataset:
    """The same data set with descriptors of its images as features; one that has features is handed back as it is.

    Rows of files that turned out not to be pictures are left out, and `skipped` names them; a DataError says that no
    picture of a split is left.

    Parameters
    ----------
    descriptor
        A descriptor, or the registered name of one, which is then fitted to the images to train with; or an encoder
        as `encoders.of` takes it: the path of an ONNX model, a function, or something with a method `encode`.
    options
        What `fit` of the descriptor takes, such as `n_words` and `seed` of ``bag-of-words``.
    """
    if dataset.train.X is not None and dataset.test.X is not None:
        return dataset
    if dataset.train.images is None or dataset.test.images is None:
        raise ValueError("the data set has neither features nor images; it must have one of them.")
    given = encoders.of(descriptor, PICTURES)
    assert given is not None
    fitted = fit(given, dataset.train.images, n_jobs, **options)
    if fitted.takes != PICTURES:
        raise ValueError(f"descriptor={fitted}, but the data set has pictures; give a descriptor of pictures.")
    splits, skipped = [], dataset.skipped
    for y, images in ((dataset.train.y, dataset.train.images), (dataset.test.y, dataset.test.images)):
        found = rows(images, fitted, n_jobs)
        skipped += found.skipped
        splits.append(Split(found.X, y[found.kept], select(images, found.kept)))
    return dataset._replace(train=splits[0], test=splits[1], features=str(fitted), skipped=skipped)


def fit(descriptor: Descriptor | str, images: Images, n_jobs: int | None = -1, **options: Any) -> Descriptor:
    """A descriptor for pictures, by its registered name; what it learns is kept. A descriptor stays what it is."""
    if isinstance(descriptor, Descriptor):
        return descriptor
    kind = DESCRIPTORS.find(descriptor, "descriptor")
    if isinstance(images, np.ndarray):
        source: NDArray[np.uint8] | Iterator[NDArray[np.uint8]] = images
    else:
        source = _opened(images, {}, lambda height, width: max(height, width) // (ROOM * kind.longest))
    if not kind.learns:
        return kind.fit(source, n_jobs, **options)
    path = cache.default_path()
    (key,) = _keys(kind, options, [b"".join(_digests(images))])
    if (kept := cache.read(path, [key]).get(key)) is not None and (found := Descriptor.from_meta(json.loads(kept))):
        return found
    fitted = kind.fit(source, n_jobs, **options)
    cache.write(path, {key: json.dumps(fitted.to_meta()).encode()})
    return fitted


def rows(
    images: Images | Sequence[str], descriptor: Descriptor, n_jobs: int | None = -1, progress: Progress | None = None
) -> Described:
    """Features of pictures, arrays or paths, or of texts; see `with_features`.

    `progress` is called with the things done and in all. A DataError says that none of the files is a picture.
    """
    path = cache.default_path()
    keys = _keys(type(descriptor), descriptor.identity(), _digests(images))
    n_bytes = 4 * descriptor.n_features
    known = cache.read(path, set(keys)) if descriptor.is_kept else {}
    found = {key: row for key, row in known.items() if len(row) == n_bytes}
    # One number for each key: equal pictures are described once.
    missing = sorted({key: number for number, key in enumerate(keys) if key not in found}.values())
    reasons: dict[bytes, str] = {}
    for start in range(0, len(missing), descriptor.page):
        page = missing[start : start + descriptor.page]
        faults: dict[int, str] = {}
        X = _describe(select(images, page), descriptor, n_jobs, faults)
        reasons |= {keys[page[place]]: reason for place, reason in faults.items()}
        sound = [keys[number] for place, number in enumerate(page) if place not in faults]
        new = {key: row.astype("<f4").tobytes() for key, row in zip(sound, X, strict=True)}
        if descriptor.is_kept:
            cache.write(path, new)
        found |= new
        if progress is not None:
            progress(len(images) - len(missing) + start + len(page), len(images))
    if progress is not None and not missing:
        progress(len(images), len(images))
    kept = [number for number, key in enumerate(keys) if key in found]
    skipped = tuple(Skipped(Path(images[number]), reasons[key]) for number, key in enumerate(keys) if key in reasons)
    if not kept:
        raise DataError(f"none of the {len(images)} files is a picture that can be described: {skipped[-1].reason}")
    X = np.frombuffer(b"".join(found[keys[number]] for number in kept), dtype="<f4").astype(np.float32)
    return Described(X.reshape(len(kept), -1), np.array(kept, dtype=np.int64), skipped)


def select(images: Any, numbers: Sequence[int] | Indices) -> Any:
    """Some of the pictures or texts; all of an array without a copy."""
    if isinstance(images, np.ndarray):
        return images if len(numbers) == len(images) else images[numbers]
    return [images[number] for number in numbers]


def _describe(images: Any, descriptor: Descriptor, n_jobs: int | None, faults: dict[int, str]) -> NDArray[np.float32]:
    if isinstance(images, np.ndarray) or isinstance(images[0], str):
        return descriptor.describe_all(images, n_jobs)
    opened = _opened(images, faults, descriptor.spare)
    first = next(opened, None)
    if first is None:
        return np.empty((0, 0), dtype=np.float32)
    return descriptor.describe_all(itertools.chain([first], opened), n_jobs)


def _opened(paths: Iterable[Path], faults: dict[int, str], spare: pictures.Reduction) -> Iterator[NDArray[np.uint8]]:
    """The pictures one after another; files that are not pictures are left out, and noted by their places."""
    for place, path in enumerate(paths):
        try:
            yield pictures.open_picture(path, reduction=spare)
        except pictures.PictureError as error:
            faults[place] = str(error)


def _digests(images: Images | Sequence[str]) -> list[bytes]:
    """SHA-256 of each picture, of its file, or of shape and pixels; or of each text."""
    if isinstance(images, np.ndarray):
        shape = json.dumps([images.dtype.str, images.shape[1:]]).encode()
        return [hashlib.sha256(shape + image.tobytes()).digest() for image in images]
    return [
        hashlib.sha256(one.encode(errors="surrogatepass")).digest()
        if isinstance(one, str)
        else bytes.fromhex(file_digest(one))
        for one in images
    ]


def _keys(kind: type[Descriptor], parameters: dict[str, Any], digests: Sequence[bytes]) -> list[bytes]:
    """What identifies rows before they are computed: what is described, and whatever could change the rows."""
    made_of = [DESCRIPTORS.name_of(kind), kind.version, pictures.VERSION, parameters]
    mark = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).digest()
    return [hashlib.sha256(mark + digest).digest() for digest in digests]
