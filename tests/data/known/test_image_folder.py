import os
import sys

import numpy as np
import pytest

from gphash.data import pictures
from gphash.data.downloads import DataMissingError
from gphash.data.known import image_folder
from gphash.files import DataError

from .official import snapshot

Image = pytest.importorskip("PIL.Image", reason="needs the extra images")


def paint(path, seed=0, size=(8, 6)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    """Two classes of five, one of them with a subfolder of its own."""
    root = tmp_path / "zoo"
    for number in range(5):
        paint(root / "cat" / f"{number}.png", number)
        paint(root / "dog" / ("" if number < 3 else "big") / f"{number}.jpg", 10 + number)
    return root


def below(root, paths):
    return [path.relative_to(root).as_posix() for path in paths]


def test_a_subfolder_for_each_class(folder):
    (folder / "README.txt").write_text("files beside the subfolders have no class")
    (folder / "cat" / ".hidden").write_text("nor do these")
    (folder / ".git").mkdir()
    before = snapshot(folder)
    calls = []
    found = image_folder.read(folder, progress=lambda *call: calls.append(call))
    assert snapshot(folder) == before
    assert found.classes == ("cat", "dog")
    assert found.y.tolist() == [0] * 5 + [1] * 5
    cats, dogs = [f"cat/{number}.png" for number in range(5)], ["dog/0.jpg", "dog/1.jpg", "dog/2.jpg"]
    assert below(folder, found.images) == [*cats, *dogs, "dog/big/3.jpg", "dog/big/4.jpg"]
    assert [skipped.path.name for skipped in found.skipped] == ["README.txt"]
    assert "its class is unknown" in found.skipped[0].reason
    assert calls[-1] == (10, 10)
    assert pictures.open_picture(found.images[0]).shape == (8, 6, 3)


def test_load_splits_by_class(folder):
    data = image_folder.load(folder, test_share=0.4)
    assert data.name == "zoo"
    assert np.bincount(data.train.y).tolist() == [3, 3]
    assert np.bincount(data.test.y).tolist() == [2, 2]
    assert data.train.X is None
    for split in (data.train, data.test):
        assert [path.relative_to(folder).parts[0] for path in split.images] == [
            data.classes[label] for label in split.y
        ]
    assert not set(data.train.images) & set(data.test.images)
    assert image_folder.load(folder, seed=1).checksum == data.checksum
    paint(folder / "cat" / "0.png", 99)
    assert image_folder.load(folder).checksum != data.checksum
    with pytest.raises(ValueError, match="test_share=1; give"):
        image_folder.load(folder, test_share=1)


def test_files_that_are_no_pictures_are_named_skipped_and_counted(folder):
    (folder / "cat" / "notes.txt").write_text("no picture")
    (folder / "dog" / "empty.png").write_bytes(b"")
    whole = (folder / "dog" / "1.jpg").read_bytes()
    (folder / "dog" / "1.jpg").write_bytes(whole[: len(whole) // 2])
    Image.new("1", (5001, 5001)).save(folder / "dog" / "large.png")
    data = image_folder.load(folder)
    assert below(folder, [path for path, _ in data.skipped]) == [
        "cat/notes.txt",
        "dog/1.jpg",
        "dog/empty.png",
        "dog/large.png",
    ]
    expected = ("not a picture", "damaged", "not a picture", "5001 × 5001 pixels")
    for (_, reason), words in zip(data.skipped, expected, strict=True):
        assert words in reason
    assert "notes.txt" in data.skipped[0].reason
    assert data.train.n_rows + data.test.n_rows == 9


def test_damage_below_the_header_is_found(folder):
    path = paint(folder / "dog" / "5.png", size=(50, 50))
    path.write_bytes(path.read_bytes()[:2000])
    paint(folder / "dog" / "pixel.gif", size=(1, 1))
    found = image_folder.read(folder)
    assert len(found.images) == 10
    assert below(folder, [path for path, _ in found.skipped]) == ["dog/5.png", "dog/pixel.gif"]
    assert "pixel.gif' has 1 × 1 pixels" in found.skipped[1].reason


@pytest.mark.parametrize(("fault", "travels"), [(PermissionError(13, "no"), False), (OSError(5, "disk"), True)])
def test_a_fault_of_the_disk_is_no_reason_to_skip(folder, monkeypatch, fault, travels):
    def fail(*arguments):
        raise fault

    monkeypatch.setattr(pictures, "check", fail)
    with pytest.raises(OSError if travels else DataError, match="disk" if travels else "none of the 10 files"):
        image_folder.read(folder)


def test_none_is_left(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.jpg").write_text("no picture")
    with pytest.raises(DataError, match=r"none of the 2 files .* is a picture: .*x\.jpg"):
        image_folder.load(tmp_path)


def test_empty_folders(tmp_path):
    with pytest.raises(DataError, match="is empty; make a subfolder"):
        image_folder.load(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError, match="is empty: there is no file in 'a'"):
        image_folder.load(tmp_path)
    paint(tmp_path / "flat" / "1.png")
    with pytest.raises(DataError, match=r"make a subfolder of pictures for each, or a file tags\.csv"):
        image_folder.load(tmp_path / "flat")
    with pytest.raises(DataMissingError, match="nowhere"):
        image_folder.load(tmp_path / "nowhere")


def test_one_class(folder):
    for path in folder.glob("dog/**/*.jpg"):
        path.write_text("no picture")
    with pytest.raises(DataError, match="one class only, 'cat'"):
        image_folder.load(folder)


def test_one_picture_of_each_class(tmp_path):
    paint(tmp_path / "a" / "1.png")
    paint(tmp_path / "b" / "1.png")
    with pytest.raises(DataError, match="one picture of each class"):
        image_folder.load(tmp_path)
    paint(tmp_path / "b" / "2.png")
    assert image_folder.load(tmp_path).test.y.tolist() == [1]


def test_links_out_of_the_folder_are_ignored(folder, tmp_path):
    outside = paint(tmp_path / "outside" / "secret.png")
    (folder / "cat" / "link.png").symlink_to(outside)
    (folder / "cat" / "inside.png").symlink_to(folder / "cat" / "0.png")
    (folder / "cat" / "nowhere.png").symlink_to(folder / "cat" / "gone.png")
    (folder / "elephant").symlink_to(outside.parent)
    (folder / "dog" / "circle").symlink_to(folder)
    found = image_folder.read(folder)
    assert found.classes == ("cat", "dog")
    assert sorted(below(folder, [path for path, _ in found.skipped])) == [
        "cat/inside.png",
        "cat/link.png",
        "cat/nowhere.png",
        "elephant",
    ]
    assert len(found.images) == 10
    assert not any("circle" in path.parts for path in found.images)


def test_no_link_within_the_folder_makes_a_picture_count_twice(folder):
    (folder / "cat" / "-before.png").symlink_to(folder / "dog" / "0.jpg")
    (folder / "cat" / "round.png").symlink_to("round.png")
    (folder / "animal").symlink_to(folder / "dog")
    found = image_folder.read(folder)
    assert found.classes == ("cat", "dog")
    assert len({path.resolve() for path in found.images}) == len(found.images) == 10
    reasons = {path.relative_to(folder).as_posix(): reason for path, reason in found.skipped}
    assert set(reasons) == {"cat/-before.png", "cat/round.png", "animal"}
    assert "is a link; put the file itself there" in reasons["cat/-before.png"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_opened(folder):
    os.mkfifo(folder / "cat" / "pipe.png")
    assert "is not a file" in image_folder.read(folder).skipped[0].reason


LISTED = """path,tags
cat/0.png,pet; small
cat/1.png,
dog/big/3.jpg,pet;large
"""
MATRIX = """\ufeffpath,pet,small,large
cat/0.png,1,1,0

cat/1.png, 0 ,0,0
dog/big/3.jpg,1,0,1
"""


@pytest.mark.parametrize(
    ("text", "classes", "y"),
    [
        (LISTED, ("large", "pet", "small"), [[0, 1, 1], [0, 0, 0], [1, 1, 0]]),
        (LISTED.removeprefix("path,tags\n"), ("large", "pet", "small"), [[0, 1, 1], [0, 0, 0], [1, 1, 0]]),
        ("path,pet\ncat/0.png,1\ncat/1.png,0\ndog/big/3.jpg,1\n", ("pet",), [[1], [0], [1]]),
        (MATRIX, ("pet", "small", "large"), [[1, 1, 0], [0, 0, 0], [1, 0, 1]]),
    ],
)
def test_tags(folder, text, classes, y):
    (folder / "tags.csv").write_text(text, encoding="utf-8")
    found = image_folder.read(folder)
    assert below(folder, found.images) == ["cat/0.png", "cat/1.png", "dog/big/3.jpg"]
    assert found.classes == classes
    assert found.y.tolist() == y
    assert found.y.dtype == np.uint8
    data = image_folder.load(folder)
    assert (data.train.n_rows, data.test.n_rows) == (2, 1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "path,tags\n../outside/secret.png,a;b\n",
            r"tags\.csv', line 2: the path '\.\./outside/secret\.png' leads out",
        ),
        ("cat/../../outside/secret.png,a;b\n", "line 1: .* leads out of the folder"),
        ("/etc/passwd,a;b\n", "line 1: .* leads out of the folder"),
        (",a;b\n", "line 1: .* leads out of the folder"),
        ("cat/9.png,a;b\n", r"line 1: 'path' is missing, and there is 'cat/9\.png'; the header must be"),
        ("file,tags\ncat/0.png,a;b\n", "line 1: 'path' is missing, and there is 'file'; the header must be 'path' and"),
        ("cat/0.png,a;b\ncat/./0.png,a\n", r"line 2: 'cat/0\.png' occurs twice"),
        ("cat/0.png,a\ncat/1.png,a\n", "has 1 different tags"),
        ("path,a,b\ncat/0.png,1\n", "line 2: 2 columns; there must be 3"),
        ("path,a,b\ncat/0.png,1,2\n", "line 2: '2'; give 0 or 1"),
        ("path,a,b\ncat/0.png,0,0\n", "no picture of .* has a tag"),
        ("path,a,a\ncat/0.png,1,0\n", "line 1: a tag without a name, or one that is there twice; the header must be"),
        ("cat/0.png,1,0\n", "line 1: 'path' is missing, and there is 'cat/0.png'; the header must be"),
        ("path,pet\ncat/0.png,a;b\n", "line 2: 'a;b'; give 0 or 1"),
        ("path\ncat/0.png\n", "line 1: 'tags' is missing; the header must be"),
        ("cat/0.png,1\ncat/1.png,0\n", "has 0 and 1 for tags"),
        ("", "is empty"),
        ("path,tags\n", "is empty"),
        ('path,tags\n"cat/0.png,a', "not readable as CSV"),
        ("path,tags\ncat/0.png,a;\udcff\n", "not readable as CSV"),
    ],
)
def test_tags_that_do_not_match(folder, tmp_path, text, words):
    paint(tmp_path / "outside" / "secret.png")
    (folder / "tags.csv").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(DataError, match=words):
        image_folder.read(folder)


def test_tagged_links_and_damaged_pictures_are_skipped(folder, tmp_path):
    (folder / "cat" / "link.png").symlink_to(paint(tmp_path / "outside" / "secret.png"))
    (folder / "cat" / "0.png").write_text("no picture")
    (folder / "tags.csv").write_text(LISTED + "cat/link.png,pet\ncat,pet\n")
    found = image_folder.read(folder)
    assert below(folder, [path for path, _ in found.skipped]) == ["cat/0.png", "cat/link.png", "cat"]
    assert len(found.images) == 2


def test_a_thin_picture_is_named_and_skipped(folder):
    paint(folder / "cat" / "thin.png", size=(4, 400_000))
    found = image_folder.read(folder)
    assert len(found.images) == 10
    (skipped,) = found.skipped
    assert "thin.png' has 400000 × 4 pixels" in skipped.reason


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are texts elsewhere")
def test_names_that_are_no_utf8(folder):
    (folder / "dog").rename(folder / os.fsdecode(b"d\xf6g"))
    (folder / "cat" / "0.png").rename(folder / "cat" / os.fsdecode(b"\xe9.png"))
    found = image_folder.read(folder)
    assert found.classes == ("cat", r"d\udcf6g")
    assert len(found.images) == 10
    assert all(path.is_file() for path in found.images)
    before = found.checksum
    (folder / "cat" / os.fsdecode(b"\xe9.png")).rename(folder / "cat" / os.fsdecode(b"\xe8.png"))
    assert image_folder.read(folder).checksum != before
