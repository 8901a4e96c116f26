"""GIST: the spatial envelope of an image (Oliva and Torralba, 2001), 512 numbers.

A grey image is whitened and contrast-normalised, then filtered by the 4 scales × 8 orientations of one-sided Gabor
filters G of `gphash.features.gabor`, and the magnitude |ifft2(fft2(image) G)| is averaged over a 4 × 4 grid of blocks.
A descriptor reshapes to [scale, orientation, block row, block column], scales from fine to coarse; orientation 0
answers to vertical stripes. Pictures with a side of more than 256 pixels are first reduced to 256 by area averaging, as
the work grows with the cube of the side; others keep their size.

How it is made fast, approximating only in single precision and where a filter is negligible: of the transform of the
mirrored image only the H × W middle is wanted, and each filter lives in a box of frequencies, so every transform is a
short product with a partial Fourier matrix:

    X = A_rows image A_columnsᵀ              mirroring, origin in the centre and DFT, one matrix for each axis
    response = S_rows (G ∘ X)_box S_columnsᵀ

Around the centre a wave is an even cosine and an odd sine, so S needs the pixels of one side only. One image's work
stays in the cache. Each image is worked on its own and without BLAS, so a row depends neither on its batch nor on the
number of threads.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gphash.arrays import Floats, Indices
from gphash.compiled import jit
from gphash.execution.local import LocalExecutor, row_blocks
from gphash.features import gabor, greys
from gphash.features.gabor import BLOCKS, BORDER, DIMENSION, LONGEST

VERSION = 2  # of what is computed: a cache must not serve another one's descriptors

_BATCH_PIXELS = 2**16

# Products may be fused with sums, nothing is reordered.
_compiled = jit(fastmath={"contract"})


def describe(images: ArrayLike, *, n_jobs: int | None = -1, batch: int | None = None) -> NDArray[np.float32]:
    """GIST of many images of one size.

    Parameters
    ----------
    images
        Grey [n, H, W] or coloured [n, H, W, channels], any real type and range; H and W at least 4.
    n_jobs
        Number of threads; −1 for all cores. The result does not depend on it.
    batch
        Images per task; None takes 64 of 32 × 32 pixels, fewer of larger ones. It bounds the working memory and does
        not change the result either.

    Returns
    -------
    descriptors
        [n, 512], each row laid out as [scale, orientation, block row, block column].
    """
    stack = greys.check_stack(images, BLOCKS)
    if batch is not None and batch < 1:
        raise ValueError(f"batch={batch!r}; give a whole number of at least 1, or None.")
    blocks = row_blocks(len(stack), batch or max(1, _BATCH_PIXELS // (stack.shape[1] * stack.shape[2])))
    with LocalExecutor(n_jobs) as executor:
        return np.concatenate(list(executor.collect(lambda rows: _describe(stack[rows], rows.start), blocks)))


def describe_one(image: ArrayLike) -> NDArray[np.float32]:
    """GIST of one image [H, W] or [H, W, channels], [512]; equal to its row of `describe`."""
    (descriptor,) = _describe(greys.check_image(image, BLOCKS, "image")[None], None, "image")
    return np.asarray(descriptor)


def describe_each(images: Iterable[ArrayLike], *, n_jobs: int | None = -1) -> NDArray[np.float32]:
    """GIST of images of any sizes.

    Parameters
    ----------
    images
        Images [H, W] or [H, W, channels] as in `describe`; a few at a time are held, so a generator may read them.
    n_jobs
        Number of threads; −1 for all cores. The result does not depend on it.

    Returns
    -------
    descriptors
        [n, 512]; each row is that of `describe_one`.
    """

    def work(number: int, image: ArrayLike) -> NDArray[np.float32]:
        return _describe(greys.check_image(image, BLOCKS, f"images[{number}]")[None], number)

    return np.concatenate(list(greys.each(work, images, n_jobs)))


def _describe(images: NDArray[Any], first: int | None, name: str = "images") -> NDArray[np.float32]:
    """Descriptors of a batch whose first image has the number `first`, [b, 512]."""
    grey = greys.stretch(greys.reduce(images, LONGEST, BLOCKS), first, name)
    plan = gabor.plan(*grey.shape[1:])
    descriptors = np.empty((len(grey), DIMENSION), dtype=np.float32)
    _gabor_means(_prefilter(grey, plan.lowpass), *plan[1:], descriptors)
    return descriptors


def _prefilter(grey: NDArray[np.float32], lowpass: NDArray[np.float32]) -> NDArray[np.float32]:
    """Whiten, then divide by the local contrast, [b, H, W]."""
    height, width = grey.shape[1:]
    side = len(lowpass)
    rows = gabor.mirror(np.arange(-BORDER, height + BORDER), height)
    columns = gabor.mirror(np.arange(-BORDER, width + BORDER), width)
    # Padded to a square by mirroring the padded image, not the image.
    rows = rows[gabor.mirror(np.arange(side), len(rows))]
    columns = columns[gabor.mirror(np.arange(side), len(columns))]
    image = np.ascontiguousarray(np.log1p(grey)[:, rows[:, None], columns])
    detail = image - _smooth(image, lowpass)
    local_std = np.sqrt(np.abs(_smooth(detail * detail, lowpass)))
    detail /= np.float32(0.2) + local_std
    return np.ascontiguousarray(detail[:, BORDER : BORDER + height, BORDER : BORDER + width])


@_compiled
def _multiply(left: Floats, right: Floats, out: Floats) -> None:
    """The product out = left @ right of real matrices that fit the cache.

    Not BLAS: its own threads would fight ours, and its sums depend on how many it has.
    """
    rows, inner = left.shape
    columns = right.shape[1]
    four = inner - inner % 4
    for i in range(0, rows, 2):
        # An odd last row is computed twice rather than on its own.
        j = min(i + 1, rows - 1)
        first, second = out[i], out[j]
        first[:] = 0
        second[:] = 0
        for k in range(0, four, 4):
            a0, a1, a2, a3 = left[i, k], left[i, k + 1], left[i, k + 2], left[i, k + 3]
            b0, b1, b2, b3 = left[j, k], left[j, k + 1], left[j, k + 2], left[j, k + 3]
            for c in range(columns):
                r0, r1, r2, r3 = right[k, c], right[k + 1, c], right[k + 2, c], right[k + 3, c]
                x = first[c] + a0 * r0 + a1 * r1 + a2 * r2 + a3 * r3
                y = second[c] + b0 * r0 + b1 * r1 + b2 * r2 + b3 * r3
                first[c] = x
                second[c] = y
        for k in range(four, inner):
            a0, b0 = left[i, k], left[j, k]
            for c in range(columns):
                x = first[c] + a0 * right[k, c]
                y = second[c] + b0 * right[k, c]
                first[c] = x
                second[c] = y


@_compiled
def _smooth(images: NDArray[np.float32], lowpass: NDArray[np.float32]) -> NDArray[np.float32]:
    """Each of images [b, side, side] with the symmetric lowpass applied to both axes."""
    smooth = np.empty_like(images)
    half = np.empty_like(lowpass)
    for i in range(len(images)):
        _multiply(lowpass, images[i], half)
        _multiply(half, lowpass, smooth[i])
    return smooth


@_compiled
def _gabor_means(
    images: Floats,
    analysis_rows: Floats,
    analysis_columns: Floats,
    synthesis_rows: Floats,
    synthesis_columns: Floats,
    boxes: Indices,
    transfer: Floats,
    offsets: Indices,
    row_edges: Indices,
    column_edges: Indices,
    descriptors: Floats,
) -> None:
    """Fill descriptors [b, 512] with the block means of images [b, H, W]."""
    height, width = images.shape[1:]
    ny, nx = len(analysis_rows) // 2, analysis_columns.shape[1] // 2
    half_height, half_width = len(synthesis_rows) // 2, synthesis_columns.shape[1] // 2
    half = np.empty((2 * ny, width), np.float32)
    quarters = np.empty((2 * ny, 2 * nx), np.float32)
    product = np.empty(2 * ny * nx, np.float32)
    waves = np.empty(2 * half_height * 2 * nx, np.float32)
    middle = np.empty(2 * height * nx, np.float32)
    response = np.empty((2 * height, 2 * half_width), np.float32)
    right, left = np.empty(half_width, np.float32), np.empty(half_width, np.float32)
    sums = np.empty(width, np.float32)
    blocks = len(row_edges) - 1

    for i in range(len(images)):
        _multiply(analysis_rows, images[i], half)
        _multiply(half, analysis_columns, quarters)
        real, imaginary = quarters[:ny, :nx], quarters[:ny, nx:]
        for y in range(ny):
            for x in range(nx):
                real[y, x] -= quarters[ny + y, nx + x]
                imaginary[y, x] += quarters[ny + y, x]
        out = 0
        for k in range(len(boxes)):
            y0, y1, x0, x1 = boxes[k]
            h, w = y1 - y0, x1 - x0
            gain = transfer[offsets[k] : offsets[k + 1]].reshape((h, w))
            box = product[: 2 * h * w].reshape((h, 2 * w))
            for y in range(h):
                for x in range(w):
                    box[y, x] = real[y0 + y, x0 + x] * gain[y, x]
                    box[y, w + x] = imaginary[y0 + y, x0 + x] * gain[y, x]

            # Rows: even part P and odd part Q around the centre; above and below are P ± i Q.
            wave = waves[: 2 * half_height * 2 * w].reshape((2 * half_height, 2 * w))
            _multiply(synthesis_rows[:, y0:y1], box, wave)
            part = middle[: 2 * height * w].reshape((2 * height, w))
            for u in range(half_height):
                even, odd = wave[u], wave[half_height + u]
                below, above = 2 * (height - half_height + u), 2 * (half_height - 1 - u)
                for x in range(w):
                    part[above, x] = even[x] + odd[w + x]
                    part[above + 1, x] = even[w + x] - odd[x]
                for x in range(w):
                    part[below, x] = even[x] - odd[w + x]
                    part[below + 1, x] = even[w + x] + odd[x]

            # Columns: the same, the two halves joined in the magnitude.
            _multiply(part, synthesis_columns[x0:x1], response)
            for r in range(blocks):
                right[:] = 0
                left[:] = 0
                for y in range(row_edges[r], row_edges[r + 1]):
                    first, second = response[2 * y], response[2 * y + 1]
                    for u in range(half_width):
                        even_real, odd_real = first[u], first[half_width + u]
                        even_imaginary, odd_imaginary = second[u], second[half_width + u]
                        a, b = even_real - odd_imaginary, even_imaginary + odd_real
                        c, d = even_real + odd_imaginary, even_imaginary - odd_real
                        right[u] += np.sqrt(a * a + b * b)
                        left[u] += np.sqrt(c * c + d * d)
                for u in range(half_width):
                    sums[width - half_width + u] = right[u]
                for u in range(half_width):
                    sums[half_width - 1 - u] = left[u]
                for c in range(blocks):
                    total = np.float32(0)
                    for x in range(column_edges[c], column_edges[c + 1]):
                        total += sums[x]
                    count = (row_edges[r + 1] - row_edges[r]) * (column_edges[c + 1] - column_edges[c])
                    descriptors[i, out] = total / count
                    out += 1
