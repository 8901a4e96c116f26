"""Pixels as a PNG file, with the standard library alone, so that galleries of arrays need no Pillow to be looked at."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

MEDIA_TYPE = "image/png"

_GREY, _COLOUR = 0, 2  # colour types of the format


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """A picture, uint8 [H, W] or [H, W, 3], as the content of a PNG file."""
    rows = np.ascontiguousarray(pixels)
    if rows.dtype != np.uint8 or rows.ndim not in (2, 3) or (rows.ndim == 3 and rows.shape[2] != 3) or not rows.size:
        raise ValueError(f"pixels is {rows.dtype} of shape {rows.shape}; give uint8, [H, W] or [H, W, 3].")
    height, width = rows.shape[:2]
    # Every row begins with the number of its filter; 0 is none.
    lines = np.zeros((height, 1 + rows[0].size), np.uint8)
    lines[:, 1:] = rows.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _GREY if rows.ndim == 2 else _COLOUR, 0, 0, 0)
    body = zlib.compress(lines.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", body) + _chunk(b"IEND", b"")


def reduced(pixels: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    """A picture of at most so many pixels on each side: means of square blocks, or itself if it is small enough."""
    step = -(-max(pixels.shape[:2]) // side)
    if step == 1:
        return pixels
    rows, columns = (np.arange(0, length, step) for length in pixels.shape[:2])
    sums = np.add.reduceat(np.add.reduceat(pixels, rows, axis=0, dtype=np.uint32), columns, axis=1)
    heights, widths = (
        np.minimum(step, length - starts) for length, starts in zip(pixels.shape[:2], (rows, columns), strict=True)
    )
    sizes = np.outer(heights, widths).astype(np.uint32).reshape(sums.shape[:2] + (1,) * (pixels.ndim - 2))
    return ((sums + sizes // 2) // sizes).astype(np.uint8)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
