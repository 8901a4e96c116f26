"""How one picture becomes a row of features: what an index has to remember to be asked with pictures."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.features import gabor, greys

MAX_SIDE = 4096
"""Of the picture that "pixels" flattens: a shape from a file must not ask for any amount of memory."""


class Descriptor(NamedTuple):
    """How pictures become rows.

    name
        "gist" (`gphash.features.gist`), or "pixels": the grey picture itself, from 0 to 1, flattened.
    shape
        Height and width to which every picture is brought by area averaging. For gist, those of the collection's
        pictures if they are all of one size, as GIST sees other things in a larger picture; () takes pictures as they
        are.
    """

    name: str
    shape: tuple[int, ...] = ()

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return gabor.DIMENSION if self.name == "gist" else int(np.prod(self.shape))

    def spare(self, height: int, width: int) -> int:
        """The factor by which a picture may be reduced before it is described; below 2, it is wanted as it is."""
        spare = greys.spare(height, width, gabor.LONGEST)
        return min([spare, *(min(height, width) // (greys.ROOM * side) for side in self.shape)])

    def describe(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """One picture, uint8 [H, W] or [H, W, 3], as a row, float32 [n_features]."""
        if self.name == "gist" and not self.shape:
            return _gist(pixels)
        if np.asarray(pixels).dtype != np.uint8:
            raise ValueError(f"pixels has dtype {np.asarray(pixels).dtype}; wanted is uint8, from 0 to 255")
        height, width = self.shape
        (resized,) = greys.resize(greys.check_image(pixels, 1, "pixels")[None], height, width)
        if self.name == "gist":
            return _gist(resized)
        row: NDArray[np.float32] = np.divide(resized.ravel(), np.float32(255), dtype=np.float32)
        return row

    def __str__(self) -> str:
        what = "GIST" if self.name == "gist" else "pixels"
        if not self.shape:
            return f"{what} of pictures of any size"
        return f"{what} of pictures brought to {self.shape[0]} × {self.shape[1]}"

    def to_meta(self) -> dict[str, Any]:
        """What JSON can hold, for `from_meta`."""
        return {"name": self.name, "shape": list(self.shape)}

    @classmethod
    def from_meta(cls, meta: dict[str, Any] | None) -> "Descriptor | None":
        """The descriptor of which `to_meta` gave this; None stays None.

        Raises
        ------
        ValueError
            If it describes none that is known here.
        """
        if meta is None:
            return None
        if not isinstance(meta, dict):
            raise ValueError(f"descriptor={meta!r}; it must be an object with a name and a shape")
        name, shape = str(meta.get("name")), meta.get("shape")
        given = shape if isinstance(shape, list) else [None]
        sides = tuple(side for side in given if type(side) is int and 1 <= side <= MAX_SIDE)
        known = {"gist": (0, 2), "pixels": (2,)}.get(name, ())
        if len(sides) != len(given) or len(sides) not in known:
            raise ValueError(
                f"descriptor={meta!r}; wanted is the name 'gist' with the shape [] or [height, width], or 'pixels' "
                "with [height, width]"
            )
        return cls(name, sides)


def check_same(trained: Descriptor | None, given: Descriptor | None, model: str, data: str) -> None:
    """Refuse pictures that are described in another way than those a model was trained with.

    Rows may be as long and mean something else. Of plain features, None, nobody knows how they were made.

    Parameters
    ----------
    trained, given
        Descriptors of the model and of the data.
    model, data
        Their names.
    """
    if trained is not None and given is not None and trained != given:
        raise ValueError(
            f"{data!r} has {given}, and the model {model!r} was trained on {trained}; give pictures of the kind that "
            "it was trained with, or fit a model on these."
        )


def _gist(image: NDArray[Any]) -> NDArray[np.float32]:
    from gphash.features import gist  # is compiled; who has rows of pixels can do without

    return gist.describe_one(image)
