"""The help of every command of pilotctl: its options, their defaults, and what is said of them.

`pilotctl.txt` is what it is to be; `pytest tests/golden --rewrite` writes it again.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import click
import pytest

from pilot.cli.pilotctl import pilotctl

GOLDEN = pathlib.Path(__file__).with_name("pilotctl.txt")


def helps(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yields the help of a command and of those below it."""
    yield f"$ {context.command_path} --help\n{command.get_help(context)}\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from helps(inner, click.Context(inner, context, name))


def test_every_command_says_what_it_does(pytestconfig: pytest.Config) -> None:
    context = click.Context(pilotctl, info_name="pilotctl", terminal_width=120, **pilotctl.context_settings)
    found = "\n".join(helps(pilotctl, context))
    if pytestconfig.getoption("rewrite"):
        GOLDEN.write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8")
