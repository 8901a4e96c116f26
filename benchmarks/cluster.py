"""Training on a Dask cluster beside training in threads, and what it would cost at any size.

    python benchmarks/cluster.py                              # 200,000 rows, r=1,000, 16 bits: two workers, two threads
    python benchmarks/cluster.py --plan 1e9 5000 128 1000     # rows, inducing inputs, bits, workers: a plan on paper
    python benchmarks/cluster.py --check                      # the plan beside measured runs at three sizes

The workers are processes of this machine with a single thread each, and read a folder of blocks themselves. The ratio
is that of the best of interleaved runs. Bytes through the scheduler are counted in the scheduler's own process, at two
sizes. docs/scaling.md explains the plan.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import distributed
import numpy as np
from measuring import best, descriptors

from gphash import GPHasher
from gphash.cluster.dask_executor import DaskExecutor
from gphash.execution import local
from gphash.method import prior as priors
from gphash.method.kernels import SquaredExponential

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests import clusters

FEATURES = 512
BLOCK_FILE = 25_000  # rows
SHARED = {"inducing": "kmeans", "random_state": 0}


class Machine(NamedTuple):
    """What a thread of a worker, the network and the scheduler can do.

    flops
        Of a float32 product, per second and thread.
    bytes
        Read by a product of Phi with few columns, per second and thread.
    features
        Kernel values with all inducing inputs and triangular solves, in flops per second and thread.
    network
        Bytes per second to and from a worker.
    latency
        Seconds for a task on every worker and back.
    """

    flops: float
    bytes: float
    features: float
    network: float
    latency: float


# A core of a server, and 10 gigabit Ethernet; --check measures this machine instead.
TYPICAL = Machine(1e11, 5e9, 5e10, 1e9, 0.03)
READING = 5e8  # bytes of raw rows per second and thread
CHOICES = 6.0  # seconds of one thread that does 100 Gflop/s
NODES = 4
SITE = 60e-9  # seconds to sample a bit and to match its site


class Course(NamedTuple):
    """How a training goes: 7 to 30 sweeps were seen, fewer on more rows.

    sweeps, refreshes
        Sweeps, and how often the factor is made anew, the last time at the end.
    steps
        Of conjugate gradients: two a sweep, and those of beginning and end.
    operations
        Rounds to the workers in a sweep, without those of a refresh.
    """

    sweeps: int = 10
    refreshes: int = 5
    steps: int = 34
    operations: int = 4


class Plan(NamedTuple):
    """What a training takes.

    flops
        Of all workers together.
    phases
        Seconds by phase.
    worker_memory, client_memory
        Bytes: of a worker, and of the process that drives it all.
    down, up
        Bytes that the client sends and receives over the whole run.
    between
        Bytes that each worker sends to another to add sums up, over the whole run.
    """

    flops: float
    phases: dict[str, float]
    worker_memory: float
    client_memory: float
    down: float
    up: float
    between: float

    @property
    def seconds(self) -> float:
        return sum(self.phases.values())


def plan(n: float, r: int, m: int, workers: int, threads: int, machine: Machine, d: int = FEATURES) -> Plan:
    """The cost model; see docs/scaling.md."""
    course, hands, t = Course(), workers * threads, 5000
    rows = n / hands
    sample = min(n, 20 * r)
    kmeans = 8 * 2 * sample * r * d
    features = n * (2 * r * d + r * r)
    product, solve = n * 2 * r * r, n * r * r  # of a refresh
    passes = 2 * course.sweeps + 2 * course.steps  # over Phi
    levels = np.ceil(np.log(max(workers, 2)) / np.log(4))
    down_sweep, up_sweep = 4 * r * m * 3, 8 * r * m * 3
    down_refresh, up_refresh = 4 * r * r * 1.1, 8 * r * r
    down = course.sweeps * down_sweep + course.refreshes * down_refresh + 8 * n + 4 * t * d
    up = course.sweeps * up_sweep + course.refreshes * up_refresh + 4 * t * d
    # A worker's part of a sum is a few nodes of its tree, not one.
    between = NODES * levels * (course.refreshes * up_refresh + course.sweeps * up_sweep)
    phases = {
        "inducing inputs": rows * 4 * d / READING + kmeans / hands / machine.features + 10 * machine.latency,
        "choices on a sample": CHOICES * 1e11 / machine.flops / min(hands, 20) + 30 * machine.latency,
        # Once for Phi, once for the first codes.
        "features": 2 * (features / hands / machine.features + rows * 4 * d / READING),
        "refreshes": course.refreshes
        * (product / hands / machine.flops + solve / hands / machine.features + r**3 / machine.flops),
        "sweeps": passes * rows * 4 * r / machine.bytes + rows * m * course.sweeps * SITE,
        "rounds": (course.sweeps * course.operations + course.refreshes * 2) * machine.latency,
        "network": (down + up) / machine.network * (1 if workers > 1 else 0) + between / machine.network,
    }
    worker_memory = rows * threads * (4 * r + m * (8 + 8 + 1) + 24) + (3 + 4 * NODES) * 8 * r * r + 65536 * 4 * d
    client_memory = 35 * n + 6 * 8 * r * r + t * (4 * d + 8 * m)
    return Plan(
        kmeans + features * 2 + course.refreshes * (product + solve) + 2 * passes * n * r * m,
        phases,
        worker_memory,
        client_memory,
        down,
        up,
        between,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plan", nargs=4, metavar=("N", "R", "M", "WORKERS"), help="print what a training would take")
    parser.add_argument("--threads", type=int, default=1, help="threads of a worker, for --plan (default 1)")
    parser.add_argument("--check", action="store_true", help="the plan beside measured runs at three sizes")
    parser.add_argument("--rows", type=int, default=200_000, help="training rows (default 200,000)")
    parser.add_argument("--inducing", type=int, default=1000, help="inducing inputs (default 1,000)")
    parser.add_argument("--bits", type=int, default=16, help="bits (default 16)")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each kind, interleaved; the best counts")
    args = parser.parse_args()
    if args.plan:
        try:
            n, r, m, workers = (int(float(word)) for word in args.plan)
        except ValueError:
            parser.error(f"--plan {' '.join(args.plan)}: give four numbers, such as 1e9 5000 128 1000.")
        if min(n, r, m, workers, args.threads) < 1:
            parser.error(f"--plan {' '.join(args.plan)}: give numbers of at least 1.")
        show(n, r, m, workers, args.threads, TYPICAL)
    elif args.check:
        check(args)
    else:
        compare(args)


def show(n: int, r: int, m: int, workers: int, threads: int, machine: Machine) -> None:
    made = plan(n, r, m, workers, threads, machine)
    print(f"n={n:,} rows, d={FEATURES}, r={r:,}, {m} bits; {workers:,} workers of {threads} thread(s)")
    print(
        f"a thread: {machine.flops / 1e9:.0f} Gflop/s, {machine.bytes / 1e9:.0f} GB/s of Phi; "
        f"network {machine.network / 1e9:.1f} GB/s, {1e3 * machine.latency:.0f} ms a round\n"
    )
    print(f"  flops                 {made.flops:.2e}")
    for phase, seconds in made.phases.items():
        print(f"  {phase:20s}  {duration(seconds):>10s}")
    print(f"  {'total':20s}  {duration(made.seconds):>10s}")
    print(f"  memory of a worker    {size(made.worker_memory):>10s}   (Phi {size(4 * n / workers * r)})")
    print(f"  memory of the client  {size(made.client_memory):>10s}")
    print(f"  client sends          {size(made.down):>10s}, receives {size(made.up)}")
    print(f"  a worker passes on    {size(made.between):>10s}")


def duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"


def size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if n_bytes < 1000:
            return f"{n_bytes:.1f} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.1f} PB"


def measure(address: str, r: int, m: int) -> Machine:
    """What this machine can do, one thread on each core at the same time."""
    with distributed.Client(address) as client:
        # Within this function, so that it travels as code.
        def shortest(work: Callable[[], object]) -> float:
            times = []
            for _ in range(5):
                began = time.perf_counter()
                work()
                times.append(time.perf_counter() - began)
            return min(times)

        def rates() -> tuple[float, float, float]:
            rng = np.random.default_rng(0)
            Phi = rng.standard_normal((2048, r), dtype=np.float32)
            parts = [Phi.copy() for _ in range(16)]
            mean = rng.standard_normal((r, m), dtype=np.float32)
            X, Z = rng.standard_normal((2048, FEATURES), dtype=np.float32), rng.standard_normal((r, FEATURES))
            with local.one_blas_thread:
                prior = priors.build(SquaredExponential(30.0, 4.0), Z.astype(np.float32))
                return (
                    2 * 2048 * r * r / shortest(lambda: Phi.T @ Phi),
                    16 * 2048 * r * 4 / shortest(lambda: [part @ mean for part in parts]),
                    2048 * (2 * r * FEATURES + r * r) / shortest(lambda: priors.features(prior, X)),
                )

        found = client.run(rates)
        flops, passes, features = (float(np.median(one)) for one in zip(*found.values(), strict=True))
        with DaskExecutor(client) as executor:
            held = executor.hold([np.zeros(1), np.zeros(1)])
            latency = best(lambda: executor.sum(lambda part: (part,), held), 20)
            large = np.zeros((1000, 1000))
            network = 2 * large.nbytes / best(lambda: executor.sum(lambda part: (large,), held), 5)
    return Machine(flops, passes, features, network, latency)


def check(args: argparse.Namespace) -> None:
    print("predicted and measured seconds, two workers of one thread each")
    with cluster() as address:
        for n, r, m in ((50_000, 500, 16), (100_000, 1000, 32), (200_000, 1000, 16)):
            machine = measure(address, r, m)
            with folder_of_blocks(n) as folder:
                measured, hasher = run(folder, r, m, address)
            made = plan(n, r, m, 2, 1, machine)
            refreshes = sum(sweep.refreshed for sweep in hasher.sweeps_)
            print(
                f"  n={n:>9,} r={r:>5,} m={m:>3}: predicted {made.seconds:6.1f} s, measured {measured:6.1f} s, "
                f"ratio {made.seconds / measured:.2f}   ({len(hasher.sweeps_)} sweeps, {refreshes} refreshes)\n"
                f"      {machine.flops / 1e9:.0f} Gflop/s, {machine.bytes / 1e9:.1f} GB/s of Phi, features "
                f"{machine.features / 1e9:.0f} Gflop/s, network {machine.network / 1e9:.2f} GB/s, "
                f"{1e3 * machine.latency:.0f} ms a round",
                flush=True,
            )
            for phase, seconds in made.phases.items():
                print(f"      predicted {phase:20s} {seconds:6.1f} s")
            for phase, seconds in hasher.seconds_.items():
                print(f"      measured  {phase:20s} {seconds:6.1f} s")


def compare(args: argparse.Namespace) -> None:
    far: list[tuple[float, GPHasher]] = []
    near: list[tuple[float, GPHasher]] = []
    with folder_of_blocks(args.rows) as folder, cluster() as address:
        run(folder, 100, args.bits, address, max_sweeps=1)  # compile
        run(folder, 100, args.bits, None, max_sweeps=1)
        for _ in range(args.repeats):
            near.append(run(folder, args.inducing, args.bits, None))
            far.append(run(folder, args.inducing, args.bits, address))
    (near_seconds, near_hasher), (far_seconds, far_hasher) = (min(runs, key=lambda one: one[0]) for runs in (near, far))
    print(f"n={args.rows:,}  r={args.inducing:,}  {args.bits} bits; best of {args.repeats} interleaved runs")
    for phase in near_hasher.seconds_:
        print(f"  {phase:20s} {near_hasher.seconds_[phase]:7.1f} s  {far_hasher.seconds_[phase]:7.1f} s")
    print(f"  {'total':20s} {near_seconds:7.1f} s  {far_seconds:7.1f} s")
    print(f"two workers take {far_seconds / near_seconds:.2f} times as long as two threads   (aim: at most 1.4)")
    print(f"the same model: {near_hasher.fingerprint_ == far_hasher.fingerprint_}\n")
    for address, seen in far_hasher.traffic_.items():
        spent = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in seen.seconds.items() if seconds > 0.5)
        print(f"  {address}: {seen.rows:,} rows, {size(seen.received)} received; {spent}")
    print()
    sweep_bytes(args)


def sweep_bytes(args: argparse.Namespace) -> None:
    """Bytes through the scheduler in a sweep, at two numbers of rows."""
    print("bytes through the scheduler (in and out) in a sweep, by number of rows")
    for n in (args.rows // 4, args.rows):
        with folder_of_blocks(n) as folder, cluster() as address, distributed.Client(address) as client:
            client.run_on_scheduler(count_bytes)
            seen: list[int] = []

            def note(sweep: Any, client: Any = client, seen: list[int] = seen) -> None:
                seen.append(client.run_on_scheduler(counted_bytes))

            hasher = run(folder, args.inducing, args.bits, client, callback=note)[1]
        plain, refreshed = [], []
        for sweep, moved in zip(hasher.sweeps_[1:], np.diff(seen), strict=True):
            (refreshed if sweep.refreshed else plain).append(int(moved))
        print(f"  n={n:>9,}: median {size(np.median(plain))}, with a new factor {size(np.median(refreshed))}")


def count_bytes() -> None:
    """Runs in the scheduler: have all that it sends and receives counted."""
    from distributed.comm import tcp

    write, read = tcp.TCP.write, tcp.read_bytes_rw
    tcp.counted = 0

    async def counting_write(self: Any, *args: Any, **kwargs: Any) -> Any:
        sent = await write(self, *args, **kwargs)
        tcp.counted += sent
        return sent

    async def counting_read(stream: Any, n: int) -> Any:
        tcp.counted += n
        return await read(stream, n)

    tcp.TCP.write, tcp.read_bytes_rw = counting_write, counting_read


def counted_bytes() -> int:
    from distributed.comm import tcp

    return int(tcp.counted)


def run(folder: Path, r: int, m: int, executor: Any, callback: Callable[[Any], None] | None = None, **more: Any) -> Any:
    began = time.perf_counter()
    hasher = GPHasher(m, n_inducing=r, n_jobs=2, **SHARED, **more).fit(folder, executor=executor, callback=callback)
    return time.perf_counter() - began, hasher


@contextlib.contextmanager
def folder_of_blocks(n_rows: int) -> Iterator[Path]:
    """Rows and labels in files, as a cluster would read them."""
    X, y = descriptors(n_rows, FEATURES)
    with tempfile.TemporaryDirectory(prefix="gphash-") as name:
        folder = Path(name)
        for start in range(0, n_rows, BLOCK_FILE):
            np.save(folder / f"block-{start:09d}.npy", X[start : start + BLOCK_FILE])
            np.save(folder / f"block-{start:09d}.labels.npy", y[start : start + BLOCK_FILE])
        del X, y
        yield folder


@contextlib.contextmanager
def cluster() -> Iterator[str]:
    """A scheduler and two workers of one thread each, all processes of their own, on loopback."""
    with tempfile.TemporaryDirectory(prefix="gphash-") as folder, clusters.running(Path(folder)) as running:
        yield running.address


if __name__ == "__main__":
    main()
