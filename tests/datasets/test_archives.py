import gzip
import io
import stat
import tarfile
import zipfile

import numpy as np
import pytest

from gphash.datasets import archives
from gphash.datasets.archives import Limits
from gphash.datasets.dataset import DataError

from .official import tar

LIMITS = Limits(total_bytes=100_000, members=10)
NOISE = np.random.default_rng(0).integers(0, 256, 20_000, dtype=np.uint8).tobytes()
FILES = {"folder/a.bin": NOISE, "b.txt": b"hello\n" * 500, "folder/empty": b""}


def make_tar(path, files):
    return tar(path, files, "w")


def make_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


MAKERS = pytest.mark.parametrize("make", [tar, make_tar, make_zip], ids=["tar.gz", "tar", "zip"])


def contents(path, limits=LIMITS):
    return {member.name: member.read() for member in archives.members(path, limits)}


@MAKERS
def test_members_and_unpacked_files_are_what_was_packed(tmp_path, make):
    path = make(tmp_path / "archive", {f"./{name}": content for name, content in FILES.items()})
    assert contents(path) == FILES
    folder = archives.unpack(path, tmp_path / "new", LIMITS)
    assert {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()} == FILES
    with pytest.raises(FileExistsError, match="new"):
        archives.unpack(path, folder, LIMITS)


@MAKERS
def test_members_need_not_be_read(tmp_path, make):
    names = [member.name for member in archives.members(make(tmp_path / "archive", FILES), LIMITS)]
    assert names == list(FILES)


def is_refused(path):
    """Whether reading fails; with any other error than ours, the test does."""
    try:
        contents(path)
    except DataError as error:
        return str(path) in str(error)
    return False


def assert_refused(path, words, limits=LIMITS):
    """Reading and unpacking fail, name the file and leave nothing."""
    with pytest.raises(DataError, match=words) as caught:
        contents(path, limits)
    assert str(path) in str(caught.value)
    before = sorted(path.parent.rglob("*"))
    with pytest.raises(DataError, match=words):
        archives.unpack(path, path.parent / "unpacked", limits)
    assert sorted(path.parent.rglob("*")) == before


@MAKERS
@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", "a/..", "C:/evil", "..\\evil", "\\evil"])
def test_no_path_leads_outside(tmp_path, make, name):
    folder = tmp_path / "inner"
    folder.mkdir()
    assert_refused(make(folder / "archive", {"good": b"1", name: b"2"}), "outside the folder")
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_no_link_or_device_in_a_tar(tmp_path, kind):
    path = tmp_path / "archive.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("link")
        entry.type, entry.linkname = kind, "/etc/passwd"
        archive.addfile(entry)
    assert_refused(path, "'link' is a link or a device")


def test_no_link_in_a_zip(tmp_path):
    entry = zipfile.ZipInfo("link")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert_refused(make_zip(tmp_path / "a.zip", {entry: b"/etc/passwd"}), "'link' is a link or a device")


def test_no_encryption_and_no_unusual_compression_in_a_zip(tmp_path):
    path = make_zip(tmp_path / "a.zip", {"secret": b"1"})
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert_refused(path, "encrypted")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("a", b"1")
    assert_refused(path, "unusual")


@MAKERS
def test_a_bomb_is_not_unpacked(tmp_path, make):
    path = make(tmp_path / "archive", {"a": bytes(60_000), "b": bytes(60_000)})
    assert_refused(path, "more than the 100000 bytes")
    path = make(tmp_path / "archive", {str(number): b"" for number in range(11)})
    assert_refused(path, "more than the 10 members")
    contents(path, Limits(0, 11))


def test_a_tar_bomb_in_a_header_or_behind_the_end_is_not_unpacked(tmp_path):
    path = tmp_path / "header.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("a")
        entry.pax_headers = {"comment": "x" * 10_000_000}
        archive.addfile(entry)
    assert_refused(path, "more than the 100000 bytes")
    whole = gzip.decompress(tar(tmp_path / "behind.tar.gz", {"a": b"1"}).read_bytes())
    (tmp_path / "behind.tar.gz").write_bytes(gzip.compress(whole + bytes(10_000_000)))
    assert_refused(tmp_path / "behind.tar.gz", "more than the 100000 bytes")


def test_a_negative_size_does_not_buy_anything(tmp_path):
    path = tmp_path / "archive.tar"
    entry = tarfile.TarInfo("a")
    entry.size = -512
    header = entry.tobuf(tarfile.GNU_FORMAT)
    path.write_bytes(header + bytes(10_240))
    assert_refused(path, "is refused|altered")


@MAKERS
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_nothing_occurs_twice_or_stands_in_the_way(tmp_path, make):
    assert_refused(make(tmp_path / "archive", {"a": b"1", "./a": b"2"}), "occurs twice")
    path = make(tmp_path / "archive", {"a": b"1", "a/b": b"2"})
    with pytest.raises(DataError, match="in the way"):
        archives.unpack(path, tmp_path / "new", LIMITS)


@MAKERS
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 0.999])
def test_a_truncated_archive(tmp_path, make, share):
    path = make(tmp_path / "archive", {"a": NOISE, "b": NOISE})
    content = path.read_bytes()
    # A tar ends with zeros that nobody misses.
    length = len(content.rstrip(b"\0")) if make is make_tar else len(content)
    path.write_bytes(content[: int(share * length)])
    if make is make_tar and share == 0.0:
        assert_refused(path, "truncated, altered or no archive")
        return
    assert_refused(path, "truncated")


@pytest.mark.parametrize("make", [tar, make_zip], ids=["tar.gz", "zip"])
def test_an_altered_byte_is_an_error_or_harmless(tmp_path, make):
    path = make(tmp_path / "archive", FILES)
    whole = path.read_bytes()
    refused = 0
    for place in np.random.default_rng(0).integers(0, len(whole), 150):
        altered = bytearray(whole)
        altered[place] ^= 0x55
        path.write_bytes(altered)
        if is_refused(path):
            refused += 1
        else:
            assert contents(path) == FILES
    assert refused > 100


def test_altered_headers_of_a_plain_tar_raise_nothing_else(tmp_path):
    path = make_tar(tmp_path / "archive", {"a": b"1", "b" * 150: b"2"})
    whole = path.read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(300):
        altered = bytearray(whole)
        for place in generator.integers(0, 4096, 3):
            altered[place] = generator.integers(256)
        # With its checksum set right, so that the header is read.
        for start in range(0, 4096, 512):
            block = altered[start : start + 512]
            total = 256 + sum(block[:148]) + sum(block[156:])
            altered[start + 148 : start + 156] = b"%06o\0 " % total
        path.write_bytes(altered)
        is_refused(path)


@pytest.mark.parametrize("content", [b"", b"PK", b"\x1f\x8b", b"nothing at all"])
def test_no_archive_at_all(tmp_path, content):
    (tmp_path / "archive").write_bytes(content)
    assert_refused(tmp_path / "archive", "truncated, altered or no archive")


def test_gzip(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(NOISE))
    assert archives.read_gzip(path, len(NOISE)) == NOISE
    with pytest.raises(DataError, match=r"a\.gz' unpacks to more than the 19999 bytes"):
        archives.read_gzip(path, len(NOISE) - 1)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[: len(whole) // 2], b"text", whole[:-6] + b"\0" + whole[-5:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"a\.gz' is truncated, altered or no archive"):
            archives.read_gzip(path, len(NOISE))


def test_a_gzip_bomb_stays_packed(tmp_path):
    path = tmp_path / "bomb.gz"
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as file:
        for _ in range(50):
            file.write(bytes(1 << 20))
    path.write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match="more than the 1000 bytes"):
        archives.read_gzip(path, 1000)


@pytest.mark.parametrize(
    "fault", [ValueError("a date"), OverflowError("too large"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid")]
)
@pytest.mark.parametrize("module", [tarfile, zipfile])
def test_other_faults_of_the_libraries_name_the_archive(tmp_path, monkeypatch, fault, module):
    def fail(*arguments, **options):
        raise fault

    path = tmp_path / "archive"
    path.write_bytes(b"PK" if module is zipfile else bytes(1024))
    monkeypatch.setattr(module, "open" if module is tarfile else "ZipFile", fail)
    with pytest.raises(DataError, match="archive' is truncated, altered or no archive"):
        list(archives.members(path, archives.Limits(100, 10)))
