"""What the commands of pilotctl share: groups that import a command when it is used, and the options that many of them have."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click

from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.output import FORMATS, CommandResult, show

Function = TypeVar("Function", bound=Callable[..., Any])


class Section(NamedTuple):
    """Commands that help lists together. `commands` has, by name, the module and the attribute of each, as "module:attribute"."""

    title: str
    commands: Mapping[str, str]


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, so that one command does not wait for the libraries of the others."""

    def __init__(
        self, *arguments: Any, sections: Sequence[Section] = (), aliases: Mapping[str, str] | None = None, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self._sections = sections
        self._aliases = aliases or {}
        self._places = {name: place for section in sections for name, place in section.commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._places, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self._aliases.get(cmd_name, cmd_name)
        if name not in self._places:
            return super().get_command(ctx, name)
        module, _, attribute = self._places[name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the commands under the titles of their sections, with their aliases."""
        for section in self._sections:
            rows = [(self._shown(name), self._about(ctx, name)) for name in section.commands]
            with formatter.section(section.title):
                formatter.write_dl(rows)

    def _shown(self, name: str) -> str:
        return ", ".join([name, *(alias for alias, whole in self._aliases.items() if whole == name)])

    def _about(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=100) if command else ""


def asks(function: Function) -> Function:
    """Gives a command the option --address, and a Client as its first argument. The address of the group counts where the command has none."""

    @click.option(
        "--address", metavar="URL", help="monitoring port of the control plane; the same as before the command"
    )
    @functools.wraps(function)
    def command(address: str | None, **more: Any) -> Any:
        return function(PageClient(address or click.get_current_context().find_root().params["address"]), **more)

    return command  # type: ignore[return-value]


def answers(function: Function) -> Function:
    """Gives a command the option -o. Its function returns an Answer, which is printed in the form that the option names."""

    @click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMATS),
        default=FORMATS[0],
        show_default=True,
        help="form of what is printed",
    )
    @functools.wraps(function)
    def command(form: str, **more: Any) -> None:
        answer: CommandResult = function(**more)
        show(answer, form)

    return command  # type: ignore[return-value]
