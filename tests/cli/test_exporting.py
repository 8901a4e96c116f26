"""gphash export writes a file that encodes as gphash encode does, or nothing."""

import json

import numpy as np
import pytest

from gphash.data import sources
from gphash.functions import onnx_forms
from tests.cli.running import gphash, told
from tests.functions.test_exporting import tokens

onnxruntime = pytest.importorskip("onnxruntime", reason="graphs are run by the extra 'onnx'")
X = sources.read("digits").X.astype(np.float32)


def codes(path, **inputs):
    return onnxruntime.InferenceSession(path).run(["codes"], inputs)[0]


def test_codes_are_those_of_encode(made, tmp_path):
    path = tmp_path / "digits.onnx"
    found = told("export", made / "digits-8.gph", "-o", path, cwd=tmp_path)
    assert found["file"] == str(path)
    assert found["inputs"] == ["rows"]
    assert found["outputs"] == ["codes", "bit_probabilities", "class_probabilities"]
    assert (found["n_rows"], found["bytes"]) == (4096, path.stat().st_size)
    assert found["n_different"] <= found["n_doubtful"] < 100
    gphash("encode", made / "digits-8.gph", "digits", "-o", "codes.npy", "-q", cwd=tmp_path)
    assert (codes(path, rows=X) != np.load(tmp_path / "codes.npy")).sum() <= 2
    about = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    assert about["gphash_fingerprint"] == found["fingerprint"]
    assert json.loads(about["gphash_classes"]) == [*"0123456789"]


def test_what_is_said(made, tmp_path):
    said = gphash("export", made / "digits-8.gph", "--codes-only", cwd=tmp_path).stdout.splitlines()
    assert said[0].startswith("codes are equal on 4,096 rows (")
    assert said[1] == "inputs rows; outputs codes"
    assert said[2].startswith("wrote digits-8.onnx (")
    assert (tmp_path / "digits-8.onnx").exists()


def test_behind_an_encoder(made, tmp_path):
    tokens(tmp_path / "encoder.onnx")
    words = ("export", made / "digits-8.gph", "-o", "codes.onnx", "--behind", "encoder.onnx")
    first = told(*words, "--pooling", "cls", "--normalize", cwd=tmp_path)
    assert first["inputs"] == ["input_ids", "attention_mask"]
    ids, mask = np.arange(60).reshape(6, 10), np.ones((6, 10), np.int64)
    np.savez(tmp_path / "sample.npz", input_ids=ids, attention_mask=mask)
    found = told(*words, "--sample", "sample.npz", cwd=tmp_path)
    assert found["n_rows"] == 4096 + 6
    assert codes(tmp_path / "codes.onnx", input_ids=ids, attention_mask=mask).shape == (6, 1)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("none.gph", 1, "'none.gph': no such file"),
        ("model.gph -o taken.onnx", 2, "--output 'taken.onnx' already exists and is no ONNX graph of gphash"),
        ("model.gph -o model.gph", 2, "is a file that this command reads"),
        ("model.gph --normalize", 2, "--normalize is about an encoder; give one by --behind."),
        ("model.gph --pooling max", 2, "--pooling 'max'; give one of mean, cls."),
        ("model.gph --behind taken.onnx", 1, "'taken.onnx' is no ONNX graph that can be used"),
        ("model.gph --behind encoder.onnx --encoder-output echo", 1, "the encoder has no output 'echo'"),
        ("model.gph --behind encoder.onnx --sample taken.onnx", 1, "--sample 'taken.onnx' is no .npz file of arrays"),
    ],
)
def test_errors_say_what_to_do(made, tmp_path, words, code, message):
    (tmp_path / "model.gph").write_bytes((made / "digits-8.gph").read_bytes())
    (tmp_path / "taken.onnx").write_text("mine")
    tokens(tmp_path / "encoder.onnx")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert message in " ".join(gphash("export", *words.split(), cwd=tmp_path, code=code).stderr.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_what_differs_is_not_written(made, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_forms, "_powers", lambda logits, exclusive, power: logits)
    said = gphash("export", made / "digits-8.gph", cwd=tmp_path, code=1).stderr
    assert "other ones than the model; nothing was written." in " ".join(said.split())
    assert not list(tmp_path.iterdir())


def test_info_explains_the_file(made, tmp_path):
    found = told("export", made / "digits-8.gph", "-o", "digits.onnx", cwd=tmp_path)
    shown = told("info", "digits.onnx", cwd=tmp_path)
    assert (shown["kind"], shown["bits"], shown["model"]) == ("ONNX graph", "8", found["fingerprint"])
    assert shown["inputs"] == ["rows float [n, 64]"]
    assert shown["outputs"][0] == "codes uint8 [n, 1]"
    whole = (tmp_path / "digits.onnx").read_bytes()
    (tmp_path / "digits.onnx").write_bytes(whole[: len(whole) // 2])
    assert "is damaged" in gphash("info", "digits.onnx", cwd=tmp_path, code=1).stderr
