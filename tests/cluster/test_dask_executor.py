"""Training on a real Dask cluster: a scheduler and workers as processes of their own."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from sklearn.base import clone

from gphash import GPHasher, load
from gphash.collection import bulk
from gphash.execution.local import BlocksLostError, SerialExecutor
from tests import clusters, digits
from tests.digits import QUICK

distributed = pytest.importorskip("distributed", reason="Dask is not installed")
cluster_module = pytest.importorskip("gphash.cluster.dask_executor")
da = pytest.importorskip("dask.array", reason="dask.array is not installed")

N = 700
X, Y = digits.X[:N].astype(np.float32), digits.y[:N]
TARGETS = {"labels": Y, "tags": digits.tags[:N], "pairs": digits.pairs(N, 6000)}
SETTINGS = QUICK | {"block_size": 64, "n_representatives": 150, "max_sweeps": 8}

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def client(cluster):
    with distributed.Client(cluster.address) as connected:
        yield connected


@pytest.fixture
def executor(client):
    with cluster_module.DaskExecutor(client) as entered:
        yield entered


@pytest.fixture(scope="module")
def local():
    return {kind: GPHasher(**SETTINGS).fit(X, y) for kind, y in TARGETS.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("blocks")
    for number, start in enumerate(range(0, N, 150)):
        np.save(path / f"block-{number}.npy", X[start : start + 150])
        np.save(path / f"block-{number}.labels.npy", Y[start : start + 150])
    return path


def assert_same_model(one, other):
    contents = [hasher.hash_function_.content() for hasher in (one, other)]
    assert contents[0][0] == contents[1][0]
    for name in contents[0][1]:
        np.testing.assert_array_equal(contents[0][1][name], contents[1][1][name])
    assert one.fingerprint_ == other.fingerprint_
    assert [sweep._replace(seconds=0) for sweep in one.sweeps_] == [
        sweep._replace(seconds=0) for sweep in other.sweeps_
    ]


def eventually(happened):
    """Whether something comes true within a while."""
    for _ in range(200):
        if happened():
            return True
        time.sleep(0.05)
    return False


def stores():
    """Runs on a worker: how many stores it has."""

    def count():
        from gphash.cluster import worker

        return len(worker._stores)

    return count


def piece(number, length=1):
    """Rows that all hold one number."""
    return np.full(length, number)


def test_blocks_stay_where_they_are_and_results_come_in_order(executor):
    held = executor.hold([piece(number) for number in range(11)])
    assert len({block.home for block in held}) == 2
    squares = executor.map(lambda rows, more: rows[0] ** 2 + more, held, list(range(11)))
    assert [block.home for block in squares] == [block.home for block in held]
    assert list(executor.collect(lambda square: square, squares)) == [number**2 + number for number in range(11)]
    assert list(executor.collect(lambda square, rows: square - rows[0], squares[4:], held[4:])) == [
        number**2 for number in range(4, 11)
    ]
    assert executor.lost(squares) == []


def test_homes_are_shared_out_by_the_number_of_rows(executor):
    held = executor.hold([piece(0, 300), *(piece(number, 30) for number in range(10))])
    assert [block.home == held[0].home for block in held] == [True] + [False] * 10


@pytest.mark.parametrize("n", [1, 2, 3, 8, 21])
def test_sums_are_those_of_one_process(executor, n):
    rng = np.random.default_rng(n)
    parts = [(rng.normal(size=4) * 10.0 ** rng.integers(-8, 8)).astype(np.float32) for _ in range(n)]
    held = executor.map(lambda rows, part: part, executor.hold([piece(i) for i in range(n)]), parts)

    def work(part):
        return part.sum(), (part, part[0])

    kept, totals = executor.map_and_sum(work, held)
    expected_kept, expected = SerialExecutor().map_and_sum(work, parts)
    assert list(executor.collect(lambda number: number, kept)) == expected_kept
    for found in (totals, executor.sum(lambda part: (part, part[0]), held)):
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_work_about_nothing_that_is_held_goes_anywhere(executor):
    assert list(executor.collect(lambda number: number + 1, [1, 2, 3])) == [2, 3, 4]
    assert list(executor.collect(lambda number: number, [])) == []


def test_what_nobody_needs_is_dropped(executor, client):
    held = executor.hold([piece(number) for number in range(4)])
    for _ in range(5):
        made = executor.map(lambda rows: np.zeros(1000), held)
    del made
    list(executor.collect(len, held))

    def count():
        from gphash.cluster import worker

        return [len(store.batches) for store in worker._stores.values()]

    assert eventually(lambda: sorted(client.run(count).values()) == [[1], [1]])


def test_stores_go_with_the_executor(client):
    with cluster_module.DaskExecutor(client) as executor:
        executor.hold([piece(0), piece(1)])
        assert set(client.run(stores()).values()) == {1}
    assert eventually(lambda: set(client.run(stores()).values()) == {0})


def test_a_worker_that_dies_at_work_is_a_loss_of_its_blocks(mortal):
    with cluster_module.DaskExecutor(mortal.address) as executor:
        held = executor.hold([piece(number) for number in range(6)])

        def die(rows):
            import os

            return (1.0,) if rows[0] < 5 else os._exit(1)

        for work in (executor.map, executor.sum):
            with pytest.raises(BlocksLostError, match="gone"):
                work(die, held)
            lost = executor.lost(held)
            assert lost == [place for place in range(6) if held[place].home == held[5].home]
        again = executor.hold([piece(number) for number in lost])
        assert list(executor.collect(lambda rows: int(rows[0]), again)) == lost


def test_a_worker_that_was_started_anew_is_a_loss_of_its_blocks(executor, client):
    held = executor.hold([piece(number) for number in range(6)])

    def forget():
        from gphash.cluster import worker

        worker._stores.clear()

    client.run(forget, workers=[held[0].home])
    with pytest.raises(BlocksLostError, match="was started anew"):
        executor.sum(lambda rows: (1.0,), held)
    assert executor.lost(held) == [place for place in range(6) if held[place].home == held[0].home]


def test_a_timeout_of_the_work_is_told(executor):
    def late(rows):
        raise TimeoutError("the disk does not answer")

    with pytest.raises(TimeoutError, match="the disk does not answer"):
        executor.map(late, executor.hold([piece(0), piece(1)]))


def test_homes_are_few_nodes_of_the_tree(executor):
    held = executor.hold([piece(number) for number in range(101)])
    first = sum(block.home == held[0].home for block in held)
    assert first % 4 == 0
    assert 44 <= first <= 56


def test_an_error_in_the_work_comes_here_as_it_is(executor):
    def fail(rows):
        raise ValueError("this block is bad")

    with pytest.raises(ValueError, match="this block is bad"):
        executor.map(fail, executor.hold([piece(0), piece(1)]))


def test_a_handle_does_not_travel(executor):
    held = executor.hold([piece(0), piece(1)])
    with pytest.raises(TypeError, match="must not travel"):
        executor.map(lambda rows: len(held), held)


def test_tasks_are_called_by_what_they_do(executor, client):
    executor.sum(lambda rows: (1.0,), executor.hold([piece(0), piece(1)]))

    def prefixes(dask_scheduler):
        return list(dask_scheduler.task_prefixes)

    names = client.run_on_scheduler(prefixes)
    assert any(name.startswith("gphash-hold") for name in names)
    assert any(name.startswith("gphash-test-tasks-are-called-by-what-they-do") for name in names)


@pytest.mark.parametrize("kind", list(TARGETS))
def test_a_cluster_gives_the_same_model_to_the_last_bit(client, local, kind):
    assert_same_model(GPHasher(**SETTINGS).fit(X, TARGETS[kind], executor=client), local[kind])


@pytest.mark.parametrize("kind", ["labels", "tags"])
def test_so_do_sampled_codes_and_all_read_outs_are_the_same(client, local, kind):
    near, far = (
        GPHasher(**SETTINGS, codes="sampled").fit(X, TARGETS[kind], executor=place) for place in (None, client)
    )
    assert_same_model(far, near)
    for one, other in ((far, near), (GPHasher(**SETTINGS).fit(X, TARGETS[kind], executor=client), local[kind])):
        np.testing.assert_array_equal(one.reader_.weights, other.reader_.weights)
        np.testing.assert_array_equal(one.reader_.bias, other.reader_.bias)
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_so_is_what_pairs_know_of_distances(client, local):
    far = GPHasher(**SETTINGS).fit(X, TARGETS["pairs"], executor=client)
    codes = far.encode(X)
    np.testing.assert_array_equal(far.similarity_probability(X, codes), local["pairs"].similarity_probability(X, codes))


def test_so_do_weights_and_rows_without_a_label(client):
    gaps, weights = np.where(np.arange(N) % 5 == 0, -1, Y), 1.0 + np.arange(N) % 3
    one, other = (
        GPHasher(**SETTINGS, class_weight="balanced").fit(X, gaps, weights, executor=place) for place in (None, client)
    )
    assert_same_model(one, other)


def test_so_does_another_kernel(client):
    settings = SETTINGS | {"kernel": "matern-3/2"}
    far = GPHasher(**settings).fit(X, Y, executor=client)
    assert_same_model(far, GPHasher(**settings).fit(X, Y))


def test_so_do_a_dask_array_and_a_folder_of_blocks(client, cluster, local, folder):
    chunks = da.from_array(X, chunks=(123, 40))
    for given, y in ((chunks, da.from_array(Y, chunks=200)), (folder, None)):
        hasher = GPHasher(**SETTINGS).fit(given, y, executor=client)
        assert_same_model(hasher, local["labels"])
        np.testing.assert_array_equal(hasher.class_codes_, local["labels"].class_codes_)
        assert hasher.n_features_in_ == 64
    assert_same_model(GPHasher(**SETTINGS).fit(folder), local["labels"])
    assert_same_model(GPHasher(**SETTINGS).fit(str(folder), executor=cluster.address), local["labels"])


def test_whole_numbers_are_the_same_everywhere(client, tmp_path):
    whole = (digits.X[:N] * 16).astype(np.int64)
    np.save(tmp_path / "a.npy", whole)
    expected = GPHasher(**SETTINGS).fit(whole, Y)
    for given in (da.from_array(whole, chunks=(200, 64)), tmp_path):
        assert_same_model(GPHasher(**SETTINGS).fit(given, Y, executor=client), expected)


def test_workers_of_several_threads_give_the_same_model(folder, local):
    with (
        distributed.LocalCluster(2, threads_per_worker=3, processes=False, dashboard_address=None) as inside,
        distributed.Client(inside) as client,
    ):
        assert_same_model(GPHasher(**SETTINGS).fit(folder, executor=client), local["labels"])


def test_what_workers_have_done_is_told(client, folder):
    hasher = GPHasher(**SETTINGS).fit(folder, executor=client)
    assert len(hasher.traffic_) == 2
    for seen in hasher.traffic_.values():
        assert seen.rows >= N // 3
        assert seen.received > 0
        assert seen.seconds["refresh"] > 0


def test_a_killed_worker_is_survived(tmp_path, mortal, folder, local):
    """With its codes kept, and without; the posterior reaches an equally good fixed point."""
    mortal.have(3)
    with distributed.Client(mortal.address) as client:
        for checkpoint in (None, tmp_path / "run"):
            seen = []

            # Once while codes move, once when they are frozen.
            def kill(sweep, seen=seen, late=checkpoint is None):
                seen.append(sweep)
                if len(mortal.workers) > 1 + late and (sweep.frozen if late else sweep.number == 3):
                    mortal.kill_worker()

            hasher = GPHasher(**SETTINGS)
            with pytest.warns(RuntimeWarning, match="is gone; its blocks are made again, and training goes on"):
                hasher.fit(folder, executor=client, checkpoint=checkpoint, callback=kill)
            assert [sweep.number for sweep in seen] == list(range(1, len(seen) + 1))
            assert hasher.sweeps_[-1].change < 0.1
            rest = digits.X[N:], digits.y[N:]
            assert hasher.score(*rest) > local["labels"].score(*rest) - 0.02
            assert hasher.leave_one_out_score_ == pytest.approx(local["labels"].leave_one_out_score_, abs=0.05)


def test_a_worker_killed_before_the_first_sweep_is_survived(mortal, folder, local, monkeypatch):
    with distributed.Client(mortal.address) as client:
        hold, calls = cluster_module.DaskExecutor.hold, []

        def holding(self, pieces):
            held = hold(self, pieces)
            calls.append(len(pieces))
            if len(calls) == 5:  # the blocks of all rows
                mortal.kill_worker()
            return held

        monkeypatch.setattr(cluster_module.DaskExecutor, "hold", holding)
        assert_same_model(GPHasher(**SETTINGS).fit(folder, executor=client), local["labels"])
        assert len(calls) > 5


CLIENT = """
import os, signal, sys
from gphash import GPHasher
from gphash.method import checkpoint

def die(sweep):
    if sweep.number == 4:
        os.kill(os.getpid(), signal.SIGKILL)

def keep(self, latest):
    self._latest = latest
    self.write()

checkpoint.Keeper.__call__ = keep

GPHasher(**{settings!r}).fit({folder!r}, executor={address!r}, checkpoint={checkpoint!r}, callback=die)
"""


def test_a_client_that_was_killed_goes_on_from_its_checkpoint(tmp_path, cluster, client, folder, local):
    checkpoint = str(tmp_path / "run")
    code = CLIENT.format(settings=SETTINGS, address=cluster.address, checkpoint=checkpoint, folder=str(folder))
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert os.path.exists(checkpoint)
    assert list((tmp_path / "run.blocks").rglob("*.codes"))
    assert eventually(lambda: set(client.run(stores()).values()) == {0})  # nobody wants its blocks any more
    numbers = []
    hasher = GPHasher(**SETTINGS)
    hasher.fit(folder, executor=client, checkpoint=checkpoint, callback=lambda s: numbers.append(s.number))
    assert numbers[0] > 1
    rest = digits.X[N:], digits.y[N:]
    assert hasher.score(*rest) > local["labels"].score(*rest) - 0.02


@pytest.mark.parametrize("kept", [True, False])
def test_a_finished_checkpoint_gives_as_good_a_model_with_and_without_its_codes(tmp_path, client, folder, local, kept):
    checkpoint = tmp_path / "run"
    GPHasher(**SETTINGS).fit(folder, executor=client, checkpoint=checkpoint)
    if not kept:
        shutil.rmtree(tmp_path / "run.blocks")
    rest = digits.X[N:], digits.y[N:]
    for executor in (client, None):
        hasher = GPHasher(**SETTINGS).fit(folder, executor=executor, checkpoint=checkpoint)
        assert hasher.score(*rest) > local["labels"].score(*rest) - 0.01


def test_blocks_lost_again_and_again_are_an_error_that_says_what_to_do(client, monkeypatch):
    def gone(self, *_):
        raise BlocksLostError("the worker is gone")

    monkeypatch.setattr(cluster_module.DaskExecutor, "map_and_sum", gone)
    with pytest.raises(cluster_module.ClusterError, match=r"again and again.* GB, which workers share; give more"):
        GPHasher(**SETTINGS).fit(X, Y, executor=client)


def test_another_version_is_refused(client, monkeypatch):
    monkeypatch.setattr(cluster_module, "__version__", "99.0")
    with pytest.raises(cluster_module.ClusterError, match=r"has gphash .*, and this is 99\.0; install the same on all"):
        GPHasher(**SETTINGS).fit(X, Y, executor=client)


def test_a_worker_without_the_package_is_refused(client, monkeypatch):
    def hide():
        import sys

        sys.modules["gphash.version"] = None

    def show():
        import sys

        del sys.modules["gphash.version"]

    client.run(hide)
    try:
        with pytest.raises(cluster_module.ClusterError, match="has no gphash; install version"):
            GPHasher(**SETTINGS).fit(X, Y, executor=client)
    finally:
        client.run(show)


def test_bad_clusters_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster_module, "ANSWERING", 0.5)
    with pytest.raises(ValueError, match=r"executor=3; give a dask.distributed.Client, the address"):
        GPHasher(**SETTINGS).fit(X, Y, executor=3)
    with pytest.raises(cluster_module.ClusterError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'"):
        GPHasher(**SETTINGS).fit(X, Y, executor="tcp://127.0.0.1:9")
    monkeypatch.setattr(cluster_module, "WAITING", 0.5)
    with (
        clusters.running(tmp_path, 0) as running,
        pytest.raises(cluster_module.ClusterError, match="has no worker; start some: dask worker"),
    ):
        GPHasher(**SETTINGS).fit(X, Y, executor=running.address)


def test_bad_rows_are_named(client, tmp_path):
    bad = X.copy()
    bad[333, 3] = np.nan
    with pytest.raises(ValueError, match="contains NaN or infinity"):
        GPHasher(**SETTINGS).fit(da.from_array(bad, chunks=(200, 64)), Y, executor=client)
    with pytest.raises(ValueError, match="X holds values as large as"):
        GPHasher(**SETTINGS).fit(da.from_array(X * np.float32(1e20), chunks=(200, 64)), Y, executor=client)
    wrong = da.from_array(X, chunks=(200, 64)).map_blocks(lambda block: block[:-1], dtype=X.dtype)
    with pytest.raises(ValueError, match="chunks are not what it says"):
        GPHasher(**SETTINGS).fit(wrong, Y, executor=client)
    with pytest.raises(ValueError, match="dask array of shape"):
        GPHasher(**SETTINGS).fit(da.from_array(X.reshape(-1), chunks=200), Y, executor=client)
    np.save(tmp_path / "a.npy", X)
    np.save(tmp_path / "b.npy", bad)
    with pytest.raises(ValueError, match=r"b\.npy"):
        GPHasher(**SETTINGS).fit(tmp_path, np.concatenate([Y, Y]), executor=client)
    np.save(tmp_path / "b.npy", X[:, :60])
    with pytest.raises(ValueError, match=r"b\.npy.*60"):
        GPHasher(**SETTINGS).fit(tmp_path, np.concatenate([Y, Y]), executor=client)


def test_chunks_of_a_dask_array_are_encoded_where_they_are(client, local, tmp_path):
    hasher = GPHasher(**SETTINGS).fit(X, Y, executor=client)
    rows = da.from_array(X, chunks=(200, 64))
    n_bytes = -(-hasher.n_bits // 8)
    codes = rows.map_blocks(hasher.encode, dtype="uint8", chunks=(rows.chunks[0], n_bytes))
    np.testing.assert_array_equal(client.compute(codes).result(), local["labels"].encode(X))
    with pytest.raises(ValueError, match="data is a dask array; give a folder of blocks"):
        bulk.encode("model.gph", rows, tmp_path / "codes")


def test_a_hasher_trained_on_a_cluster_is_cloned_pickled_and_saved_like_any_other(client, local, tmp_path):
    hasher = GPHasher(**SETTINGS).fit(X, Y, executor=client)
    assert clone(hasher).get_params() == hasher.get_params()
    assert_same_model(pickle.loads(pickle.dumps(hasher)), local["labels"])
    hasher.save(tmp_path / "model.gph")
    assert load(tmp_path / "model.gph").fingerprint_ == local["labels"].fingerprint_


def test_conjugate_gradients_run_on_a_cluster(client):
    local, spread = (GPHasher(**SETTINGS, solver="conjugate").fit(X, Y, executor=where) for where in (None, client))
    assert_same_model(spread, local)


@pytest.mark.parametrize("solver", ["shared", "conjugate"])
@pytest.mark.parametrize("n_rows", [188, 375, 625])
def test_blocks_of_unequal_sizes_stay_with_what_is_made_of_them(client, solver, n_rows):
    given = {**SETTINGS, "n_representatives": 156, "block_size": 64, "solver": solver}
    local, spread = (GPHasher(**given).fit(X[:n_rows], Y[:n_rows], executor=where) for where in (None, client))
    assert_same_model(spread, local)


def test_the_papers_solver_does_not_run_on_a_cluster(client):
    with pytest.raises(ValueError, match="solver='blockwise' works on one machine only"):
        GPHasher(**SETTINGS, solver="blockwise").fit(X, Y, executor=client)


def test_without_dask_it_says_what_to_install():
    code = """
import sys
sys.modules["distributed"] = None
from gphash import GPHasher
GPHasher().fit([[0.0], [1.0]], [0, 1], executor="tcp://somewhere:8786")
"""
    found = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert found.stderr.rstrip().endswith("a cluster needs Dask: pip install 'dask[array]' distributed")
