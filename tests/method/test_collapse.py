"""Codes that tell too few rows apart are remarked, with what helps; others are not."""

import numpy as np
import pytest

from gphash.method import collapse
from gphash.method.collapse import CodeCounts
from gphash.supervision import similarity
from gphash.supervision.similarity import Pairs, Signatures

CODES = np.random.default_rng(0).integers(0, 2, (10, 16), dtype=np.uint8)
LABELS = np.arange(100) % 10


def remark(bits, supervision):
    packed, masks = np.packbits(bits, axis=1), np.zeros(len(bits), np.uint64)
    if isinstance(supervision, Signatures):
        masks = supervision.masks[:, 0]
    return collapse.remark(CodeCounts(masks, packed, np.ones(len(packed))), supervision, 16)


def test_a_code_for_every_class_is_well():
    assert remark(CODES[LABELS], similarity.from_labels(LABELS)) is None


def test_fewer_codes_than_classes():
    found = remark(CODES[LABELS % 2], similarity.from_labels(LABELS))
    assert found.startswith(
        "codes have collapsed: the commonest codes of 10 classes are only 2 different ones. To help, give"
    )
    assert 'class_weight="balanced"' in found


def test_a_code_that_most_rows_have():
    bits = CODES[np.where(np.arange(100) < 10, LABELS, 0)]
    tags = np.eye(10, dtype=int)[LABELS]
    assert "91% of the training rows have the same code" in remark(bits, similarity.from_tags(tags))
    # As many as the largest class has are as they should be.
    assert remark(bits, similarity.from_labels(np.where(np.arange(100) < 10, LABELS, 0))) is None


def test_bits_that_repeat_each_other():
    bits = np.repeat(np.unpackbits(np.arange(10, dtype=np.uint8)[:, None], axis=1)[:, 4:], 4, axis=1)
    bits[:, ::2] ^= 1
    found = remark(bits[LABELS], similarity.from_labels(LABELS))
    assert "of 16 bits, 4 tell different things" in found
    assert "n_bits=4" in found


def test_two_classes_have_no_more_than_one_bit_to_tell():
    bits = np.repeat(np.arange(100)[:, None] % 2, 16, axis=1).astype(np.uint8)
    assert remark(bits, similarity.from_labels(np.arange(100) % 2)) is None


def test_broad_tags_are_named():
    tags = np.concatenate([np.eye(10, dtype=int)[LABELS], (LABELS < 6)[:, None], (LABELS >= 6)[:, None]], axis=1)
    found = remark(CODES[(LABELS < 6).astype(int)], similarity.from_tags(tags))
    assert "2 different codes for 10 tags" in found
    assert "leave out the tag that is on 60% of the rows" in found


@pytest.mark.parametrize(("n_codes", "well"), [(1, False), (5, True)])
def test_pairs(n_codes, well):
    graph = similarity.from_pairs(Pairs([0, 1], [1, 2], [1, -1]), 100)
    assert (remark(CODES[LABELS % n_codes], graph) is None) == well
