"""What is shown of names that users chose: every character as it is."""

import io

import pytest

from gphash.cli import shown

NAMES = ["cifar10:train", "a:train:b", ":smile:", "[bold]x[/bold]", "[/]", "x[red]", "a:1234"]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.mark.parametrize("tell", [shown.say, shown.remark, shown.note, shown.complain])
def test_lines_are_shown_as_they_are(tell, name, capsys):
    tell(f"reading {name}: now")
    found = capsys.readouterr()
    assert (found.out + found.err).removeprefix("gphash: ") == f"reading {name}: now\n"


def test_tables_are_shown_as_they_are(name, capsys):
    shown.table(("class", name), [(name, "1")])
    assert capsys.readouterr().out.count(name) == 2


def test_bars_are_shown_as_they_are(name, monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(shown, "err", shown.console(file=written, force_terminal=True, width=200))
    monkeypatch.setattr(shown, "PATIENCE", -1.0)
    with shown.Meter(f"reading {name}") as meter:
        meter(1, 2)
    assert f"reading {name}" in written.getvalue()


def test_progress_without_a_terminal_is_shown_as_it_is(name, monkeypatch, capsys):
    monkeypatch.setattr(shown, "PATIENCE", -1.0)
    monkeypatch.setattr(shown, "PAUSE", -1.0)
    with shown.Meter(f"reading {name}") as meter:
        meter(1, 2)
    assert f"reading {name}: 1 of 2" in capsys.readouterr().err
