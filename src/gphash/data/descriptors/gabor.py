"""The filters of GIST as matrices, for images of one size, and the compiled loops that apply them.

The transfer function of a filter, at frequency f in cycles per pixel and angle t, is

    G(f, t) = exp(−3.5 (f / f₀ − 1)² − 2π (t + θ)²),    f₀ = 0.3 / 1.85^scale,    θ = π/8 · orientation

It is applied to the spectrum of the image mirrored by 32 pixels on every side, but only where it is not negligible, and
of the filtered image only the middle is used. So each transform is a short product with a partial Fourier matrix:

    X = A_rows image A_columnsᵀ              mirroring, origin in the centre and DFT, one matrix for each axis
    response = S_rows (G ∘ X)_box S_columnsᵀ

Around the centre a wave is an even cosine and an odd sine, so S needs the pixels of one side only. One image's work
stays in the cache. Each image is worked on its own and without BLAS, so a row depends neither on its batch nor on the
number of threads.
"""

from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Indices
from gphash.compiled import jit

SCALES, ORIENTATIONS, BLOCKS = 4, 8, 4
DIMENSION = SCALES * ORIENTATIONS * BLOCKS * BLOCKS
BORDER = 5  # mirrored around the image for the whitening, pixels

_CUTOFF = 4.0  # of the whitening, cycles per image
_EXTENSION = 32  # mirrored around the image for the Gabor filters, pixels
_NEGLIGIBLE = 1e-5  # transfer values below this, of a peak of 1, may be cut off

# Products may be fused with sums, nothing is reordered.
_compiled = jit(fastmath={"contract"})


class Plan(NamedTuple):
    """All that depends on the size of the images alone; frequencies ascend, and the synthesis is of one side only."""

    lowpass: NDArray[np.float32]  # of the whitening, circulant, for both axes, [side, side]
    analysis_rows: NDArray[np.float32]  # pixels to spectrum, real parts before imaginary parts, [2 ny, H]
    analysis_columns: NDArray[np.float32]  # [W, 2 nx]
    synthesis_rows: NDArray[np.float32]  # frequencies to pixels, cosines before sines, [2 ⌈H/2⌉, ny]
    synthesis_columns: NDArray[np.float32]  # [nx, 2 ⌈W/2⌉]
    boxes: Indices  # first and last + 1 frequency of every filter, rows then columns, [32, 4]
    transfer: NDArray[np.float32]  # the boxes of all transfer functions one after another
    offsets: Indices  # where each one begins, [33]
    row_edges: Indices  # boundaries of the blocks, [5]
    column_edges: Indices


# A plan for the largest pictures takes some 5 MB.
@lru_cache(maxsize=12)
def plan(height: int, width: int) -> Plan:
    """Matrices for images of one size, computed in float64; the latest sizes are kept."""
    side = max(height, width) + 2 * BORDER
    side += side % 2
    # exp(−(fx² + fy²) / s²) is a product over the axes, s = cutoff / √log 2.
    gain = np.exp(-((np.fft.fftfreq(side) * side) ** 2) * np.log(2) / _CUTOFF**2)
    kernel = np.fft.ifft(gain).real
    lowpass = kernel[(np.arange(side)[:, None] - np.arange(side)) % side]

    fy, analysis_rows, synthesis_rows = _partial_fourier(height)
    fx, analysis_columns, synthesis_columns = _partial_fourier(width)
    frequency, angle = np.hypot(fy[:, None], fx), np.arctan2(fy[:, None], fx)
    # G is a product, too: one factor for each scale, one for each orientation.
    turns = [angle + np.pi / ORIENTATIONS * orientation for orientation in range(ORIENTATIONS)]
    angular = [np.exp(-2 * np.pi * np.where(turn > np.pi, turn - 2 * np.pi, turn) ** 2) for turn in turns]
    boxes, pieces = [], []
    for scale in range(SCALES):
        radial = np.exp(-3.5 * (frequency / (0.3 / 1.85**scale) - 1) ** 2)
        for orientation in range(ORIENTATIONS):
            transfer = radial * angular[orientation]
            kept = transfer > _NEGLIGIBLE
            ys, xs = np.flatnonzero(kept.any(axis=1)), np.flatnonzero(kept.any(axis=0))
            box = (ys[0], ys[-1] + 1, xs[0], xs[-1] + 1)
            boxes.append(box)
            pieces.append(transfer[box[0] : box[1], box[2] : box[3]].ravel())
    single = partial(np.ascontiguousarray, dtype=np.float32)
    return Plan(
        single(lowpass),
        single(analysis_rows),
        single(analysis_columns.T),
        single(synthesis_rows),
        single(synthesis_columns.T),
        np.array(boxes, dtype=np.int64),
        single(np.concatenate(pieces)),
        np.cumsum([0] + [len(piece) for piece in pieces], dtype=np.int64),
        np.linspace(0, height, BLOCKS + 1).astype(np.int64),
        np.linspace(0, width, BLOCKS + 1).astype(np.int64),
    )


def mirror(positions: Indices, size: int) -> Indices:
    """Fold positions on the line into 0, …, size − 1 by reflection that repeats the edge."""
    folded = positions % (2 * size)
    return np.minimum(folded, 2 * size - 1 - folded)


def _partial_fourier(size: int) -> tuple[Floats, Floats, Floats]:
    """Frequencies [n], analysis [2 n, size] and synthesis [2 ⌈size/2⌉, n] of one axis.

    Frequencies are in cycles per pixel, ascending. Positions count from the centre of the image, so that cosines are
    even and sines odd and half of them suffice.
    """
    n = size + 2 * _EXTENSION
    frequencies = np.fft.fftshift(np.fft.fftfreq(n))
    positions = np.arange(-_EXTENSION, size + _EXTENSION)
    phases = 2 * np.pi * frequencies[:, None] * (positions - (size - 1) / 2)
    analysis = np.zeros((2 * n, size))
    np.add.at(analysis.T, mirror(positions, size), np.concatenate([np.cos(phases), -np.sin(phases)]).T)
    after_centre = phases[:, _EXTENSION + size // 2 : _EXTENSION + size].T
    return frequencies, analysis, np.concatenate([np.cos(after_centre), np.sin(after_centre)]) / n


def block_means(grey: NDArray[np.float32]) -> NDArray[np.float32]:
    """GIST of greys [b, H, W] from 0 to 255, [b, 512]."""
    own = plan(*grey.shape[1:])
    descriptors = np.empty((len(grey), DIMENSION), dtype=np.float32)
    _gabor_means(_prefilter(grey, own.lowpass), own, descriptors)
    return descriptors


def _prefilter(grey: NDArray[np.float32], lowpass: NDArray[np.float32]) -> NDArray[np.float32]:
    """Whiten, then divide by the local contrast, [b, H, W]."""
    height, width = grey.shape[1:]
    side = len(lowpass)
    rows = mirror(np.arange(-BORDER, height + BORDER), height)
    columns = mirror(np.arange(-BORDER, width + BORDER), width)
    # Padded to a square by mirroring the padded image, not the image.
    rows = rows[mirror(np.arange(side), len(rows))]
    columns = columns[mirror(np.arange(side), len(columns))]
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
def _gabor_means(images: Floats, plan: Plan, descriptors: Floats) -> None:
    """Fill descriptors [b, 512] with the block means of images [b, H, W]."""
    height, width = images.shape[1:]
    ny, nx = len(plan.analysis_rows) // 2, plan.analysis_columns.shape[1] // 2
    half_height, half_width = len(plan.synthesis_rows) // 2, plan.synthesis_columns.shape[1] // 2
    half = np.empty((2 * ny, width), np.float32)
    quarters = np.empty((2 * ny, 2 * nx), np.float32)
    product = np.empty(2 * ny * nx, np.float32)
    waves = np.empty(2 * half_height * 2 * nx, np.float32)
    middle = np.empty(2 * height * nx, np.float32)
    response = np.empty((2 * height, 2 * half_width), np.float32)

    for i in range(len(images)):
        _multiply(plan.analysis_rows, images[i], half)
        _multiply(half, plan.analysis_columns, quarters)
        real, imaginary = quarters[:ny, :nx], quarters[:ny, nx:]
        for y in range(ny):
            for x in range(nx):
                real[y, x] -= quarters[ny + y, nx + x]
                imaginary[y, x] += quarters[ny + y, x]
        for k in range(len(plan.boxes)):
            y0, y1, x0, x1 = plan.boxes[k]
            h, w = y1 - y0, x1 - x0
            gain = plan.transfer[plan.offsets[k] : plan.offsets[k + 1]].reshape((h, w))
            box = product[: 2 * h * w].reshape((h, 2 * w))
            for y in range(h):
                for x in range(w):
                    box[y, x] = real[y0 + y, x0 + x] * gain[y, x]
                    box[y, w + x] = imaginary[y0 + y, x0 + x] * gain[y, x]

            wave = waves[: 2 * half_height * 2 * w].reshape((2 * half_height, 2 * w))
            _multiply(plan.synthesis_rows[:, y0:y1], box, wave)
            part = middle[: 2 * height * w].reshape((2 * height, w))
            _join_rows(wave, part)
            _multiply(part, plan.synthesis_columns[x0:x1], response)
            means = descriptors[i, BLOCKS * BLOCKS * k : BLOCKS * BLOCKS * (k + 1)].reshape((BLOCKS, BLOCKS))
            _average(response, plan.row_edges, plan.column_edges, means)


@_compiled
def _join_rows(wave: Floats, part: Floats) -> None:
    """Fill part [2 H, w] from the even part P and the odd part Q around the centre: above and below are P ± i Q."""
    half_height, w = len(wave) // 2, part.shape[1]
    height = len(part) // 2
    for u in range(half_height):
        even, odd = wave[u], wave[half_height + u]
        below, above = 2 * (height - half_height + u), 2 * (half_height - 1 - u)
        for x in range(w):
            part[above, x] = even[x] + odd[w + x]
            part[above + 1, x] = even[w + x] - odd[x]
        for x in range(w):
            part[below, x] = even[x] - odd[w + x]
            part[below + 1, x] = even[w + x] + odd[x]


@_compiled
def _average(response: Floats, row_edges: Indices, column_edges: Indices, means: Floats) -> None:
    """Fill means [4, 4] with the magnitude of a response, its two halves joined, averaged over blocks."""
    half_width, width = response.shape[1] // 2, column_edges[-1]
    right, left = np.empty(half_width, np.float32), np.empty(half_width, np.float32)
    sums = np.empty(width, np.float32)
    for r in range(BLOCKS):
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
        sums[width - half_width :] = right
        sums[:half_width] = left[::-1]
        for c in range(BLOCKS):
            total = np.float32(0)
            for x in range(column_edges[c], column_edges[c + 1]):
                total += sums[x]
            means[r, c] = total / ((row_edges[r + 1] - row_edges[r]) * (column_edges[c + 1] - column_edges[c]))
