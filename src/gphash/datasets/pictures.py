"""Pictures as arrays, read with Pillow (the extra ``images``).

Files come from anywhere: only formats that Pillow decodes by itself are tried (EPS, for one, would start a program),
and the number of pixels, and of passes over them, is known and bounded before any of them is unpacked.
"""

import errno
import io
import os
import re
import struct
import zlib
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 64_000_000
MAX_SCANS = 100  # of a JPEG; each is a pass over all of its pixels, and files in earnest have about ten
MIN_SIDE = 4  # pixels; descriptors divide a picture into 4 × 4 blocks
VERSION = 1  # of what is decoded: a cache must not serve descriptors of other pixels

Source: TypeAlias = str | os.PathLike[str] | bytes

_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    SyntaxError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    struct.error,
    zlib.error,
)

_WITHOUT_RANGE = {"I", "F"}  # 32 bits for each pixel
_STRIP = 1 << 20  # pixels converted at once

_JPEG = b"\xff\xd8\xff"
_SOS, _EOI = 0xDA, 0xD9  # markers: a scan begins, the picture ends
# Within a scan, 255 is followed by 0 or is a mark to restart at; those and padding have no segment behind them.
_SEGMENT = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")


class PictureError(ValueError):
    """The file is no picture, a damaged one, too small or too large a one; the message names it."""


class TooManyPixelsError(PictureError):
    """The picture is larger than allowed."""


def open_picture(source: Source, max_pixels: int = MAX_PIXELS) -> NDArray[np.uint8]:
    """The first frame of a picture, upright, in colour, uint8 [H, W, 3].

    Parameters
    ----------
    source
        A path, or the content of a file.
    max_pixels
        A picture of more is refused.

    Returns
    -------
    pixels
        Grey pictures have three equal channels; what is transparent is white. Those of 32 bits, whole numbers or not,
        have no fixed range and are stretched from their least to their greatest value.

    Raises
    ------
    PictureError
        If it is no picture, a damaged one, or smaller or larger than allowed.
    """

    def decode(image: Any) -> NDArray[np.uint8]:
        image.load()
        try:
            upright = _pillow_operations().exif_transpose(image)
        # A fault in what a camera has noted is none of the picture.
        except (*_DAMAGE, AttributeError, Warning):
            upright = image
        return _colour(upright, image.format)

    result: NDArray[np.uint8] = _opened(source, max_pixels, decode)
    return result


def check(source: Source, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Height and width of a picture, as it is stored; a PictureError if it is none.

    It is decoded, JPEG at an eighth of its size, so that a truncated file is found out.

    Parameters
    ----------
    source, max_pixels
        As for `open_picture`.
    """

    def look(image: Any) -> tuple[int, int]:
        width, height = image.size
        image.draft("RGB", (1, 1))
        image.load()
        if image.mode in _WITHOUT_RANGE:
            _range(image)
        return height, width

    size: tuple[int, int] = _opened(source, max_pixels, look)
    return size


def require() -> None:
    """Say early, and helpfully, that Pillow is missing."""
    _pillow()


def _pillow() -> Any:
    try:
        import PIL.Image
    except ImportError as error:
        raise ImportError("reading pictures needs Pillow: pip install 'gphash[images]'") from error
    return PIL.Image


def _pillow_operations() -> Any:
    import PIL.ImageOps

    return PIL.ImageOps


def _opened(source: Source, max_pixels: int, use: Any) -> Any:
    pillow = _pillow()
    pillow.init()
    formats = [name for name in FORMATS if name in pillow.OPEN]
    label = "the picture" if isinstance(source, bytes) else repr(os.fspath(source))
    opened = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with pillow.open(opened, formats=formats) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise TooManyPixelsError(f"{label} has {width} × {height} pixels; allowed are at most {max_pixels}")
            if min(width, height) < MIN_SIDE:
                raise PictureError(
                    f"{label} has {width} × {height} pixels; wanted are at least {MIN_SIDE} on each side"
                )
            _check_scans(source, label)
            return use(image)
    except (PictureError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise TooManyPixelsError(f"{label} has too many pixels; allowed are at most {max_pixels}") from error
    except pillow.UnidentifiedImageError as error:
        raise PictureError(f"{label} is no picture of a known format ({', '.join(formats)})") from error
    # What Pillow's decoders raise over damaged files is written down nowhere; these have been seen.
    except _DAMAGE as error:
        # Pillow's own have no number, and a place that makes no sense is the file's fault; others are the disk's.
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
            raise
        raise PictureError(f"{label} is a damaged picture: {error}") from error


def _check_scans(source: Source, label: str) -> None:
    """Refuse a JPEG that repeats scans to keep whoever decodes it busy."""
    if isinstance(source, bytes):
        content = source
    else:
        with open(source, "rb") as file:
            content = file.read(len(_JPEG))
            if content == _JPEG:
                content += file.read()
    if content.startswith(_JPEG) and _n_scans(content) > MAX_SCANS:
        raise PictureError(f"{label} is a JPEG of more than {MAX_SCANS} scans; save it again with fewer")


def _n_scans(content: bytes) -> int:
    """Scans of a JPEG; those of a thumbnail within a segment, and what follows the end, do not count."""
    count, place = 0, 2
    while (found := _SEGMENT.search(content, place)) and content[found.start() + 1] != _EOI:
        count += content[found.start() + 1] == _SOS
        place = found.end() + max(2, int.from_bytes(content[found.end() : found.end() + 2], "big"))
    return count


def _colour(image: Any, kind: str | None) -> NDArray[np.uint8]:
    """Pixels in colour, a strip at a time: the greys of large pictures would take gigabytes as wide numbers."""
    is_deep = image.mode.startswith("I;16") or (image.mode == "I" and kind == "PPM")  # greys from 0 to 65,535
    low, high = _range(image) if image.mode in _WITHOUT_RANGE and not is_deep else (0.0, 0.0)
    pixels = np.empty((image.height, image.width, 3), dtype=np.uint8)
    for top, strip in _strips(image):
        rows = pixels[top : top + strip.height]
        if is_deep:  # Pillow would clip them, and those without a range, at 255
            rows[:] = np.clip(np.asarray(strip, dtype=np.int32) >> 8, 0, 255)[:, :, None]
        elif strip.mode in _WITHOUT_RANGE:
            rows[:] = np.rint((np.asarray(strip, dtype=np.float64) - low) * (255 / (high - low or 1)))[:, :, None]
        elif strip.has_transparency_data:
            layered = strip.convert("RGBA")
            white = _pillow().new("RGBA", layered.size, "white")
            rows[:] = np.asarray(_pillow().alpha_composite(white, layered).convert("RGB"))
        else:
            rows[:] = np.asarray(strip.convert("RGB"))
    return pixels


def _range(image: Any) -> tuple[float, float]:
    """The least and the greatest grey; a ValueError if some are no numbers."""
    ends = []
    for _, strip in _strips(image):
        values = np.asarray(strip)
        if not np.isfinite(values).all():
            raise ValueError("it holds NaN or infinity")
        ends += [float(values.min()), float(values.max())]
    return min(ends), max(ends)


def _strips(image: Any) -> Iterator[tuple[int, Any]]:
    """Strips of a picture, each with the number of its first row."""
    step = max(1, _STRIP // image.width)
    for top in range(0, image.height, step):
        yield top, image.crop((0, top, image.width, min(image.height, top + step)))
