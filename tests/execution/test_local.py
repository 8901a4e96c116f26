"""Order, sums, errors, and one BLAS thread."""

import threading
import time

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from gphash.execution import local
from gphash.execution.local import LocalExecutor, SerialExecutor, one_blas_thread


def tree_sum(terms):
    """Neighbours first, then pairs of pairs; an odd one out waits for the next level."""
    while len(terms) > 1:
        terms = [sum(terms[place + 1 : place + 2], terms[place]) for place in range(0, len(terms), 2)]
    return terms[0]


@pytest.fixture(params=["serial", 1, 2, 5])
def executor(request):
    if request.param == "serial":
        yield SerialExecutor()
    else:
        with LocalExecutor(request.param) as local_executor:
            yield local_executor


def blas_threads():
    return [info["num_threads"] for info in ThreadpoolController().select(user_api="blas").info()]


def test_results_come_in_the_order_of_the_blocks(executor):
    def work(number, pause):
        time.sleep(pause)
        return number

    pauses = [0.02, 0.0, 0.01, 0.0, 0.005] * 4
    assert list(executor.map(work, range(20), pauses)) == list(range(20))
    assert list(executor.collect(work, range(20), pauses)) == list(range(20))


def test_sums_are_added_as_a_tree_in_float64(executor):
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(3, 2)) * 10.0**k).astype(np.float32) for k in rng.integers(-6, 6, 40)]

    def work(part):
        time.sleep(1e-4 * (part[0, 0] > 0))
        return part, part.sum()

    total, number = executor.sum(work, parts)
    expected = tree_sum([part.astype(np.float64) for part in parts])
    assert total.dtype == np.float64
    np.testing.assert_array_equal(total, expected)
    assert number.shape == ()


def test_a_sum_leaves_what_it_adds_alone(executor):
    parts = [np.ones(2), np.ones(2)]
    (total,) = executor.sum(lambda part: (part,), parts)
    np.testing.assert_array_equal(total, 2)
    np.testing.assert_array_equal(parts, 1)


def test_exceptions_travel_and_the_executor_goes_on(executor):
    def work(number):
        if number == 7:
            raise KeyError("block 7")
        return number

    with pytest.raises(KeyError, match="block 7"):
        executor.map(work, range(20))
    with pytest.raises(KeyError, match="block 7"):
        executor.sum(lambda number: (np.array(work(number)),), range(20))
    assert list(executor.map(work, range(5))) == list(range(5))


def test_results_before_the_failing_block_are_delivered(executor):
    def work(number):
        return 1 / (3 - number)

    results = executor.collect(work, range(10))
    assert [next(results) for _ in range(3)] == [1 / 3, 1 / 2, 1.0]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_no_blocks_no_results(executor):
    assert list(executor.map(lambda block: block, [])) == []
    assert list(executor.collect(lambda block: block, [])) == []


def test_lists_of_different_length_are_an_error(executor):
    with pytest.raises(ValueError, match="zip"):
        executor.map(lambda a, b: a, range(9), range(8))


def test_collect_keeps_only_a_few_blocks_ahead():
    done = []
    with LocalExecutor(2) as executor:
        results = executor.collect(done.append, range(100))
        next(results)
        time.sleep(0.05)
        assert len(done) <= 5
        results.close()
    assert len(done) <= 5


def test_two_threads_work_side_by_side():
    barrier = threading.Barrier(2, timeout=20)
    with LocalExecutor(2) as executor:
        executor.map(lambda _: barrier.wait(), range(2))


def test_row_blocks_cover_every_row_once():
    for n_rows, size in [(0, 4), (1, 4), (4, 4), (5, 4), (12, 4), (3, 100)]:
        blocks = local.row_blocks(n_rows, size)
        assert [row for block in blocks for row in range(n_rows)[block]] == list(range(n_rows))
        assert all(0 < block.stop - block.start <= size for block in blocks)


def test_number_of_jobs(monkeypatch):
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    assert [local.count_jobs(n) for n in (None, 1, 3, 10, -1, -2, -6, -100)] == [1, 1, 3, 10, 6, 5, 1, 1]
    monkeypatch.delattr(local.os, "sched_getaffinity")
    monkeypatch.setattr(local.os, "cpu_count", lambda: None)
    assert local.count_jobs(-1) == 1


def test_no_jobs_at_all_are_an_error():
    with pytest.raises(ValueError, match="n_jobs=0; give a number of threads, -1 for all cores"):
        local.count_jobs(0)
    with pytest.raises(ValueError, match="n_jobs=0"):
        LocalExecutor(0)


def in_a_thread(work):
    """Run `work` in a thread of its own; threadpoolctl lets only one living thread at a time set OpenBLAS's limit."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)


@pytest.fixture
def two_blas_threads():
    libraries = ThreadpoolController().select(user_api="blas").lib_controllers
    before = [library.num_threads for library in libraries]
    in_a_thread(lambda: [library.set_num_threads(2) for library in libraries])
    try:
        if set(blas_threads()) != {2}:
            pytest.skip("this BLAS has one thread for good")
        yield blas_threads()
    finally:
        in_a_thread(lambda: [library.set_num_threads(n) for library, n in zip(libraries, before, strict=True)])


def test_one_blas_thread_nests_and_restores(two_blas_threads):
    with one_blas_thread:
        assert set(blas_threads()) == {1}
        with one_blas_thread, LocalExecutor(2):
            assert set(blas_threads()) == {1}
        assert set(blas_threads()) == {1}
    assert blas_threads() == two_blas_threads


def test_one_blas_thread_is_restored_after_an_error(two_blas_threads):
    with pytest.raises(KeyError), LocalExecutor(2) as executor:
        executor.map({}.__getitem__, range(3))
    assert blas_threads() == two_blas_threads


def test_one_blas_thread_holds_until_the_last_of_several_threads_leaves(two_blas_threads):
    first_in, second_in, first_out, second_out, release = (threading.Event() for _ in range(5))
    seen = []

    def first():
        with one_blas_thread:
            first_in.set()
            second_in.wait(10)
        first_out.set()
        release.wait(20)  # alive, as a server's threads are

    def second():
        first_in.wait(10)
        with one_blas_thread:
            second_in.set()
            first_out.wait(10)
            seen.append(set(blas_threads()))
        second_out.set()

    threads = [threading.Thread(target=target) for target in (first, second)]
    for thread in threads:
        thread.start()
    assert second_out.wait(20)
    assert seen == [{1}]
    assert blas_threads() == two_blas_threads
    release.set()
    for thread in threads:
        thread.join(20)


def test_one_blas_thread_from_many_threads_at_once(two_blas_threads):
    def hold():
        for _ in range(20):
            with one_blas_thread:
                pass

    threads = [threading.Thread(target=hold) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert blas_threads() == two_blas_threads


def test_one_blas_thread_can_be_had_in_turn_by_threads_that_live_on(two_blas_threads):
    seen, done = [], threading.Barrier(4, timeout=30)
    turn = threading.Lock()

    def hold():
        for _ in range(3):
            with turn, one_blas_thread:
                seen.append(set(blas_threads()))
        done.wait()

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert seen == [{1}] * 12
    assert blas_threads() == two_blas_threads


def test_one_blas_thread_overrules_a_limit_that_another_thread_holds(two_blas_threads):
    seen = []

    def hold():
        with one_blas_thread:
            seen.append(set(blas_threads()))

    with ThreadpoolController().limit(limits=2, user_api="blas"):
        in_a_thread(hold)
        assert blas_threads() == two_blas_threads
    assert seen == [{1}]
    assert blas_threads() == two_blas_threads
