"""Pictures on their way to a descriptor: checked, made grey, reduced, stretched; and greys that are rows themselves.

Grey is the mean of the channels, of which a fourth, alpha, does not count. A picture that is too large is
reduced by area averaging: each new pixel is the mean of the rectangle of old pixels that it covers, those on its edge
counted by the part that lies inside.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.data.descriptors.descriptor import Descriptor, check_sides

CHANNELS = 4

_FEW = 1 << 22  # numbers of a picture of which all greys are made at once, which is quicker, instead of row by row


@dataclass(frozen=True)
class Pixels(Descriptor):
    """The grey picture itself, brought to one height and width, from 0 to 1, flattened."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        check_sides(self.shape, (2,))

    @classmethod
    def fit(cls, images: NDArray[np.uint8] | Iterable[NDArray[np.uint8]], n_jobs: int | None = -1) -> Self:
        """Pixels at the size of an array's pictures."""
        if not isinstance(images, np.ndarray):
            raise ValueError("descriptor='pixels' needs an array of pictures of one size; use 'gist'.")
        return cls(images.shape[1:3])

    @property
    def n_features(self) -> int:
        """Length of a row."""
        return int(np.prod(self.shape))

    def describe(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The greys of one picture."""
        row: NDArray[np.float32] = np.divide(brought(pixels, *self.shape).ravel(), np.float32(255), dtype=np.float32)
        return row

    def __str__(self) -> str:
        return f"pixels of pictures brought to {self.shape[0]} × {self.shape[1]}"


def brought(pixels: NDArray[np.uint8], height: int, width: int) -> Floats:
    """The greys of one picture at another size, [height, width]."""
    if np.asarray(pixels).dtype != np.uint8:
        raise ValueError(f"pixels has dtype {np.asarray(pixels).dtype}; it must be uint8, from 0 to 255.")
    return np.asarray(resize(check(pixels, 1, "pixels")[None], height, width)[0])


def check(given: ArrayLike, least: int, name: str, many: bool = False) -> NDArray[Any]:
    """One picture [H, W] or [H, W, channels], or many of one size, with sides of at least so many pixels."""
    n = "n, " * many
    needed = f"[{n}H, W] or [{n}H, W, channels] with H and W at least {least} and 1 to {CHANNELS} channels"
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name} has parts of different shapes; it must be {needed}.") from error
    shape = array.shape[many:]
    if len(shape) not in (2, 3) or min(shape[:2]) < least or (len(shape) == 3 and not 1 <= shape[2] <= CHANNELS):
        raise ValueError(f"{name} has shape {array.shape}; it must be {needed}.")
    if array.dtype.kind not in "buif":
        raise ValueError(f"{name} has dtype {array.dtype}; it must be real numbers.")
    if many and not len(array):
        raise ValueError(f"{name} is empty; give at least one image.")
    return array


def grey(images: NDArray[Any]) -> Floats:
    """Mean of the colour channels of pictures of one size, [b, H, W]; float32 where it holds the values exactly."""
    dtype = _dtype(images)
    if images.ndim == 3:
        return images.astype(dtype, copy=False)
    # Channel after channel: the order in which numpy adds along an axis depends on the layout.
    total: Floats = images[..., 0].astype(dtype)
    colours = min(images.shape[3], 3)
    for channel in range(1, colours):
        total += images[..., channel]
    total /= colours
    return total


def reduce(images: NDArray[Any], longest: int, least: int) -> Floats:
    """Greys of pictures of one size, [b, H, W], the longer side at most `longest`.

    The other side is kept in proportion, but not below `least`. Pictures that are small enough keep their size.
    """
    height, width = images.shape[1:3]
    longer = max(height, width)
    if longer <= longest:
        return grey(images)
    return resize(images, *(max(min(side, least), round(side * longest / longer)) for side in (height, width)))


def resize(images: NDArray[Any], height: int, width: int) -> Floats:
    """Greys of pictures of one size, [b, height, width], by area averaging."""
    if images.shape[1:3] == (height, width):
        return grey(images)
    if images[0].size <= _FEW:
        images = grey(images)
    return np.stack([_averaged(np.ascontiguousarray(_averaged(image, height).T), width).T for image in images])


def stretch(greys: Floats, first: int | None = None, name: str = "images") -> NDArray[np.float32]:
    """Pictures [b, H, W] from 0 to 255 each; constant ones become zeros.

    `first` is the number of the first picture, for the error that names one; None if the caller has a single picture.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        stretched = greys - greys.min(axis=(1, 2), keepdims=True)
        top = stretched.max(axis=(1, 2), keepdims=True)
    if not np.isfinite(top).all():
        number = "" if first is None else f"[{first + int(np.argmin(np.isfinite(top)))}]"
        raise ValueError(f"{name}{number} holds NaN, infinity or values too far apart; give finite values.")
    # Divided first: the reciprocal of a tiny range would be infinite.
    stretched /= np.where(top > 0, top, 1)
    stretched *= 255
    return np.asarray(stretched, dtype=np.float32)


def _dtype(images: NDArray[Any]) -> type[np.floating[Any]]:
    exact = images.dtype.itemsize <= 2 or images.dtype == np.float32
    return np.float32 if exact else np.float64


def _averaged(image: NDArray[Any], target: int) -> Floats:
    """Greys of a picture [H, W] or [H, W, channels], averaged along its first axis, [target, W].

    One pass takes the first old row that every new row covers, the next one the second, and so on.
    """
    size = len(image)
    edges = np.arange(target + 1) * (size / target)
    low, high = edges[:-1], edges[1:]
    first = low.astype(np.int64)
    averaged = np.zeros((target, image.shape[1]), dtype=_dtype(image))
    with np.errstate(invalid="ignore", over="ignore"):  # whoever stretches them finds what is not finite
        for step in range(int((np.ceil(high) - first).max())):
            row = first + step
            shares = np.maximum(np.minimum(high, row + 1) - np.maximum(low, row), 0) * (target / size)
            # Where a new row covers no more old ones, its share of any is 0.
            part = grey(image[np.minimum(row, size - 1)][None])[0]
            part *= shares[:, None].astype(part.dtype)
            averaged += part
    return averaged
