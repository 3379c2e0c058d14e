"""pilot-operator: installs and updates the control planes and gateways that IstioOperators specify."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from pilot.cli.commands import Command, Program, fail
from pilot.lib.build_info import build_info
from pilot.lib.flags import FlagError
from pilot.lib.logging import log
from pilot.lib.start_error import StartError
from pilot.operator.operator_settings import OperatorSettings
from pilot.settings.document import sections
from pilot.settings.parse import load_sections
from pilot.settings.usage import flag_sections

USAGE = """\
pilot-operator: installs and updates control planes and gateways as specified by IstioOperators

  pilot-operator server [FLAGS]     reconcile the IstioOperators in WATCH_NAMESPACE; --help lists the flags
  pilot-operator version            print the version
  pilot-operator collateral         print all flags and environment variables as Markdown
"""
HELP = frozenset({"--help", "-h"})
_log = log.scope("default")


def server(argv: Sequence[str]) -> int:
    """Reconcile until a signal arrives."""
    if not HELP.isdisjoint(argv):
        print(USAGE + flag_sections(OperatorSettings()), end="")
        return 0
    loaded = load_sections(OperatorSettings(), argv, os.environ)
    logs = loaded.settings.log
    try:
        log.configure(logs.output_level, logs.as_json, logs.targets)
    except ValueError as error:
        raise FlagError(str(error)) from error
    for warning in loaded.warnings:
        _log.warning("%s", warning)
    from pilot.operator.operator_process import run

    try:
        run(loaded.settings, os.environ)
    except OSError as error:
        return fail(f"cannot start: {error.strerror or error}")
    return 0


def version(_: Sequence[str]) -> int:
    print(build_info())
    return 0


def collateral(_: Sequence[str]) -> int:
    print(sections(OperatorSettings()), end="")
    return 0


def help_(_: Sequence[str]) -> int:
    print(USAGE, end="")
    return 0


COMMANDS: dict[str, Command] = {
    "server": server,
    "version": version,
    "collateral": collateral,
    "help": help_,
    "--help": help_,
    "-h": help_,
}


PROGRAM = Program("pilot-operator", COMMANDS, "server", USAGE, (StartError,))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status."""
    return PROGRAM.run(argv)


if __name__ == "__main__":
    sys.exit(main())
