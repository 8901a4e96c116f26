"""Pictures on their way to a descriptor: checked, made grey, reduced, stretched.

Grey is the mean of the channels, of which a fourth, alpha, does not count. A picture with a side longer than wanted is
reduced by area averaging: each new pixel is the mean of the rectangle of old pixels that it covers, those on its edge
counted by the part that lies inside.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats
from gphash.execution.local import LocalExecutor

R = TypeVar("R")

CHANNELS = 4
ROOM = 4  # times the pixels of a side that are left to be averaged

_FEW = 1 << 22  # numbers of a picture of which all greys are made at once, which is quicker, instead of row by row


def check_image(image: ArrayLike, least: int, name: str) -> NDArray[Any]:
    """One picture [H, W] or [H, W, channels] with sides of at least `least` pixels; `name` is the caller's for it."""
    wanted = f"[H, W] or [H, W, channels] with H and W at least {least} and 1 to {CHANNELS} channels"
    return _checked(image, (2, 3), least, name, wanted)


def check_stack(images: ArrayLike, least: int, name: str = "images") -> NDArray[Any]:
    """Pictures of one size, [n, H, W] or [n, H, W, channels], at least one."""
    wanted = f"[n, H, W] or [n, H, W, channels] with H and W at least {least} and 1 to {CHANNELS} channels"
    stack = _checked(images, (3, 4), least, name, wanted)
    if not len(stack):
        raise ValueError(f"{name} is empty; wanted is at least one image")
    return stack


def each(work: Callable[[int, Any], R], images: Iterable[Any], n_jobs: int | None, name: str = "images") -> Iterator[R]:
    """Yield `work(number, image)` in the order of the images, of which a few at a time are held."""
    empty = True
    with LocalExecutor(n_jobs) as executor:
        # A local executor takes blocks as it goes, so an iterator serves as well as a sequence.
        numbered: Any = enumerate(images)
        for result in executor.collect(lambda pair: work(*pair), numbered):
            empty = False
            yield result
    if empty:
        raise ValueError(f"{name} is empty; wanted is at least one image")


def grey(images: NDArray[Any]) -> Floats:
    """Mean of the colour channels of pictures of one size, [b, H, W]; float32 where it holds the values exactly.

    Pictures that are such greys already are handed back as they are.
    """
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


def spare(height: int, width: int, longest: int) -> int:
    """The factor by which a picture may be reduced before `reduce`, which is left four times the pixels a side."""
    return max(height, width) // (ROOM * longest)


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
        raise ValueError(f"{name}{number} holds NaN, infinity or values too far apart; wanted are finite values")
    # Divided first: the reciprocal of a tiny range would be infinite.
    stretched /= np.where(top > 0, top, 1)
    stretched *= 255
    return np.asarray(stretched, dtype=np.float32)


def _checked(given: ArrayLike, dimensions: tuple[int, int], least: int, name: str, wanted: str) -> NDArray[Any]:
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ValueError(f"{name} has parts of different shapes; wanted is {wanted}") from error
    flat, coloured = dimensions
    sides = array.shape[flat - 2 : flat]
    if (
        array.ndim not in dimensions
        or min(sides) < least
        or (array.ndim == coloured and not 1 <= array.shape[-1] <= CHANNELS)
    ):
        raise ValueError(f"{name} has shape {array.shape}; wanted is {wanted}")
    if array.dtype.kind not in "buif":
        raise ValueError(f"{name} has dtype {array.dtype}; wanted are real numbers")
    return array


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
