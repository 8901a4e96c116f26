"""A little of `python -m tests.fuzz`, always the same files."""

import pytest

from tests.fuzz import targets

FILES = {"checkpoint": 80, "sampled checkpoint": 80, "items": 150, "manifest": 150}


@pytest.mark.parametrize("kind", targets.KINDS)
def test_files_that_are_spoilt_and_sealed_are_refused_or_answer_rightly(kind, tmp_path):
    target = targets.KINDS[kind](tmp_path)
    for content in target.whole():
        target.use(content)
    found = [targets.attempt(target, 0, number) for number in range(FILES.get(kind, 300))]
    assert [(number, *one) for number, one in enumerate(found) if one[0] not in ("refused", "right")] == []
    outcomes = [outcome for outcome, _ in found]
    assert outcomes.count("refused") > len(found) / 3
    assert outcomes.count("right") > len(found) / 20
