"""Output of pilotctl: plain text, tables, colours and watching."""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
import time
from importlib import import_module

import pytest
from rich.console import Console

from pilot.cli.ctl.output import (
    CommandResult,
    TextTable,
    fit,
    fold,
    render,
    say,
    shorten,
    show,
    table,
    watch,
    wrap,
    write,
)

ROWS = TextTable(("NAME", "STATE"), [("a", "SYNCED"), ("long name", 7)])
PLAIN = "NAME        STATE\na           SYNCED\nlong name   7\n"
proxy_status = import_module("pilot.cli.ctl.commands.proxy_status")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard output by a terminal with 60 columns."""
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    for name, value in {"TERM": "xterm", "COLUMNS": "60", "LINES": "20"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return screen


def test_output_is_plain_text_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    say(["head", ROWS, "foot"])
    assert capsys.readouterr().out == f"head\n{PLAIN}foot\n"
    assert table(("A",), []) == "A"
    with pytest.raises(ValueError, match="shorter"):
        table(("A", "B", "C"), [("a", "b", "c"), ("a", "b")])


def test_columns_are_shortened_in_order_and_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    part = TextTable(("NAME", "A", "B"), [("x" * 30, "a" * 30, "b" * 30), ("y" * 70,)])
    assert fit(part, [1, 2]) == part
    terminal(monkeypatch)
    assert fit(part, [1, 2]).rows == [["x" * 30, "a" * 7 + "…", "b" * 15 + "…"], ("y" * 70,)]
    assert fit(part, [2]).rows[0] == ["x" * 30, "a" * 30, "b" * 7 + "…"]
    assert shorten("z" * 70) == "z" * 59 + "…"


def test_terminal_output_is_styled_and_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = terminal(monkeypatch)
    say([f"[red]:tea: {'x' * 70}", ROWS])
    assert screen.getvalue().splitlines() == [
        f"[red]:tea: {'x' * 70}",
        "\x1b[1mNAME\x1b[0m        \x1b[1mSTATE\x1b[0m",
        "a           \x1b[32mSYNCED\x1b[0m",
        "long name   7",
    ]


@pytest.mark.parametrize(
    ("cell", "style"),
    [
        ("SYNCED", "32"),
        ("HEALTHY", "32"),
        ("ALLOWED", "32"),
        ("ok", "32"),
        ("STALE", "33"),
        ("NOT SENT", "33"),
        ("DEGRADED", "33"),
        ("warning", "33"),
        ("ERROR", "1;31"),
        ("UNHEALTHY", "31"),
        ("DENIED", "1;31"),
        ("error", "1;31"),
        ("synced", ""),
    ],
)
def test_state_colours(cell: str, style: str) -> None:
    screen = io.StringIO()
    console = Console(force_terminal=True, color_system="standard", width=40, file=screen)
    console.print(render(TextTable(("S",), [(cell,)])))
    assert screen.getvalue().splitlines()[1].rstrip() == (f"\x1b[{style}m{cell}\x1b[0m" if style else cell)


def test_unencodable_characters_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    for encoding, expected in (("ascii", b"tea \\u2714\n"), ("utf-8", "tea ✔\n".encode())):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
        write("tea ✔")
        assert raw.getvalue() == expected, "output is flushed at once"
    unknown = io.StringIO()  # no encoding
    monkeypatch.setattr(sys, "stdout", unknown)
    write("tea ✔")
    assert unknown.getvalue() == "tea ✔\n"


def test_machine_formats_keep_order_and_text(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"z": "é" + "x y " * 50, "a": [1, {"b": None}], "e": []}
    show(CommandResult(value, ["never"]), "json")
    assert capsys.readouterr().out == json.dumps(value, indent=4, ensure_ascii=False) + "\n"
    show(CommandResult(value, ["never"]), "yaml")
    assert capsys.readouterr().out == f"z: '{value['z']}'\na:\n- 1\n- b: null\ne: []\n"
    show(CommandResult(value, [ROWS]), "table")
    assert capsys.readouterr().out == PLAIN


def test_watch_repeats_output_below_dashes(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = itertools.count(1)

    def sleep(seconds: float) -> None:
        assert seconds == 2.5
        if next(rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        watch(lambda: ["head", ROWS], 2.5)
    assert capsys.readouterr().out == f"head\n{PLAIN}---\n" * 2


def test_watch_redraws_a_terminal_until_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = itertools.count(1)

    def sleep(_: float) -> None:
        if next(rounds) == 3:
            raise KeyboardInterrupt

    frames = itertools.count(1)
    monkeypatch.setattr(time, "sleep", sleep)
    screen = terminal(monkeypatch)
    watch(lambda: [f"round {next(frames)}"], 1.0)
    output = screen.getvalue()
    assert [f"round {n}" in output for n in (1, 2, 3, 4)] == [True, True, True, False]
    assert "\x1b[?1049h" in output, "an alternate screen"


def test_table_cells_escape_control_characters() -> None:
    assert table(("A", "B"), [("x\ny\x1b[2J", os.fsdecode(b"\xe9"))]) == "A             B\nx\\ny\\x1b[2J   \\xe9"


def test_terminal_table_keeps_long_cells() -> None:
    screen = io.StringIO()
    console = Console(force_terminal=True, color_system="standard", width=40, file=screen)
    console.print(render(TextTable(("NAME", "CDS"), [("x" * 50, "SYNCED"), ("y\x1b[2J", "ERROR")])))
    output = screen.getvalue()
    assert "\x1b[32mSYNCED" in output
    assert "\x1b[1;31mERROR" in output
    assert output.count("x") - output.count("\\x") == 50
    assert "\x1b[2J" not in output


def test_cells_of_a_wide_column_continue_in_further_rows_and_words_stay_whole() -> None:
    host = "x" * 130
    part = wrap(TextTable(("NAME", "HOSTS"), [("a", "word " * 40), ("b", f"first {host}")]), 1)
    assert [len(str(row[1])) <= 120 for row in part.rows] == [True, True, True, False]
    assert [row[0] for row in part.rows] == ["a", "", "b", ""]
    assert part.rows[3][1] == host
    assert fold(f"{'word ' * 30}{host}", "", "  ").splitlines()[-1] == f"  {host}"
