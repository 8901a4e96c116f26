"""Every command on the digits, end to end: what is said, what is written, and that the two agree."""

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

import numpy as np
import pytest

from gphash import HammingIndex, load
from gphash.cli import looking
from gphash.collection import manifest
from gphash.data import sources
from gphash.data.known import digits
from tests.cli.running import COMMAND, ENVIRONMENT, QUICK, gphash, started, told


def test_fit_tells_its_sweeps_and_a_summary(tmp_path):
    found = gphash("fit", "digits:train", "--bits", 8, *QUICK, "--seed", 3, cwd=tmp_path)
    assert "fitting gph, 8 bits, to 1,297 rows of 64 features" in found.stderr
    assert "sweep 1:" in found.stderr
    for words in (
        "rows                 1,297",
        "features             64",
        "bits                 8",
        "leave-one-out score",
    ):
        assert words in found.stdout
    assert "wrote digits-8.gph" in found.stdout
    again = told("fit", "digits:train", "--bits", 8, *QUICK, "--seed", 3, "--threads", 1, "-o", "b.gph", cwd=tmp_path)
    hasher = load(tmp_path / "digits-8.gph")
    assert again["fingerprint"] == hasher.fingerprint_
    assert (again["rows"], again["features"], again["bits"], again["method"]) == (1297, 64, 8, "gph")
    assert again["leave_one_out_score"] == pytest.approx(hasher.leave_one_out_score_)
    assert again["sweeps"] == len(hasher.sweeps_)
    assert again["parameters"]["n_inducing"] == 100


@pytest.mark.slow
def test_a_terminal_gets_a_bar_that_leaves_no_trace(tmp_path):
    ours, theirs = pty.openpty()
    command = [*COMMAND, "fit", "digits:train", "--bits", "8", *QUICK]
    environment = {**ENVIRONMENT, "TERM": "xterm"}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=theirs) as run:
        os.close(theirs)
        drawn = b""
        with contextlib.suppress(OSError):  # what a terminal says at its end
            while some := os.read(ours, 1 << 16):
                drawn += some
        assert b"leave-one-out" in run.stdout.read()
    os.close(ours)
    assert run.returncode == 0
    assert b"/50" in drawn
    assert b"sweep 1:" not in drawn
    assert drawn.endswith(b"\x1b[2K")


def test_quiet_is_quiet_and_other_methods_have_their_names_in_the_file(tmp_path):
    found = started("fit", "digits", "-m", "lsh", "--bits", 12, "-q", cwd=tmp_path)
    assert found.stderr == ""
    assert "leave-one-out" not in found.stdout
    assert (tmp_path / "digits-lsh-12.gph").exists()


def test_encode_writes_what_the_model_gives(made, tmp_path):
    X = digits.load().test.X
    hasher = load(made / "digits-8.gph")
    answer = told("encode", made / "digits-8.gph", "digits:test", cwd=tmp_path)
    assert answer["model"] == hasher.fingerprint_
    np.testing.assert_array_equal(np.load(tmp_path / answer["codes"]), hasher.encode(X))
    gphash("encode", made / "digits-8.gph", "digits:test", "-p", cwd=tmp_path)
    with np.load(tmp_path / "digits-codes.npz") as stored:
        np.testing.assert_array_equal(stored["codes"], hasher.encode(X))
        np.testing.assert_allclose(stored["probabilities"], hasher.bit_probabilities(X), atol=1e-6)
    for name, certain in ((answer["codes"], False), ("digits-codes.npz", True)):
        explained = told("info", name, cwd=tmp_path)
        assert (explained["kind"], explained["rows"], explained["probabilities"]) == ("codes", 500, certain)


def test_evaluate_writes_a_report_and_draws_it(made, tmp_path):
    found = gphash("evaluate", made / "digits-8.gph", "digits:test", "--plots", "figures", cwd=tmp_path)
    assert "500 queries among 499 rows" in found.stdout
    report = json.loads((tmp_path / "digits-8-report.json").read_text())
    data = digits.load()
    expected = load(made / "digits-8.gph").score(data.test.X, data.test.y)
    assert report["results"]["hamming"]["map"] == pytest.approx(expected)
    assert f"{expected:.4f}" in found.stdout
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"precision-recall.png", "codes.svg", "training.png"} <= names
    among = told("evaluate", made / "digits-8.gph", "digits:test", "--stored", "digits:train", cwd=tmp_path)
    assert among["protocol"]["database_rows"] == 1297
    assert among["results"]["hamming"]["map"] > 0.9
    assert among["protocol"]["share_of_training_rows_met"] == 1
    assert report["protocol"]["share_of_training_rows_met"] == 0
    assert "training rows" not in found.stderr
    flattered = gphash("evaluate", made / "digits-8.gph", "digits", cwd=tmp_path)
    assert "about 100% of the model's training rows" in flattered.stderr
    assert "curve" not in among["results"]["hamming"]


def test_search_by_key_lists_what_the_index_finds(made, tmp_path):
    answer = told("search", made / "digits.gphash", "key:7", "-k", 4, cwd=tmp_path)
    (result,) = answer["results"]
    assert result["query"]["key"] == 7
    assert 7 not in [one["key"] for one in result["neighbours"]]
    packed = load(made / "digits-8.gph").encode(sources.read("digits").X)
    index, own = HammingIndex.build(packed, n_bits=8), packed[7:8]
    wanted = [number for number in index.search(own, k=5).ids[0].tolist() if number != 7][:4]
    assert [one["key"] for one in result["neighbours"]] == wanted
    assert result["query"]["bits"] == "".join(map(str, np.unpackbits(own[0], count=8)))
    plain = gphash("search", made / "digits.gphash", "key:7", "-k", 4, cwd=tmp_path).stdout.splitlines()
    assert plain[0].split() == ["rank", "key", "label", "distance", "similar", "bits"]
    assert plain[1].split()[-1] == result["query"]["bits"]
    assert [line.split()[1] for line in plain[2:6]] == [str(number) for number in wanted]


def test_search_by_similarity_says_the_same_in_words_and_as_json(made, tmp_path):
    asked = "search", made / "digits.gphash", "key:7", "--ranking", "similarity", "-k", 900, "--precision", 0.5
    (result,) = told(*asked, cwd=tmp_path)["results"]
    chances = [one["probability"] for one in result["neighbours"]]
    assert chances == sorted(chances, reverse=True)
    assert 0 < len(chances) < 900
    assert np.mean(chances) >= 0.5
    lines = gphash(*asked, cwd=tmp_path).stdout.splitlines()
    shown = [re.search(r"\d+\.\d%", line)[0] for line in lines[2 : 2 + len(chances)]]
    assert shown == [f"{chance:.1%}" for chance in chances]


def test_evaluate_says_how_many_candidates_to_take(made, tmp_path):
    found = told("evaluate", made / "digits-8.gph", "digits:test", "--recall", cwd=tmp_path)["results"]
    assert found["hamming"]["map"] > 0.5
    recall, suggested = found["candidates"]["recall"], found["candidates"]["suggested"]
    assert set(recall) == {"hamming", "expected", "similarity"}
    assert recall["hamming"][str(suggested["hamming"]["0.9"])] >= 0.9
    np.save(tmp_path / "rows.npy", sources.read("digits:test").X)  # which have no labels
    alone = told("evaluate", made / "digits-8.gph", "rows.npy", "--recall", cwd=tmp_path)["results"]
    assert alone == {"candidates": found["candidates"]}
    said = gphash("evaluate", made / "digits-8.gph", "rows.npy", "--recall", cwd=tmp_path).stdout
    least = min(one["0.95"] for one in suggested.values())
    assert f"for a recall of 0.95: gphash search --rerank {least}" in said
    assert "no labels" not in gphash("info", "digits-8-report.json", cwd=tmp_path).stderr


def test_search_reranks_by_vectors(made, tmp_path):
    told("index", made / "digits-8.gph", "digits", "--vectors", "float16", "-o", "kept.gphash", cwd=tmp_path)
    asked = "search", "kept.gphash", "key:7", "-k", 4, "--rerank", 400
    answer = told(*asked, cwd=tmp_path)
    scores = [one["score"] for one in answer["results"][0]["neighbours"]]
    assert (answer["reranked_by"], scores) == ("cosine", sorted(scores, reverse=True))
    lines = gphash(*asked, cwd=tmp_path).stdout.splitlines()
    assert lines[0].split()[:4] == ["rank", "key", "label", "cosine"]
    assert [line.split()[3] for line in lines[2:6]] == [f"{score:.4g}" for score in scores]
    assert told("info", "kept.gphash", cwd=tmp_path)["vectors"] == {"form": "float16", "metric": "cosine"}


def test_search_marks_bits_that_differ(made, tmp_path):
    answer = told("search", made / "digits.gphash", "key:0", "-k", 900, cwd=tmp_path)["results"][0]
    own, last = answer["query"]["bits"], answer["neighbours"][-1]
    assert last["distance"] == sum(a != b for a, b in zip(own, last["bits"], strict=True)) > 0
    line = gphash("search", made / "digits.gphash", "key:0", "-k", 900, cwd=tmp_path).stdout.splitlines()[901]
    marks = "".join("·" if a == b else b for a, b in zip(own, last["bits"], strict=True))
    assert line.rstrip().endswith(marks)
    within = told("search", made / "digits.gphash", "key:0", "-k", 900, "--radius", 0, cwd=tmp_path)["results"][0]
    assert {one["distance"] for one in within["neighbours"]} == {0}


def test_search_by_rows_and_by_probabilities(made, tmp_path):
    np.save(tmp_path / "rows.npy", digits.load().test.X[:3])
    answer = told("search", made / "digits.gphash", "rows.npy", "-k", 2, "--ranking", "expected", cwd=tmp_path)
    assert [one["query"]["name"] for one in answer["results"]] == [f"rows.npy, row {row}" for row in range(3)]
    assert all(len(one["query"]["probabilities"]) == 8 for one in answer["results"])
    assert all(one["precision"] is None for one in answer["results"])


def test_search_draws_a_sheet(made, tmp_path):
    found = gphash("search", made / "digits.gphash", "random", "-k", 3, "--show", "sheet.png", cwd=tmp_path)
    assert "wrote sheet.png" in found.stdout
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]


def test_info_explains_every_file(made, tmp_path):
    for name, kind in (("digits-8.gph", "model"), ("digits.gphash", "collection")):
        assert told("info", made / name, cwd=tmp_path)["kind"] == kind
    assert told("info", made / "digits.gphash" / "parts" / "0000.index", cwd=tmp_path)["kind"] == "index"
    for name in ("collection.json", "items.sqlite"):
        said = gphash("info", made / "digits.gphash" / name, cwd=tmp_path, code=1).stderr
        assert f"gphash info {made / 'digits.gphash'} explains it" in said
    found = gphash("info", made / "digits-8.gph", cwd=tmp_path).stdout
    assert "model\n" in found
    assert "fingerprint" in found
    answer = told("info", made / "digits-8.gph", cwd=tmp_path)
    assert answer["sweeps"] > 1
    assert answer["training_seconds"] > 0
    assert -0.7 < answer["leave_one_out_score"] < 0
    assert answer["fingerprint"] == load(made / "digits-8.gph").fingerprint_
    assert (answer["method"], answer["bits"]) == ("gph", 8)
    index = told("info", made / "digits.gphash", cwd=tmp_path)
    assert (index["items"], index["bits"], index["model"]) == (1797, 8, answer["fingerprint"])
    assert (index["parts"], index["keys"], index["pictures"]) == (1, "whole numbers", True)
    assert index["bytes"] > 1797 * 64
    assert {"key", "label", "title"} <= set(index["columns"])
    assert index["classes"] == [str(digit) for digit in range(10)]


def test_the_size_of_a_collection_is_that_of_its_own_files(made, tmp_path):
    place = tmp_path / "own.gphash"
    shutil.copytree(made / "digits.gphash", place)
    n_bytes = sum((place / name).stat().st_size for name in manifest.read(place).files)
    (place / "parts" / "folder").mkdir()
    (place / "notes.txt").write_text("a stranger's")
    assert looking._collection(str(place))["bytes"] == n_bytes  # there is no -wal, as if it went just now


def test_data_lists_without_a_download_and_describes(tmp_path):
    listed = told("data", "--data-dir", tmp_path / "none", cwd=tmp_path)["data_sets"]
    states = {one["name"]: one["complete"] for one in listed}
    assert states["digits"]
    assert not states["mnist"]
    assert not (tmp_path / "none").exists()
    described = told("data", "digits:test", cwd=tmp_path)
    assert (described["rows"], described["features"], described["supervision"]) == (500, 64, "labels")
    assert sum(described["classes"].values()) == 500


@pytest.mark.slow
def test_demo_ends_with_the_command_that_opens_the_page(tmp_path):
    found = started("demo", cwd=tmp_path)
    assert found.stdout.splitlines()[-1].strip() == "gphash serve gphash-demo/digits.gphash"
    names = {path.name for path in (tmp_path / "gphash-demo").iterdir()}
    assert names == {"digits.gph", "digits.gphash", "report.json"}
    assert [path.name for path in tmp_path.iterdir()] == ["gphash-demo"]


@pytest.mark.slow
def test_serve_answers_until_it_is_stopped(made, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "token").chmod(0o600)
    arguments = ["serve", str(made / "digits.gphash"), "--port", str(port), "--read-token-file", "token"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*COMMAND, *arguments], cwd=tmp_path, env=ENVIRONMENT, **pipes) as run:
        try:
            assert f"http://127.0.0.1:{port}/" in run.stdout.readline()
            request = urllib.request.Request(f"http://127.0.0.1:{port}/items/7")
            request.add_header("Authorization", "Bearer secret")
            answer = _answer(request)
            assert answer["key"] == 7
            assert len(answer["bits"]) == 8
        finally:
            run.send_signal(signal.SIGINT)
        said = run.communicate(timeout=30)[1]
    assert run.returncode == 130
    assert "Traceback" not in said
    assert "secret" not in said


def _answer(request, seconds=40):
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
