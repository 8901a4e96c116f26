"""The steps of the Containerfile without a container engine: `python -m tests.containerfile FOLDER COLLECTION`.

FOLDER takes the place of the root of both stages. The base image is replaced by the Python that runs this. As root, the
service runs as the user that the file names, who may read everything and write nothing; otherwise as whoever runs this.
Nowhere is a folder that the service could write to, not even the tmpfs that docs/service.md gives it.
"""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

SOURCE = Path(__file__).parent.parent
TOKEN = "of-the-test"
PATIENCE = 120  # seconds until the service answers; it may have to compile


class Step(NamedTuple):
    """An instruction, its options such as --from=build, and the rest of the line."""

    instruction: str
    options: dict[str, str]
    rest: str

    def words(self) -> list[str]:
        """The rest as a list, whichever way it is written."""
        return json.loads(self.rest) if self.rest.startswith("[") else shlex.split(self.rest)


def read(text: str) -> list[list[Step]]:
    """The steps before the first FROM, and those of every stage."""
    stages: list[list[Step]] = [[]]
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        instruction, *rest = line.split(maxsplit=1)
        options, rest = re.match(r"((?:--\S+\s+)*)(.*)", " ".join(rest)).groups()
        given = dict(option.removeprefix("--").split("=", 1) for option in options.split())
        stages += [[]] if instruction == "FROM" else []
        stages[-1].append(Step(instruction, given, rest.strip()))
    return stages


def last(stage: list[Step], instruction: str) -> Step:
    """The one that counts."""
    return [step for step in stage if step.instruction == instruction][-1]


def build(stage: list[Step], root: Path) -> None:
    """Do what a stage does that starts from nothing but Python."""
    python = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{python}{os.pathsep}{os.environ['PATH']}"}
    for step in stage:
        if step.instruction == "ARG":
            name, _, value = step.rest.partition("=")
            environment[name] = value
        elif step.instruction == "COPY":
            *sources, target = step.words()
            for source in sources:
                copy(SOURCE / source, Path(below(root, target)), into=target.endswith("/"))
        elif step.instruction == "RUN":
            subprocess.run(["sh", "-c", below(root, step.rest)], cwd=root, env=environment, check=True)


def copy(source: Path, target: Path, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target)
        return
    target = target / source.name if into else target
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)


def below(root: Path, text: str) -> str:
    """The same text with absolute paths that begin at another root."""
    return re.sub(r"(?<![\w/.:}\-*])/(?=\w)", f"{root}/", text)


def serve(stage: list[Step], root: Path, collection: Path) -> None:
    """Start the service as the last stage does, ask how it is, search, and stop it."""
    user = last(stage, "USER").rest.split(":")
    as_user: list[str] = []
    if os.geteuid() == 0:
        # The Python that plays the base image may stand where only root can read.
        rights = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--no-new-privs"]
        as_user = ["setpriv", f"--reuid={user[0]}", f"--regid={user[1]}", "--clear-groups", *rights]
    place = root / "collections" / collection.name
    shutil.copytree(collection, place)
    port = free_port()
    settings = dict(one.split("=", 1) for one in shlex.split(last(stage, "ENV").rest))
    path = below(root, settings["PATH"]).replace("$PATH", os.environ["PATH"])
    environment = {"PATH": path, "HOME": "/nonexistent", "GPHASH_READ_TOKEN": TOKEN}
    command = [*last(stage, "ENTRYPOINT").words(), collection.name, "--host", "0.0.0.0", "--port", str(port)]
    health = last(stage, "HEALTHCHECK").rest.removeprefix("CMD ")
    health_command = [word.replace(f":{last(stage, 'EXPOSE').rest}/", f":{port}/") for word in json.loads(health)]
    how = {"cwd": root / "collections", "env": environment}
    seal(root)
    try:
        refused = subprocess.run([*as_user, "touch", str(place / "written")], capture_output=True, **how)
        assert refused.returncode != 0, "the tree can be written to"
        # Files are looked up in this process's PATH, not in the one that is handed on.
        running = [*as_user, "env", *command]
        with subprocess.Popen(running, **how) as service:
            try:
                wait(
                    lambda: (
                        not subprocess.run([*as_user, "env", *health_command], capture_output=True, **how).returncode
                    )
                )
                asked = Request(f"http://127.0.0.1:{port}/search", b'{"key": 7, "k": 3}', method="POST")
                asked.add_header("Content-Type", "application/json")
                asked.add_header("Authorization", f"Bearer {TOKEN}")
                with urlopen(asked, timeout=PATIENCE) as answer:
                    found = json.load(answer)
                assert len(found["hits"]) == 3, found
                uid = Path(f"/proc/{service.pid}/status").read_text().split("Uid:")[1].split()[0]
                assert os.geteuid() != 0 or uid == user[0], f"the service runs as {uid}"
            finally:
                service.send_signal(signal.SIGTERM)
            assert service.wait(60) == 0
    finally:
        seal(root, writable=True)
    print(f"served as {uid}, from a tree that could not be written to: 3 hits, healthy, stopped with 0")


def seal(root: Path, writable: bool = False) -> None:
    """Take the right to write from everything below a folder, or give it back to its owner."""
    for folder, _, files in os.walk(root):
        for path in (Path(folder), *(Path(folder, name) for name in files)):
            if not path.is_symlink():
                mode = path.stat().st_mode
                path.chmod(mode | 0o200 if writable else (mode | 0o444 | (mode & 0o100 and 0o111)) & ~0o222)


def wait(is_done) -> None:
    end = time.monotonic() + PATIENCE
    while not is_done():
        assert time.monotonic() < end, f"not healthy within {PATIENCE} s"
        time.sleep(0.5)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main(folder: str, collection: str) -> None:
    root = Path(folder).absolute()
    root.mkdir(parents=True)
    _, first, final = read((SOURCE / "Containerfile").read_text(encoding="utf-8"))
    build(first, root)
    serve(final, root, Path(collection).absolute())


if __name__ == "__main__":
    main(*sys.argv[1:])
