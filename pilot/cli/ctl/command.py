"""Building blocks of pilotctl's commands: groups that import commands on demand, and shared options."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import click

from pilot.cli.ctl.connection import connect, with_connection
from pilot.cli.ctl.output import FORMATS, CommandResult, show
from pilot.cli.ctl.proxy_argument import resolve_proxy
from pilot.cli.ctl.replicas import exit_status, report_missing
from pilot.lib.suggestion import did_you_mean

Function = TypeVar("Function", bound=Callable[..., Any])

_EXTRA = "Got unexpected extra argument"
"""Beginning of click's error for arguments that a command does not take."""
_NOT_A_CHOICE = re.compile(r"'([^']*)' is not one of ")
_WORDS = "pilotctl.words"
"""Key of the arguments of pilotctl before --."""
_SELECTION = ("address", "istionamespace", "revision", "kubeconfig", "context")
"""Options of most commands, which select a cluster or a control plane."""
_MAX_OPTIONS = 20
"""Maximum number of options of a command that an error lists."""


class Section(NamedTuple):
    """Commands that are listed together in the help. `commands` maps each name to "module:attribute"."""

    title: str
    commands: Mapping[str, str]


class AliasGroup(click.Group):
    """A group that also accepts other names of its commands, as in istioctl. `aliases` maps them to names.

    `hints` are messages for commands and options that do not exist. "{arguments}" in a message about a command stands
    for the arguments that follow it. "COMMAND OPTION" is an option that one command of the group lacks
    or requires, and "COMMAND ARGUMENT" stands for arguments that it does not take.
    """

    def __init__(
        self,
        *arguments: Any,
        aliases: Mapping[str, str] | None = None,
        hints: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self.aliases = aliases or {}
        self.hints = hints or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names. The error for an unknown command suggests another one."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}{self._command_hint(ctx, args) or '.'}")
        resolved, command, rest = super().resolve_command(ctx, args)
        return resolved, command, rest if command is None else _plain_flags(ctx, command, rest)

    def _command_hint(self, ctx: click.Context, args: Sequence[str]) -> str:
        """Return a hint on the command that is meant by arguments, the first of which is no command."""
        if args[0] in self.hints:
            return f"; {self.hints[args[0]].format(arguments=shlex.join(args[1:]))}"
        names = [*self.list_commands(ctx), *self.aliases]
        if suggestion := did_you_mean(args[0], names):
            return suggestion
        if ctx.parent is None:
            words = list(itertools.takewhile(lambda word: not word.startswith("-"), args[1:]))
            swapped = [*ctx.command_path.split(), *words, args[0], *args[1 + len(words) :]]
            return f"; did you mean {shlex.join(swapped)}?" if words and words[0] in names else ""
        listed = self.list_commands(ctx)
        name = next((word for word in args if word in names), listed[0] if len(listed) == 1 else "")
        if name:
            rest = list(args)
            if name in rest:
                rest.remove(name)
            return f"; use {shlex.join([*ctx.command_path.split(), name, *rest])}"
        return f"; commands are {', '.join(listed)}"


class LazyGroup(AliasGroup):
    """A group whose commands are imported on demand, so that no command imports the dependencies of the others."""

    def __init__(self, *arguments: Any, sections: Sequence[Section] = (), **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._sections = sections
        self._places = {name: place for section in sections for name, place in section.commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._places, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = self.aliases.get(cmd_name, cmd_name)
        if name not in self._places:
            return super().get_command(ctx, name)
        module, _, attribute = self._places[name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_WORDS] = list(itertools.takewhile(lambda word: word != "--", args))
        with self._usage_hints():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with self._usage_hints():
            return super().invoke(ctx) or exit_status(ctx)

    @contextlib.contextmanager
    def _usage_hints(self) -> Iterator[None]:
        """Add what exists to the error for an option or argument that the group or one of its commands lacks.

        If one of the words asks for help, print the help of this command instead.
        """
        try:
            yield
        except (click.NoSuchOption, click.BadOptionUsage) as error:
            ctx = error.ctx
            if ctx is not None and not {*ctx.help_option_names}.isdisjoint(ctx.meta[_WORDS]):
                click.echo(ctx.get_help())
                ctx.exit()
            if not isinstance(error, click.NoSuchOption):
                raise
            hint = self.hints.get(error.option_name) or _command_hint(ctx, error.option_name)
            if not hint and not error.possibilities:
                hint = _describe_options(ctx, error.option_name)
            if not hint:
                raise
            raise click.UsageError(f"No such option '{error.option_name}'; {hint}", error.ctx) from error
        except click.MissingParameter as error:
            hint = _file_hint(error) or _command_hint(error.ctx, _longest_name(error.param))
            if not hint:
                raise
            raise click.UsageError(f"{error.format_message().removesuffix('.')}; {hint}", error.ctx) from error
        except click.BadParameter as error:
            if error.param is None or not isinstance(error.param.type, click.Choice):
                raise
            message = _with_suggestion(error.message, error.param.type.choices)
            raise click.BadParameter(message, error.ctx, error.param, error.param_hint) from error
        except click.UsageError as error:
            if not error.message.startswith(_EXTRA) or error.ctx is None:
                raise
            parts = error.message, _describe_arguments(error.ctx), _command_hint(error.ctx, "ARGUMENT")
            raise click.UsageError("; ".join(filter(None, parts)), error.ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands and their aliases, grouped under the titles of their sections."""
        for section in self._sections:
            rows = [(self._label(name), self._short_help(ctx, name)) for name in section.commands]
            with formatter.section(section.title):
                formatter.write_dl(rows)

    def _label(self, name: str) -> str:
        return ", ".join([name, *(alias for alias, whole in self.aliases.items() if whole == name)])

    def _short_help(self, ctx: click.Context, name: str) -> str:
        command = self.get_command(ctx, name)
        return command.get_short_help_str(limit=100) if command else ""


def _plain_flags(ctx: click.Context, command: click.Command, words: list[str]) -> list[str]:
    """Return the arguments of a command without the values of flags: --wait for --wait=true.

    For --wait=false, return --no-wait, or remove --wait if there is no such option. Raise BadParameter for another
    value.
    """
    flags = {
        name: option
        for option in command.params
        if isinstance(option, click.Option) and option.is_bool_flag
        for name in option.opts
    }
    plain: list[str] = []
    for index, word in enumerate(words):
        if word == "--":
            return plain + words[index:]
        name, equals, value = word.partition("=")
        option = flags.get(name) if equals else None
        if option is None:
            plain.append(word)
        elif click.BOOL.convert(value, option, ctx):
            plain.append(name)
        else:
            plain = [*(one for one in plain if one not in option.opts), *option.secondary_opts[:1]]
    return plain


def _longest_name(parameter: click.Parameter | None) -> str:
    return max(parameter.opts, key=len) if parameter is not None else ""


def _command_hint(ctx: click.Context | None, option: str) -> str:
    """Return the hint of a group for an option that one of its commands lacks or requires, or "" if there is none."""
    group = ctx.parent.command if ctx is not None and ctx.parent is not None else None
    return group.hints.get(f"{ctx.command.name} {option}", "") if ctx and isinstance(group, AliasGroup) else ""


def _describe_options(ctx: click.Context | None, unknown: str) -> str:
    """Return a line with the options of a command, without those that select a cluster or a control plane."""
    if ctx is not None and ctx.parent is not None and isinstance(ctx.command, click.Group):
        return f"options follow the command: {ctx.command_path} COMMAND {unknown}"
    options = ctx.command.params if ctx is not None else ()
    names = [max(one.opts, key=len) for one in options if isinstance(one, click.Option) and one.name not in _SELECTION]
    return f"options are {', '.join(sorted(names))}" if 0 < len(names) <= _MAX_OPTIONS else ""


def _file_hint(error: click.MissingParameter) -> str:
    """Return how to name a file with the option that is missing, or "" if none of the words is a file."""
    words = error.ctx.meta[_WORDS] if error.ctx is not None else ()
    path = next((word for word in words if os.path.isfile(word)), "")
    is_for_files = isinstance(error.param, click.Option) and "--filename" in error.param.opts
    return f"use -f {path}" if is_for_files and path else ""


def _with_suggestion(message: str, choices: Iterable[str]) -> str:
    """Return the error for a word that is none of some choices, with the most similar of them."""
    match = _NOT_A_CHOICE.match(message)
    suggestion = did_you_mean(match[1], map(str, choices)) if match is not None else ""
    return f"{message.removesuffix('.')}{suggestion}" if suggestion else message


def _describe_arguments(ctx: click.Context) -> str:
    """Return a line with the arguments of a command, and its option for a namespace."""
    parameters = ctx.command.params
    arguments = " ".join(one.make_metavar(ctx) for one in parameters if isinstance(one, click.Argument))
    namespace = "; -n NAMESPACE sets the namespace" if any("-n" in one.opts for one in parameters) else ""
    has_settings = any("--set" in one.opts for one in parameters)
    settings = "; --set PATH=VALUE sets a setting, such as profile=demo" if has_settings else ""
    return f"{ctx.command_path} takes {arguments or 'no arguments'}{namespace}{settings}"


def with_client(function: Function) -> Function:
    """Add the options that select a control plane to a command, and pass it Replicas as the first argument.

    The options override those of the top-level group. An argument PROXY that names a workload is replaced by the name
    of a proxy. Replicas that do not answer are named at the end.
    """

    @with_connection
    @functools.wraps(function)
    def command(**more: Any) -> Any:
        if more.get("proxy") == "":  # for example, because a variable of the shell is not set
            raise click.BadParameter("it is empty; use POD.NAMESPACE or part of it", param_hint="'PROXY'")
        control_plane = connect(click.get_current_context())
        try:
            if proxy := more.get("proxy"):
                namespace = more.get("proxy_namespace", more.get("namespace"))
                more["proxy"] = resolve_proxy(control_plane, proxy, namespace or "")
            return function(control_plane, **more)
        finally:
            report_missing(control_plane)

    return command  # type: ignore[return-value]


def with_output(function: Function) -> Function:
    """Add the option -o to a command, and print the CommandResult that it returns in the selected format."""

    @click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMATS),
        default=FORMATS[0],
        show_default=True,
        help="output format",
    )
    @functools.wraps(function)
    def command(form: str, **more: Any) -> None:
        result: CommandResult = function(**more)
        show(result, form)
        if result.status:
            click.get_current_context().exit(result.status)

    return command  # type: ignore[return-value]
