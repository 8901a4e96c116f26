import contextlib
import io
import runpy
import struct
import sys
import tracemalloc
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from gphash.data import pictures
from gphash.data.pictures import PictureError

Image = pytest.importorskip("PIL.Image", reason="needs the extra images")

BOMBS = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "bombs.py"))
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_pixels_come_back(tmp_path, kind):
    content = encoded(Image.fromarray(PIXELS), kind)
    np.testing.assert_array_equal(pictures.open_picture(content), PIXELS)
    path = tmp_path / "picture.of.no.suffix"
    path.write_bytes(content)
    for source in (path, str(path)):
        found = pictures.open_picture(source)
        np.testing.assert_array_equal(found, PIXELS)
        assert found.flags.writeable
    assert pictures.check(path) == (20, 30)


def test_jpeg():
    smooth = np.full((40, 50, 3), (200, 30, 90), dtype=np.uint8)
    content = encoded(Image.fromarray(smooth), "JPEG", quality=95)
    assert np.abs(pictures.open_picture(content).astype(int) - smooth).max() < 6
    assert pictures.check(content) == (40, 50)


def test_modes():
    grey = PIXELS[:, :, 0]
    np.testing.assert_array_equal(pictures.open_picture(encoded(Image.fromarray(grey), "PNG"))[:, :, 2], grey)
    deep = encoded(Image.fromarray(grey.astype(np.uint16) * 257), "PNG")
    np.testing.assert_array_equal(pictures.open_picture(deep)[:, :, 1], grey)
    layered = np.dstack([PIXELS, np.zeros((20, 30), dtype=np.uint8)])
    assert (pictures.open_picture(encoded(Image.fromarray(layered), "PNG")) == 255).all()
    palette = encoded(Image.fromarray(PIXELS).quantize(16), "PNG", transparency=b"\0" * 16)
    assert (pictures.open_picture(palette) == 255).all()
    bits = encoded(Image.fromarray(grey > 99), "PNG")
    np.testing.assert_array_equal(pictures.open_picture(bits)[:, :, 0], np.where(grey > 99, 255, 0))
    assert pictures.open_picture(encoded(Image.fromarray(PIXELS).convert("CMYK"), "JPEG")).shape == (20, 30, 3)


def test_a_camera_held_sideways():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(Image.fromarray(PIXELS), "PNG", exif=exif)
    np.testing.assert_array_equal(pictures.open_picture(content), np.rot90(PIXELS, -1))


@pytest.mark.parametrize("orientation", range(10))
def test_a_camera_held_in_any_way(orientation):
    import PIL.ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    content = encoded(Image.fromarray(PIXELS), "PNG", exif=exif)
    upright = PIL.ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
    np.testing.assert_array_equal(pictures.open_picture(content), np.asarray(upright))


@pytest.mark.parametrize("fault", [SyntaxError("no TIFF"), AttributeError("none"), UserWarning("corrupt EXIF")])
def test_a_fault_in_what_the_camera_noted_leaves_the_picture(monkeypatch, fault):
    def fail(image):
        raise fault

    monkeypatch.setattr(Image.Image, "getexif", fail)
    np.testing.assert_array_equal(pictures.open_picture(encoded(Image.fromarray(PIXELS), "PNG")), PIXELS)


@pytest.mark.parametrize(("dtype", "scale"), [(np.float32, 1 / 255), (np.float32, 1e6), (np.int32, 1), (np.int32, 1e6)])
def test_greys_of_32_bits_are_stretched(dtype, scale):
    grey = PIXELS[:, :, 0].copy()
    grey.flat[:2] = 0, 255
    content = encoded(Image.fromarray((grey * scale).astype(dtype)), "TIFF")
    np.testing.assert_array_equal(pictures.open_picture(content)[:, :, 1], grey)
    assert pictures.check(content) == (20, 30)
    flat = encoded(Image.fromarray(np.full((9, 9), 7, dtype=dtype)), "TIFF")
    assert not pictures.open_picture(flat).any()


def test_greys_that_are_no_numbers_are_refused():
    content = encoded(Image.fromarray(np.full((9, 9), np.nan, dtype=np.float32)), "TIFF")
    for use in (pictures.check, pictures.open_picture):
        with pytest.raises(PictureError, match="NaN or infinity"):
            use(content)


def test_a_picture_too_small_to_describe_is_refused():
    content = encoded(Image.fromarray(PIXELS[:3]), "GIF")
    for use in (pictures.check, pictures.open_picture):
        with pytest.raises(PictureError, match="30 × 3 pixels; it must have at least 4"):
            use(content)


@pytest.mark.parametrize("fault", [MemoryError(), OSError(5, "Input/output error")])
def test_faults_of_the_machine_are_not_the_pictures(monkeypatch, fault):
    def fail(*arguments, **options):
        raise fault

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(type(fault)) as caught:
        pictures.check(b"")
    assert caught.value is fault


def test_the_number_of_pixels_is_bounded(tmp_path):
    content = encoded(Image.fromarray(PIXELS), "PNG")
    assert pictures.open_picture(content, max_pixels=600).shape == (20, 30, 3)
    with pytest.raises(PictureError, match="the picture has 30 × 20 pixels; allowed are at most 599"):
        pictures.open_picture(content, max_pixels=599)


@pytest.mark.parametrize("side", [9_000, 12_000, 60_000])
@pytest.mark.parametrize("act", ["ignore", "error"])
def test_a_bomb_is_not_decoded(tmp_path, side, act):
    """A file of some bytes that announces side² pixels."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(1000))
    path = tmp_path / "bomb.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))
    with warnings.catch_warnings():
        warnings.simplefilter(act)  # between its two bounds, Pillow only warns
        for use in (pictures.check, pictures.open_picture):
            with pytest.raises(PictureError, match=r"bomb\.png' has .*pixels"):
                use(path)


@pytest.mark.parametrize("size", [(4, 257), (257, 4), (4, 400_000)])
def test_a_picture_too_thin_to_describe_is_refused(size):
    content = encoded(Image.new("L", size), "PNG")
    for use in (pictures.check, pictures.open_picture):
        with pytest.raises(PictureError, match=f"{size[0]} × {size[1]} pixels.*64 times"):
            use(content)
    assert pictures.check(encoded(Image.new("L", (4, 256)), "PNG")) == (256, 4)


def test_a_jpeg_may_have_twice_the_pixels():
    content = encoded(Image.fromarray(PIXELS), "JPEG")
    assert pictures.check(content, max_pixels=300) == (20, 30)
    with pytest.raises(pictures.TooManyPixelsError, match="allowed are at most 598"):
        pictures.check(content, max_pixels=299)
    with pytest.raises(pictures.TooManyPixelsError, match="allowed are at most 599"):
        pictures.check(encoded(Image.fromarray(PIXELS).convert("CMYK"), "JPEG"), max_pixels=599)


def test_the_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MAX_BYTES", 1000)
    path = tmp_path / "large.png"
    path.write_bytes(bytes(1001))
    for source in (path, bytes(1001)):
        with pytest.raises(PictureError, match="1001 bytes"):
            pictures.check(source)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "L", "I;16", "F", "CMYK", "1"])
def test_a_reduced_picture_is_made_of_means(mode):
    smooth = np.linspace(0, 65_535, 50 * 70).reshape(50, 70)
    if mode == "I;16":
        image = Image.fromarray(smooth.astype(np.uint16))
    elif mode == "F":
        image = Image.fromarray(smooth.astype(np.float32))
    else:
        image = Image.fromarray(np.tile(PIXELS, (3, 3, 1))[:50, :70]).convert(mode)
    content = encoded(image, "TIFF")
    whole = pictures.open_picture(content).astype(float)
    asked = []
    reduced = pictures.open_picture(content, reduction=lambda *size: asked.append(size) or 5)
    assert asked == [(50, 70)]
    np.testing.assert_allclose(reduced, whole.reshape(10, 5, 14, 5, 3).mean(axis=(1, 3)), atol=1)
    for little in (0, 1):
        np.testing.assert_array_equal(pictures.open_picture(content, reduction=lambda *_, f=little: f), whole)


@pytest.mark.parametrize(("factor", "shape"), [(1, (160, 240)), (3, (80, 120)), (8, (20, 30)), (16, (10, 15))])
def test_a_jpeg_is_reduced_by_its_decoder(factor, shape):
    whole = np.tile(PIXELS.mean(axis=(0, 1)), (160, 240, 1)).astype(np.uint8)
    content = encoded(Image.fromarray(whole), "JPEG")
    reduced = pictures.open_picture(content, reduction=lambda *_: factor)
    assert reduced.shape == (*shape, 3)
    assert np.abs(reduced.astype(int) - whole[0, 0]).max() < 6


def test_memory_follows_what_is_wanted():
    content = encoded(Image.new("RGBA", (2000, 1500)), "PNG")
    tracemalloc.start()
    try:
        pictures.open_picture(content, reduction=lambda *_: 4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * 2000 * 1500  # bytes, beside what Pillow holds


def test_what_takes_long_to_decode_is_short(monkeypatch):
    plain = b"P2 9 9 255\n" + b"7 " * 81
    assert (pictures.open_picture(plain) == 7).all()
    monkeypatch.setattr(pictures, "MAX_SLOW_BYTES", 100)
    with pytest.raises(PictureError, match="save it as PNG"):
        pictures.check(plain)


def test_libraries_write_nothing(capfd):
    """Of this strip libtiff says that a code is not yet in its table."""
    for kind in ("damaged-strip", "overlapping-tags"):
        with contextlib.suppress(PictureError):
            pictures.check(BOMBS["make"](kind, 10_000)[1])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", BOMBS["KINDS"])
def test_bombs(kind, tmp_path):
    """Each is a picture or none: nothing else is raised, and nothing large is made; benchmarks/picture_bombs.py."""
    allowed = 40_000
    name, content = BOMBS["make"](kind, allowed)
    path = tmp_path / name
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with contextlib.suppress(PictureError):
            assert pictures.open_picture(path, allowed).size <= 6 * allowed
        with contextlib.suppress(PictureError):
            pictures.check(content, allowed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 120_000_000  # Pillow takes up to 64 MB of texts


def with_scans(content, number):
    """A JPEG whose last scan comes so many times in all."""
    begin, end = content.rindex(b"\xff\xda"), content.rindex(b"\xff\xd9")
    scans = content.count(b"\xff\xda")
    return content[:end] + content[begin:end] * (number - scans) + content[end:]


def test_a_jpeg_that_repeats_its_scans_is_refused(tmp_path):
    content = encoded(Image.fromarray(np.tile(PIXELS, (8, 8, 1))), "JPEG", progressive=True)
    assert content.count(b"\xff\xda") > 3
    assert pictures.check(with_scans(content, pictures.MAX_SCANS)) == (160, 240)
    path = tmp_path / "long.jpg"
    path.write_bytes(with_scans(content, pictures.MAX_SCANS + 1))
    for use in (pictures.check, pictures.open_picture):
        for source in (path, path.read_bytes()):
            with pytest.raises(PictureError, match="more than 100 scans"):
                use(source)


def test_only_scans_of_the_picture_itself_count():
    content = encoded(Image.fromarray(PIXELS), "JPEG")
    noted = b"\xff\xe5" + (2 + 4 * 200).to_bytes(2, "big") + b"\xff\xda\0\2" * 200
    whole = content[:2] + noted + content[2:] + b"\xff\xda\0\2" * 200  # such as the film of a moving picture
    np.testing.assert_array_equal(pictures.open_picture(whole), pictures.open_picture(content))


@pytest.mark.parametrize("kind", ["deep", "float", "whole"])
def test_greys_are_converted_without_wide_copies(kind):
    grey = np.arange(2000 * 1500).reshape(1500, 2000)
    dtype = {"deep": np.uint16, "float": np.float32, "whole": np.int32}[kind]
    content = encoded(Image.fromarray(grey.astype(dtype)), "PNG" if kind == "deep" else "TIFF")
    del grey
    tracemalloc.start()
    try:
        pictures.open_picture(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 13 * 2000 * 1500  # bytes: the result has 3 a pixel


@pytest.mark.parametrize("mode", ["I;16", "I;16B", "F", "I", "L", "RGBA", "P", "CMYK"])
def test_strips_make_the_whole(monkeypatch, mode):
    if mode.startswith("I;16"):
        kind = ">u2" if mode.endswith("B") else "<u2"
        image = Image.frombytes(mode, (30, 20), (PIXELS[:, :, 0] * np.uint16(256)).astype(kind).tobytes())
    else:
        image = Image.fromarray(PIXELS).convert("L" if mode in "IF" else "RGB").convert(mode)
    image.format = None
    whole = pictures._colour(image, "TIFF")
    monkeypatch.setattr(pictures, "_STRIP", 70)
    np.testing.assert_array_equal(pictures._colour(image, "TIFF"), whole)
    if mode.startswith("I;16"):
        np.testing.assert_array_equal(whole[:, :, 1], PIXELS[:, :, 0])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_truncated_and_altered_pictures_raise_nothing_else(tmp_path, kind):
    whole = encoded(Image.fromarray(PIXELS), kind)
    path = tmp_path / "picture"
    generator = np.random.default_rng(0)
    for number in range(60):
        content = bytearray(whole)
        if number < 20:
            del content[int(len(whole) * number / 20) :]
        else:
            for place in generator.integers(0, min(len(whole), 400), 4):
                content[place] = generator.integers(256)
        path.write_bytes(content)
        for use in (pictures.check, pictures.open_picture):
            try:
                use(path, max_pixels=100_000)
            except PictureError as error:
                named = str(path) in str(error)
            else:
                named = True
            assert named


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_picture_cut_in_half(tmp_path, kind):
    path = tmp_path / "half"
    whole = encoded(Image.fromarray(np.tile(PIXELS, (8, 8, 1))), kind)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PictureError, match="half' is a damaged picture"):
        pictures.check(path)
    with pytest.raises(PictureError, match="half' is a damaged picture"):
        pictures.open_picture(path)


@pytest.mark.parametrize("content", [b"", b"text\n", b"%!PS-Adobe-3.0 EPSF-3.0\n", b"<svg/>", bytes(5000)])
def test_no_picture(content):
    with pytest.raises(PictureError, match="the picture is not a picture of a known format"):
        pictures.open_picture(content)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        pictures.open_picture(tmp_path / "nowhere.png")


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"pip install pillow"):
        pictures.open_picture(b"")
