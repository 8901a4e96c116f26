"""Starting: help answers at once, names cost nothing, the package is what it was for whoever imports it."""

import subprocess
import sys
from importlib import metadata

import pytest

import gphash
from gphash.cli import comparing, options, outputs, shown
from gphash.data.known import data_sets
from gphash.evaluation import protocol
from gphash.hashers import methods
from gphash.paper import published
from gphash.paper import reproduce as reproducing
from tests.cli.running import COMMAND, ENVIRONMENT, inside

COMMANDS = (
    "fit", "evaluate", "suggest", "export", "index", "add", "remove", "compact", "encode", "search", "dedupe", "serve",
    "store", "fetch", "drop", "info", "data", "compare", "reproduce", "demo",
)  # fmt: skip
HEAVY = ("numpy", "scipy", "sklearn", "numba", "matplotlib", "PIL", "fastapi", "uvicorn")


def loaded_after(code):
    script = f"{code}\nimport sys\nfound = [name for name in {HEAVY!r} if name in sys.modules]\nprint(found)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return found.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import gphash",
        "import gphash.cli.main",
        "from gphash.hashers.methods import METHODS; list(METHODS)",
        "from gphash.data.known.data_sets import DATA_SETS; list(DATA_SETS)",
        "from typer.testing import CliRunner; from gphash.cli.main import app; CliRunner().invoke(app, ['fit', '-h'])",
    ],
)
def test_names_and_help_import_nothing_heavy(code):
    assert loaded_after(code) == "[]"


def test_a_search_imports_neither_what_trains_nor_what_compiles(made):
    words = ["search", str(made / "digits.gphash"), "key:7"]
    code = "from typer.testing import CliRunner; from gphash.cli.main import app; "
    code += f"assert CliRunner().invoke(app, {words!r}).exit_code == 0"
    assert loaded_after(code) == "['numpy']"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name):
    found = inside(name, "--help")
    assert found.exit_code == 0
    assert f"gphash {name}" in found.stdout.split("Examples:")[1]
    assert "--debug" in found.stdout


def test_help_lists_all_commands_in_order():
    listed = inside("--help").stdout.split("Commands:")[1].split("\n\n")[0]
    assert [line.split()[0] for line in listed.splitlines() if line.startswith("  ")] == list(COMMANDS)


def test_the_package_offers_what_it_did():
    assert set(gphash.__all__) <= set(dir(gphash))
    for name in gphash.__all__:
        assert getattr(gphash, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        gphash.nothing  # noqa: B018


def test_methods_are_a_mapping_as_before():
    assert methods.METHODS["gph"] is gphash.GPHasher
    assert "svm" not in methods.METHODS
    assert [kind.__name__ for kind in methods.METHODS.values()][:2] == ["GPHasher", "HadamardRidge"]


def test_names_in_help_are_those_of_the_experiments():
    assert tuple(published.EXPERIMENTS) == comparing.EXPERIMENTS
    assert reproducing.MOST_SEEDS == comparing.MOST_SEEDS
    assert protocol.PROTOCOLS == comparing.PROTOCOLS


def test_the_installed_command_is_this_one():
    (found,) = (one for one in metadata.entry_points(group="console_scripts") if one.name == "gphash")
    assert found.value == "gphash.cli.main:main"


def test_completion_knows_methods_data_sets_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digital.npz").touch()
    (tmp_path / "disks").mkdir()
    assert list(options.complete_method("l")) == ["lfh", "lsh"]
    assert list(options.complete_data("di")) == ["digits", "digital.npz", "disks/"]
    assert list(options.complete_data("mnist:")) == ["mnist:train", "mnist:test"]
    shell = {
        **ENVIRONMENT,
        "_GPHASH_COMPLETE": "complete_bash",
        "COMP_WORDS": "gphash fit --method s",
        "COMP_CWORD": "3",
    }
    found = subprocess.run(COMMAND, env=shell, capture_output=True, text=True)
    assert found.stdout.split() == ["sdh", "spectral"]


@pytest.mark.parametrize(
    ("data", "stem"),
    [("digits", "digits"), ("cifar10:train", "cifar10"), ("a/cats.npz", "cats"), ("photos/", "photos")],
)
def test_files_are_called_after_the_data(data, stem):
    assert outputs.stem(data) == stem
    assert stem in data_sets.DATA_SETS or ":" not in data


def test_sizes_and_times_in_words():
    assert [shown.size(n) for n in (12, 1_200, 3_400_000, 5.6e9)] == ["12 bytes", "1.2 kB", "3.4 MB", "5.6 GB"]
    assert [shown.duration(s) for s in (0.24, 30, 600, 9000)] == ["0.2 s", "30 s", "10 min", "2.5 h"]


def test_a_meter_speaks_after_two_seconds_and_knows_what_is_left(monkeypatch, capsys):
    clock = iter([0.0, 0.0, 1.0, 12.0, 13.0, 24.0])
    monkeypatch.setattr(shown.time, "monotonic", lambda: next(clock, 99.0))
    meter = shown.Meter("reading")
    for done in (0, 10, 50, 60, 80):
        meter(done, 100)
    assert capsys.readouterr().err == "reading: 50 of 100, about 12 s left\nreading: 80 of 100, about 6.0 s left\n"
    monkeypatch.setattr(shown.manner, "quiet", True)
    shown.Meter("reading")(99, 100)
    assert capsys.readouterr().err == ""
