"""Arguments of all commands of pilotctl."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from pilot.cli.ctl.command import AliasGroup


@click.group(cls=AliasGroup)
def program() -> None:
    """Print the values of flags."""


@program.command()
@click.option("-w", "--wait", is_flag=True)
@click.option("--tcp", is_flag=True, default=None)
@click.option("--browser/--no-browser", default=True)
@click.option("--text", default="")
@click.argument("words", nargs=-1)
def show(wait: bool, tcp: bool | None, browser: bool, text: str, words: tuple[str, ...]) -> None:
    click.echo(f"{wait} {tcp} {browser} {text} {' '.join(words)}".strip())


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "False None True"),
        ("--wait=true --tcp=true --browser=true", "True True True"),
        ("--wait=false --tcp=false --browser=false", "False None False"),
        ("-w=1 --browser=F", "True None False"),
        ("--wait --wait=false", "False None True"),
        ("--wait=false --wait --no-browser --browser=true", "True None True"),
        ("--text=false a=b -- --wait=false", "False None True false a=b --wait=false"),
    ],
)
def test_flags_may_have_a_value(line: str, expected: str) -> None:
    result = CliRunner().invoke(program, ["show", *line.split()])
    assert result.output.strip() == expected


def test_other_values_of_flags_are_refused() -> None:
    result = CliRunner().invoke(program, ["show", "--wait=maybe"])
    assert result.exit_code == 2
    assert "Invalid value for '-w' / '--wait': 'maybe' is not a valid boolean" in result.stderr
