"""Pictures made to hurt: small files of many pixels, thin ones, damaged ones, and those with much beside the pixels.

Every kind is a function of the number of pixels that are allowed: it makes the worst file that still is, or one that
is not. `KINDS` has them by name, `make` gives the name of a file and its content.
"""

import io
import math
import struct
import zlib
from collections.abc import Callable

import numpy as np
from PIL import Image

TAGS = 1000  # of a directory that all point at the same bytes
FRAMES = 2000
MEGABYTE = 1 << 20
BESIDE = 12 * MEGABYTE  # bytes beside the pixels, as many as the service takes in a body

KINDS: dict[str, tuple[str, Callable[[int], bytes]]] = {}


def make(kind: str, pixels: int) -> tuple[str, bytes]:
    """The name of a file and its content, for so many pixels allowed."""
    suffix, work = KINDS[kind]
    return f"{kind}.{suffix}", work(pixels)


def kind(suffix: str) -> Callable[[Callable[[int], bytes]], Callable[[int], bytes]]:
    def enter(work: Callable[[int], bytes]) -> Callable[[int], bytes]:
        KINDS[work.__name__.replace("_", "-")] = suffix, work
        return work

    return enter


# ----------------------------------------------------------------------------------------------------- PNG


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def zeros(n_bytes: int) -> bytes:
    """So many zeros, compressed."""
    packer = zlib.compressobj(9)
    parts = (min(MEGABYTE, n_bytes - start) for start in range(0, n_bytes, MEGABYTE))
    return b"".join([packer.compress(bytes(part)) for part in parts]) + packer.flush()


def png(
    width: int,
    height: int,
    depth: int = 8,
    colour: int = 2,
    interlaced: bool = False,
    before: bytes = b"",
    cut: int = 0,
) -> bytes:
    """A black picture; colour 0 is grey, 2 RGB, 3 a palette, 6 RGBA."""
    channels = {0: 1, 2: 3, 3: 1, 6: 4}[colour]
    rows = height * (1 + -(-width * depth * channels // 8))
    body = zeros(2 * rows if interlaced else rows)  # a little more for seven passes does no harm
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    head = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + before
    return head + chunk(b"IDAT", body[: len(body) - cut]) + chunk(b"IEND", b"")


def side(pixels: int) -> int:
    """The side of the largest square that is allowed."""
    return math.isqrt(pixels)


@kind("png")
def thin_and_wide(pixels: int) -> bytes:
    return png(min(400_000, pixels // 4), 4, colour=0)


@kind("png")
def thin_and_tall(pixels: int) -> bytes:
    return png(4, min(400_000, pixels // 4), colour=0)


@kind("png")
def thinnest(pixels: int) -> bytes:
    return png(pixels // 4, 4, colour=0)


@kind("png")
def as_thin_as_may_be(pixels: int) -> bytes:
    short = math.isqrt(pixels // 64)
    return png(64 * short, short)


@kind("png")
def black(pixels: int) -> bytes:
    return png(side(pixels), side(pixels))


@kind("png")
def transparent(pixels: int) -> bytes:
    return png(side(pixels), side(pixels), colour=6)


@kind("png")
def one_bit(pixels: int) -> bytes:
    return png(side(pixels), side(pixels), depth=1, colour=0)


@kind("png")
def deep_colours(pixels: int) -> bytes:
    return png(side(pixels), side(pixels), depth=16)


@kind("png")
def deep_greys(pixels: int) -> bytes:
    return png(side(pixels), side(pixels), depth=16, colour=0)


@kind("png")
def transparent_palette(pixels: int) -> bytes:
    palette = chunk(b"PLTE", bytes(range(256)) * 3) + chunk(b"tRNS", bytes(range(256)))
    return png(side(pixels), side(pixels), colour=3, before=palette)


@kind("png")
def interlaced(pixels: int) -> bytes:
    return png(side(pixels), side(pixels), interlaced=True)


@kind("png")
def announced(pixels: int) -> bytes:
    """A few bytes that announce far too many pixels."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zeros(1000)) + chunk(b"IEND", b"")


@kind("png")
def one_row_too_many(pixels: int) -> bytes:
    return png(side(pixels), side(pixels) + 2)


@kind("png")
def cut_off(pixels: int) -> bytes:
    return png(side(pixels), side(pixels), cut=2000)


@kind("png")
def long_texts(pixels: int) -> bytes:
    packed = zeros(100 * MEGABYTE)
    texts = chunk(b"zTXt", b"a\0\0" + packed) + chunk(b"iTXt", b"b\0\1\0\0\0" + packed)
    return png(64, 64, before=texts)


@kind("png")
def many_texts(pixels: int) -> bytes:
    packed = zeros(MEGABYTE - 1000)
    texts = b"".join(chunk(b"zTXt", b"%d\0\0" % number + packed) for number in range(300))
    return png(64, 64, before=texts)


@kind("png")
def long_profile(pixels: int) -> bytes:
    return png(64, 64, before=chunk(b"iCCP", b"a\0\0" + zeros(100 * MEGABYTE)))


@kind("png")
def overlapping_exif(pixels: int) -> bytes:
    return png(64, 64, before=chunk(b"eXIf", overlapping(BESIDE)))


@kind("png")
def many_frames_of_png(pixels: int) -> bytes:
    size = side(pixels)
    frames = [chunk(b"acTL", struct.pack(">II", FRAMES, 0))]
    control = struct.pack(">IIIIHHBB", size, size, 0, 0, 1, 100, 0, 0)
    frames.append(chunk(b"fcTL", struct.pack(">I", 0) + control))
    whole = png(size, size, before=b"".join(frames))
    body, end = whole[:-12], whole[-12:]
    some = zeros(10_000)
    later = [
        chunk(b"fcTL", struct.pack(">I", 2 * number + 1) + control)
        + chunk(b"fdAT", struct.pack(">I", 2 * number + 2) + some)
        for number in range(FRAMES - 1)
    ]
    return body + b"".join(later) + end


# ---------------------------------------------------------------------------------------------------- JPEG


def saved(mode: str, size: tuple[int, int], format: str, **options: object) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, format, **options)
    return file.getvalue()


def segments(marker: int, start: bytes, n_bytes: int) -> bytes:
    """Segments of a JPEG that hold so many bytes."""
    part = start + bytes(65_000 - len(start))
    return (b"\xff" + bytes([marker]) + struct.pack(">H", len(part) + 2) + part) * (n_bytes // 65_000)


def with_segments(jpeg: bytes, more: bytes) -> bytes:
    return jpeg[:2] + more + jpeg[2:]


@kind("jpg")
def thin_jpeg(pixels: int) -> bytes:
    return saved("L", (65_000, 4), "JPEG")


@kind("jpg")
def baseline(pixels: int) -> bytes:
    return saved("RGB", (side(2 * pixels), side(2 * pixels)), "JPEG", subsampling=0)


@kind("jpg")
def progressive(pixels: int) -> bytes:
    return saved("RGB", (side(2 * pixels), side(2 * pixels)), "JPEG", progressive=True, subsampling=0)


@kind("jpg")
def four_inks(pixels: int) -> bytes:
    return saved("CMYK", (side(pixels), side(pixels)), "JPEG", progressive=True)


@kind("jpg")
def many_scans(pixels: int) -> bytes:
    """As many scans as may be, of half the side."""
    content = saved("RGB", (side(pixels) // 2, side(pixels) // 2), "JPEG", progressive=True)
    begin, end = content.rindex(b"\xff\xda"), content.rindex(b"\xff\xd9")
    return content[:end] + content[begin:end] * (100 - content.count(b"\xff\xda")) + content[end:]


@kind("jpg")
def too_many_scans(pixels: int) -> bytes:
    content = saved("RGB", (side(pixels) // 2, side(pixels) // 2), "JPEG", progressive=True)
    begin, end = content.rindex(b"\xff\xda"), content.rindex(b"\xff\xd9")
    return content[:end] + content[begin:end] * 5000 + content[end:]


@kind("jpg")
def long_profile_of_jpeg(pixels: int) -> bytes:
    return with_segments(saved("RGB", (64, 64), "JPEG"), segments(0xE2, b"ICC_PROFILE\0\1\1", BESIDE))


@kind("jpg")
def overlapping_exif_of_jpeg(pixels: int) -> bytes:
    """EXIF in many segments, whose tags all point at all of it."""
    tags = overlapping(BESIDE)
    parts = [tags[start : start + 65_000] for start in range(0, len(tags), 65_000)]
    more = b"".join(b"\xff\xe1" + struct.pack(">H", len(part) + 8) + b"Exif\0\0" + part for part in parts)
    jpeg = saved("RGB", (64, 64), "JPEG")
    return jpeg[:2] + more + jpeg[20:]  # without JFIF, so that Pillow looks for the resolution in EXIF


@kind("jpg")
def many_pictures(pixels: int) -> bytes:
    """An MPO."""
    file = io.BytesIO()
    first = Image.new("RGB", (side(2 * pixels), side(2 * pixels)))
    first.save(file, "MPO", save_all=True, append_images=[Image.new("RGB", (64, 64))] * 20)
    return file.getvalue()


# ---------------------------------------------------------------------------------------------------- TIFF


def overlapping(n_bytes: int, tags: int = TAGS) -> bytes:
    """A directory of TIFF, as EXIF has it, whose tags all point at all of its bytes."""
    entries = b"".join(struct.pack("<HHII", 1000 + number, 7, n_bytes - 8, 8) for number in range(tags))
    directory = b"II*\0" + struct.pack("<IH", 8, tags) + entries + struct.pack("<I", 0)
    return directory + bytes(n_bytes - len(directory))


def tiff(width: int, height: int, body: bytes, more: list[tuple[int, int, int, int]], following: int = 0) -> bytes:
    """A TIFF with its pixels right behind its header; `more` are further tags: number, type, count, value."""
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (262, 3, 1, 1), *more]
    packed = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    directory = struct.pack("<H", len(entries)) + packed + struct.pack("<I", following)
    return b"II*\0" + struct.pack("<I", 8 + len(body)) + body + directory


@kind("tif")
def overlapping_tags(pixels: int) -> bytes:
    body = bytes(BESIDE)
    more = [(40_000 + number, 7, BESIDE, 8) for number in range(TAGS)]
    return tiff(64, 64, body, [(259, 3, 1, 1), (273, 4, 1, 8), (278, 4, 1, 64), (279, 4, 1, 4096), *more])


@kind("tif")
def many_strips(pixels: int) -> bytes:
    """A strip for every four bytes of the file."""
    count = BESIDE // 4
    body = np.full(count, 8, "<u4").tobytes()
    return tiff(4096, 4096, body, [(259, 3, 1, 1), (273, 4, count, 8), (278, 4, 1, 1), (279, 4, count, 8)])


@kind("tif")
def many_numbers(pixels: int) -> bytes:
    """A tag of as many numbers as the file can hold, of which a reader makes a list."""
    count = BESIDE // 2
    body = np.full(count, 4660, "<u2").tobytes()
    tags = [(258, 3, count, 8), (259, 3, 1, 1), (273, 4, 1, 8), (278, 4, 1, 64), (279, 4, 1, 4096)]
    return tiff(64, 64, body, tags)


@kind("tif")
def directories_in_a_circle(pixels: int) -> bytes:
    body = bytes(4096)
    return tiff(64, 64, body, [(259, 3, 1, 1), (273, 4, 1, 8), (278, 4, 1, 64), (279, 4, 1, 4096)], 8 + len(body))


@kind("tif")
def one_packed_strip(pixels: int) -> bytes:
    size = side(pixels)
    body = zeros(size * size)
    body += bytes(len(body) % 2)
    return tiff(size, size, body, [(259, 3, 1, 8), (273, 4, 1, 8), (278, 4, 1, size), (279, 4, 1, len(body))])


@kind("tif")
def odd_tiles(pixels: int) -> bytes:
    """One tile that is far larger than the picture."""
    body = zeros(MEGABYTE)
    body += bytes(len(body) % 2)
    large = 1 << 20
    more = [(259, 3, 1, 8), (322, 4, 1, large), (323, 4, 1, large), (324, 4, 1, 8), (325, 4, 1, len(body))]
    return tiff(64, 64, body, more)


@kind("tif")
def damaged_strip(pixels: int) -> bytes:
    """Something of which libtiff complains."""
    body = b"\x80\x3f\xff" * 400
    return tiff(64, 64, body, [(259, 3, 1, 5), (273, 4, 1, 8), (278, 4, 1, 64), (279, 4, 1, len(body))])


@kind("tif")
def wide_numbers(pixels: int) -> bytes:
    """Greys of 32 bits."""
    return saved("F", (side(pixels), side(pixels)), "TIFF", compression="tiff_adobe_deflate")


@kind("tif")
def turned(pixels: int) -> bytes:
    """Colours of a camera that was held sideways."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved("RGB", (side(pixels), side(pixels)), "TIFF", compression="tiff_lzw", exif=exif)


# -------------------------------------------------------------------------------------------------- others


@kind("gif")
def many_frames(pixels: int) -> bytes:
    """One frame of many pixels, then thousands of small ones."""
    first = saved("P", (side(pixels), side(pixels)), "GIF")
    small = saved("P", (4, 4), "GIF")
    place = small.index(b",", 13)
    return first[:-1] + small[place:-1] * FRAMES + b";"


@kind("webp")
def lossless(pixels: int) -> bytes:
    return saved("RGBA", (min(16_383, side(pixels)), min(16_383, side(pixels))), "WEBP", lossless=True, method=0)


@kind("webp")
def many_frames_of_webp(pixels: int) -> bytes:
    """A small animation, of a large canvas and two thousand frames."""
    file = io.BytesIO()
    frames = [Image.new("RGB", (16, 16), (number * 90 % 256, 0, 0)) for number in range(FRAMES)]
    frames[0].save(file, "WEBP", save_all=True, append_images=frames[1:], lossless=True, method=0)
    content = bytearray(file.getvalue())
    size = min(16_383, side(pixels))
    content[24:30] = (size - 1).to_bytes(3, "little") * 2  # the canvas
    return bytes(content)


@kind("bmp")
def run_lengths(pixels: int) -> bytes:
    """A BMP in runs as long as can be."""
    size = side(pixels)
    rows = (b"\xff\1" * (size // 255) + bytes([size % 255, 1]) + b"\0\0") * size + b"\0\1"
    return bmp(size, rows)


@kind("bmp")
def short_runs(pixels: int) -> bytes:
    """A BMP in runs of a pixel each."""
    size = math.isqrt(min(pixels, BESIDE // 2))
    return bmp(size, (b"\1\1" * size + b"\0\0") * size + b"\0\1")


def bmp(size: int, rows: bytes) -> bytes:
    head = struct.pack("<IiiHHIIiiII", 40, size, size, 1, 8, 1, len(rows), 0, 0, 256, 0)
    offset = 14 + len(head) + 1024
    return b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + head + bytes(1024) + rows


@kind("ppm")
def in_words(pixels: int) -> bytes:
    """Greys as decimal numbers."""
    count = min(pixels, BESIDE // 4)
    size = math.isqrt(count)
    return b"P2 %d %d 255\n" % (size, size) + b"255 " * (size * size)


@kind("pgm")
def sixteen_bits(pixels: int) -> bytes:
    """Greys from 0 to 999, which Pillow scales in Python."""
    size = math.isqrt(min(pixels, BESIDE // 2))
    return b"P5 %d %d 999\n" % (size, size) + bytes(2 * size * size)


@kind("ico")
def icon(pixels: int) -> bytes:
    return saved("RGB", (256, 256), "ICO")


@kind("jpg")
def misnamed(pixels: int) -> bytes:
    """A PNG that calls itself a JPEG."""
    return black(pixels)


@kind("png")
def empty(pixels: int) -> bytes:
    return b""
