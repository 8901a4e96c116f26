"""GIST: the spatial envelope of an image (Oliva and Torralba, 2001), 512 numbers.

A grey image is whitened and contrast-normalised, then filtered by the 4 scales × 8 orientations of one-sided Gabor
filters G of `gabor`, and the magnitude |ifft2(fft2(image) G)| is averaged over a 4 × 4 grid of blocks.
A descriptor reshapes to [scale, orientation, block row, block column], scales from fine to coarse; orientation 0
answers to vertical stripes. Pictures with a side of more than 256 pixels are first reduced to 256 by area averaging, as
the work grows with the cube of the side; others keep their size.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.data.descriptors import greys
from gphash.data.descriptors.descriptor import Descriptor, check_sides
from gphash.execution.local import LocalExecutor, row_blocks

LEAST = 4  # pixels of a side, one for each block
LONGEST = 256  # pixels; longer pictures are reduced to it
DIMENSION = 512

_BATCH_PIXELS = 2**16


@dataclass(frozen=True)
class Gist(Descriptor):
    """GIST of pictures.

    shape
        Height and width to which every picture is brought, those of the collection's pictures if they are all of one
        size: GIST sees other things in a larger picture. () takes pictures as they are.
    """

    version = 2
    longest = LONGEST
    n_features = DIMENSION
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_sides(self.shape, (0, 2))

    @classmethod
    def fit(cls, images: NDArray[np.uint8] | Iterable[NDArray[np.uint8]], n_jobs: int | None = -1) -> Self:
        """GIST at the size of an array's pictures, and of other pictures as they are."""
        return cls(images.shape[1:3] if isinstance(images, np.ndarray) else ())

    def describe(self, pixels: NDArray[np.uint8]) -> NDArray[np.float32]:
        """GIST of one picture."""
        return describe_one(greys.brought(pixels, *self.shape) if self.shape else pixels)

    def describe_all(self, images: Iterable[NDArray[np.uint8]], n_jobs: int | None = -1) -> NDArray[np.float32]:
        """GIST of many, in batches where they are all of one size."""
        if isinstance(images, np.ndarray) and images.shape[1:3] == (self.shape or images.shape[1:3]):
            return describe(images, n_jobs=n_jobs)
        return super().describe_all(images, n_jobs)

    def __str__(self) -> str:
        size = f"brought to {self.shape[0]} × {self.shape[1]}" if self.shape else "of any size"
        return f"GIST of pictures {size}"


def describe(images: ArrayLike, *, n_jobs: int | None = -1) -> NDArray[np.float32]:
    """GIST of images of one size, [n, H, W] or [n, H, W, channels], any real type and range, as rows [n, 512]."""
    stack = greys.check(images, LEAST, "images", many=True)
    blocks = row_blocks(len(stack), max(1, _BATCH_PIXELS // (stack.shape[1] * stack.shape[2])))
    with LocalExecutor(n_jobs) as executor:
        return np.concatenate(list(executor.collect(lambda rows: _describe(stack[rows], rows.start), blocks)))


def describe_one(image: ArrayLike) -> NDArray[np.float32]:
    """GIST of one image [H, W] or [H, W, channels], [512]; equal to its row of `describe`."""
    (descriptor,) = _describe(greys.check(image, LEAST, "image")[None], None, "image")
    return np.asarray(descriptor)


def _describe(images: NDArray[Any], first: int | None, name: str = "images") -> NDArray[np.float32]:
    """Descriptors of a batch whose first image has the number `first`, [b, 512]."""
    from gphash.data.descriptors import gabor  # compiled, and needed only here

    return gabor.block_means(greys.stretch(greys.reduce(images, LONGEST, LEAST), first, name))
