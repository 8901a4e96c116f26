"""The filters of GIST as matrices, for images of one size.

The transfer function of a filter, at frequency f in cycles per pixel and angle t, is

    G(f, t) = exp(−3.5 (f / f₀ − 1)² − 2π (t + θ)²),    f₀ = 0.3 / 1.85^scale,    θ = π/8 · orientation

It is wanted on the spectrum of the image mirrored by 32 pixels on every side, but only where it is not negligible, and
of the filtered image only the middle is wanted. So each transform is a short product with a partial Fourier matrix.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gphash.arrays import Floats, Indices

SCALES, ORIENTATIONS, BLOCKS = 4, 8, 4
LONGEST = 256  # pixels; longer pictures are reduced to it
DIMENSION = SCALES * ORIENTATIONS * BLOCKS * BLOCKS
LONGEST = 256  # pixels; longer pictures are reduced to it
BORDER = 5  # mirrored around the image for the whitening, pixels

_CUTOFF = 4.0  # of the whitening, cycles per image
_EXTENSION = 32  # mirrored around the image for the Gabor filters, pixels
_NEGLIGIBLE = 1e-5  # transfer values below this, of a peak of 1, may be cut off


class Plan(NamedTuple):
    """All that depends on the size of the images alone; float32.

    lowpass
        The whitening's low-pass as a circulant matrix, applied to both axes, [side, side].
    analysis_rows, analysis_columns
        From pixels to the spectrum of the mirrored image, frequencies ascending, real parts before imaginary parts,
        [2 ny, H] and [W, 2 nx].
    synthesis_rows, synthesis_columns
        From frequencies to the pixels at and after the centre, cosines before sines, [2 ⌈H/2⌉, ny] and [nx, 2 ⌈W/2⌉].
    boxes
        First and last + 1 frequency of every filter, rows then columns, [32, 4].
    transfer, offsets
        The boxes of all transfer functions one after another, and where each one begins, [total] and [33].
    row_edges, column_edges
        Boundaries of the blocks, [5] each.
    """

    lowpass: NDArray[np.float32]
    analysis_rows: NDArray[np.float32]
    analysis_columns: NDArray[np.float32]
    synthesis_rows: NDArray[np.float32]
    synthesis_columns: NDArray[np.float32]
    boxes: Indices
    transfer: NDArray[np.float32]
    offsets: Indices
    row_edges: Indices
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
    return Plan(
        _single(lowpass),
        _single(analysis_rows),
        _single(analysis_columns.T),
        _single(synthesis_rows),
        _single(synthesis_columns.T),
        np.array(boxes, dtype=np.int64),
        _single(np.concatenate(pieces)),
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


def _single(matrix: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(matrix, dtype=np.float32)
