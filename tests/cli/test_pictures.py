"""A folder of pictures, from fit to search: the way of whoever has nothing but pictures."""

import contextlib
import json
import os
import re
import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from gphash import load
from gphash.data import sources
from gphash.data.descriptors.gist import Gist
from gphash.functions.model import Model
from tests.cli.running import gphash, inside, started, told

CLASSES = ("circles", "stripes")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("pictures")
    generator = np.random.default_rng(0)
    across, down = np.meshgrid(np.arange(48), np.arange(48))
    for number in range(12):
        noise = generator.integers(0, 40, (48, 48, 3))
        x, y = generator.uniform(18, 30, 2)
        circle = (np.hypot(across - x, down - y) < generator.uniform(8, 16))[..., None] * 200
        stripes = ((across + number) // generator.integers(3, 6) % 2)[..., None] * 200
        for name, picture in zip(CLASSES, (circle, stripes), strict=True):
            (place / "all" / name).mkdir(parents=True, exist_ok=True)
            pixels = (picture + noise).astype(np.uint8)
            Image.fromarray(pixels).save(place / "all" / name / f"{number}.png")
    (place / "all" / "circles" / "readme.txt").write_text("no picture")
    gphash("fit", "all", "--bits", 4, "-q", cwd=place)
    gphash("index", "all-4.gph", "all", "-q", cwd=place)
    return place


def test_a_folder_becomes_a_model_and_a_collection(folder):
    answer = told("data", "all", cwd=folder)
    assert answer["rows"] == 24
    assert answer["classes"] == {"circles": 12, "stripes": 12}
    assert answer["descriptor"]["name"] == "gist"
    assert len(answer["skipped"]) == 1


def test_what_was_left_out_is_said_once(folder):
    found = gphash("data", "all", cwd=folder)
    assert "left out 1 file(s) of 'all'" in found.stderr
    assert "readme.txt" in found.stderr
    assert "circles" in found.stdout


def test_a_picture_finds_its_class(folder):
    (result,) = told("search", "all.gphash", "all/stripes/3.png", "-k", 5, cwd=folder)["results"]
    assert [one["labels"] for one in result["neighbours"]].count(["stripes"]) >= 4
    only = told("search", "all.gphash", "all/stripes/3.png", "-k", 5, "--label", "circles", cwd=folder)["results"][0]
    assert {tuple(one["labels"]) for one in only["neighbours"]} == {("circles",)}
    gphash("search", "all.gphash", "all/stripes/3.png", "-k", 5, "--show", "sheet.svg", cwd=folder)
    assert (folder / "sheet.svg").read_text().startswith("<?xml")


def test_the_name_of_a_file_is_shown(folder):
    lines = gphash("search", "all.gphash", "all/stripes/3.png", "-k", 2, cwd=folder).stdout.splitlines()
    assert lines[0].split()[-1] == "about"
    assert all(re.fullmatch(r"(stripes|circles)/[0-9]+\.png", line.split()[-1]) for line in lines[2:4])


def test_pictures_are_added_and_kept(folder, tmp_path):
    gphash("index", folder / "all-4.gph", folder / "all", "-o", "all.gphash", "-q", cwd=tmp_path)
    shutil.copytree(folder / "all" / "stripes", tmp_path / "new" / "stripes")
    added = told("add", "all.gphash", "new", cwd=tmp_path)
    assert (added["added"], added["items"], added["keys"]) == (12, 36, list(range(24, 36)))
    shutil.rmtree(tmp_path / "new")
    (found,) = told("search", "all.gphash", "key:24", "-k", 40, cwd=tmp_path)["results"]
    assert found["query"]["labels"] == ["stripes"]
    near = {one["key"]: one for one in found["neighbours"]}
    assert near[25]["has_picture"]
    assert near[25]["values"]["name"] == "stripes/1.png"
    same = next(key for key, one in near.items() if key < 24 and one["values"]["name"] == "stripes/1.png")
    assert near[same]["bits"] == near[25]["bits"]
    assert not near[same]["has_picture"]  # it stayed in a folder that nobody named
    wanted = ("--where", "key >= 24", "--show", "sheet.png")
    gphash("search", "all.gphash", "key:24", "-k", 3, *wanted, cwd=tmp_path)
    assert (tmp_path / "sheet.png").is_file()


def test_a_file_that_is_no_picture_is_refused(folder):
    found = gphash("search", "all.gphash", "all/circles/readme.txt", cwd=folder, code=1)
    assert "readme.txt" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def run(cwd, *arguments):
    with contextlib.chdir(cwd):
        return inside(*arguments)


def test_pictures_elsewhere_are_shown_to_whoever_names_them(folder, tmp_path):
    found = run(tmp_path, "index", folder / "all-4.gph", folder / "all", "-o", "all.gphash", "-q")
    assert f"gphash serve all.gphash --pictures {folder / 'all'} shows them" in found.stdout
    assert told("info", "all.gphash", cwd=tmp_path)["pictures_elsewhere"] == str(folder / "all")
    asked = ("search", "all.gphash", "key:1", "-k", 3, "--show", "sheet.png")
    refused = run(tmp_path, *asked)
    assert refused.exit_code == 1
    assert f"--pictures '{folder / 'all'}'" in refused.stderr
    assert run(tmp_path, *asked, "--pictures", folder / "all").exit_code == 0
    assert (tmp_path / "sheet.png").is_file()


def test_a_model_describes_pictures_as_those_it_was_trained_on(folder, tmp_path):
    """Pictures of one size are brought to it, and GIST of others would mean something else."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 32, 32), dtype=np.uint8)
    np.savez(tmp_path / "small.npz", images=pixels, y=np.arange(12) % 2)
    assert run(tmp_path, "fit", "small.npz", "-m", "lsh", "-b", 4, "-o", "small.gph", "-q").exit_code == 0
    assert told("info", "small.gph", cwd=tmp_path)["descriptor"] == {"name": "gist", "shape": [32, 32]}
    told("encode", "small.gph", folder / "all", "-o", "codes.npy", cwd=tmp_path)
    source = sources.read(folder / "all", descriptor=Gist((32, 32)))
    np.testing.assert_array_equal(np.load(tmp_path / "codes.npy"), load(tmp_path / "small.gph").encode(source.X))
    for command in ("index", "evaluate"):
        assert run(tmp_path, command, "small.gph", folder / "all", "-q").exit_code == 0


def test_another_descriptor_is_chosen_by_its_name(tmp_path):
    pytest.importorskip("cv2", reason="OpenCV is not installed")
    generator = np.random.default_rng(0)
    for number in range(12):
        (tmp_path / "all" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        noise = Image.fromarray(generator.integers(0, 256, (50, 50), dtype=np.uint8))
        noise.resize((200, 200)).save(tmp_path / "all" / "ab"[number % 2] / f"{number}.png")
    how = ("--descriptor", "bag-of-words", "--set", "kernel=matern-3/2")
    made = told("fit", "all", "-b", 4, *how, "-o", "words.gph", cwd=tmp_path)
    assert made["parameters"]["kernel"] == "matern-3/2"
    assert told("info", "words.gph", cwd=tmp_path)["descriptor"]["name"] == "bag-of-words"
    assert "× 128 numbers" in run(tmp_path, "info", "words.gph").stdout
    told("index", "words.gph", "all", "-o", "words.gphash", cwd=tmp_path)
    (found,) = told("search", "words.gphash", "all/a/2.png", "-k", 3, cwd=tmp_path)["results"]
    assert len(found["neighbours"]) == 3
    for data, name, message in (("all", "sift", "--descriptor 'sift'"), ("toy", "gist", "has no pictures")):
        refused = run(tmp_path, "fit", data, "--descriptor", name)
        assert refused.exit_code == 2
        assert message in " ".join(refused.stderr.split())


@pytest.mark.parametrize("threads", [1, 2])
def test_so_many_threads_encode(folder, tmp_path, monkeypatch, threads):
    seen = set()
    encode = Model.encode
    monkeypatch.setattr(Model, "encode", lambda self, X: seen.add(self.n_jobs) or encode(self, X))
    run(tmp_path, "index", folder / "all-4.gph", folder / "all", "--threads", threads)
    assert seen == {threads}


def test_a_thin_picture_is_named_and_left_out(folder, tmp_path):
    (tmp_path / "some" / "circles").mkdir(parents=True)
    for number in range(4):
        (tmp_path / "some" / "circles" / f"{number}.png").write_bytes(
            (folder / "all" / "circles" / f"{number}.png").read_bytes()
        )
    Image.new("L", (400_000, 4)).save(tmp_path / "some" / "circles" / "thin.png")
    found = run(tmp_path, "fit", "some", "-m", "lsh", "-b", 4)
    assert found.exit_code == 0
    assert "thin.png' has 400000 × 4 pixels" in found.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are texts elsewhere")
def test_names_that_are_no_utf8(folder, tmp_path):
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    (place / os.fsdecode(b"\xe8.png")).write_bytes((folder / "all" / "circles" / "1.png").read_bytes())
    (place / "no.png").write_bytes(b"")
    found = started("data", place.name, "--json", cwd=tmp_path)
    answer = json.loads(found.stdout)
    assert answer["rows"] == 1
    assert (tmp_path / answer["skipped"][0]["path"]).is_file()
