"""Command dispatch: the first argument selects the command. An error is printed as one sentence on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pilot.lib.flags import FlagError
from pilot.lib.logging.log import scope
from pilot.lib.suggestion import did_you_mean
from pilot.lib.text import join_lines

Command = Callable[[Sequence[str]], int]


class Program(NamedTuple):
    """A program with subcommands.

    `commands` maps names to commands. `main` is the name of the command that has its own flags and --help. `no_command`
    is printed if no command is specified. The messages of exceptions in `errors` are printed to the user.
    """

    name: str
    commands: Mapping[str, Command]
    main: str
    no_command: str
    errors: tuple[type[Exception], ...]

    def run(self, argv: Sequence[str] | None) -> int:
        """Run one command and return the exit status: the command's own, 1 after an error, or 2 if there is no command.

        `argv` defaults to the arguments of the process.
        """
        arguments = list(sys.argv[1:] if argv is None else argv)
        if not arguments:
            print(self.no_command, end="", file=sys.stderr)
            return 2
        name, *rest = arguments
        command = self.commands.get(name)
        if command is None:
            return fail(f"unknown command {name!r} for {self.name}{self._suggest(arguments)}")
        try:
            return command(rest)
        except FlagError as error:
            return fail(f"{error}; {self.name} {name} --help shows its usage" if name == self.main else str(error))
        except self.errors as error:
            return fail(str(error))

    def _suggest(self, arguments: Sequence[str]) -> str:
        """Return a hint about the command that the user probably means."""
        if arguments[0].startswith("-"):
            return f"; flags follow the command: {self.name} {self.main} {' '.join(arguments)}"
        suggestion = did_you_mean(arguments[0], [name for name in self.commands if not name.startswith("-")])
        return f"{suggestion or ';'} {self.name} --help lists the commands"


def fail(text: str) -> int:
    """Print an error as one sentence, after the log, and return the exit status."""
    for handler in scope("default").handlers:
        handler.flush()
    print(f"Error: {join_lines(text)}", file=sys.stderr)
    return 1
