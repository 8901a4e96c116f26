"""Pictures as arrays, read with Pillow (the extra ``images``).

Files come from anywhere: only formats that Pillow decodes by itself are tried (EPS, for one, would start a program),
and the number of pixels is known and bounded before any of them is unpacked.
"""

import errno
import io
import os
import struct
import zlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 64_000_000
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
        return np.array(_colour(upright, image.format), dtype=np.uint8)

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
            _colour(image, image.format)
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


def _colour(image: Any, kind: str | None) -> Any:
    # Greys that Pillow would clip at 255.
    if image.mode.startswith("I;16") or (image.mode == "I" and kind == "PPM"):  # from 0 to 65,535
        return _from_grey(np.clip(np.asarray(image, dtype=np.int64) >> 8, 0, 255))
    if image.mode in _WITHOUT_RANGE:
        values = np.asarray(image, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError("it holds NaN or infinity")
        values = values - values.min()
        return _from_grey(np.rint(values * (255 / (values.max() or 1))))
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        white = _pillow().new("RGBA", layered.size, "white")
        return _pillow().alpha_composite(white, layered).convert("RGB")
    return image.convert("RGB")


def _from_grey(values: NDArray[Any]) -> Any:
    return _pillow().fromarray(values.astype(np.uint8)).convert("RGB")
