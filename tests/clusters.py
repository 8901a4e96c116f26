"""A real Dask cluster for tests: a scheduler and workers, processes of their own that listen on loopback only."""

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE = 60.0  # seconds


class Cluster:
    """A scheduler and its workers.

    address
        Of the scheduler.
    workers
        Processes, one thread each, and no nanny: who is killed stays dead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        listen = ("--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        self.scheduler = self._start("distributed.cli.dask_scheduler", *listen)
        try:
            self.address = self._address(file)
        except BaseException:
            self.stop()
            raise

    def start_worker(self) -> subprocess.Popen[bytes]:
        """One more worker; whoever needs it waits for it."""
        listen = ("--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder))
        worker = self._start("distributed.cli.dask_worker", self.address, *listen)
        self.workers.append(worker)
        return worker

    def have(self, n_workers: int) -> None:
        """Start or kill workers until so many live, and wait until the scheduler knows."""
        import distributed

        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) < n_workers:
            self.start_worker()
        while len(self.workers) > n_workers:
            self.kill_worker()
        began = time.monotonic()
        with distributed.Client(self.address) as client:
            while len(client.nthreads()) != n_workers:
                assert time.monotonic() - began < PATIENCE, (self.folder / "log.txt").read_text()
                time.sleep(0.02)

    def kill_worker(self) -> None:
        """Kill the worker that was started last."""
        worker = self.workers.pop()
        worker.kill()
        worker.wait()

    def stop(self) -> None:
        """End all processes; there is nothing that they should put away, and a scheduler takes its time."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def _start(self, module: str, *arguments: str) -> "subprocess.Popen[bytes]":
        with open(self.folder / "log.txt", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *arguments, "--no-dashboard"],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _address(self, file: Path) -> str:
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE and self.scheduler.poll() is None:
            with contextlib.suppress(OSError, ValueError):
                address: str = json.loads(file.read_text())["address"]
                return address
            time.sleep(0.05)
        raise RuntimeError(f"no scheduler: {(self.folder / 'log.txt').read_text()}")


@contextlib.contextmanager
def running(folder: Path, n_workers: int = 2) -> Iterator[Cluster]:
    """A cluster with so many workers, all of them there."""
    cluster = Cluster(folder)
    try:
        cluster.have(n_workers)
        yield cluster
    finally:
        cluster.stop()
