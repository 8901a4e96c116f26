"""An index in many files gives what one index of all rows gives."""

import json
import os
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gphash import HammingIndex, Where
from gphash.container import FormatError
from gphash.index.parts import MANIFEST, BlockFile, Manifest, PartedIndex, read_manifest, write_manifest, write_part

MODEL = "ab" * 32


def build(folder, packed, n_bits, ends):
    made = []
    for number, (start, stop) in enumerate(pairwise(ends)):
        mark = write_part(folder / f"{number}.index", packed[start:stop], start, n_bits, MODEL)
        made.append(BlockFile(f"{number}.npy", f"{number}.index", start, stop, mark))
    write_manifest(folder, Manifest("index", MODEL, n_bits, "source", tuple(made)))
    return PartedIndex.open(folder)


def codes(n_rows, n_bits, seed):
    """Few distinct codes, so that distances are often equal."""
    rng = np.random.default_rng(seed)
    words = np.packbits(rng.integers(0, 2, (7, n_bits)), axis=1)
    return words[rng.integers(0, 7, n_rows)]


@pytest.fixture
def made(tmp_path):
    packed = codes(60, 13, 0)
    return tmp_path, build(tmp_path, packed, 13, (0, 25, 25, 60)), HammingIndex.build(packed, n_bits=13, model=MODEL)


@settings(max_examples=40)
@given(
    st.sampled_from((1, 13, 70)),
    st.lists(st.integers(0, 60), max_size=5),
    st.integers(0, 2**32 - 1),
    st.integers(0, 80),
    st.integers(0, 12),
)
def test_searches_are_those_of_one_index(n_bits, cuts, seed, k, radius):
    packed = codes(60, n_bits, seed)
    rng = np.random.default_rng(seed)
    queries = np.concatenate([packed[:3], np.packbits(rng.integers(0, 2, (3, n_bits)), axis=1)])
    chances = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0], (5, n_bits))
    whole = HammingIndex.build(packed, n_bits=n_bits)
    with tempfile.TemporaryDirectory() as folder:
        parted = build(Path(folder), packed, n_bits, sorted([0, *cuts, 60]))
        np.testing.assert_equal(parted.search(queries, k), whole.search(queries, k))
        np.testing.assert_equal(parted.search_expected(chances, k), whole.search_expected(chances, k))
        np.testing.assert_equal(parted.within(queries, radius), whole.within(queries, radius))
        np.testing.assert_equal(parted.items(), whole.items())
        np.testing.assert_equal(parted.fullest(3), whole.fullest(3))
        some = rng.permutation(60)[:9]
        np.testing.assert_equal(parted.codes_of(some), packed[some])
        np.testing.assert_equal(parted.search(queries, k, allowed=some), whole.search(queries, k, allowed=some))
        assert parted.stats()[:4] == whole.stats()[:4]
        merged = parted.merge()
        assert merged.stats()[:4] == whole.stats()[:4]
        np.testing.assert_equal(merged.search(queries, k), whole.search(queries, k))


def test_it_has_what_an_index_has(made):
    folder, parted, whole = made
    assert len(parted) == 60
    assert (parted.n_bits, parted.model) == (13, MODEL)
    assert repr(parted) == "PartedIndex(60 items, 7 distinct codes of 13 bits)"
    labels = np.arange(60) % 3
    query = codes(1, 13, 1)
    np.testing.assert_equal(
        parted.search(query, allowed=Where(labels, 1)), whole.search(query, allowed=Where(labels, 1))
    )
    chances = np.random.default_rng(0).random(13)
    assert list(parted.iterate(chances)) == list(whole.iterate(chances))
    with parted as opened:
        opened.save(folder / "one.index")
    np.testing.assert_equal(HammingIndex.open(folder / "one.index").items(), whole.items())
    with pytest.raises(KeyError, match="60"):
        parted.codes_of([3, 60])


def test_it_is_not_changed(made):
    folder, parted, _ = made
    with pytest.raises(ValueError, match="it into one"):
        parted.add(codes(1, 13, 0), [60])
    with pytest.raises(ValueError, match="it into one"):
        parted.remove([3])
    with pytest.raises(ValueError, match="writable=True"):
        PartedIndex.open(folder, writable=True)
    merged = parted.merge()
    merged.add(codes(1, 13, 0), [60])
    assert len(merged) == 61


def test_codes_of_another_model_are_refused(made):
    _, parted, _ = made
    with pytest.raises(ValueError, match="codes of two models"):
        parted.search(codes(1, 13, 0), model="cd" * 32)


def test_an_unfinished_folder_is_refused(made):
    folder, _, _ = made
    write_manifest(folder, read_manifest(folder).planned())
    with pytest.raises(ValueError, match="is not finished; run the same"):
        PartedIndex.open(folder)
    os.remove(folder / MANIFEST)
    with pytest.raises(FileNotFoundError, match=r"has no manifest\.json"):
        PartedIndex.open(folder)


def test_codes_are_no_index(made):
    folder, _, _ = made
    write_manifest(folder, read_manifest(folder)._replace(kind="codes"))
    with pytest.raises(ValueError, match="holds codes"):
        PartedIndex.open(folder)


def test_files_that_are_missing_changed_or_others_are_named(made):
    folder, _, whole = made
    (folder / "0.index").rename(folder / "away")
    with pytest.raises(FormatError, match=r"0\.index' is missing"):
        PartedIndex.open(folder)
    whole.save(folder / "0.index")
    with pytest.raises(FormatError, match=r"0\.index' is not the file"):
        PartedIndex.open(folder)
    (folder / "away").rename(folder / "0.index")
    with HammingIndex.open(folder / "2.index", writable=True) as part:
        part.remove([30])
        with pytest.raises(FormatError, match=r"2\.index' is not the file"):
            PartedIndex.open(folder)
    with pytest.raises(FormatError, match=r"2\.index' is not the file"):
        PartedIndex.open(folder)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": 2}, "'format'"),
        ({"kind": "songs"}, "'kind'"),
        ({"blocks": []}, "'blocks'"),
        ({"blocks": [{"name": "a"}]}, "file"),
        ({"blocks": None}, "'blocks'"),
        ({"n_bits": 1025}, "'n_bits'"),
        ({"n_bits": "12"}, "'n_bits'"),
        ({"model": None}, "'model'"),
    ],
)
def test_a_manifest_that_is_none_is_refused(made, change, complaint):
    folder, _, _ = made
    told = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**told, **change}))
    with pytest.raises(FormatError, match=complaint):
        read_manifest(folder)
    told["blocks"][0]["file"] = "../0.index"
    (folder / MANIFEST).write_text(json.dumps(told))
    with pytest.raises(FormatError, match="is no file of the folder"):
        read_manifest(folder)
    (folder / MANIFEST).write_text("[" + "]")
    with pytest.raises(FormatError, match=r"manifest\.json' cannot be used"):
        read_manifest(folder)
    told["blocks"][0] |= {"file": "0.index", "stop": told["blocks"][0]["stop"] + 1}
    (folder / MANIFEST).write_text(json.dumps(told))
    with pytest.raises(FormatError, match="does not follow"):
        read_manifest(folder)
