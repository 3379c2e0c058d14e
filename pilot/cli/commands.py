"""The commands of a program: one is chosen by the first argument, and what goes wrong is one sentence on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pilot.lib.flags import FlagError
from pilot.lib.text import one_line

Command = Callable[[Sequence[str]], int]


class Program(NamedTuple):
    """A program. `commands` are by name, and `main` is the one that has flags with a --help of their own; `no_command` is printed where none is
    given. `errors` are those whose text is for the user."""

    name: str
    commands: Mapping[str, Command]
    main: str
    no_command: str
    errors: tuple[type[Exception], ...]

    def run(self, argv: Sequence[str] | None) -> int:
        """Runs one command; returns the exit status: that of the command, 1 after one sentence, or 2 where no command is given. `argv` is
        that of the process where it is None."""
        arguments = list(sys.argv[1:] if argv is None else argv)
        if not arguments:
            print(self.no_command, end="", file=sys.stderr)
            return 2
        name, *rest = arguments
        command = self.commands.get(name)
        if command is None:
            return fail(f"unknown command {name!r} for {self.name}; {self.name} --help lists the commands")
        try:
            return command(rest)
        except FlagError as error:
            return fail(f"{error}; {self.name} {name} --help says how it is used" if name == self.main else str(error))
        except self.errors as error:
            return fail(str(error))


def fail(text: str) -> int:
    """Prints one sentence for the user; returns the exit status."""
    print(f"Error: {one_line(text)}", file=sys.stderr)
    return 1
