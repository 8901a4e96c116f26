"""Training that was interrupted goes on where it was and ends with the same model, to the last bit."""

import errno
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from gphash import GPHasher, container
from gphash.method import ep, inducing, inference, selection
from tests import digits
from tests.digits import QUICK

N = 150
X = digits.X[:N]
TARGETS = {"labels": digits.y[:N], "tags": digits.tags[:N], "pairs": digits.pairs(N, 2000)}
SETTINGS = QUICK | {"block_size": 64, "max_sweeps": 6}


def hasher(**changes):
    return GPHasher(**SETTINGS | changes)


def stop_after(number):
    def callback(sweep):
        if sweep.number == number:
            raise KeyboardInterrupt

    return callback


def interrupt(path, y, number=3, **changes):
    with pytest.raises(KeyboardInterrupt):
        hasher(**changes).fit(X, y, checkpoint=path, callback=stop_after(number))


def assert_same_model(one, other):
    (meta, arrays), (other_meta, other_arrays) = (each.hash_function_.content() for each in (one, other))
    assert meta == other_meta
    assert arrays.keys() == other_arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[name])
    assert one.fingerprint_ == other.fingerprint_
    np.testing.assert_array_equal(one.encode(digits.X), other.encode(digits.X))
    assert [sweep._replace(seconds=0) for sweep in one.sweeps_] == [
        sweep._replace(seconds=0) for sweep in other.sweeps_
    ]


@pytest.fixture(scope="module")
def uninterrupted():
    models = {}

    def train(kind, **changes):
        key = kind, str(changes)
        if key not in models:
            models[key] = hasher(**changes).fit(X, TARGETS[kind])
        return models[key]

    return train


@pytest.fixture
def path(tmp_path):
    return tmp_path / "training.checkpoint"


@pytest.fixture
def interrupted(path):
    interrupt(path, TARGETS["labels"])
    return path


@pytest.fixture
def sampled(path):
    """The same while codes are sampled."""
    interrupt(path, TARGETS["labels"], codes="sampled")
    return path


@pytest.mark.parametrize("number", [1, 2, 5, 7])
@pytest.mark.parametrize(
    ("kind", "codes"),
    [("labels", "posterior"), ("tags", "posterior"), ("labels", "sampled"), ("tags", "sampled"), ("pairs", "sampled")],
)
@pytest.mark.parametrize("solver", ["shared", "blockwise"])
def test_going_on_ends_like_never_stopping(path, uninterrupted, solver, kind, codes, number):
    given = {"solver": solver, "codes": codes}
    expected = uninterrupted(kind, **given)
    number = min(number, len(expected.sweeps_))
    interrupt(path, TARGETS[kind], number, **given)
    seen = []
    resumed = hasher(**given).fit(X, TARGETS[kind], checkpoint=path, callback=seen.append)
    assert [sweep.number for sweep in seen] == list(range(number + 1, len(expected.sweeps_) + 1))
    assert_same_model(resumed, expected)


@pytest.mark.parametrize("kind", ["labels", "pairs"])
def test_an_interruption_in_the_middle_of_a_sweep_loses_that_sweep_only(path, uninterrupted, monkeypatch, kind):
    match, calls = ep.match, []
    done = []

    def interrupting(*arguments):
        if len(done) == 3:
            calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return match(*arguments)

    monkeypatch.setattr(ep, "match", interrupting)
    with pytest.raises(KeyboardInterrupt):
        hasher(n_jobs=1).fit(X, TARGETS[kind], checkpoint=path, callback=done.append)
    monkeypatch.undo()
    assert_same_model(hasher().fit(X, TARGETS[kind], checkpoint=path), uninterrupted(kind))


def test_interruptions_may_follow_each_other(path, uninterrupted):
    for number in (1, 2, 4):
        interrupt(path, TARGETS["labels"], number)
    assert_same_model(hasher().fit(X, TARGETS["labels"], checkpoint=path), uninterrupted("labels"))


def test_threads_and_memory_may_differ_when_going_on(interrupted, uninterrupted):
    resumed = hasher(n_jobs=2, memory_limit=1).fit(X, TARGETS["labels"], checkpoint=interrupted)
    assert_same_model(resumed, uninterrupted("labels"))


@pytest.mark.parametrize("codes", ["posterior", "sampled"])
def test_choices_of_the_hasher_are_kept(path, codes):
    auto = {"length_scale": "auto", "signal_scale": "auto", "pair_weight": "auto", "codes": codes}
    interrupt(path, TARGETS["labels"], **auto)
    resumed = hasher(**auto).fit(X, TARGETS["labels"], checkpoint=path)
    expected = hasher(**auto).fit(X, TARGETS["labels"])
    assert_same_model(resumed, expected)
    assert resumed.length_scale_ == expected.length_scale_
    assert resumed.pair_weight_ == expected.pair_weight_


def test_a_finished_checkpoint_is_the_model_at_once(path, uninterrupted):
    hasher().fit(X, TARGETS["labels"], checkpoint=path)
    seen = []
    again = hasher().fit(X, TARGETS["labels"], checkpoint=path, callback=seen.append)
    assert seen == []
    assert_same_model(again, uninterrupted("labels"))


SCRIPT = """
import sys, time
from tests.method import test_checkpoint as here

def tell(sweep):
    print(sweep.number, flush=True)
    time.sleep(0.05)

here.hasher(max_sweeps=50).fit(here.X, here.TARGETS["pairs"], checkpoint=sys.argv[1], callback=tell)
"""


@pytest.mark.slow
def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(path, pytestconfig):
    command = [sys.executable, "-c", SCRIPT, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=pytestconfig.rootpath) as process:
        try:
            assert process.stdout.readline() == "1\n"
            assert process.stdout.readline() == "2\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) != 0
        finally:
            process.kill()
    assert container.describe(path).kind == "checkpoint"
    seen = []
    resumed = hasher(max_sweeps=50).fit(X, TARGETS["pairs"], checkpoint=path, callback=seen.append)
    assert seen[0].number > 2
    assert_same_model(resumed, hasher(max_sweeps=50).fit(X, TARGETS["pairs"]))


@pytest.mark.parametrize(
    ("rows", "y", "changes"),
    [
        (X + 1e-9, TARGETS["labels"], {}),
        (X[:-1], TARGETS["labels"][:-1], {}),
        (X.astype(np.float32), TARGETS["labels"], {}),
        (X, np.roll(TARGETS["labels"], 1), {}),
        (X, TARGETS["tags"], {}),
        (X, TARGETS["pairs"], {}),
        (X, TARGETS["labels"], {"n_bits": 9}),
        (X, TARGETS["labels"], {"codes": "sampled"}),
        (X, TARGETS["labels"], {"length_scale": 0.91}),
        (X, TARGETS["labels"], {"similarity_scale": 0.5}),
        (X, TARGETS["labels"], {"block_size": 32}),
        (X, TARGETS["labels"], {"max_sweeps": 7}),
        (X, TARGETS["labels"], {"solver": "blockwise"}),
        (X, TARGETS["labels"], {"random_state": 1}),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_a_checkpoint_of_another_run_is_refused_and_left_alone(interrupted, rows, y, changes):
    before = interrupted.read_bytes()
    with pytest.raises(ValueError, match=r"training\.checkpoint' belongs to another run .* remove the file or name"):
        hasher(**changes).fit(rows, y, checkpoint=interrupted)
    assert interrupted.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-100], "is truncated"),
        (lambda content: content[:-1000] + bytes([content[-1000] ^ 1]) + content[-999:], "is damaged"),
        (lambda content: content[:40] + b"?" + content[41:], "is damaged"),
        (lambda content: b"", "is truncated"),
        (lambda content: b"not a checkpoint at all", "is not a gphash file"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_left_alone(interrupted, damage, message):
    damaged = damage(interrupted.read_bytes())
    interrupted.write_bytes(damaged)
    with pytest.raises(container.FormatError, match=rf"training\.checkpoint' {message}"):
        hasher().fit(X, TARGETS["labels"], checkpoint=interrupted)
    assert interrupted.read_bytes() == damaged


def crafted(path, part, name, value):
    """The checkpoint with one of its fields or arrays replaced, or removed, and sealed."""
    stored = container.read(path)
    parts = {"meta": dict(stored.meta), "state": dict(stored.meta["state"]), "arrays": dict(stored.arrays)}
    parts[part][name] = value
    if value is None:
        del parts[part][name]
    container.write(path, "checkpoint", {**parts["meta"], "state": parts["state"]}, parts["arrays"])


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("meta", "kernel", None),
        ("meta", "kernel", {"name": "cubic", "length_scale": 0.9, "signal_scale": 4.0}),
        ("meta", "unit_length", 1),
        ("meta", "unit_length", False),
        ("meta", "pair_weight", -1.0),
        ("meta", "sweeps", []),
        ("meta", "sweeps", [[1, 2]]),
        ("state", "sweep", 2),
        ("state", "sweep", "3"),
        ("state", "damping", 0),
        ("state", "finished", True),
        ("state", "blocks", [64, 64, 23]),
        ("state", "quiet", None),
        ("arrays", "Z", None),
        ("arrays", "factor", np.zeros((50, 50))),
        ("arrays", "signs", np.zeros((N, 8), np.int8)),
        ("arrays", "signs", np.ones((N - 1, 8), np.int8)),
        ("arrays", "signs", np.ones((N, 8))),
        ("arrays", "site_precision", np.full((N, 8), -1.0)),
        ("arrays", "site_shift", np.full((N, 8), np.nan)),
        ("arrays", "mean", np.zeros((50, 7))),
    ],
)
def test_a_crafted_checkpoint_is_refused_and_left_alone(sampled, part, name, value):
    crafted(sampled, part, name, value)
    before = sampled.read_bytes()
    with pytest.raises(container.FormatError, match=r"training\.checkpoint' cannot be used: .*; remove the file"):
        hasher(codes="sampled").fit(X, TARGETS["labels"], checkpoint=sampled)
    assert sampled.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("signs", np.ones((N, 8), np.int8)),  # as many as bits, and not as questions
        ("mean", np.zeros((50, 8))),
        ("site_precision", np.full((N, 10), -1.0)),
        ("start_signs", np.ones((N, 10), np.int8)),
    ],
)
def test_a_crafted_checkpoint_of_fixed_questions_is_refused_and_left_alone(interrupted, name, value):
    crafted(interrupted, "arrays", name, value)
    before = interrupted.read_bytes()
    with pytest.raises(container.FormatError, match=r"training\.checkpoint' cannot be used: .*; remove the file"):
        hasher().fit(X, TARGETS["labels"], checkpoint=interrupted)
    assert interrupted.read_bytes() == before


def test_with_fixed_questions_there_is_no_start_and_a_column_for_every_class(interrupted):
    stored = container.read(interrupted)
    assert stored.meta["start"] is None
    assert stored.meta["state"]["frozen"]
    assert stored.arrays["signs"].shape == (N, 10)
    assert (stored.arrays["signs"].sum(axis=1) == 2 - 10).all()  # of every row, one class


@pytest.mark.parametrize("codes", ["posterior", "sampled"])
def test_sites_that_say_nothing_do_not_end_training(path, codes):
    interrupt(path, TARGETS["labels"], codes=codes)
    for name in ("site_precision", "site_shift"):
        crafted(path, "arrays", name, np.zeros((N, 8 if codes == "sampled" else 10)))
    found = hasher(codes=codes).fit(X, TARGETS["labels"], checkpoint=path)
    assert np.isfinite(found.hash_function_.content()[1]["weights"]).all()


def test_a_model_is_no_checkpoint(path, uninterrupted):
    uninterrupted("labels").save(path)
    before = path.read_bytes()
    with pytest.raises(container.FormatError, match=r"holds 'model'; it must hold 'checkpoint'"):
        hasher().fit(X, TARGETS["labels"], checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("random_state", [None, np.random.RandomState(0)])
def test_a_checkpoint_needs_a_seed(path, random_state):
    with pytest.raises(ValueError, match="checkpoint needs random_state to be a number, not"):
        hasher(random_state=random_state).fit(X, TARGETS["labels"], checkpoint=path)
    assert not path.exists()


@pytest.mark.parametrize("place", ["no such folder/training.checkpoint", "."])
def test_a_place_that_cannot_hold_a_checkpoint_is_found_out_before_training(tmp_path, place):
    seen = []
    with pytest.raises(ValueError, match=r"checkpoint=.* folder that does not exist; give a file"):
        hasher().fit(X, TARGETS["labels"], checkpoint=tmp_path / place, callback=seen.append)
    assert seen == []


def test_a_full_disk_stops_neither_training_nor_spoils_the_checkpoint_before(interrupted, uninterrupted, monkeypatch):
    before = interrupted.read_bytes()

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(RuntimeWarning, match="checkpoint .* could not be written: .*No space left"):
        assert_same_model(hasher().fit(X, TARGETS["labels"], checkpoint=interrupted), uninterrupted("labels"))
    monkeypatch.undo()
    assert interrupted.read_bytes() == before
    assert [file.name for file in interrupted.parent.iterdir()] == [interrupted.name]
    assert_same_model(hasher().fit(X, TARGETS["labels"], checkpoint=interrupted), uninterrupted("labels"))


@pytest.mark.parametrize("place", ["init_from_predictions", "refresh"])
def test_an_interruption_before_the_first_sweep_keeps_what_was_chosen(tmp_path, monkeypatch, uninterrupted, place):
    path, expected = tmp_path / "run", uninterrupted("labels", codes="sampled")
    chosen = []
    best_start, original = selection.best_start, getattr(inference, place)

    def interrupt(*_):
        raise KeyboardInterrupt

    def best(*arguments):
        start = best_start(*arguments)
        monkeypatch.setattr(inference, place, interrupt)  # only from here on: the start itself is trained in this way
        chosen.append(start)
        return start

    monkeypatch.setattr(selection, "best_start", best)
    with pytest.raises(KeyboardInterrupt):
        hasher(codes="sampled").fit(X, TARGETS["labels"], checkpoint=path)
    monkeypatch.setattr(inference, place, original)
    assert_same_model(hasher(codes="sampled").fit(X, TARGETS["labels"], checkpoint=path), expected)
    assert len(chosen) == 1


@pytest.mark.parametrize("place", ["init", "refresh"])
def test_an_interruption_before_the_first_sweep_of_fixed_questions_keeps_what_was_chosen(
    tmp_path, monkeypatch, uninterrupted, place
):
    path, expected = tmp_path / "run", uninterrupted("labels")
    chosen, choose, original = [], inducing.choose, getattr(inference, place)

    def interrupt(*_):
        raise KeyboardInterrupt

    def choosing(*arguments):
        chosen.append(choose(*arguments))
        return chosen[-1]

    monkeypatch.setattr(inducing, "choose", choosing)
    monkeypatch.setattr(inference, place, interrupt)
    with pytest.raises(KeyboardInterrupt):
        hasher().fit(X, TARGETS["labels"], checkpoint=path)
    monkeypatch.setattr(inference, place, original)
    assert_same_model(hasher().fit(X, TARGETS["labels"], checkpoint=path), expected)
    assert len(chosen) == 1


@pytest.mark.filterwarnings("ignore:training has not converged")
@pytest.mark.parametrize("codes", ["posterior", "sampled"])
def test_a_factor_of_several_panels_is_resumed_as_it_was(tmp_path, codes):
    settings = digits.QUICK | {"n_inducing": 150, "max_sweeps": 5, "codes": codes}

    def stop(sweep):
        if sweep.number == 3:
            raise KeyboardInterrupt

    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        GPHasher(**settings).fit(digits.X[:400], digits.y[:400], checkpoint=path, callback=stop)
    resumed = GPHasher(**settings).fit(digits.X[:400], digits.y[:400], checkpoint=path)
    assert resumed.fingerprint_ == GPHasher(**settings).fit(digits.X[:400], digits.y[:400]).fingerprint_
