"""A folder of pictures, from fit to search: the way of whoever has nothing but pictures."""

import numpy as np
import pytest
from PIL import Image

from tests.cli.running import gphash, told

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


def test_a_folder_becomes_a_model_and_an_index(folder):
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
    (result,) = told("search", "all.index", "all/stripes/3.png", "-k", 5, cwd=folder)["results"]
    assert [one["labels"] for one in result["neighbours"]].count(["stripes"]) >= 4
    only = told("search", "all.index", "all/stripes/3.png", "-k", 5, "--label", "circles", cwd=folder)["results"][0]
    assert {tuple(one["labels"]) for one in only["neighbours"]} == {("circles",)}
    gphash("search", "all.index", "all/stripes/3.png", "-k", 5, "--show", "sheet.svg", cwd=folder)
    assert (folder / "sheet.svg").read_text().startswith("<?xml")


def test_a_file_that_is_no_picture_is_refused(folder):
    found = gphash("search", "all.index", "all/circles/readme.txt", cwd=folder, code=1)
    assert "readme.txt" in found.stderr
    assert len(found.stderr.splitlines()) == 1
