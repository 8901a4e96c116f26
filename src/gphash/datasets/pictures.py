"""Pictures as arrays, read with Pillow (the extra ``images``).

Files come from anywhere: only formats that Pillow decodes by itself are tried (EPS, for one, would start a program),
and the number of pixels is known and bounded before any of them is unpacked.
"""

import io
import os
import struct
import zlib
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 64_000_000

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
    MemoryError,
    struct.error,
    zlib.error,
)


class PictureError(ValueError):
    """The file is no picture, a damaged one or too large a one; the message names it."""


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
        Grey pictures have three equal channels; what is transparent is white.

    Raises
    ------
    PictureError
        If it is no picture, a damaged one, or larger than allowed.
    """

    def decode(image: Any) -> NDArray[np.uint8]:
        upright = _pillow_operations().exif_transpose(image)
        return np.array(_colour(upright), dtype=np.uint8)

    result: NDArray[np.uint8] = _opened(source, max_pixels, decode)
    return result


def check(source: Source, max_pixels: int = MAX_PIXELS, *, whole: bool = True) -> tuple[int, int]:
    """Height and width of a picture, as it is stored; a PictureError if it is none.

    Parameters
    ----------
    source, max_pixels
        As for `open_picture`.
    whole
        Decode it, JPEG at an eighth of its size, so that a truncated file is found out; else only its header is read.
    """

    def look(image: Any) -> tuple[int, int]:
        width, height = image.size
        if whole:
            image.draft("RGB", (1, 1))
            image.load()
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
                raise PictureError(f"{label} has {width} × {height} pixels; allowed are at most {max_pixels}")
            return use(image)
    except (PictureError, FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        raise PictureError(f"{label} has too many pixels; allowed are at most {max_pixels}") from error
    except pillow.UnidentifiedImageError as error:
        raise PictureError(f"{label} is no picture of a known format ({', '.join(formats)})") from error
    # What Pillow's decoders raise over damaged files is written down nowhere; these have been seen.
    except _DAMAGE as error:
        raise PictureError(f"{label} is a damaged picture: {error}") from error


def _colour(image: Any) -> Any:
    if image.mode.startswith("I"):
        # 16 bits of grey, which Pillow would clip at 255.
        grey = np.clip(np.asarray(image, dtype=np.int64) >> 8, 0, 255).astype(np.uint8)
        return _pillow().fromarray(grey).convert("RGB")
    if image.has_transparency_data:
        layered = image.convert("RGBA")
        white = _pillow().new("RGBA", layered.size, "white")
        return _pillow().alpha_composite(white, layered).convert("RGB")
    return image.convert("RGB")
