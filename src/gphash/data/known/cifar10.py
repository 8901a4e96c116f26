"""CIFAR-10: 50,000 photographs to train with and 10,000 to test with, 32 × 32 pixels in colour, ten classes.

Six files of 10,000 records each: a byte that holds the class, then 1,024 bytes of red, of green and of blue, each row
by row. They are read from the official archive or, unpacked, from the folder ``cifar-10-batches-bin``.
"""

import hashlib
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gphash.data import downloads
from gphash.data.dataset import DataDir, Dataset, KnownData, Progress, Split, checksum
from gphash.data.descriptors.gist import Gist
from gphash.files import DataError

NAME = "CIFAR-10"
SOURCE = "A. Krizhevsky, https://www.cs.toronto.edu/~kriz/cifar.html"
ARCHIVE = "cifar-10-binary.tar.gz"
ADDRESS = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
# Of the archive at the official address; one that is packed otherwise is as good if its files are the same.
ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
MAX_ARCHIVE_BYTES = 200_000_000
FOLDER = "cifar-10-batches-bin"
TEST = "test_batch.bin"
# The training files in their order, then that to test with.
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    TEST: "803d5f7f4d78ea53de84dbe85f74fb6d",
}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_RECORDS = 10_000
RECORD_BYTES = 1 + 3 * 32 * 32


def load(data_dir: DataDir = None, *, download: bool = True, progress: Progress | None = None) -> Dataset:
    """Load CIFAR-10, and download it before if need be (170 MB); arguments as for `data_sets.load`.

    Images are [n, 32, 32, 3]; X is None until they are described.
    """
    folder = downloads.data_dir(data_dir)
    if _is_unpacked(folder):
        size = N_RECORDS * RECORD_BYTES
        contents = (downloads.content(folder / FOLDER / name, size, f"md5:{MD5[name]}") for name in MD5)
        found: Iterable[tuple[str, bytes]] = zip(MD5, contents, strict=True)
    else:
        file = downloads.RemoteFile(ARCHIVE, (ADDRESS,), f"md5:{ARCHIVE_MD5}", MAX_ARCHIVE_BYTES)
        downloads.obtain(NAME, [file], folder, download=download, progress=progress)
        found = _from_archive(folder / ARCHIVE)

    n_train = (len(MD5) - 1) * N_RECORDS
    y = np.empty(n_train + N_RECORDS, dtype=np.int64)
    images = np.empty((len(y), 32, 32, 3), dtype=np.uint8)
    digests = {}
    for name, content in found:
        digests[name] = hashlib.sha256(content).hexdigest()
        records = np.frombuffer(content, dtype=np.uint8).reshape(N_RECORDS, RECORD_BYTES)
        first = list(MD5).index(name) * N_RECORDS
        y[first : first + N_RECORDS] = records[:, 0]
        # Planes of colour become colours of pixels.
        images[first : first + N_RECORDS] = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    train, test = Split(None, y[:n_train], images[:n_train]), Split(None, y[n_train:], images[n_train:])
    return Dataset(NAME, train, test, CLASSES, "none yet: describe the images", checksum(digests), SOURCE)


def _from_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """Name and verified content of every file, one in memory at a time; nothing is unpacked to the disk."""
    missing = {f"{FOLDER}/{name}": name for name in MD5}
    try:
        with tarfile.open(path, "r|*") as archive:
            for entry in archive:
                # A member that claims another size is not read.
                if entry.name not in missing or not entry.isreg() or entry.size != N_RECORDS * RECORD_BYTES:
                    continue
                file = archive.extractfile(entry)
                assert file is not None  # it is a regular file
                name, content = missing.pop(entry.name), file.read()
                downloads.verify(f"{entry.name!r} in {str(path)!r}", content, f"md5:{MD5[name]}")
                yield name, content
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise DataError(f"{str(path)!r} is truncated, altered or no archive: {error}") from error
    if missing:
        raise DataError(f"{str(path)!r} lacks {', '.join(sorted(missing))}, or has them in another size")


def _is_unpacked(folder: Path) -> bool:
    return all((folder / FOLDER / name).is_file() for name in MD5)


KNOWN = KnownData(
    load,
    "downloaded when it is read (170 MB)",
    lambda folder: (folder / ARCHIVE).is_file() or _is_unpacked(folder),
    Gist((32, 32)),
)
