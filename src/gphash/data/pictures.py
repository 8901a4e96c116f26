"""Pictures as arrays, read with Pillow (the extra ``images``).

Files come from anywhere: only formats that Pillow decodes by itself are tried (EPS, for one, would start a program),
and the number of pixels, and of passes over them, is known and bounded before any of them is unpacked.

Descriptors look at small pictures, so a large one is reduced while it is decoded, by a whole factor: a JPEG by its
decoder as far as a half, a quarter or an eighth, all else by means of squares of pixels, a strip at a time. GIST of a
picture of less than 2,048 pixels a side is what it would be without; of larger ones it changes by less than 1 %.
"""

import ctypes
import errno
import io
import os
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
MAX_PIXELS = 25_000_000
SPARED = 2  # times as many of a JPEG, which the decoder reduces, unless it is one for printers, of four inks
MAX_BYTES = 4 * MAX_PIXELS  # what lies beside the pixels is held, too, up to four times
MAX_SLOW_BYTES = 2_000_000  # of what Pillow decodes in Python: a megabyte takes half a second
MAX_RATIO = 64  # of the sides
MAX_SCANS = 100  # of a JPEG; each is a pass over all of its pixels, and files in earnest have about ten
MAX_PASSED = 1_500_000_000  # pixels of all passes
MAX_STRIPS = 100_000  # of a TIFF; each is decoded on its own, and files in earnest have at most one for each row
MIN_SIDE = 4  # pixels; descriptors divide a picture into 4 × 4 blocks
VERSION = 2  # of what is decoded: a cache must not serve descriptors of other pixels

Source: TypeAlias = str | os.PathLike[str] | bytes
Reduction: TypeAlias = Callable[[int, int], int]
"""From height and width of a picture to the factor by which both may be reduced; below 2, it is left as it is."""

_DAMAGE = (
    *(OSError, EOFError, ValueError, TypeError, SyntaxError, LookupError, ArithmeticError, RuntimeError),
    *(struct.error, zlib.error),
)

_WITHOUT_RANGE = {"I", "F"}  # 32 bits for each pixel
_STRIP = 1 << 20  # pixels converted at once
_ORIENTATION = 0x0112  # the tag of EXIF

_TIFF = {b"II*\0": "<", b"MM\0*": ">"}  # how numbers are written
_PILLOW = r"PIL\."  # modules
_BIG_TIFF = {b"II+\0", b"MM\0+"}
_PLACES = {273, 324}  # tags: where the strips are, or the tiles
_OCTETS = {1, 2, 7}  # kinds of tags that Pillow keeps as bytes; of others it makes a list of numbers
_JPEG = b"\xff\xd8\xff"
_SOS, _EOI = 0xDA, 0xD9  # markers: a scan begins, the picture ends
# Within a scan, 255 is followed by 0 or is a mark to restart at; those and padding have no segment behind them.
_SEGMENT = re.compile(rb"\xff[^\x00\x01\xd0-\xd8\xff]")


class PictureError(ValueError):
    """The file is not a picture, or is damaged, too small or too large; the message names it."""


class TooManyPixelsError(PictureError):
    """The picture is larger than allowed."""


def open_picture(
    source: Source, max_pixels: int = MAX_PIXELS, reduction: Reduction = lambda height, width: 1
) -> NDArray[np.uint8]:
    """The first frame of a picture, a path or the content of a file, upright, in colour, uint8 [H, W, 3].

    Grey pictures have three equal channels; what is transparent is white. Those of 32 bits, whole numbers or not, have
    no fixed range and are stretched from their least to their greatest value. A PictureError says what is wrong: no
    picture, damage, or a size that is not allowed (a JPEG may have twice `max_pixels`).
    """
    with _opened(source, max_pixels) as image:
        width, height = image.size
        factor = max(1, reduction(height, width))
        image.draft(None, (width // factor, height // factor))
        image.load()
        left = max(1, factor * image.width // width)  # what the decoder has not done
        return _turned(_colour(image, image.format, left), _orientation(image))


def check(source: Source, max_pixels: int = MAX_PIXELS) -> tuple[int, int]:
    """Height and width of a picture, as it is stored; a PictureError if `open_picture` would raise one.

    It is decoded, JPEG at an eighth of its size, so that a truncated file is found out.
    """
    with _opened(source, max_pixels) as image:
        width, height = image.size
        image.draft("RGB", (1, 1))
        image.load()
        if image.mode in _WITHOUT_RANGE:
            _range(image)
        return height, width


def to_png(pixels: NDArray[np.uint8], most_side: int) -> bytes:
    """A picture, uint8 [H, W] or [H, W, 3], as a PNG file of at most so many pixels on each side."""
    image = pillow().fromarray(pixels)
    content = io.BytesIO()
    image.reduce(-(-max(image.size) // most_side)).save(content, "PNG")
    return content.getvalue()


def resized(pixels: NDArray[np.uint8], height: int, width: int, resample: int) -> NDArray[np.uint8]:
    """A picture, uint8 [H, W] or [H, W, 3], in colour at another size, by a filter of Pillow's."""
    image = pillow().fromarray(np.ascontiguousarray(pixels)).convert("RGB")
    return np.asarray(image if image.size == (width, height) else image.resize((width, height), resample))


def pillow() -> Any:
    """Pillow, which not everybody has."""
    try:
        import PIL.Image
    except ImportError as error:
        raise ImportError("reading pictures needs Pillow: pip install pillow") from error
    _silence_libtiff()
    # What Pillow warns of names no file, and can be a thousand lines for one picture.
    if not any(one[0] == "ignore" and getattr(one[3], "pattern", None) == _PILLOW for one in warnings.filters):
        warnings.filterwarnings("ignore", module=_PILLOW)
    return PIL.Image


@cache
def _silence_libtiff() -> None:
    """Keep libtiff from writing what is wrong with a file to standard error; Pillow raises an error anyhow."""
    import PIL._imaging

    with suppress(OSError, AttributeError, TypeError):  # a Pillow without libtiff, or one that hides its functions
        library = ctypes.CDLL(PIL._imaging.__file__)
        for name in ("TIFFSetErrorHandler", "TIFFSetWarningHandler"):
            handler = getattr(library, name)
            handler.argtypes, handler.restype = [ctypes.c_void_p], ctypes.c_void_p
            handler(None)


@contextmanager
def _opened(source: Source, max_pixels: int) -> Iterator[Any]:
    """A picture within bounds; what goes wrong while it is used becomes a PictureError, too."""
    library = pillow()
    library.init()
    formats = [name for name in FORMATS if name in library.OPEN]
    label = "the picture" if isinstance(source, bytes) else repr(os.fspath(source))
    n_bytes = len(source) if isinstance(source, bytes) else os.stat(source).st_size
    if n_bytes > MAX_BYTES:
        raise PictureError(f"{label} has {n_bytes} bytes; a picture may have at most {MAX_BYTES}")
    content = source if isinstance(source, bytes) else Path(source).read_bytes()
    try:
        _check_tiff(content, label)
        with library.open(io.BytesIO(content), formats=formats) as image:
            width, height = image.size
            is_spared = image.format in ("JPEG", "MPO") and image.mode != "CMYK"
            most = SPARED * max_pixels if is_spared else max_pixels
            has = f"{label} has {width} × {height} pixels"
            if width * height > most:
                raise TooManyPixelsError(f"{has}; allowed are at most {most}")
            if min(width, height) < MIN_SIDE:
                raise PictureError(f"{has}; it must have at least {MIN_SIDE} on each side")
            if max(width, height) > MAX_RATIO * min(width, height):
                raise PictureError(
                    f"{has}; one side may be at most {MAX_RATIO} times as long as the other: cut it into pieces"
                )
            if n_bytes > MAX_SLOW_BYTES and any(tile[0] in library.DECODERS for tile in image.tile):
                raise PictureError(
                    f"{label} is a {image.format} of a kind that takes long to read, and has more than "
                    f"{MAX_SLOW_BYTES} bytes; save it as PNG"
                )
            scans = min(MAX_SCANS, MAX_PASSED // (width * height))
            if content.startswith(_JPEG) and _n_scans(content) > scans:
                raise PictureError(f"{label} is a JPEG of more than {scans} scans; save it again with fewer")
            yield image
    except PictureError:
        raise
    except library.DecompressionBombError as error:
        raise TooManyPixelsError(f"{label} has too many pixels; allowed are at most {max_pixels}") from error
    except library.UnidentifiedImageError as error:
        raise PictureError(f"{label} is not a picture of a known format ({', '.join(formats)})") from error
    # What Pillow's decoders raise over damaged files is written down nowhere; these have been seen.
    except _DAMAGE as error:
        # Pillow's own have no number, and a place that makes no sense is the file's fault; others are the disk's.
        if isinstance(error, OSError) and error.errno not in {None, errno.EINVAL}:
            raise
        raise PictureError(f"{label} is a damaged picture: {error}") from error


def _check_tiff(content: bytes, label: str) -> None:
    """Refuse a TIFF with so many strips, or other numbers, that the list of them alone takes gigabytes."""
    if content[:4] in _BIG_TIFF:
        raise PictureError(f"{label} is a TIFF of an unusual kind; save it again as a plain one")
    if (order := _TIFF.get(content[:4])) is None:
        return
    (start,) = struct.unpack_from(f"{order}I", content, 4)
    (n_tags,) = struct.unpack_from(f"{order}H", content, start)
    tags = content[start + 2 : start + 2 + 12 * n_tags]
    for tag, kind, count, _ in struct.iter_unpack(f"{order}HHII", tags):
        if kind not in _OCTETS and count > MAX_STRIPS:
            what = "strips" if tag in _PLACES else f"numbers in its tag {tag}"
            raise PictureError(f"{label} is a TIFF of more than {MAX_STRIPS} {what}; save it again with fewer")


def _n_scans(content: bytes) -> int:
    """Scans of a JPEG; those of a thumbnail within a segment, and what follows the end, do not count."""
    count, place = 0, 2
    while (found := _SEGMENT.search(content, place)) and content[found.start() + 1] != _EOI:
        count += content[found.start() + 1] == _SOS
        place = found.end() + max(2, int.from_bytes(content[found.end() : found.end() + 2], "big"))
    return count


def _orientation(image: Any) -> int:
    """How the camera was held, a number from 1 to 8 as EXIF has it."""
    try:
        return int(image.getexif().get(_ORIENTATION, 1))
    # The picture may be fine although what the camera noted about it is not.
    except (*_DAMAGE, AttributeError, Warning):
        return 1


def _turned(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Pixels of a picture, upright."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.transpose(1, 0, 2)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return np.ascontiguousarray(pixels)


def _colour(image: Any, kind: str | None, factor: int = 1) -> NDArray[np.uint8]:
    """Pixels in colour, or means of squares of them, a strip at a time: a large picture would take gigabytes."""
    is_deep = image.mode.startswith("I;16") or (image.mode == "I" and kind == "PPM")  # greys from 0 to 65,535
    low, high = _range(image) if image.mode in _WITHOUT_RANGE and not is_deep else (0.0, 0.0)
    pixels = np.empty((-(-image.height // factor), -(-image.width // factor), 3), dtype=np.uint8)
    for top, strip in _strips(image, factor):
        if is_deep:  # Pillow would clip them, and those without a range, at 255
            greys = np.clip(np.asarray(strip, dtype=np.int32) >> 8, 0, 255)
            plain = pillow().fromarray(greys.astype(np.uint8))
        elif strip.mode in _WITHOUT_RANGE:
            greys = np.rint((np.asarray(strip, dtype=np.float64) - low) * (255 / (high - low or 1)))
            plain = pillow().fromarray(greys.astype(np.uint8))
        elif strip.has_transparency_data:
            white = pillow().new("RGBA", strip.size, "white")
            plain = pillow().alpha_composite(white, strip.convert("RGBA")).convert("RGB")
        else:
            plain = strip.convert("RGB")
        reduced = np.asarray(plain.reduce(factor))
        first = top // factor
        pixels[first : first + len(reduced)] = reduced if reduced.ndim == 3 else reduced[:, :, None]
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


def _strips(image: Any, factor: int = 1) -> Iterator[tuple[int, Any]]:
    """Strips of a picture, each with the number of its first row, a multiple of the factor."""
    step = factor * max(1, _STRIP // (image.width * factor))
    for top in range(0, image.height, step):
        yield top, image.crop((0, top, image.width, min(image.height, top + step)))
