"""Help texts of all pilotctl commands.

`pilotctl.txt` is the golden file; `pytest tests/golden --rewrite` regenerates it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import click
import pytest

from pilot.cli.pilotctl import pilotctl

GOLDEN = pathlib.Path(__file__).with_name("pilotctl.txt")


def helps(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the help of a command and its subcommands."""
    yield f"$ {context.command_path} --help\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from helps(inner, click.Context(inner, context, name))


def test_help_equals_the_golden_file(pytestconfig: pytest.Config) -> None:
    context = click.Context(pilotctl, info_name="pilotctl", terminal_width=120, **pilotctl.context_settings)
    text = "\n".join(helps(pilotctl, context))
    if pytestconfig.getoption("rewrite"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
