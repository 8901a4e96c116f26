"""Whether what would be released works in fresh environments: `make check-release`, or QUICK=1 for its quick part.

Everything happens in build/release, which is made anew, with tools in build/tools. Packages come from uv's cache, or
are downloaded once. A stage's output is in build/release/logs.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCE = Path(__file__).absolute().parent.parent
WORK = SOURCE / "build" / "release"
LOGS, DIST, TOOLS = WORK / "logs", WORK / "dist", SOURCE / "build" / "tools" / "bin"
CI = SOURCE / ".ci"
PROJECT = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = [name for name in PROJECT["optional-dependencies"] if name not in ("test", "dev")]
OLDEST = PROJECT["requires-python"].removeprefix(">=")
# Of every part that leans on another package, what is quick; with a cluster, as no quick test has one.
WITH_OLDEST = (
    *(
        "tests/data/test_blocks.py",
        "tests/data/test_tables.py",
        "tests/data/test_pictures.py",
        "tests/data/descriptors",
    ),
    *(
        "tests/functions",
        "tests/hashers/test_contract.py",
        "tests/collection/test_search.py",
        "tests/index/test_engines.py",
    ),
    *("tests/cli/test_errors.py", "tests/cli/test_wording.py", "tests/server/test_routes.py"),
    *("tests/evaluation/test_plots.py", "tests/test_compiled.py"),
)
# All quick tests take as long as `make test`, which continuous integration runs anyway. What a source distribution may
# lack is files, so these are the tests that read files of the repository, and one of every layer.
OF_SDIST = (
    *("tests/test_architecture.py", "tests/test_readme.py", "tests/test_scripts.py", "tests/test_containerfile.py"),
    *("tests/test_compiled_sources.py", "tests/test_extension.py", "tests/codes", "tests/hashers/test_gp.py"),
    *("tests/collection/test_search.py", "tests/cli/test_digits.py", "tests/server/test_routes.py", "tests/paper"),
)
TESTS = ("-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow")
PLACEHOLDER = "https://example.org/"

# As in a fresh shell, and no more threads than two stages have cores.
FOREIGN = ("GPHASH_DATA", "PYTHONPATH", "VIRTUAL_ENV")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in FOREIGN}
ENVIRONMENT |= {"OPENBLAS_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "120"}


class Stage:
    """Runs commands, and keeps what they print in a file."""

    def __init__(self, name: str):
        self.name, self.log = name, LOGS / f"{name}.log"
        self.folder = WORK / name

    def run(self, *command: str | Path, cwd: Path | None = None, **more: str) -> None:
        """Run a command that must end well; `more` goes to its environment."""
        with open(self.log, "a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(map(str, command))}\n")
            log.flush()
            # Two versions of numba would take turns in replacing what the other has compiled.
            environment = ENVIRONMENT | {"NUMBA_CACHE_DIR": str(self.folder / "compiled")} | more
            how = {"cwd": cwd or self.folder, "env": environment, "stdin": subprocess.DEVNULL}
            subprocess.run([str(word) for word in command], check=True, stdout=log, stderr=subprocess.STDOUT, **how)

    def environment(self, *packages: str | Path, python: str = sys.executable) -> Path:
        """A fresh environment with packages; its folder of programs."""
        place = self.folder / "venv"
        self.run(TOOLS / "uv", "venv", "--quiet", "--python", python, place)
        self.run(TOOLS / "uv", "pip", "install", "--quiet", "--python", place / "bin" / "python", *packages)
        return place / "bin"


def wheel(extras: str = "") -> str:
    (path,) = DIST.glob("*.whl")
    return f"{path}[{extras}]" if extras else str(path)


def unpacked() -> Path:
    (path,) = WORK.glob("sdist/gphash-*/")
    return path


def build(stage: Stage) -> None:
    """Build both, and look at what is in them and whether they name one version."""
    stage.run(TOOLS / "python", "-m", "build", "--outdir", DIST, SOURCE)
    (path,) = DIST.glob("*.whl")
    version = path.name.split("-")[1]
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        told = archive.read(f"gphash-{version}.dist-info/METADATA").decode()
    strange = [name for name in names if not name.startswith(("gphash/", f"gphash-{version}.dist-info/"))]
    assert not strange, f"the wheel holds {strange}"
    relative = re.findall(r"\]\((?!\w+://|#)([^)]+)\)", told)
    assert not relative, f"on an index page, these lead nowhere: {relative}"
    assert "gphash/py.typed" in names, "the wheel has no gphash/py.typed"
    (path,) = DIST.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(WORK / "sdist", filter="data")
    assert (unpacked() / "tests" / "conftest.py").is_file(), "the sdist has no tests"
    assert f"\n## [{version}] - " in (SOURCE / "CHANGELOG.md").read_text(), f"CHANGELOG.md does not tell of {version}"
    assert f"\nversion: {version}\n" in (SOURCE / "CITATION.cff").read_text(), f"CITATION.cff is not of {version}"


def twine(stage: Stage) -> None:
    stage.run(TOOLS / "python", "-m", "twine", "check", "--strict", *DIST.iterdir())


def plain(stage: Stage) -> None:
    """The wheel alone; the stages that follow take the model and the collection that it makes."""
    stage.run(stage.environment(wheel()) / "python", CI / "extras.py", "none")


def readme(stage: Stage) -> None:
    """The README's examples, with the wheel alone."""
    stage.run(WORK / "plain" / "venv" / "bin" / "python", "-m", "doctest", "-o", "ELLIPSIS", SOURCE / "README.md")


def completion(stage: Stage) -> None:
    """Complete the name of a command and of an option as bash does."""
    script = """
        set -eu
        eval "$(gphash --show-completion)"
        complete -p gphash
        COMP_WORDS=(gphash dedu); COMP_CWORD=1; _gphash_completion gphash
        [[ "${COMPREPLY[*]}" == dedupe ]]
        COMP_WORDS=(gphash dedupe --min-cos); COMP_CWORD=2; _gphash_completion gphash
        [[ "${COMPREPLY[*]}" == --min-cosine ]]
    """
    programs = WORK / "plain" / "venv" / "bin"
    stage.run("bash", "--norc", "-c", script, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")


def typed(stage: Stage) -> None:
    """A program of a user's, checked against the installed wheel."""
    mypy = next(one for one in PROJECT["optional-dependencies"]["dev"] if one.startswith("mypy"))
    program = shutil.copy(CI / "typed_program.py", stage.folder)
    stage.run(stage.environment(wheel(), mypy) / "mypy", "--strict", "--config-file=", program)


def extra(stage: Stage) -> None:
    """The wheel with one extra, and what that is for."""
    shutil.copy(WORK / "plain" / "digits.gph", stage.folder)
    shutil.copytree(WORK / "plain" / "digits.gphash", stage.folder / "digits.gphash")
    name = stage.name.removeprefix("extra-")
    stage.run(stage.environment(wheel(name)) / "python", CI / "extras.py", name)


def container(stage: Stage) -> None:
    collection = WORK / "plain" / "digits.gphash"
    stage.run(sys.executable, "-m", "tests.containerfile", stage.folder / "root", collection, cwd=SOURCE)


def oldest(stage: Stage) -> None:
    """The oldest Python and the oldest packages that pyproject.toml allows."""
    lowest = ("--resolution", "lowest-direct", "--extra", "dev", "--python-version", OLDEST)
    pins = stage.folder / "oldest.txt"
    stage.run(TOOLS / "uv", "pip", "compile", "--quiet", *lowest, SOURCE / "pyproject.toml", "--output-file", pins)
    programs = stage.environment("--requirement", pins, python=OLDEST)
    stage.run(TOOLS / "uv", "pip", "install", "--python", programs / "python", "--no-deps", wheel())
    stage.run(programs / "python", *TESTS, *WITH_OLDEST, cwd=unpacked())
    shutil.copy(WORK / "plain" / "digits.gph", stage.folder)
    stage.run(programs / "python", CI / "extras.py", "cluster")


def sdist(stage: Stage) -> None:
    """Quick tests of the source distribution, from itself and against what is built from it."""
    programs = stage.environment(f"{unpacked()}[test]")
    stage.run(programs / "python", *TESTS, *OF_SDIST, cwd=unpacked())


def report(name: str, work: Callable[[Stage], None]) -> bool:
    """Run a stage and say how it ended, in how many seconds; whether it passed."""
    stage, began = Stage(name), time.monotonic()
    stage.folder.mkdir(parents=True, exist_ok=True)
    fault = ""
    try:
        work(stage)
    except (AssertionError, OSError, ValueError, subprocess.CalledProcessError) as error:
        last = stage.log.read_text(encoding="utf-8").splitlines()[-30:] if stage.log.exists() else []
        fault = "\n".join([f"{type(error).__name__}: {error}", *last, f"(all of it: {stage.log})"])
    print(f"{'FAILED' if fault else 'passed'}  {name:<16} {time.monotonic() - began:6.0f} s", flush=True)
    if fault:
        print(fault, flush=True)
    return not fault


def tools(stage: Stage) -> None:
    """What builds and installs; the only environment that is used again."""
    subprocess.run([sys.executable, "-m", "venv", TOOLS.parent], check=True)
    stage.run(TOOLS / "python", "-m", "pip", "install", "--quiet", "build", "twine", "uv")


def main(quick: bool) -> int:
    began = time.monotonic()
    shutil.rmtree(WORK, ignore_errors=True)
    LOGS.mkdir(parents=True)
    # Others need what these make.
    results = []
    for name, work in (("tools", tools), ("build", build), ("twine", twine), ("plain", plain)):
        results.append(report(name, work))
        if not results[-1]:
            break
    else:
        # What takes longest comes first; two at a time.
        stages = [] if quick else [("sdist-tests", sdist), ("oldest", oldest), ("container", container)]
        stages += [("readme", readme), ("completion", completion), ("typed", typed)]
        stages += [] if quick else [(f"extra-{name}", extra) for name in EXTRAS]
        with ThreadPoolExecutor(2) as pool:
            results += pool.map(lambda stage: report(*stage), stages)
    if PROJECT["urls"]["Repository"].startswith(PLACEHOLDER):
        print("note: Repository in pyproject.toml is still a placeholder; links on an index page lead nowhere")
    failed = results.count(False)
    print(f"{len(results) - failed} passed, {failed} failed, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
