"""Tiny files in the official layouts."""

import gzip
import hashlib
import io
import struct
import tarfile
from pathlib import Path

import numpy as np

from gphash.data.known import cifar10, coco_sift500, mnist, nuswide


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder, with its time and size: equal before and after if nothing was written."""
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in [folder, *folder.rglob("*")]}


def tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def mnist_files(monkeypatch, n_train=12, n_test=5) -> dict[str, bytes]:
    """The four unpacked files; the module expects them from now on."""
    generator = np.random.default_rng(0)
    files = {}
    for (images, labels), n_rows in ((mnist.TRAIN, n_train), (mnist.TEST, n_test)):
        files[images] = idx(generator.integers(0, 256, (n_rows, 28, 28), dtype=np.uint8))
        files[labels] = idx(generator.integers(0, 10, n_rows, dtype=np.uint8))
    monkeypatch.setattr(mnist, "MD5", {name: (md5(content), mnist.MD5[name][1]) for name, content in files.items()})
    return files


def write_mnist(folder: Path, files: dict[str, bytes], packed: bool = True) -> None:
    for name, content in files.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)


def cifar10_files(monkeypatch, n_records=7) -> dict[str, bytes]:
    """The six binary files and the list of classes; the module expects the former from now on."""
    generator = np.random.default_rng(0)
    files = {}
    for name in cifar10.MD5:
        records = generator.integers(0, 256, (n_records, cifar10.RECORD_BYTES), dtype=np.uint8)
        records[:, 0] %= 10
        files[name] = records.tobytes()
    monkeypatch.setattr(cifar10, "N_RECORDS", n_records)
    monkeypatch.setattr(cifar10, "MD5", {name: md5(content) for name, content in files.items()})
    return {**files, "batches.meta.txt": "\n".join(cifar10.CLASSES).encode()}


def cifar10_archive(folder: Path, files: dict[str, bytes]) -> Path:
    return tar(folder / cifar10.ARCHIVE, {f"{cifar10.FOLDER}/{name}": content for name, content in files.items()})


def write_coco(folder: Path, monkeypatch, n_rows=60, n_test=10) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    arrays = {
        "X": generator.poisson(1.0, (n_rows, 500)).astype(np.uint16),
        "Y": (generator.random((n_rows, 18)) < 0.08).astype(np.uint8),
        "ids": np.arange(n_rows),
        "label_ids": np.array(sorted(coco_sift500.CATEGORIES)),
    }
    arrays["X"][np.flatnonzero(arrays["Y"][:, 1:].any(axis=1))[0]] = 0  # a photograph without words
    path = folder / coco_sift500.FILE
    np.savez_compressed(path, **arrays)
    monkeypatch.setattr(coco_sift500, "SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(coco_sift500, "N_TEST", n_test)
    return arrays


def write_nuswide(root: Path, monkeypatch, parts=("Train", "Test"), n_train=40, n_test=30, n_concepts=5, n_words=6):
    """Counts and tags by part ("" is the whole), written as the official files are."""
    monkeypatch.setattr(nuswide, "N_CONCEPTS", n_concepts)
    monkeypatch.setattr(nuswide, "N_WORDS", n_words)
    monkeypatch.setattr(nuswide, "N_TRAIN", n_train)
    monkeypatch.setattr(nuswide, "N_TEST", n_test)
    concepts = [f"concept{number}" for number in range(n_concepts)]
    for folder in ("ConceptsList", "Low_Level_Features", "Groundtruth/TrainTestLabels", "Groundtruth/AllLabels"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "ConceptsList/Concepts81.txt").write_text("\n".join(concepts) + "\n")
    generator = np.random.default_rng(1)
    made = {}
    for part in parts:
        n_rows = {"Train": n_train, "Test": n_test, "": n_train + n_test}[part]
        counts = generator.poisson(2.0, (n_rows, n_words))
        tags = (generator.random((n_rows, n_concepts)) < np.linspace(0.1, 0.6, n_concepts)).astype(np.uint8)
        lines = "".join(" ".join(map(str, row)) + " \n" for row in counts.tolist())
        (root / "Low_Level_Features" / (f"BoW_{part}_int.dat" if part else "BoW_int.dat")).write_text(lines)
        for column, concept in enumerate(concepts):
            name = f"TrainTestLabels/Labels_{concept}_{part}.txt" if part else f"AllLabels/Labels_{concept}.txt"
            (root / "Groundtruth" / name).write_text("".join(f"{tag}\n" for tag in tags[:, column]))
        made[part] = counts, tags
    return concepts, made
