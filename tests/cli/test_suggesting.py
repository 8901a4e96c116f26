"""gphash suggest says how many bits to take, and gphash fit --bits auto takes them."""

import numpy as np
import pytest

import gphash as library
from gphash.evaluation import canvas
from tests import digits
from tests.cli.running import QUICK, gphash, told


@pytest.fixture
def rows(tmp_path):
    np.savez(tmp_path / "rows.npz", X=digits.X[:300], y=digits.y[:300])
    return tmp_path


def test_a_table_and_a_recommendation(rows):
    said = gphash("suggest", "rows.npz", "--bits", "8,16", *QUICK, cwd=rows).stdout
    assert "60 rows held out" in said
    assert "sign bits" in said
    assert "recommended: " in said
    assert "mAP by P(similar) is" in said


@pytest.mark.skipif(not canvas.available(), reason="pictures need matplotlib")
@pytest.mark.parametrize("name", ["curve.svg", "curve.png"])
def test_json_and_a_picture_that_may_be_drawn_again(rows, name):
    for _ in range(2):
        found = told("suggest", "rows.npz", "--bits", "16,8", "--plot", name, *QUICK, cwd=rows)
    assert [one["n_bits"] for one in found["curve"]] == [8, 16, 64, 2048]
    assert found["n_bits"] in (8, 16)
    assert found["plot"] == name
    assert (rows / name).stat().st_size > 1000


def test_fit_takes_what_is_recommended(rows):
    found = told("fit", "rows.npz", "--bits", "auto", *QUICK, cwd=rows)
    assert found["bits"] in (8, 16, 32, 64, 128, 256)
    assert found["model"] == "rows-auto.gph"
    assert library.load(rows / "rows-auto.gph").n_bits == found["bits"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("suggest", "rows.npz", "--bits", "8,many"), 2, "'many' is not a whole number"),
        (("suggest", "rows.npz", "--plot", "curve.gif"), 2, "ends in .svg or .png"),
        (("suggest", "rows.npz", "--set", "colour=1"), 2, "--set 'colour': gph has"),
        (("suggest", "plain.npy"), 1, "has neither labels nor tags to judge by"),
        (("fit", "rows.npz", "--bits", "auto", "--method", "itq"), 2, "needs --method gph"),
        (("fit", "rows.npz", "--bits", "0"), 2, "'0' is not a whole number of at least 1"),
    ],
)
def test_what_cannot_be_is_said(rows, words, code, said):
    np.save(rows / "plain.npy", digits.X[:100])
    found = gphash(*words, cwd=rows, code=code)
    assert said in " ".join(found.output.split())
