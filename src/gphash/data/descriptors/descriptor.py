"""How a picture or a text becomes a row of features: what a descriptor is, and those there are by name.

To add one, subclass `Descriptor` in a file of your own and register it under its name. Files of models and collections
keep the name and the parameters, so that what is given later is described in the same way.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from gphash.execution.local import LocalExecutor
from gphash.registry import Registry

R = TypeVar("R")

ROOM = 4  # times the pixels of a side that are left to be averaged
MAX_SIDE = 4096
"""Of a picture that a descriptor resizes: a shape from a file must not ask for any amount of memory."""
PICTURES, TEXTS = "pictures", "texts"

DESCRIPTORS: Registry[type["Descriptor"]] = Registry(
    "descriptor",
    {
        "gist": "gphash.data.descriptors.gist:Gist",
        "bag-of-words": "gphash.data.descriptors.bag_of_words:BagOfWords",
        "pixels": "gphash.data.descriptors.greys:Pixels",
        "picture-encoder": "gphash.data.descriptors.picture_encoder:PictureEncoder",
        "text-encoder": "gphash.data.descriptors.text_encoder:TextEncoder",
        "given-encoder": "gphash.data.descriptors.given_encoder:GivenEncoder",
    },
)


@dataclass(frozen=True)
class Descriptor:
    """How pictures or texts become rows.

    Its parameters are the fields of a frozen dataclass: tuples, arrays, and what JSON can hold. A field that is left
    out of comparisons changes no row.

    takes
        What it describes: `PICTURES` or `TEXTS`.
    version
        Raised whenever the same thing would get another row, so that a cache serves no old ones.
    longest
        Pixels of the longer side to which larger pictures are reduced.
    page
        How many are described before they are kept and progress is told.
    learns
        Whether `fit` learns anything from pictures that is worth keeping.
    is_kept
        Whether its parameters tell all of what makes a row, so that rows may be kept in the cache.
    """

    takes: ClassVar[str] = PICTURES
    version: ClassVar[int] = 1
    longest: ClassVar[int] = 256
    page: ClassVar[int] = 512
    learns: ClassVar[bool] = False
    is_kept: ClassVar[bool] = True

    @classmethod
    def fit(cls, images: NDArray[np.uint8] | Iterable[NDArray[np.uint8]], n_jobs: int | None = -1) -> Self:
        """The descriptor for such pictures: an array of one size, or pictures of any sizes one after the other."""
        return cls()

    @property
    def n_features(self) -> int:
        """Length of a row."""
        raise NotImplementedError

    def describe(self, pixels: Any) -> NDArray[np.float32]:
        """One picture, uint8 [H, W] or [H, W, 3], or one text, as a row, float32 [n_features]."""
        raise NotImplementedError

    def describe_all(self, images: Iterable[Any], n_jobs: int | None = -1) -> NDArray[np.float32]:
        """A row for each of them, [n, n_features]; a few pictures at a time are held."""
        return np.stack(list(each(lambda _, image: self.describe(image), images, n_jobs)))

    def spare(self, height: int, width: int) -> int:
        """The factor by which a picture may be reduced before it is described; below 2, not at all."""
        shape: tuple[int, ...] = getattr(self, "shape", ())
        return min([max(height, width) // (ROOM * self.longest), *(min(height, width) // (ROOM * s) for s in shape)])

    def to_meta(self) -> dict[str, Any]:
        """Name and parameters as JSON can hold them, for `from_meta`."""
        parameters = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"name": DESCRIPTORS.name_of(type(self)), **parameters}

    def identity(self) -> dict[str, Any]:
        """Those parts of `to_meta` that decide about rows."""
        aside = {field.name for field in fields(self) if not field.compare}
        return {name: value for name, value in self.to_meta().items() if name not in aside}

    def is_at_hand(self) -> bool:
        """Whether it can describe here and now; an encoder's file may be elsewhere."""
        return True

    @staticmethod
    def from_meta(meta: dict[str, Any] | None) -> "Descriptor | None":
        """The descriptor of which `to_meta` gave this; None stays None. A ValueError if it can be no descriptor."""
        if meta is None:
            return None
        if not isinstance(meta, dict):
            raise ValueError(f"descriptor={meta!r}; it must be an object with a name and parameters.")
        kind = DESCRIPTORS.find(meta.get("name"), "descriptor")
        try:
            return kind(**{name: _restored(value) for name, value in meta.items() if name != "name"})
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"descriptor {meta['name']!r}: {error}") from error


def each(work: Callable[[int, Any], R], images: Iterable[Any], n_jobs: int | None) -> Iterator[R]:
    """Yield `work(number, image)` in the order of the images, of which a few at a time are held."""
    empty = True
    with LocalExecutor(n_jobs) as executor:
        # A local executor takes blocks as it goes, so an iterator serves as well as a sequence.
        numbered: Any = enumerate(images)
        for result in executor.collect(lambda pair: work(*pair), numbered):
            empty = False
            yield result
    if empty:
        raise ValueError("images is empty; give at least one image.")


def check_sides(shape: Any, lengths: tuple[int, ...]) -> None:
    """Refuse a shape that is no height and width, or has another length than allowed."""
    whole = isinstance(shape, tuple) and all(type(side) is int and 1 <= side <= MAX_SIDE for side in shape)
    if not whole or len(shape) not in lengths:
        empty = "() or " * (0 in lengths)
        raise ValueError(f"shape={shape!r}; give {empty}(height, width), whole numbers from 1 to {MAX_SIDE}.")


def check_same(trained: Descriptor | None, given: Descriptor | None, model: str, data: str) -> None:
    """Refuse pictures that are described in another way than those a model was trained with.

    Rows may be as long and mean something else. Nobody knows how plain features (None) were made.
    """
    if trained is not None and given is not None and trained != given:
        raise ValueError(
            f"{data!r} has {given}, and the model {model!r} was trained on {trained}; describe its {given.takes} as "
            "the model does, or fit a model on these."
        )


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        floats = np.ascontiguousarray(value, dtype="<f4")
        return {"shape": list(floats.shape), "float32": base64.b64encode(floats.tobytes()).decode("ascii")}
    return list(value) if isinstance(value, tuple) else value


def _restored(value: Any) -> Any:
    if isinstance(value, dict):
        content = np.frombuffer(base64.b64decode(value["float32"], validate=True), dtype="<f4")
        return content.reshape(value["shape"]).astype(np.float32)
    return tuple(value) if isinstance(value, list) else value
